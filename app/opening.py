"""Files that the system opens with the app: dropped on its icon, or "Open With"."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QFileOpenEvent

Opener = Callable[[list[Path]], None]


class FileOpener(QObject):
    """Takes the system's requests to open files, and keeps those that come before the window is there."""

    def __init__(self, application: QObject) -> None:
        super().__init__(application)
        self._waiting: list[Path] = []
        self._opener: Opener | None = None
        application.installEventFilter(self)

    def deliver_to(self, opener: Opener) -> None:
        """Give `opener` what has come so far, and everything from now on."""
        self._opener = opener
        self.open([])

    def open(self, paths: list[Path]) -> None:
        """Open `paths` now, or as soon as there is a window."""
        self._waiting += paths
        if self._opener is not None and self._waiting:
            paths, self._waiting = self._waiting, []
            self._opener(paths)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take requests to open a local file; everything else goes its way."""
        if isinstance(event, QFileOpenEvent) and event.file():
            self.open([Path(event.file())])
            return True
        return False
