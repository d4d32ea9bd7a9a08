"""Small widgets that the whole window shares."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QFrame,
    QLabel,
    QLayout,
    QLayoutItem,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from app.colours import Colours, colours
from app.icons import icon, pixmap

Tint = Callable[[Colours], str]


def label(text: str = "", role: str = "", *, wrap: bool = False, select: bool = False) -> QLabel:
    """A plain-text label; `role` is a role of the style sheet ("secondary", "heading", ...)."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(wrap)
    if role:
        made.setProperty("role", role)
    if select:
        made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return made


def set_property(widget: QWidget, name: str, value: object) -> None:
    """Set a property that style rules depend on, and have the rules applied again."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def rule() -> QFrame:
    """A hairline across."""
    line = QFrame()
    line.setObjectName("rule")
    line.setFixedHeight(1)
    return line


def shortcut_text(*sequences: QKeySequence) -> str:
    """How the platform writes the first of `sequences`."""
    return sequences[0].toString(QKeySequence.SequenceFormat.NativeText) if sequences else ""


class IconButton(QToolButton):
    """A button of one icon, with a name for screen readers and a tooltip that tells its shortcut."""

    def __init__(
        self,
        icon_name: str,
        name: str,
        shortcut: QKeySequence | None = None,
        tint: Tint | None = None,
        size: int = 18,
    ) -> None:
        super().__init__()
        self._icon_name = icon_name
        self._tint: Tint = tint or (lambda c: c.secondary)
        self._size = size
        self.setIconSize(QSize(size, size))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.describe(name, shortcut)
        self._draw()

    def describe(self, name: str, shortcut: QKeySequence | None = None) -> None:
        """Say what the button does."""
        self.setAccessibleName(name)
        self.setToolTip(f"{name}  {shortcut_text(shortcut)}" if shortcut else name)

    def show_icon(self, icon_name: str) -> None:
        """Show another icon."""
        if icon_name != self._icon_name:
            self._icon_name = icon_name
            self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Tint again when the palette changes."""
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()
        super().changeEvent(event)

    def _draw(self) -> None:
        now = colours()
        self.setIcon(icon(self._icon_name, self._tint(now), self._size, disabled=now.secondary))


class IconLabel(QLabel):
    """A tinted icon that is not a button; `height` makes it as tall as the line it stands in."""

    def __init__(self, icon_name: str, tint: Tint, size: int = 16, height: int = 0) -> None:
        super().__init__()
        self._icon_name, self._tint, self._size = icon_name, tint, size
        self.setFixedSize(size, height or size)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Tint again when the palette changes."""
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()
        super().changeEvent(event)

    def _draw(self) -> None:
        self.setPixmap(pixmap(self._icon_name, self._tint(colours()), self._size))


def button(text: str, kind: str = "") -> QPushButton:
    """A push button; `kind` is a kind of the style sheet ("primary", "link", "small")."""
    made = QPushButton(text)
    made.setCursor(Qt.CursorShape.PointingHandCursor)
    made.setAutoDefault(False)
    if kind:
        made.setProperty("kind", kind)
    return made


class ElidedLabel(QLabel):
    """One line of plain text that ends in an ellipsis where it does not fit."""

    def __init__(
        self,
        text: str = "",
        role: str = "",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
    ) -> None:
        super().__init__(text)
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setMinimumWidth(24)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        if role:
            self.setProperty("role", role)

    def minimumSizeHint(self) -> QSize:
        """Narrower than the text: that is what eliding is for."""
        return QSize(24, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        shown = self.fontMetrics().elidedText(self.text(), self._mode, self.width())
        painter.drawText(self.rect(), int(self.alignment() | Qt.AlignmentFlag.AlignVCenter), shown)
        painter.end()


class LineButton(QAbstractButton):
    """A line of secondary text that can be pressed; it elides where it does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """The whole line."""
        metrics = QFontMetrics(self._small_font())
        return QSize(metrics.horizontalAdvance(self.text()) + 2, metrics.height() + 8)

    def minimumSizeHint(self) -> QSize:
        """Narrower than the text: that is what eliding is for."""
        return QSize(40, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits, darker and underlined when it would be pressed."""
        near = self.underMouse() or self.hasFocus()
        now = colours()
        font = self._small_font()
        font.setUnderline(near)
        painter = QPainter(self)
        painter.setFont(font)
        painter.setPen(QColor(now.text if near else now.secondary))
        shown = QFontMetrics(font).elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), shown)
        painter.end()

    def _small_font(self) -> QFont:
        font = QFont(self.font())
        font.setPixelSize(round(self.font().pixelSize() * 12 / 14))
        return font


class FlowLayout(QLayout):
    """Lays its items out in rows, each as wide as it wants, wrapping where the width ends."""

    def __init__(self, spacing: int = 8) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self.setSpacing(spacing)
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem, /) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def count(self) -> int:
        """How many items there are."""
        return len(self._items)

    def itemAt(self, index: int, /) -> QLayoutItem | None:
        """The item at `index`, None outside."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int, /) -> QLayoutItem | None:
        """Remove and return the item at `index`."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def hasHeightForWidth(self) -> bool:
        """Narrower is taller."""
        return True

    def heightForWidth(self, width: int, /) -> int:
        """Height of all rows at `width`."""
        return self._arrange(QRect(0, 0, width, 0), move=False)

    def sizeHint(self) -> QSize:
        """As small as may be."""
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        """The widest item."""
        result = QSize()
        for item in self._items:
            result = result.expandedTo(item.minimumSize())
        return result

    def setGeometry(self, rect: QRect, /) -> None:
        """Put the items into `rect`."""
        super().setGeometry(rect)
        self._arrange(rect, move=True)

    def _arrange(self, rect: QRect, move: bool) -> int:
        x, y, row = rect.x(), rect.y(), 0
        for item in self._items:
            if item.isEmpty():
                continue
            wanted = item.sizeHint()
            wanted.setWidth(min(wanted.width(), max(rect.width(), item.minimumSize().width())))
            if row and x + wanted.width() > rect.right() + 1:
                x, y, row = rect.x(), y + row + self.spacing(), 0
            if move:
                item.setGeometry(QRect(QPoint(x, y), wanted))
            x += wanted.width() + self.spacing()
            row = max(row, wanted.height())
        return y + row - rect.y()
