"""Exceptions nobody expected: to the terminal in full, and to the user as one notice."""

import sys
import threading
import traceback
from types import TracebackType

from PySide6.QtCore import QObject, Qt, Signal

from app.notices import Notices


class CrashReporter(QObject):
    """Shows unhandled exceptions of any thread; the app lives on.

    Signals:
        caught: the traceback's text; crosses to the GUI thread.
    """

    caught = Signal(str)

    def __init__(self, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._notices = notices
        self.caught.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def install(self) -> None:
        """Take over the hooks of the process."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        if issubclass(kind, Exception):
            self.caught.emit(text)

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            self._on_exception(args.exc_type, args.exc_value, args.exc_traceback)

    def _show(self, text: str) -> None:
        self._notices.error(
            self.tr("Something in Perigee did not work as it should. Your conversations are untouched."),
            detail=text,
        )
