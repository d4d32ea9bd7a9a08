"""Reads a prompt and writes the answer, one step ahead of what is shown.

The generator knows token ids, a `LanguageModel`, a policy and a listener. It does not know which
family the model belongs to, how prompts are formatted, or who listens.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import mlx.core as mx

from engine.api import (
    GenerationStats,
    PrefillPlanInfo,
    Receipt,
    ReceiptPart,
    Sampling,
    ToolCall,
)
from engine.errors import NumericsError, PromptError, PromptTooLongError, SettingError
from engine.generation.answer import AnswerStream
from engine.generation.detokenizer import SpelledTokens, StreamingDetokenizer
from engine.generation.prefill import Doubt, PrefillPlan, PrefillPolicy
from engine.generation.prefix import SnapshotShelf, ladder
from engine.generation.reading import Reading, read_prompt
from engine.generation.receipt import draw_up, require_closed
from engine.generation.sampling import Sampler, check_sampling
from engine.generation.stopping import StopStrings
from engine.models.base import LanguageModel
from engine.scalars import as_int
from engine.state import SequenceState
from engine.text.chat_format import Prompt

FinishReason = Literal["stop", "stop_string", "length", "cancelled"]
_TRIM_EVERY = 256
"""Decoded tokens between trims of MLX's allocator cache."""


class AnswerTokens(SpelledTokens, Protocol):
    """What the generator needs of a tokenizer: how tokens are spelled and which end an answer."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...


class Listener(Protocol):
    """Who hears of progress. All calls come on the thread that generates."""

    def planned(self, plan: PrefillPlanInfo) -> None:
        """How the prompt will be read; once, before reading."""
        ...

    def progress(self, done: int, total: int, tokens_per_second: float, seconds_left: float | None) -> None:
        """Tokens read, reused ones included."""
        ...

    def text(self, text: str) -> None:
        """More of the answer."""
        ...

    def reasoning(self, text: str) -> None:
        """More of the thinking before it."""
        ...

    def tool_call(self, call: ToolCall) -> None:
        """A tool call was written."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer. `stop` are strings that end the answer and are not part of it; `doubt` is why this
    checkpoint is to be read in one pass."""

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    doubt: Doubt = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer with its account. `ids` are the generated tokens, the stop token included."""

    text: str
    finish_reason: FinishReason
    stats: GenerationStats
    receipt: Receipt
    ids: tuple[int, ...]


class Generator:
    """Answers prompts with one model. Keeps snapshots, never a sequence."""

    def __init__(
        self, model: LanguageModel, tokenizer: AnswerTokens, shelf: SnapshotShelf | None = None
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._shelf = shelf if shelf is not None else SnapshotShelf()

    def generate(
        self,
        prompt: Prompt,
        policy: PrefillPolicy,
        options: Options,
        listener: Listener,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Read `prompt` as `policy` says and write the answer.

        Raises:
            PromptError, PromptTooLongError, SettingError: before anything is read.
            LedgerError, ReceiptError: the answer would not be computed from the whole prompt; no text
                has been given to the listener.
            NumericsError: the model computed numbers that are none; the answer ends where that was seen.
        """
        ids = prompt.ids
        self.check(ids, options)
        stops = StopStrings(options.stop)
        mx.reset_peak_memory()
        state, plan = self._begin(ids, policy, options.doubt)
        listener.planned(plan.info())
        reading = read_prompt(
            self._model,
            ids,
            state,
            plan,
            progress=_reporter(listener, plan),
            cancelled=cancelled,
            after_slice=self._keeper(ids, state, plan),
        )
        parts = [ReceiptPart(part.kind, part.label, len(part.ids)) for part in prompt.parts]
        receipt = draw_up(parts, plan, reading.executed, state)
        if reading.logits is None:
            return Outcome("", "cancelled", _stats(ids, [], reading, 0.0), receipt, ())
        require_closed(receipt)
        limit = min(options.max_tokens, self._model.context_window - len(ids))
        answer = AnswerStream(
            StreamingDetokenizer(self._tokenizer),
            stops,
            listener,
            starts_in_reasoning=prompt.opens_reasoning,
        )
        written, reason, seconds = self._decode(
            reading.logits, state, self._sampler(options, ids), limit, answer, cancelled
        )
        answer.finish()
        state.evaluate()
        self._keep((ids + written)[: state.position], state)
        return Outcome(answer.text, reason, _stats(ids, written, reading, seconds), receipt, tuple(written))

    def check(self, ids: Sequence[int], options: Options) -> None:
        """Refuse what cannot be answered, before anything is read; see `generate`."""
        check_sampling(options.sampling)
        if options.max_tokens < 1:
            raise SettingError(f"The answer must be allowed at least 1 token, not {options.max_tokens}.")
        if not ids:
            raise PromptError("The prompt is empty. Write a question or attach a document.")
        window = self._model.context_window
        if len(ids) >= window:
            raise PromptTooLongError(
                f"The prompt needs {len(ids):,} tokens; this model's window is {window:,} and the answer "
                "needs some of it. Leave out a part or pick another model."
            )
        beyond = max(ids)
        if beyond >= self._model.vocab_size:
            raise PromptError(
                f"The tokenizer gave token {beyond}, but the model knows only {self._model.vocab_size}. "
                "The tokenizer belongs to another model: download it again."
            )

    def _begin(
        self, ids: Sequence[int], policy: PrefillPolicy, doubt: Doubt
    ) -> tuple[SequenceState, PrefillPlan]:
        """A state that stands at the longest kept prefix, and the plan for the rest.

        A model that cannot continue a prompt, or was seen to lose part of it, adopts no prefix either.
        """
        model = self._model
        state = model.new_state()
        continues = model.supports_chunked_prefill and doubt != "failed_verification"
        kept = self._shelf.find(ids) if continues else None
        if kept is not None:
            state.restore(kept)
        plan = policy.plan(
            len(ids),
            state.position,
            supported=model.supports_chunked_prefill,
            single_pass_reason=model.single_pass_reason,
            doubt=doubt,
        )
        return state, plan

    def _keeper(self, ids: list[int], state: SequenceState, plan: PrefillPlan) -> Callable[[int], None]:
        """Keeps the newest slice end, for a reading that is stopped, and the rungs of the ladder."""
        rungs = ladder(plan.slices)
        passing: list[int] = []

        def keep(position: int) -> None:
            self._keep(ids[:position], state)
            for earlier in passing:
                self._shelf.drop(ids[:earlier])
            passing[:] = [] if position in rungs else [position]

        return keep

    def _keep(self, ids: Sequence[int], state: SequenceState) -> None:
        if self._model.supports_chunked_prefill:
            self._shelf.put(ids, state.snapshot())

    def _sampler(self, options: Options, ids: Sequence[int]) -> Sampler:
        seed = options.sampling.seed
        return Sampler(options.sampling, secrets.randbits(32) if seed is None else seed, ids)

    def _decode(
        self,
        logits: mx.array,
        state: SequenceState,
        sampler: Sampler,
        limit: int,
        answer: AnswerStream,
        cancelled: Callable[[], bool],
    ) -> tuple[list[int], FinishReason, float]:
        """Tokens written, why it ended, and seconds from the first token to the last.

        While a token is turned into text, the step after it is already being computed.
        """
        written: list[int] = []
        token, sound = sampler(logits), _is_sound(logits)
        mx.async_eval(token, sound)
        first = last = 0.0
        while True:
            following = following_sound = None
            if len(written) + 1 < limit:
                logits = self._model(token[:, None], state)
                following, following_sound = sampler(logits), _is_sound(logits)
                pending = (array for layer in state.layers for array in layer.pending())
                mx.async_eval(following, following_sound, *pending)
            _require_sound(sound)
            value = as_int(token)
            last = time.perf_counter()
            first = first or last
            written.append(value)
            if value in self._tokenizer.stop_ids:
                return written, "stop", last - first
            if answer.add(value):
                return written, "stop_string", last - first
            if following is None or following_sound is None:
                return written, "length", last - first
            if cancelled():
                return written, "cancelled", last - first
            if len(written) % _TRIM_EVERY == 0:
                mx.clear_cache()
            token, sound = following, following_sound


def _is_sound(logits: mx.array) -> mx.array:
    """Whether every logit is a finite number, not evaluated."""
    return mx.isfinite(logits).all()


def _require_sound(sound: mx.array) -> None:
    if not sound.item():
        raise NumericsError(
            "The model computed numbers that are not numbers, so its answer would mean nothing. Its weights "
            "are damaged or do not belong to its config.json: download the model again."
        )


def _reporter(listener: Listener, plan: PrefillPlan) -> Callable[[int, float], None]:
    def report(done: int, seconds: float) -> None:
        read = done - plan.reused
        speed = read / seconds if read and seconds else 0.0
        left = (plan.tokens - done) / speed if speed else None
        listener.progress(done, plan.tokens, speed, left)

    return report


def _stats(ids: Sequence[int], written: Sequence[int], reading: Reading, seconds: float) -> GenerationStats:
    executed = sum(end - start for start, end in reading.executed)
    steps = max(0, len(written) - 1)
    return GenerationStats(
        prompt_tokens=len(ids),
        generated_tokens=len(written),
        prefill_seconds=reading.seconds,
        prefill_tokens_per_second=executed / reading.seconds if reading.seconds else 0.0,
        decode_seconds=seconds,
        decode_tokens_per_second=steps / seconds if seconds else 0.0,
        peak_memory_bytes=mx.get_peak_memory(),
    )
