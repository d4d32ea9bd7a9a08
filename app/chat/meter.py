"""How many tokens the next prompt will have: the draft, its attachments, and what was said before."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge import EngineBridge
from app.chat.conversation import Conversation
from app.model import ModelKeeper
from engine.api import CountTokens, Event, Message, TokensCounted, next_request

DEBOUNCE_MS = 250


@dataclass(frozen=True, slots=True)
class Reading:
    """What the meter shows. `total` is None while something of it is still being counted."""

    total: int | None
    window: int

    @property
    def too_long(self) -> bool:
        """Whether the prompt cannot fit."""
        return self.total is not None and self.total >= self.window


class TokenMeter(QObject):
    """Counts the draft a moment after the last key, and the history when the model changed.

    Signals:
        changed: the `Reading` to show, None without a model.
    """

    changed = Signal(object)

    def __init__(self, bridge: EngineBridge, model: ModelKeeper, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._model = model
        self._conversation: Conversation | None = None
        self._request = 0
        self._counted: tuple[str, int, int] | None = None  # draft and history tokens of a key
        self._history: tuple[str, int] | None = None  # tokens of a history no receipt of this model tells
        self._timer = QTimer(self, singleShot=True, interval=DEBOUNCE_MS)
        self._timer.timeout.connect(self._count)
        model.changed.connect(self.refresh)

    def watch(self, conversation: Conversation) -> None:
        """Measure `conversation` from now on."""
        self._conversation = conversation
        self._count()

    def refresh(self) -> None:
        """Something of the prompt has changed: show what is known and count the rest soon."""
        self._show()
        self._timer.start()

    def _past(self, conversation: Conversation) -> str:
        """Names a history as one model counts it."""
        past = ",".join(str(turn.number) for turn in conversation.turns if turn.answered)
        return f"{self._model.status.generation}|{conversation.number}|{past}"

    def _key(self, conversation: Conversation) -> str:
        return f"{self._past(conversation)}|{conversation.draft}"

    def _count(self) -> None:
        conversation = self._conversation
        if conversation is None or self._model.info is None:
            self._show()
            return
        key = self._key(conversation)
        if self._counted is not None and self._counted[0] == key:
            self._show()
            return
        known = self._known_history(conversation)
        if known is not None and not conversation.draft.strip():
            self._show()
            return
        texts = [conversation.draft]
        if known is None:
            texts += [text for message in conversation.history() for text in _texts(message)]
        if self._request:
            self._bridge.forget(self._request)
        self._request = next_request()
        past = self._past(conversation)
        self._bridge.ask(
            CountTokens(self._request, tuple(texts)),
            lambda event: self._on_counted(past, key, known, event),
        )

    def _known_history(self, conversation: Conversation) -> int | None:
        """Tokens of the history, from the receipt of the last answer if this model wrote it."""
        last = conversation.last_answered()
        if last is None:
            return 0
        if last.generation != self._model.status.generation or last.stats is None or last.receipt is None:
            counted = self._history
            return counted[1] if counted is not None and counted[0] == self._past(conversation) else None
        return last.receipt.prompt_tokens + last.stats.generated_tokens

    def _on_counted(self, past: str, key: str, known: int | None, event: Event) -> None:
        self._request = 0
        if isinstance(event, TokensCounted):
            if known is None:
                known = sum(event.counts[1:])
                self._history = (past, known)
            self._counted = (key, event.counts[0], known)
            self._show()

    def _show(self) -> None:
        conversation, info = self._conversation, self._model.info
        if conversation is None or info is None:
            self.changed.emit(None)
            return
        generation = self._model.status.generation
        counts = [
            attachment.tokens if attachment.generation == generation else None
            for attachment in conversation.attachments
            if attachment.state != "failed"
        ]
        parts = [*counts, *self._text_counts(conversation)]
        known = [part for part in parts if part is not None]
        self.changed.emit(Reading(sum(known) if len(known) == len(parts) else None, info.context_window))

    def _text_counts(self, conversation: Conversation) -> tuple[int | None, ...]:
        known = self._known_history(conversation)
        if known is not None and not conversation.draft.strip():
            return (known,)
        if self._counted is None:
            return (None,)
        # While only the draft differs, its old count is close enough until the new one comes.
        if not self._counted[0].startswith(self._past(conversation) + "|"):
            return (None,)
        return self._counted[1:]


def _texts(message: Message) -> tuple[str, ...]:
    return (*(document.text for document in message.documents), message.text)
