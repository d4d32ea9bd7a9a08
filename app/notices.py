"""The one channel on which anything tells the user something, and the bar that shows it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.colours import Colours
from app.layouts import FlowLayout
from app.theme import monospace_font, scaled, side_margin
from app.widgets import IconButton, IconLabel, Tint, button, label

INFO_SECONDS = 8
MOST_SHOWN = 4
LINE = 26
"""Height of a notice's first line and of what stands in it, in pixels."""


class Level(Enum):
    """How much a notice matters. Only `INFO` goes away by itself."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Choice:
    """A button of a notice; pressing it also puts the notice away."""

    text: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened and what to do; `detail` is technical and folds out."""

    level: Level
    message: str
    detail: str = ""
    choices: tuple[Choice, ...] = field(default=(), compare=False)


class Notices(QObject):
    """Anything may post; the window shows.

    Signals:
        posted: a `Notice` to show.
        withdrawn: a `Notice` that is settled.
    """

    posted = Signal(object)
    withdrawn = Signal(object)

    def info(self, message: str, *choices: Choice) -> Notice:
        """Say something that needs no answer."""
        return self._post(Notice(Level.INFO, message, choices=choices))

    def warning(self, message: str, *choices: Choice) -> Notice:
        """Say something the user should know of."""
        return self._post(Notice(Level.WARNING, message, choices=choices))

    def error(self, message: str, *choices: Choice, detail: str = "") -> Notice:
        """Say that something did not work and what to do."""
        return self._post(Notice(Level.ERROR, message, detail, choices))

    def withdraw(self, notice: Notice) -> None:
        """Take back a notice whose cause is gone."""
        self.withdrawn.emit(notice)

    def _post(self, notice: Notice) -> Notice:
        self.posted.emit(notice)
        return notice


_ICONS: dict[Level, tuple[str, Tint]] = {
    Level.INFO: ("info", lambda c: c.secondary),
    Level.WARNING: ("triangle-alert", lambda c: c.warning),
    Level.ERROR: ("circle-alert", lambda c: c.error),
}


def error_tint(now: Colours) -> str:
    """The colour of errors."""
    return now.error


class Details(QPlainTextEdit):
    """Technical text to read and copy."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.setObjectName("details")
        self.setAccessibleName(name)
        self.setReadOnly(True)
        self.setAcceptDrops(False)
        self.setFont(monospace_font())
        self.setTabChangesFocus(True)
        lines = min(9, text.count("\n") + 2)
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 16)


class NoticeCard(QFrame):
    """One notice: icon, message, its choices, a way to put it away.

    Signals:
        closed: it was put away.
    """

    closed = Signal()

    def __init__(self, notice: Notice, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.notice = notice
        self.setObjectName("notice")
        self.setAccessibleName(notice.message)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(12, 8, 8, 8)
        rows.setSpacing(4)
        row = QHBoxLayout()
        row.setSpacing(10)
        rows.addLayout(row)
        icon_name, tint = _ICONS[notice.level]
        top = Qt.AlignmentFlag.AlignTop
        row.addWidget(IconLabel(icon_name, tint, height=LINE), 0, top)
        text = label(notice.message, wrap=True, select=True)
        text.setContentsMargins(0, 4, 0, 4)
        row.addWidget(text, 1)
        ways = QWidget()
        ways_row = FlowLayout()
        ways.setLayout(ways_row)
        for choice in notice.choices:
            press = button(choice.text, "small")
            press.clicked.connect(choice.run)
            press.clicked.connect(self.closed)
            ways_row.addWidget(press)
        self._details = Details(notice.detail, self.tr("Details")) if notice.detail else None
        if self._details is not None:
            fold = button(self.tr("Details"), "small")
            fold.clicked.connect(self._fold)
            ways_row.addWidget(fold)
            self._details.hide()
        away = IconButton("x", self.tr("Dismiss"), size=14, box=LINE)
        away.clicked.connect(self.closed)
        row.addWidget(away, 0, top)
        under = QHBoxLayout()
        under.setContentsMargins(0, 0, 0, 4)
        under.addSpacing(scaled(16) + 10)  # under the message, beside the icon
        under.addWidget(ways, 1)
        rows.addLayout(under)
        ways.setVisible(ways_row.count() > 0)
        if self._details is not None:
            rows.addWidget(self._details)

    def _fold(self) -> None:
        if self._details is not None:
            self._details.setVisible(not self._details.isVisible())


class NoticeBar(QWidget):
    """The notices to be read, newest last; takes no room when there are none."""

    def __init__(self, notices: Notices, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cards: list[NoticeCard] = []
        self._rows = QVBoxLayout(self)
        self._rows.setSpacing(6)
        self.hide()
        notices.posted.connect(self.show_notice)
        notices.withdrawn.connect(self._withdraw)

    def cards(self) -> list[NoticeCard]:
        """The notices now shown, oldest first."""
        return self._cards.copy()

    def show_notice(self, notice: Notice) -> None:
        """Show `notice`; the same one is not shown twice."""
        self._withdraw(notice)
        for card in self.cards()[: max(0, len(self.cards()) - MOST_SHOWN + 1)]:
            self._remove(card)
        card = NoticeCard(notice, self)
        card.closed.connect(lambda: self._remove(card))
        self._rows.addWidget(card)
        self._cards.append(card)
        self.show()
        if notice.level is Level.INFO:
            timer = QTimer(card, singleShot=True, interval=INFO_SECONDS * 1000)
            timer.timeout.connect(card.closed)
            timer.start()
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(card, notice.message))

    def _withdraw(self, notice: Notice) -> None:
        for card in self.cards():
            if card.notice == notice:
                self._remove(card)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Stay as wide as the reading column."""
        super().resizeEvent(event)
        side = side_margin(self.width()) - 8
        self._rows.setContentsMargins(side, 8, side, 0)

    def _remove(self, card: NoticeCard) -> None:
        if card not in self._cards:
            return
        self._cards.remove(card)
        self._rows.removeWidget(card)
        card.hide()
        card.deleteLater()
        self.setVisible(bool(self.cards()))
