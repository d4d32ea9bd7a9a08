"""Small widgets that the whole window shares."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFont,
    QFontMetrics,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QFrame,
    QLabel,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from app.colours import Colours, colours
from app.icons import icon, pixmap
from app.theme import scaled

Tint = Callable[[Colours], str]
LOOK_CHANGES = (
    QEvent.Type.PaletteChange,
    QEvent.Type.FontChange,
    QEvent.Type.ApplicationFontChange,
    QEvent.Type.StyleChange,
)
"""Events after which colours or sizes may be others."""


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


class _Sizer(QObject):
    """Keeps the fixed size of one widget in step with the text size."""

    def __init__(self, widget: QWidget, width: int, height: int) -> None:
        super().__init__(widget)
        self._widget, self._size = widget, (width, height)
        self._fit()
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Fit again in another font."""
        if event.type() in LOOK_CHANGES:
            self._fit()
        return False

    def _fit(self) -> None:
        self._widget.setFixedSize(*(scaled(side) for side in self._size))


def fix_size(widget: QWidget, width: int, height: int) -> None:
    """Fix the size of `widget` to that of the usual text size, scaled with the text."""
    _Sizer(widget, width, height)


class IconButton(QToolButton):
    """A button of one icon, with a name for screen readers and a tooltip that tells its shortcut.

    `size` is that of the icon and `box` that of a button with a fixed size; both grow with the text.
    """

    def __init__(
        self,
        icon_name: str,
        name: str,
        shortcut: QKeySequence | None = None,
        tint: Tint | None = None,
        size: int = 18,
        box: int = 0,
    ) -> None:
        super().__init__()
        self._icon_name = icon_name
        self._tint: Tint = tint or (lambda c: c.secondary)
        self._size, self._box = size, box
        self._drawn: tuple[str, str, int] | None = None
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
        """Draw again in other colours or beside larger text."""
        if event.type() in LOOK_CHANGES:
            self._draw()
        super().changeEvent(event)

    def _draw(self) -> None:
        now = colours()
        wanted = (self._icon_name, self._tint(now), scaled(self._size))
        if wanted == self._drawn:
            return
        self._drawn = wanted
        self.setIconSize(QSize(wanted[2], wanted[2]))
        if self._box:
            self.setFixedSize(scaled(self._box), scaled(self._box))
        self.setIcon(icon(*wanted, disabled=now.secondary))


class QuietButton(IconButton):
    """An icon button that is drawn only where the pointer or the keyboard is.

    It is always there for a screen reader, for Tab and for a click; only its picture comes and goes.

    Signals:
        focus_changed: it got or lost the keyboard.
    """

    focus_changed = Signal()
    _near = False

    def show_near(self, near: bool) -> None:
        """Draw the button or do not."""
        if near != self._near:
            self._near = near
            self.update()

    @property
    def drawn(self) -> bool:
        """Whether it can be seen."""
        return self._near or self.hasFocus()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw it, if it is to be seen."""
        if self.drawn:
            super().paintEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Let its neighbours know."""
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Let its neighbours know."""
        super().focusOutEvent(event)
        self.focus_changed.emit()


class IconLabel(QLabel):
    """A tinted icon that is not a button; `height` makes it as tall as the line it stands in."""

    def __init__(self, icon_name: str, tint: Tint, size: int = 16, height: int = 0) -> None:
        super().__init__()
        self._icon_name, self._tint, self._size, self._height = icon_name, tint, size, height
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Draw again in other colours or beside larger text."""
        if event.type() in LOOK_CHANGES:
            self._draw()
        super().changeEvent(event)

    def _draw(self) -> None:
        size = scaled(self._size)
        self.setFixedSize(size, scaled(self._height) or size)
        self.setPixmap(pixmap(self._icon_name, self._tint(colours()), size))


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


_WRAPPED = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap)


class LineButton(QAbstractButton):
    """A line of secondary text that can be pressed; it goes on in a second one where it does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def show_text(self, text: str) -> None:
        """Show `text`."""
        self.setText(text)
        self._fit()
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        """The whole line."""
        width = QFontMetrics(self._small_font()).horizontalAdvance(self.text()) + 2
        return QSize(width, self.minimumHeight())

    def minimumSizeHint(self) -> QSize:
        """Narrower than the text: that is what wrapping is for."""
        return QSize(40, self.minimumHeight())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other widths wrap otherwise."""
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        """So do other fonts."""
        super().changeEvent(event)
        if event.type() in LOOK_CHANGES:
            self._fit()

    def _fit(self) -> None:
        """Be as tall as the text is at this width: fixed, since layouts that ask every line are slow."""
        box = QRect(0, 0, max(self.width(), 40), 10_000)
        text = QFontMetrics(self._small_font()).boundingRect(box, _WRAPPED, self.text())
        if text.height() + 8 != self.minimumHeight():
            self.setFixedHeight(text.height() + 8)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the text, darker and underlined when it would be pressed."""
        near = self.underMouse() or self.hasFocus()
        now = colours()
        font = self._small_font()
        font.setUnderline(near)
        painter = QPainter(self)
        painter.setFont(font)
        painter.setPen(QColor(now.text if near else now.secondary))
        painter.drawText(self.rect(), _WRAPPED, self.text())
        painter.end()

    def _small_font(self) -> QFont:
        font = QFont(self.font())
        font.setPixelSize(round(self.font().pixelSize() * 12 / 14))
        return font
