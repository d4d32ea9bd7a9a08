"""The mark: an orbit seen from the side, the moon at its nearest point."""

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QWidget

from app.colours import LIGHT, Colours, colours
from app.widgets import fix_size


def draw_mark(painter: QPainter, size: float, now: Colours) -> None:
    """Draw the mark into a square of `size` at the origin."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.save()
    painter.scale(size / 24, size / 24)
    painter.translate(12, 12)
    painter.rotate(-32)
    painter.setPen(QPen(QColor(now.text), 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawEllipse(QPointF(0, 0), 9.6, 7.6)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(now.text))
    painter.drawEllipse(QPointF(2.4, 0), 3.0, 3.0)
    painter.setBrush(QColor(now.accent))
    painter.drawEllipse(QPointF(9.6, 0), 2.3, 2.3)
    painter.restore()


class Mark(QWidget):
    """The mark as a widget."""

    def __init__(self, size: int = 22) -> None:
        super().__init__()
        fix_size(self, size, size)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw it in the colours in force."""
        painter = QPainter(self)
        draw_mark(painter, self.width(), colours())
        painter.end()


def window_icon() -> QIcon:
    """The mark on paper, for the window and the task switcher."""
    image = QPixmap(256, 256)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(LIGHT.page))
    painter.drawRoundedRect(8, 8, 240, 240, 54, 54)
    painter.translate(48, 48)
    draw_mark(painter, 160, LIGHT)
    painter.end()
    return QIcon(image)
