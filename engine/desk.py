"""The commands that need no MLX: reading files, counting tokens, planning a prefill.

Served on a thread of their own, so that a file dropped while an answer is being written is read
and counted at once.
"""

from dataclasses import dataclass

from engine.api import (
    CountTokens,
    DocumentRead,
    Event,
    ModelInfo,
    PlanPrefill,
    PrefillPlanned,
    ReadDocument,
    TokensCounted,
)
from engine.documents import read_document
from engine.errors import CancelledError, NoModelError, SettingError
from engine.generation.prefill import Doubt, PrefillPolicy
from engine.text.tokenizer import Tokenizer
from engine.work import Cancelled, DeskCommand


@dataclass(frozen=True)
class Reader:
    """What the desk needs to know of the loaded model."""

    info: ModelInfo
    tokenizer: Tokenizer
    failed_verification: bool = False


def doubt_of(failed_verification: bool, single_pass: bool) -> Doubt:
    """Why a model is not read in chunks; a failed verification outweighs the user's switch."""
    if failed_verification:
        return "failed_verification"
    return "switched_off" if single_pass else ""


class Desk:
    """Serves `ReadDocument`, `CountTokens` and `PlanPrefill`.

    Attributes:
        reader: the loaded model's tokenizer and description, or None; set by the engine thread.
    """

    def __init__(self) -> None:
        self.reader: Reader | None = None

    def serve(self, command: DeskCommand, cancelled: Cancelled) -> Event:
        """The final event of a command. Raises `PerigeeError` for what the user can mend."""
        match command:
            case ReadDocument(request, path):
                return DocumentRead(request, read_document(path))
            case CountTokens(request, texts):
                return TokensCounted(request, self._count(texts, cancelled))
            case PlanPrefill():
                return self._plan(command)

    def _count(self, texts: tuple[str, ...], cancelled: Cancelled) -> tuple[int, ...]:
        reader = self.reader
        if reader is None:
            raise NoModelError("No model is loaded, so tokens cannot be counted yet. Load a model first.")
        counts: list[int] = []
        for text in texts:
            if cancelled():
                raise CancelledError("Counting was stopped.")
            counts.append(reader.tokenizer.count(text))
        return tuple(counts)

    def _plan(self, command: PlanPrefill) -> PrefillPlanned:
        if command.tokens < 1:
            raise SettingError("A plan needs a prompt of at least one token.")
        policy = PrefillPolicy.from_setting(command.configured)
        reader = self.reader
        info = reader.info if reader else None
        plan = policy.plan(
            command.tokens,
            supported=info is None or info.supports_chunked_prefill,
            single_pass_reason=info.single_pass_reason if info else "",
            doubt=doubt_of(reader is not None and reader.failed_verification, command.single_pass),
        )
        return PrefillPlanned(command.request, plan.info())
