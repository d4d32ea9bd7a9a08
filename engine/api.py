"""Every command the engine takes and every event it emits.

This module and `engine.Engine` are all that `app/` may know of the engine. Everything here is a
frozen dataclass of plain values (str, int, float, bool, tuple, Path), so a command or an event can
cross a thread today and a process or a network later. No array ever appears here.

Every command carries a `request` number chosen by the caller (`next_request()`); every event
repeats the number it belongs to. Each command gets any number of progress events and then exactly
one final event: one of `FINAL_EVENTS`.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.errors import SettingError

_requests = itertools.count(1)


def next_request() -> int:
    """A request number that this process has not used yet."""
    return next(_requests)


# --- the prefill chunk: one declaration for the policy, the settings pane and the command line ---


@dataclass(frozen=True, slots=True)
class PrefillChunkRange:
    """Legal values of the prefill chunk, in tokens: 0 (one pass) or `low`..`high`."""

    low: int = 64
    high: int = 32768
    default: int = 2048
    environment_variable: str = "PERIGEE_PREFILL_CHUNK"

    def check(self, value: object, source: str = "The prefill chunk") -> int:
        """Return `value` as an int if it is legal; else raise `SettingError` naming the range."""
        try:
            if isinstance(value, bool):
                raise ValueError
            number = int(value) if isinstance(value, (int, str)) else int(str(value))
        except ValueError:
            raise SettingError(
                f"{source} must be a whole number: 0 (read the prompt in one pass) or between "
                f"{self.low} and {self.high} tokens; “{value}” is not one."
            ) from None
        if number != 0 and not self.low <= number <= self.high:
            raise SettingError(
                f"{source} must be 0 (read the prompt in one pass) or between {self.low} and "
                f"{self.high} tokens; {number} is outside that range."
            )
        return number


PREFILL_CHUNK = PrefillChunkRange()


# --- what a conversation is made of ---


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the model will read it.

    Attributes:
        name: file name as shown to the user.
        text: the whole extracted text; nothing is left out.
        path: where it was read from, if it came from a file.
        encoding: the character encoding that was used to decode it.
        replaced: how many characters could not be decoded and stand as U+FFFD.
    """

    name: str
    text: str
    path: Path | None = None
    encoding: str = "utf-8"
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Documents stand before the text, each followed by a blank line."""

    role: Literal["system", "user", "assistant"]
    text: str
    documents: tuple[Document, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0 and `repetition_penalty` 1 are off.
    `seed` None draws a new one for each answer.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


# --- commands ---


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a checkpoint folder; an earlier model is unloaded first. Final: `ModelReady`."""

    request: int
    folder: Path


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Free the loaded model and all state. Final: `ModelUnloaded`."""

    request: int


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """Read a file into a `Document`. Served while an answer is being written. Final: `DocumentRead`."""

    request: int
    path: Path


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Count tokens of texts with the loaded model's tokenizer. Final: `TokensCounted`.

    Served while an answer is being written; fails with kind "no_model" when none is loaded.
    """

    request: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPrefill:
    """Ask how a prompt of `tokens` tokens would be read. Final: `PrefillPlanned`.

    `configured` is the stored setting; the environment variable overrides it. An illegal value of
    either fails with kind "setting" and a message that names the range. Without a loaded model the
    plan assumes a model that can be chunked. `single_pass`: as in `Generate`.
    """

    request: int
    configured: int
    tokens: int
    single_pass: bool = False


@dataclass(frozen=True, slots=True)
class Generate:
    """Read the conversation and write the next assistant turn. Final: `Finished`.

    `prefill_chunk` is the stored setting; the environment variable overrides it. `single_pass` is True
    when the user switched chunking off for this model. A model that failed `Verify` is read in one
    pass whatever they say. `stop` are strings that end the answer and are not part of it.
    """

    request: int
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    prefill_chunk: int = PREFILL_CHUNK.default
    single_pass: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the command with number `target`. Final: `CancelAccepted`, at once.

    The target still sends its own final event: `Finished` with finish_reason "cancelled" for a
    generation that has begun, else `Failed` of kind "cancelled".
    """

    request: int
    target: int


@dataclass(frozen=True, slots=True)
class Verify:
    """Prove on this machine that chunked reading loses nothing. Final: `Verified`."""

    request: int
    length: int = 517
    chunks: tuple[int, ...] = (64, 100, 256)


@dataclass(frozen=True, slots=True)
class Tune:
    """Measure prefill at several chunk sizes. Final: `Tuned`."""

    request: int
    prompt_tokens: int = 4096
    chunks: tuple[int, ...] = (256, 512, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Cancel everything and end the threads. Final: `ShutDown`, after which only refusals come."""

    request: int


# --- values inside events ---


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """`kind` is a stable name, `message` says what happened and what to do, `detail` is technical."""

    kind: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FormInfo:
    """One faster form of a part of the model, and what came of comparing it with the plain form.

    Attributes:
        name: what is computed, in words ("KDA, one token").
        used: whether it decides answers: only if equal within its tolerance, and faster.
        seconds, plain_seconds: medians of the form and of the plain form; 0 where they were not timed.
        reason: why it is used or not, in words.
    """

    name: str
    used: bool
    seconds: float
    plain_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of the loaded model. Sizes in bytes, lengths in tokens.

    `forms` are the faster forms that were tried on this device when the model was loaded.
    """

    name: str
    family: str
    folder: Path
    parameters: int
    weight_bytes: int
    context_window: int
    quantization: str
    device: str
    layers: tuple[str, ...]
    supports_chunked_prefill: bool
    single_pass_reason: str
    has_chat_template: bool
    sampling: Sampling
    forms: tuple[FormInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillPlanInfo:
    """How a prompt is (to be) read.

    Attributes:
        tokens: prompt length; reused: tokens taken over from a snapshot.
        slices: (start, end) pairs in absolute positions, end exclusive, none empty.
        reason: a stable name: "off", "single_pass_model", "failed_verification", "switched_off",
            "fits" or "chunked".
        explanation: the sentence shown to the user.
        chunk: the chunk size in force (0 = one pass).
        source: "setting" or "environment".
    """

    tokens: int
    reused: int
    slices: tuple[tuple[int, int], ...]
    reason: str
    explanation: str
    chunk: int
    source: Literal["setting", "environment"] = "setting"


@dataclass(frozen=True, slots=True)
class ReceiptPart:
    """A part of the prompt. kind: "format" (control tokens), "system", "document", "user", "assistant"."""

    kind: str
    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class LayerPosition:
    """How many tokens one layer's state has absorbed, counted by that layer state itself."""

    layer: int
    kind: str
    position: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The account of a prompt: what it was made of, what was read, and what each layer has absorbed.

    `closed` is True only if reused + executed == prompt_tokens == sum of the parts and every layer
    state stands at prompt_tokens. An answer is only ever shown under a closed receipt; a receipt
    that is not closed belongs to a reading that was stopped, and `problem` says so.
    """

    prompt_tokens: int
    parts: tuple[ReceiptPart, ...]
    plan: PrefillPlanInfo
    executed: tuple[tuple[int, int], ...]
    layers: tuple[LayerPosition, ...]
    closed: bool
    problem: str = ""

    @property
    def read(self) -> int:
        """Tokens accounted for: reused from a snapshot plus executed."""
        return self.plan.reused + sum(end - start for start, end in self.executed)


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Measured times in seconds, speeds in tokens per second, memory in bytes."""

    prompt_tokens: int
    generated_tokens: int
    prefill_seconds: float
    prefill_tokens_per_second: float
    decode_seconds: float
    decode_tokens_per_second: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Witness:
    """One check of a verification: its name, whether it held, and what was measured."""

    name: str
    held: bool
    detail: str


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """`held` is True only if every witness held and the negative control was caught."""

    held: bool
    control_caught: bool
    length: int
    chunks: tuple[int, ...]
    witnesses: tuple[Witness, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TunePoint:
    """Prefill measured at one chunk size (tokens per second, bytes above weights)."""

    chunk: int
    tokens_per_second: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call the model wrote. `arguments` is the raw JSON text; `complete` is False if it was cut."""

    id: str
    name: str
    arguments: str
    complete: bool


# --- events ---


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """Progress of a load, in bytes of weights."""

    request: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ModelReady:
    """Final of `LoadModel`."""

    request: int
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """Final of `UnloadModel`."""

    request: int


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """Final of `ReadDocument`."""

    request: int
    document: Document


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """Final of `CountTokens`: one count per text."""

    request: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrefillPlanned:
    """Final of `PlanPrefill`; also sent once by `Generate` before reading begins (not final there)."""

    request: int
    plan: PrefillPlanInfo


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Tokens read so far (reused ones included) of the whole prompt.

    `seconds_left` is None until there is a measured speed.
    """

    request: int
    done: int
    total: int
    tokens_per_second: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer. Never holds half a character."""

    request: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    request: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallParsed:
    """A tool call was written in full, or cut off (`call.complete` False)."""

    request: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Finished:
    """Final of `Generate`.

    finish_reason: "stop" (the model ended its turn), "stop_string", "length" (max_tokens or the
    window is full) or "cancelled". After a cancel during reading, `text` is empty and the receipt
    is not closed. `text` is exactly the joined `TextDelta`s.
    """

    request: int
    text: str
    finish_reason: Literal["stop", "stop_string", "length", "cancelled"]
    stats: GenerationStats
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class CancelAccepted:
    """Final of `Cancel`. `running` says whether there was anything to stop."""

    request: int
    target: int
    running: bool


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """Progress of `Verify` or `Tune`: steps done of total and what is being done."""

    request: int
    done: int
    total: int
    step: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Final of `Verify`."""

    request: int
    report: VerificationReport


@dataclass(frozen=True, slots=True)
class Tuned:
    """Final of `Tune`."""

    request: int
    points: tuple[TunePoint, ...]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Final of `Shutdown`."""

    request: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Final of any command that could not be carried out. No text was produced from a bad state."""

    request: int
    error: ErrorInfo = field(default_factory=lambda: ErrorInfo("error", ""))


Command = (
    LoadModel
    | UnloadModel
    | ReadDocument
    | CountTokens
    | PlanPrefill
    | Generate
    | Cancel
    | Verify
    | Tune
    | Shutdown
)
Event = (
    ModelLoading
    | ModelReady
    | ModelUnloaded
    | DocumentRead
    | TokensCounted
    | PrefillPlanned
    | PrefillProgress
    | TextDelta
    | ReasoningDelta
    | ToolCallParsed
    | Finished
    | CancelAccepted
    | WorkProgress
    | Verified
    | Tuned
    | ShutDown
    | Failed
)
FINAL_EVENTS = (
    ModelReady,
    ModelUnloaded,
    DocumentRead,
    TokensCounted,
    Finished,
    CancelAccepted,
    Verified,
    Tuned,
    ShutDown,
    Failed,
)
"""Event types that end their command. `PrefillPlanned` ends `PlanPrefill` only."""
