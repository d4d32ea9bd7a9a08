"""The two palettes of the window.

Widgets never store a colour: they ask `colours()` when they paint, which answers from the
application's palette in force, so a change of appearance needs no bookkeeping.
"""

from dataclasses import dataclass

from PySide6.QtGui import QColor, QGuiApplication, QPalette


@dataclass(frozen=True, slots=True)
class Colours:
    """One palette, every colour "#rrggbb". All text colours hold 4.5:1 on page, card and sidebar."""

    page: str
    sidebar: str
    card: str
    text: str
    secondary: str
    accent: str
    on_accent: str
    own: str
    good: str
    warning: str
    error: str

    def faint(self, share: float) -> QColor:
        """The text colour at `share` (0..1) opacity, for hairlines and hovered surfaces."""
        colour = QColor(self.text)
        colour.setAlphaF(share)
        return colour


LIGHT = Colours(
    page="#FBFAF7",
    sidebar="#F3F1EC",
    card="#FFFFFF",
    text="#1C1E22",
    secondary="#62656D",
    accent="#3652F0",
    on_accent="#FFFFFF",
    own="#ECEFFC",
    good="#1A7446",
    warning="#8F5A00",
    error="#B3261E",
)
DARK = Colours(
    page="#101318",
    sidebar="#0B0E12",
    card="#181C23",
    text="#E8E6E1",
    secondary="#9BA1AC",
    accent="#8EA2FF",
    on_accent="#101318",
    own="#1E2540",
    good="#5CC98F",
    warning="#E3B341",
    error="#FF8A80",
)


def colours() -> Colours:
    """The colours in force."""
    text = QGuiApplication.palette().color(QPalette.ColorRole.Text)
    return DARK if text.lightness() > 128 else LIGHT


def tinted(colour: str, share: float) -> QColor:
    """`colour` at `share` (0..1) opacity."""
    mixed = QColor(colour)
    mixed.setAlphaF(share)
    return mixed
