"""What a conversation is: drafts, questions and the answers to them. Plain values, no Qt."""

from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from app.documents.attachments import Attachment
from engine.api import ErrorInfo, GenerationStats, Message, PrefillPlanInfo, PrefillProgress, Receipt

_numbers = count(1)

TurnState = Literal["waiting", "reading", "writing", "done", "stopped", "failed"]
Waiting = Literal["", "model", "no_model", "document", "turn"]


@dataclass(eq=False, slots=True)
class Turn:
    """A question and what became of it.

    Attributes:
        waiting: what the question waits for while `state` is "waiting".
        loaded: how much of the model it waits for is loaded, 0 to 1.
        prompt_tokens and read: how far the reading got.
        generation: the model load that answered.
    """

    question: str
    attachments: tuple[Attachment, ...] = ()
    number: int = field(default_factory=lambda: next(_numbers))
    state: TurnState = "waiting"
    waiting: Waiting = ""
    loaded: float = 0.0
    request: int = 0
    stopping: bool = False
    text: str = ""
    reasoning: str = ""
    plan: PrefillPlanInfo | None = None
    progress: PrefillProgress | None = None
    finish_reason: str = ""
    stats: GenerationStats | None = None
    receipt: Receipt | None = None
    error: ErrorInfo | None = None
    generation: int = 0

    @property
    def open(self) -> bool:
        """Whether more is to come."""
        return self.state in ("waiting", "reading", "writing")

    @property
    def answered(self) -> bool:
        """Whether there is an answer, whole or cut off, that a later question builds on."""
        return not self.open and bool(self.text) and self.receipt is not None and self.receipt.closed

    def messages(self) -> tuple[Message, ...]:
        """The question, and the answer if there is one."""
        documents = tuple(a.document for a in self.attachments if a.document is not None)
        asked = Message("user", self.question, documents)
        if not self.answered:
            return (asked,)
        return (asked, Message("assistant", self.text, reasoning=self.reasoning))


@dataclass(eq=False, slots=True)
class Conversation:
    """Turns in order, and the draft of the next question."""

    number: int = field(default_factory=lambda: next(_numbers))
    title: str = ""
    turns: list[Turn] = field(default_factory=list[Turn])
    draft: str = ""
    attachments: list[Attachment] = field(default_factory=list[Attachment])

    @property
    def open_turn(self) -> Turn | None:
        """The turn being answered or waiting to be."""
        return next((turn for turn in self.turns if turn.open), None)

    @property
    def untouched(self) -> bool:
        """Whether nothing was asked and nothing drafted."""
        return not self.turns and not self.draft.strip() and not self.attachments

    def history(self) -> tuple[Message, ...]:
        """The answered turns: what the next prompt begins with."""
        return tuple(message for turn in self.turns if turn.answered for message in turn.messages())

    def last_answered(self) -> Turn | None:
        """The latest turn that a next question builds on."""
        return next((turn for turn in reversed(self.turns) if turn.answered), None)


def title_of(question: str) -> str:
    """A title for a conversation that begins with `question`: its first line, not over 60 characters."""
    line = " ".join(question.strip().partition("\n")[0].split())
    return line if len(line) <= 60 else line[:59].rstrip() + "…"
