"""The application object: its name, and the files that the system opens with it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

Opener = Callable[[list[Path]], None]


class Application(QApplication):
    """Takes requests to open files (a drop on the Dock icon, "Open With"), early ones too.

    What comes before there is a window waits for it. An override of `event` sees only what is sent to the
    application itself; an event filter here would see every event of every widget.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(arguments)
        self._waiting: list[Path] = []
        self._opener: Opener | None = None

    def deliver_to(self, opener: Opener | None) -> None:
        """Give `opener` what has come so far, and everything from now on; None makes files wait again."""
        self._opener = opener
        self.open_files([])

    def open_files(self, paths: list[Path]) -> None:
        """Open `paths` now, or as soon as there is a window."""
        self._waiting += paths
        if self._opener is not None and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._opener(waiting)

    def event(self, event: QEvent, /) -> bool:
        """Take requests to open a local file; everything else goes its way."""
        if isinstance(event, QFileOpenEvent) and event.file():
            self.open_files([Path(event.file())])
            return True
        return super().event(event)
