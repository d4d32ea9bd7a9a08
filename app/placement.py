"""Where the window was when it was last closed, and whether that place still exists."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QRect, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.services import Services
from app.settings.preferences import WINDOW

REACHABLE = (120, 40)
"""So much of the window's top must be on a screen, in pixels, for a hand to get hold of it."""


def placed(wanted: QRect, screens: Sequence[QRect], smallest: tuple[int, int]) -> QRect:
    """`wanted`, or the nearest to it that can be used on `screens`, of which the first is the main one."""
    if not screens:
        return wanted
    top = QRect(wanted.x(), wanted.y(), wanted.width(), REACHABLE[1])

    def seen(screen: QRect) -> int:
        common = screen.intersected(top)
        return common.width() if common.height() >= REACHABLE[1] else 0

    screen = max(screens, key=seen)
    found = seen(screen) >= REACHABLE[0]
    result = QRect(wanted)
    result.setWidth(max(smallest[0], min(wanted.width(), screen.width())))
    result.setHeight(max(smallest[1], min(wanted.height(), screen.height())))
    if not found:
        result.moveCenter(screens[0].center())
        result.moveTo(max(result.x(), screens[0].x()), max(result.y(), screens[0].y()))
    return result


class Placement(QObject):
    """Puts `window` where it was and remembers where it is when it closes."""

    def __init__(self, window: QWidget, services: Services) -> None:
        super().__init__(window)
        self._window = window
        self._services = services
        self._restore()
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Remember, on the way out."""
        if event.type() == QEvent.Type.Close:
            self._remember()
        return False

    def _restore(self) -> None:
        stored = self._services.preferences.get(WINDOW)
        if stored is None:
            return
        x, y, width, height, maximized = stored
        least = self._window.minimumSize()
        main = QGuiApplication.primaryScreen()
        screens = sorted(QGuiApplication.screens(), key=lambda screen: screen is not main)
        areas = [screen.availableGeometry() for screen in screens]
        place = placed(QRect(x, y, width, height), areas, (least.width(), least.height()))
        self._window.resize(place.size())
        self._window.move(place.topLeft())
        if maximized:
            self._window.setWindowState(self._window.windowState() | Qt.WindowState.WindowMaximized)

    def _remember(self) -> None:
        window = self._window
        away = window.isMaximized() or window.isFullScreen()
        size = window.normalGeometry() if away else QRect(window.pos(), window.size())
        self._services.store(WINDOW, (size.x(), size.y(), size.width(), size.height(), int(away)))
