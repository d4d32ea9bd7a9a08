"""Lucide icons, tinted with a colour of the palette and drawn at twice their size."""

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.resources import ICONS

_SCALE = 2


@lru_cache(maxsize=256)
def pixmap(name: str, colour: str, size: int) -> QPixmap:
    """The icon `name` in `colour` ("#rrggbb"), `size` device-independent pixels square.

    A name that ends in "-filled" is that icon with its shapes filled.
    """
    filled = name.endswith("-filled")
    svg = (ICONS / f"{name.removesuffix('-filled')}.svg").read_text(encoding="utf-8")
    if filled:
        svg = svg.replace('fill="none"', 'fill="currentColor"')
    svg = svg.replace("currentColor", colour)
    image = QPixmap(QSize(size, size) * _SCALE)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    QSvgRenderer(QByteArray(svg.encode())).render(painter, QRectF(image.rect()))
    painter.end()
    image.setDevicePixelRatio(_SCALE)
    return image


def icon(name: str, colour: str, size: int = 18, disabled: str | None = None) -> QIcon:
    """A QIcon of `pixmap`; `disabled` is the colour while its button is disabled."""
    made = QIcon(pixmap(name, colour, size))
    if disabled is not None:
        made.addPixmap(pixmap(name, disabled, size), QIcon.Mode.Disabled)
    return made
