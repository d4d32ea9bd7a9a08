"""Everything behind the window, made once and handed to it."""

from typing import TypeVar

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from app.bridge import EngineBridge
from app.chat.controller import ChatController
from app.chat.meter import TokenMeter
from app.chat.runner import Runner
from app.documents.attachments import Attachments
from app.model import ModelKeeper
from app.notices import Notices
from app.settings.preferences import APPEARANCE, TEXT_SIZE, Preferences, Setting
from app.theme import Theme
from engine.api import Event, Failed

T = TypeVar("T")


class Services(QObject):
    """The window's parts that are no widgets, connected."""

    def __init__(self, application: QApplication) -> None:
        super().__init__()
        self.theme = Theme(application)
        self.notices = Notices(self)
        self.preferences = Preferences(parent=self)
        self.bridge = EngineBridge(self)
        self.model = ModelKeeper(self.bridge, self)
        self.attachments = Attachments(self.bridge, self.model, self)
        self.runner = Runner(self.bridge, self.model, self.attachments, self.preferences, self)
        self.chat = ChatController(self.runner, self.attachments, self.notices, self)
        self.meter = TokenMeter(self.bridge, self.model, self)
        self._ended: bool | None = None
        self.bridge.unclaimed.connect(self._on_unclaimed)
        self.apply_theme()

    def apply_theme(self) -> None:
        """Show the appearance and text size of the preferences."""
        self.theme.apply(self.preferences.get(APPEARANCE), self.preferences.get(TEXT_SIZE) / 100)

    def store(self, setting: Setting[T], value: T) -> None:
        """Store a legal value; say so if the file cannot be written."""
        try:
            self.preferences.set(setting, value)
        except OSError as error:
            self.say_unsaved(str(error))

    def say_unsaved(self, error: str) -> None:
        """Say that a setting will not survive the next start."""
        self.notices.warning(self.tr("The settings could not be saved: {error}").format(error=error))

    def close(self) -> bool:
        """Stop everything under way and end the engine's threads; True if they ended in time."""
        if self._ended is None:
            self._ended = self.bridge.close()
        return self._ended

    def _on_unclaimed(self, event: Event) -> None:
        """A failure that nobody waits for is shown, never swallowed."""
        if isinstance(event, Failed) and event.error.kind != "cancelled":
            self.notices.error(event.error.message, detail=event.error.detail)
