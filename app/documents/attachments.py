"""Files on their way into a question: read, counted, or refused with a reason."""

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.bridge import EngineBridge
from app.model import ModelKeeper
from engine.api import (
    CountTokens,
    Document,
    DocumentRead,
    ErrorInfo,
    Event,
    Failed,
    ReadDocument,
    TokensCounted,
    next_request,
)

_numbers = count(1)


@dataclass(eq=False, slots=True)
class Attachment:
    """One file of a draft or of a question.

    Attributes:
        state: "reading" the file, "read" (usable), or "failed" (`error` says why).
        tokens: its length for the loaded model; None while that is being counted.
        request: the command under way for it, 0 if there is none.
        generation: the model load that `tokens` was counted for.
    """

    name: str
    path: Path | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    state: Literal["reading", "read", "failed"] = "reading"
    document: Document | None = None
    tokens: int | None = None
    error: ErrorInfo | None = None
    request: int = 0
    generation: int = 0


class Attachments(QObject):
    """Reads and counts attachments through the bridge.

    Signals:
        changed: an `Attachment` has another state or count.
        failed: an `Attachment` could not be read.
        lossy: an `Attachment` in which some characters could not be decoded.
    """

    changed = Signal(object)
    failed = Signal(object)
    lossy = Signal(object)

    def __init__(self, bridge: EngineBridge, model: ModelKeeper, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._model = model
        self._kept: dict[int, Attachment] = {}
        model.ready.connect(self._count_all)

    def add_file(self, path: Path) -> Attachment:
        """Begin to read the file at `path`."""
        attachment = Attachment(path.name, path)
        self._kept[attachment.number] = attachment
        attachment.request = next_request()
        self._bridge.ask(
            ReadDocument(attachment.request, path), lambda event: self._on_read(attachment, event)
        )
        return attachment

    def add_text(self, name: str, text: str) -> Attachment:
        """Make an attachment of `text` that came without a file."""
        attachment = Attachment(name, state="read", document=Document(name, text))
        self._kept[attachment.number] = attachment
        self._count(attachment)
        return attachment

    def drop(self, attachment: Attachment) -> None:
        """Forget `attachment`; what is under way for it stops."""
        self._kept.pop(attachment.number, None)
        if attachment.request:
            self._bridge.forget(attachment.request)
            attachment.request = 0

    def _on_read(self, attachment: Attachment, event: Event) -> None:
        attachment.request = 0
        if isinstance(event, DocumentRead):
            attachment.state, attachment.document = "read", event.document
            self._count(attachment)
            self.changed.emit(attachment)
            if event.document.replaced:
                self.lossy.emit(attachment)
        elif isinstance(event, Failed):
            attachment.state, attachment.error = "failed", event.error
            self.changed.emit(attachment)
            self.failed.emit(attachment)

    def _count_all(self) -> None:
        for attachment in self._kept.values():
            if attachment.state == "read":
                self._count(attachment)

    def _count(self, attachment: Attachment) -> None:
        if attachment.document is None or self._model.info is None:
            return  # asked again when a model is ready
        attachment.tokens = None
        attachment.request = next_request()
        generation = self._model.status.generation
        self._bridge.ask(
            CountTokens(attachment.request, (attachment.document.text,)),
            lambda event: self._on_counted(attachment, generation, event),
        )

    def _on_counted(self, attachment: Attachment, generation: int, event: Event) -> None:
        if attachment.request != event.request:
            return  # counted for a model that is gone; the count for the new one is on its way
        attachment.request = 0
        if isinstance(event, TokensCounted):
            attachment.tokens, attachment.generation = event.counts[0], generation
            self.changed.emit(attachment)
