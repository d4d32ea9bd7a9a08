"""What stands in the place of an answer until its first word: waiting, then the prompt being read."""

from time import monotonic

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout

from app import wording
from app.chat.conversation import Turn
from app.chat.ruler import SliceBar
from app.widgets import ElidedLabel, button, label

TICK_MS = 250


class ReadingCard(QFrame):
    """One quiet card: what is read, a thin bar with the slices, numbers, Stop.

    Signals:
        stop_asked: Stop was pressed.
    """

    stop_asked = Signal()

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.setObjectName("card")
        self._turn = turn
        self._since = monotonic()
        self._seen = -1
        rows = QVBoxLayout(self)
        rows.setContentsMargins(16, 12, 12, 14)
        rows.setSpacing(8)
        top = QHBoxLayout()
        self._title = ElidedLabel()
        self._stop = button(self.tr("Stop"), "small")
        self._stop.setAccessibleName(self.tr("Stop reading"))
        self._stop.clicked.connect(self.stop_asked)
        top.addWidget(self._title, 1)
        top.addWidget(self._stop)
        rows.addLayout(top)
        self.bar = SliceBar(self.tr("How much is done"))
        rows.addWidget(self.bar)
        self.line = label("", "secondary", wrap=True)
        rows.addWidget(self.line)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()
        self.refresh()

    def refresh(self) -> None:
        """Show the turn as it is now."""
        turn = self._turn
        done = turn.progress.done if turn.progress else -1
        if done != self._seen:
            self._seen, self._since = done, monotonic()
        self._title.setText(self._what())
        self._stop.setEnabled(not turn.stopping)
        self._stop.setText(self.tr("Stopping…") if turn.stopping else self.tr("Stop"))
        self._tick()

    def _what(self) -> str:
        turn = self._turn
        match turn.waiting:
            case "model":
                return self.tr("Loading the model, {n} %; your question comes next").format(
                    n=wording.share(round(turn.loaded * 100), 100)
                )
            case "no_model":
                return self.tr("Waiting for a model: open a model folder to go on")
            case "document":
                return self.tr("Waiting for the document to be read from disk")
            case "turn":
                return self.tr("Waiting for the answer before this one")
            case _:
                pass
        names = ", ".join(attachment.name for attachment in turn.attachments)
        return self.tr("Reading {names}").format(names=names) if names else self.tr("Reading the question")

    def _tick(self) -> None:
        """Move between two slices too: the faint part of the bar and the time left are forecasts."""
        turn = self._turn
        total = turn.progress.total if turn.progress else turn.plan.tokens if turn.plan else 0
        loading = turn.state == "waiting" and turn.waiting == "model"
        self.bar.setVisible(loading or turn.state == "reading")
        if loading:
            self.bar.show_reading(100, round(turn.loaded * 100), 0, ())
        self.line.setVisible(total > 0)
        if total == 0:
            return
        plan, progress = turn.plan, turn.progress
        reused = plan.reused if plan else 0
        slices = plan.slices if plan else ()
        done = progress.done if progress else reused
        if progress is None:
            self.bar.show_reading(total, done, reused, slices)
            self.line.setText(wording.tokens(total))
            return
        waited = monotonic() - self._since
        end = next((end for start, end in slices if start <= done < end), done)
        ahead = min(done + waited * progress.tokens_per_second, float(end))
        left = None if progress.seconds_left is None else max(0.0, progress.seconds_left - waited)
        self.bar.show_reading(total, done, reused, slices, ahead)
        self.line.setText(wording.reading(progress, left))
