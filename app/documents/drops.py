"""Files dropped anywhere on the window."""

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QDropEvent, QFont, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.colours import colours, tinted
from app.theme import scaled


def local_files(data: QMimeData) -> list[Path]:
    """The files on this machine that `data` names, in order."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]


class DropArea(QObject):
    """Makes all of `window` accept files and text.

    Signals:
        files_dropped: a list of `Path`s.
        text_dropped: a text that was not a file.
    """

    files_dropped = Signal(object)
    text_dropped = Signal(str)

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._veil = _Veil(window)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take drags over the window; everything else goes its way."""
        if event.type() == QEvent.Type.DragLeave:
            self._veil.hide()
        elif isinstance(event, QDropEvent):  # enter and move events are of this class too
            return self._on_drag(event)
        return super().eventFilter(watched, event)

    def _on_drag(self, event: QDropEvent) -> bool:
        data = event.mimeData()
        files = local_files(data)
        if not files and not data.hasText():
            return False
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()
        if event.type() != QEvent.Type.Drop:
            self._veil.cover(bool(files))
            return True
        self._veil.hide()
        if files:
            self.files_dropped.emit(files)
        else:
            self.text_dropped.emit(data.text())
        return True


class _Veil(QWidget):
    """Says, over the whole window, what letting go will do."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._files = True
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def cover(self, files: bool) -> None:
        """Show over the window."""
        self._files = files
        self.setGeometry(self.window().rect())
        self.raise_()
        self.show()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Dim the window, draw a frame and one sentence."""
        now = colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), tinted(now.page, 0.93))
        painter.setPen(QPen(tinted(now.accent, 0.5), 1.5))
        painter.setBrush(tinted(now.accent, 0.05))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(16, 16, -16, -16), 12, 12)
        font = self.font()
        font.setPixelSize(scaled(20))
        font.setWeight(QFont.Weight.DemiBold)
        painter.setFont(font)
        painter.setPen(QColor(now.text))
        text = (
            self.tr("Drop to attach") if self._files else self.tr("Drop to put the text into your question")
        )
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, text)
        painter.end()
