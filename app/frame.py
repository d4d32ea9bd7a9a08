"""The window's two halves: side by side where there is room, the sidebar over the conversation elsewhere."""

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.colours import tinted

NARROW = 720
"""Below this width the sidebar does not stand beside the conversation."""


class Frame(QWidget):
    """Places the sidebar and the conversation.

    Where the window is narrow, the sidebar is closed until asked for, lies over the conversation, and
    goes away with Escape, with a click beside it, or once something in it was chosen.

    Signals:
        wanted_changed: the user wants the sidebar beside the conversation, or no longer.
        opened: the sidebar lies over the conversation now, and should have the keyboard.
    """

    wanted_changed = Signal(bool)
    opened = Signal()

    def __init__(self, sidebar: QWidget, main: QWidget, wanted: bool) -> None:
        super().__init__()
        self._sidebar, self._main = sidebar, main
        self._wanted = wanted
        self._open = False
        main.setParent(self)
        self._scrim = _Scrim(self)
        sidebar.setParent(self)
        self.arrange()

    @property
    def narrow(self) -> bool:
        """Whether the sidebar would lie over the conversation."""
        return self.width() < NARROW

    @property
    def over(self) -> bool:
        """Whether the sidebar lies over the conversation now."""
        return self.narrow and self._open

    def toggle(self) -> None:
        """Show the sidebar, or hide it."""
        if self.narrow:
            self._open = not self._open
        else:
            self._wanted = not self._wanted
            self.wanted_changed.emit(self._wanted)
        self.arrange()
        if self.over:
            self.opened.emit()

    def close_over(self) -> None:
        """Put a sidebar that lies over the conversation away."""
        if self._open:
            self._open = False
            self.arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other widths may need the other arrangement."""
        super().resizeEvent(event)
        if not self.narrow:
            self._open = False
        self.arrange()

    def event(self, event: QEvent, /) -> bool:
        """Escape belongs to the sidebar while it lies over the conversation, else to Stop."""
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Escape
            and self.over
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Escape puts the sidebar away."""
        if event.key() == Qt.Key.Key_Escape and self.over:
            self.close_over()
            return
        super().keyPressEvent(event)

    def arrange(self) -> None:
        """Give both halves their places."""
        shown = self._open if self.narrow else self._wanted
        width = min(self._sidebar.sizeHint().width(), self.width() - 48)
        beside = width if shown and not self.narrow else 0
        self._main.setGeometry(beside, 0, self.width() - beside, self.height())
        self._sidebar.setGeometry(0, 0, width, self.height())
        self._sidebar.setVisible(shown)
        self._scrim.setGeometry(self.rect())
        self._scrim.setVisible(self.over)


class _Scrim(QWidget):
    """Dims the conversation behind the sidebar; a click on it puts the sidebar away."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._frame = frame
        self.hide()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Close what lies over the conversation."""
        self._frame.close_over()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Dim."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), tinted("#000000", 0.36))
        painter.end()
