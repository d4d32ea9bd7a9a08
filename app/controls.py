"""Controls that Qt draws differently on each system: a switch and a row of choices."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QFrame, QHBoxLayout, QToolButton

from app.colours import colours, tinted

T = TypeVar("T")


class Switch(QAbstractButton):
    """On or off, as on a Mac."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setCheckable(True)
        self.setAccessibleName(name)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(self.sizeHint())

    def sizeHint(self) -> QSize:
        """Always the same."""
        return QSize(36, 22)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw groove and knob, and a ring while it has the focus."""
        now = colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(tinted(now.accent, 0.6) if self.hasFocus() else Qt.PenStyle.NoPen)
        painter.setBrush(QColor(now.accent) if self.isChecked() else now.faint(0.22))
        groove = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        painter.drawRoundedRect(groove, groove.height() / 2, groove.height() / 2)
        radius = groove.height() / 2 - 2
        x = groove.right() - radius - 2 if self.isChecked() else groove.left() + radius + 2
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(now.on_accent if self.isChecked() else now.card))
        painter.drawEllipse(QPointF(x, groove.center().y()), radius, radius)
        painter.end()


class Choices(QFrame, Generic[T]):
    """A few exclusive choices side by side.

    Signals:
        picked: the user chose another one; read it from `value`.
    """

    picked = Signal()

    def __init__(self, name: str, choices: Sequence[tuple[T, str]], value: T) -> None:
        super().__init__()
        self.setObjectName("choices")
        self.setAccessibleName(name)
        self._values = [choice for choice, _ in choices]
        self._group = QButtonGroup(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(2, 2, 2, 2)
        row.setSpacing(2)
        for index, (choice, text) in enumerate(choices):
            segment = QToolButton()
            segment.setProperty("kind", "segment")
            segment.setText(text)
            segment.setCheckable(True)
            segment.setChecked(choice == value)
            segment.setCursor(Qt.CursorShape.PointingHandCursor)
            segment.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            self._group.addButton(segment, index)
            row.addWidget(segment)
        self._group.idClicked.connect(self.picked)

    @property
    def value(self) -> T:
        """The choice in force."""
        return self._values[self._group.checkedId()]

    def pick(self, value: T) -> None:
        """Choose as the user does."""
        self._group.button(self._values.index(value)).click()
