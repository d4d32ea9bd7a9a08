"""Appearance of the whole application: palette, fonts, measures, light and dark."""

import sys
from enum import StrEnum

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

from app.colours import DARK, LIGHT, Colours, tinted
from app.style import style_sheet

BODY_PIXELS = 14
COLUMN_WIDTH = 760
"""Width of the reading column, in device-independent pixels."""


def side_margin(width: int) -> int:
    """Space left and right of the reading column in a page of `width` pixels."""
    least = 32 if width >= 560 else 16
    return max(least, (width - COLUMN_WIDTH) // 2)


def scaled(pixels: float) -> int:
    """`pixels` at the usual text size, for the text size in force."""
    size = QApplication.font().pixelSize()
    return round(pixels * size / BODY_PIXELS) if size > 0 else round(pixels)


class Appearance(StrEnum):
    """What the user chose: follow the system, or one of the two."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


def body_font(scale: float = 1.0) -> QFont:
    """The interface font, 14 px at scale 1, with figures of equal width."""
    if sys.platform == "darwin":
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    else:
        font = QFont()
        font.setFamilies(["Inter", "Noto Sans", "DejaVu Sans"])
    font.setPixelSize(round(BODY_PIXELS * scale))
    font.setFeature(QFont.Tag("tnum"), 1)
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return font


def monospace_font(scale: float = 1.0) -> QFont:
    """The font of technical details, 12 px at scale 1."""
    font = QFont()
    font.setFamilies(["SF Mono", "Menlo", "JetBrains Mono", "DejaVu Sans Mono"])
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setPixelSize(round(12 * scale))
    return font


class Theme(QObject):
    """Applies the appearance to the whole application and follows the system's."""

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self._appearance = Appearance.SYSTEM
        self._scale = 1.0
        application.setStyle("Fusion")
        application.styleHints().colorSchemeChanged.connect(self._follow_system)

    @property
    def dark(self) -> bool:
        """Whether the dark palette is in force."""
        if self._appearance is Appearance.SYSTEM:
            return self._application.styleHints().colorScheme() is Qt.ColorScheme.Dark
        return self._appearance is Appearance.DARK

    def apply(self, appearance: Appearance, scale: float = 1.0) -> None:
        """Show `appearance` with text at `scale` (0.8 to 1.6)."""
        self._appearance = appearance
        self._scale = scale
        colours = DARK if self.dark else LIGHT
        self._application.setFont(body_font(scale))
        self._application.setPalette(_palette(colours))
        self._application.setStyleSheet(style_sheet(colours, scale))
        self.changed.emit()

    def _follow_system(self) -> None:
        if self._appearance is Appearance.SYSTEM:
            self.apply(self._appearance, self._scale)


def _palette(colours: Colours) -> QPalette:
    role = QPalette.ColorRole
    by_role = {
        role.Window: colours.page,
        role.WindowText: colours.text,
        role.Base: colours.card,
        role.AlternateBase: colours.sidebar,
        role.Text: colours.text,
        role.PlaceholderText: colours.secondary,
        role.Button: colours.card,
        role.ButtonText: colours.text,
        role.BrightText: colours.error,
        role.Highlight: colours.accent,
        role.HighlightedText: colours.on_accent,
        role.Link: colours.accent,
        role.LinkVisited: colours.accent,
        role.ToolTipBase: colours.card,
        role.ToolTipText: colours.text,
        role.Accent: colours.accent,
    }
    palette = QPalette()
    for where, colour in by_role.items():
        palette.setColor(where, QColor(colour))
    for where in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, where, tinted(colours.text, 0.4))
    # The shades Fusion draws frames with.
    palette.setColor(role.Mid, colours.faint(0.10))
    palette.setColor(role.Dark, colours.faint(0.16))
    palette.setColor(role.Shadow, colours.faint(0.10))
    return palette
