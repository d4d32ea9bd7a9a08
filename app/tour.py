"""A scripted run of the main job in the real window: drop, ask, read, answer, receipt, pictures."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QEventLoop, QMimeData, QPoint, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QWidget

from app import wording
from app.chat import receipt_text
from app.chat.conversation import Turn
from app.resources import ROOT
from app.sample import Sample, read_sample
from app.services import Services
from app.theme import Appearance
from app.window import MainWindow

LIMIT_SECONDS = 300
PICTURE = ROOT / "build" / "tour.png"
"""Its dark counterpart is saved beside it."""


class TourFailedError(Exception):
    """The tour cannot go on; the message says why."""


def run_tour(window: MainWindow, services: Services, model: Path, picture: Path | None = None) -> int:
    """Run the tour; 0 if everything went as it should, else 1 with a message on the standard error."""
    tour = _Tour(window, services, picture or PICTURE)
    try:
        tour.run(model)
    except TourFailedError as failure:
        sys.stderr.write(f"The tour failed: {failure}\n")
        return 1
    finally:
        window.close()
    return 0


def drop_files(target: QWidget, paths: list[Path]) -> bool:
    """Drop files on `target` with the events a mouse would cause; whether they were accepted."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    where = target.rect().center()
    action, button, no_key = (
        Qt.DropAction.CopyAction,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    enter = QDragEnterEvent(QPoint(where), action, data, button, no_key)
    QApplication.sendEvent(target, enter)
    if not enter.isAccepted():
        return False
    QApplication.sendEvent(target, QDragMoveEvent(QPoint(where), action, data, button, no_key))
    drop = QDropEvent(QPointF(where), action, data, button, no_key)
    QApplication.sendEvent(target, drop)
    return drop.isAccepted()


class _Tour:
    def __init__(self, window: MainWindow, services: Services, picture: Path) -> None:
        self._window = window
        self._file = picture
        self._services = services
        self._deadline = time.monotonic() + LIMIT_SECONDS
        self._written = 0
        self._said = 0.0
        self._read_all = False
        services.runner.turn_changed.connect(self._on_turn)
        services.runner.text_arrived.connect(self._on_text)

    def run(self, model: Path) -> None:
        sample = read_sample()
        if sample is None:
            raise TourFailedError("resources/sample is missing.")
        self._services.theme.apply(Appearance.LIGHT)
        self._load(model)
        self._drop(sample)
        turn = self._ask(sample.question)
        self._check(turn, sample)
        self._picture(Appearance.LIGHT, self._file)
        self._picture(Appearance.DARK, self._file.with_stem(f"{self._file.stem}-dark"))

    def _load(self, model: Path) -> None:
        started = time.monotonic()
        _say(f"Loading {wording.model_name(model)}")
        keeper = self._services.model
        self._services.bridge.start()
        keeper.load(model)
        self._wait("the model to be loaded", lambda: keeper.status.kind in ("ready", "failed"))
        if keeper.status.error is not None:
            raise TourFailedError(keeper.status.error.message)
        if keeper.info is not None:
            info = keeper.info
            seconds = wording.duration(time.monotonic() - started)
            name = wording.model_name(info.folder)
            _say(f"{name} · {info.quantization} · {info.device}, ready after {seconds}")

    def _drop(self, sample: Sample) -> None:
        _say(f"Dropping {sample.document.name} on the window")
        if not drop_files(self._window.page.viewport(), [sample.document]):
            raise TourFailedError("the window did not accept the dropped file.")
        attachments = self._services.chat.current.attachments
        self._wait(
            "the document to be counted",
            lambda: all(a.state == "failed" or a.tokens is not None for a in attachments),
        )
        for attachment in attachments:
            if attachment.error is not None:
                raise TourFailedError(attachment.error.message)
            _say(f"{attachment.name}: {wording.tokens(attachment.tokens or 0)}")

    def _ask(self, question: str) -> Turn:
        editor = self._window.composer.editor
        for character in question:
            _press(editor, 0, character)
        _say(f"Asking: {question}")
        _press(editor, Qt.Key.Key_Return, "\r")
        turns = self._services.chat.current.turns
        self._wait("the question to be sent", lambda: bool(turns))
        self._wait("the answer", lambda: not turns[0].open)
        return turns[0]

    def _check(self, turn: Turn, sample: Sample) -> None:
        if self._written:
            sys.stdout.write("\n")
        if turn.error is not None:
            raise TourFailedError(f"{turn.error.message} {turn.error.detail}".strip())
        if turn.receipt is None or turn.stats is None or not turn.receipt.closed:
            raise TourFailedError("the receipt is not closed.")
        _say("")
        _say(receipt_text.as_text(turn.receipt, turn.stats))
        _say("")
        _say(wording.receipt_line(turn.receipt, turn.stats))
        if sample.answer not in turn.text:
            raise TourFailedError(f"the answer should hold “{sample.answer}”.")

    def _picture(self, appearance: Appearance, file: Path) -> None:
        self._services.theme.apply(appearance)
        settled = time.monotonic() + 0.5
        self._wait("the window to be drawn", lambda: time.monotonic() > settled)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not self._window.grab().save(str(file)):
            raise TourFailedError(f"{file} could not be written.")
        _say(f"Picture: {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}")

    def _wait(self, what: str, over: Callable[[], bool]) -> None:
        """Let the window live until `over`; the tour ends when its time is up."""
        loop = QEventLoop()
        timer = QTimer()
        timer.setInterval(20)
        timer.timeout.connect(lambda: loop.quit() if over() or self._late() else None)
        timer.start()
        loop.exec()
        timer.stop()
        if not over():
            raise TourFailedError(f"waited for {what} until the {LIMIT_SECONDS} s of the tour were over.")

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _on_turn(self, turn: Turn) -> None:
        """Print the reading's progress, at most once a second and once at its end."""
        progress = turn.progress
        if progress is None or self._read_all:
            return
        self._read_all = progress.done >= progress.total
        if self._read_all or time.monotonic() - self._said >= 1:
            self._said = time.monotonic()
            _say(f"Reading: {wording.reading(progress, progress.seconds_left)}")

    def _on_text(self, _turn: Turn, text: str) -> None:
        if not self._written:
            sys.stdout.write("\nAnswer: ")
        self._written += len(text)
        sys.stdout.write(text)
        sys.stdout.flush()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _press(target: QWidget, key: int, text: str) -> None:
    for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
        QApplication.sendEvent(target, QKeyEvent(kind, key, Qt.KeyboardModifier.NoModifier, text))
