"""Thin bars that show a prompt as its slices: while it is read, and as the receipt of an answer."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.colours import colours, tinted

Slices = tuple[tuple[int, int], ...]


class SliceBar(QWidget):
    """A prompt of `total` tokens: how far it is read, what was reused, where the slices end.

    `ahead` is how far the slice under way has probably got; it is drawn faintly, and never past the
    slice's end, because only whole slices are known to be read.
    """

    def __init__(self, name: str, thickness: int = 6) -> None:
        super().__init__()
        self._total = 0
        self._done = 0
        self._reused = 0
        self._ahead = 0.0
        self._slices: Slices = ()
        self._good = False
        self._thickness = thickness
        self.setAccessibleName(name)
        self.setFixedHeight(thickness)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_reading(self, total: int, done: int, reused: int, slices: Slices, ahead: float = 0.0) -> None:
        """Show a reading under way."""
        self._total, self._done, self._reused = total, done, reused
        self._slices, self._ahead, self._good = slices, ahead, False
        self.update()

    def show_receipt(self, total: int, done: int, reused: int, slices: Slices, closed: bool) -> None:
        """Show what was read in the end."""
        self._total, self._done, self._reused = total, done, reused
        self._slices, self._ahead, self._good = slices, 0.0, closed
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(240, self._thickness)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw groove, reused part, read part, the part probably read, and the slice marks."""
        now = colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        radius = self.height() / 2
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(self.rect()), radius, radius)
        painter.setClipPath(shape)
        painter.fillRect(self.rect(), now.faint(0.10))
        hue = now.good if self._good else now.accent
        strong = tinted(hue, 0.8 if self._good else 1.0)
        pale = tinted(hue, 0.4)
        self._fill(painter, self._done, self._ahead, tinted(hue, 0.3))
        self._fill(painter, self._reused, self._done, strong)
        self._fill(painter, 0, self._reused, pale)
        self._mark(painter, QColor(now.page))
        painter.end()

    def _x(self, token: float) -> float:
        return self.width() * token / self._total if self._total else 0.0

    def _fill(self, painter: QPainter, start: float, end: float, colour: QColor) -> None:
        if end > start:
            painter.fillRect(QRectF(self._x(start), 0, self._x(end) - self._x(start), self.height()), colour)

    def _mark(self, painter: QPainter, colour: QColor) -> None:
        if len(self._slices) * 4 > self.width():
            return  # marks closer than four pixels would hide what they mark
        painter.setPen(Qt.PenStyle.NoPen)
        for start, _ in self._slices:
            if start:
                painter.fillRect(QRectF(self._x(start) - 0.75, 0, 1.5, self.height()), colour)
