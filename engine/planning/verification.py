"""The proof that chunked reading loses nothing, and that the proof itself can fail.

Close logits alone prove little: losing one token of a long prompt can move them less than rounding
does. So there are several witnesses: the ledger, every state array, boundary lengths, unrelated
prompts in a row, unchanged modules and, where the model can answer, a fact in the first chunk. Two
negative controls lose state on purpose; unless both are caught, the proof proves nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from engine.api import Message, Sampling, VerificationReport, Witness
from engine.errors import LedgerError, PerigeeError, PromptError, SettingError, TokenizerError
from engine.generation.generator import Generator, Options
from engine.generation.prefill import PrefillPolicy
from engine.generation.prefix import SnapshotShelf
from engine.generation.reading import read_prompt
from engine.models.base import LanguageModel
from engine.planning.fingerprint import fingerprint
from engine.planning.quiet import Quiet
from engine.planning.steps import Steps, silent
from engine.planning.tuning import random_ids
from engine.scalars import as_float
from engine.state import SequenceState
from engine.text.chat_format import ChatFormat
from engine.text.tokenizer import Tokenizer

TOLERANCE = {mx.float32: 2e-5, mx.float16: 2e-2, mx.bfloat16: 6e-2}
"""Largest difference of any state array or logit, relative to its largest value, by activation
dtype. float32 products run at reduced precision on some GPUs; then 2e-3 applies (see `_tolerance`)."""

CONTROL_MARGIN = 10
"""A control must differ by this many tolerances, or it could pass for rounding."""


@dataclass(frozen=True)
class Needle:
    """What is needed to ask the model about a fact."""

    tokenizer: Tokenizer
    chat_format: ChatFormat


def load_needle(folder: Path) -> tuple[Needle | None, str]:
    """The needle of a checkpoint folder, or None and why there is none."""
    try:
        tokenizer = Tokenizer.load(folder)
    except TokenizerError as error:
        return None, f"No question was asked about a planted fact: {error}"
    chat_format = ChatFormat.load(folder, tokenizer)
    if not chat_format.available:
        return None, "No question was asked about a planted fact: the model has no chat template."
    return Needle(tokenizer, chat_format), ""


@dataclass(frozen=True)
class _Run:
    """What a reading left behind: last logits [1, V] and every array of the state."""

    logits: mx.array
    state: SequenceState

    def arrays(self) -> list[mx.array]:
        return [self.logits, *self.state.arrays()]


def verify(
    model: LanguageModel,
    *,
    length: int,
    chunks: Sequence[int],
    needle: Needle | None = None,
    note: str = "",
    progress: Steps = silent,
) -> VerificationReport:
    """Run every witness and both controls.

    Args:
        model: any family; one that is read in one pass is checked to be.
        length: tokens of the random prompt; at least 130, so that it has three blocks.
        chunks: chunk sizes, 64 to 32768.
        needle: tokenizer and chat format, to ask about a fact; None leaves that witness out.
        note: why it is left out, for the report.
        progress: told of each step; may raise to stop.
    """
    if not 130 <= length < model.context_window:
        raise PromptError(
            f"Verification needs a length from 130 to below the model's window of "
            f"{model.context_window:,}, not {length}."
        )
    if not chunks or 0 in chunks:
        raise SettingError(
            "Verification needs at least one chunk size, such as 64; 0 is what it compares with."
        )
    proof = _Proof(model, length, tuple(PrefillPolicy(c).configured for c in chunks), needle)
    longest = 2 * max(chunks) + 1
    if longest >= model.context_window:
        raise PromptError(
            f"A chunk of {max(chunks):,} is verified with {longest:,} tokens, which do not fit this model's "
            f"window of {model.context_window:,}. Choose smaller chunks."
        )
    proof.note = note
    steps = list(proof.steps())
    witnesses: list[Witness] = []
    for done, (name, check) in enumerate(steps):
        progress(done, len(steps), name)
        witnesses.append(_hold(name, check))
    progress(len(steps), len(steps), "done")
    controls = [w for w in witnesses if w.name.startswith("control")]
    caught = len(controls) == 2 and all(w.held for w in controls)
    return VerificationReport(
        held=caught and all(w.held for w in witnesses),
        control_caught=caught,
        length=length,
        chunks=proof.chunks,
        witnesses=tuple(witnesses),
        note=proof.note,
    )


def _hold(name: str, check: Callable[[], tuple[bool, str]]) -> Witness:
    """A witness that raises did not hold; the reason is its detail."""
    try:
        held, detail = check()
    except PerigeeError as error:
        return Witness(name, held=False, detail=str(error))
    return Witness(name, held, detail)


class _Proof:
    """One verification: the prompts, the single pass everything is compared with, the checks."""

    def __init__(
        self, model: LanguageModel, length: int, chunks: tuple[int, ...], needle: Needle | None
    ) -> None:
        self.model = model
        self.chunks = chunks
        self.note = ""
        self._ids = random_ids(model, length, seed=1)
        self._other = random_ids(model, length, seed=2)
        self._needle = needle
        self._tolerance = _tolerance(model)
        self._before = fingerprint(model)
        self._single: _Run | None = None

    def steps(self) -> Iterator[tuple[str, Callable[[], tuple[bool, str]]]]:
        """Names and checks, in order."""
        yield "ledger", self._ledger
        if self.model.supports_chunked_prefill:
            for chunk in self.chunks:
                yield f"state arrays, chunks of {chunk}", lambda c=chunk: self._arrays(c)
                yield f"boundary lengths of {chunk}", lambda c=chunk: self._boundaries(c)
        else:
            self.note = f"This model is read in one pass: {self.model.single_pass_reason}"
            yield "one pass", self._one_pass
        yield "two unrelated prompts in a row", self._unrelated
        if self._needle is not None:
            yield "a fact in the first chunk", self._fact
        yield "control: state dropped, caught by the ledger", self._control_ledger
        yield "control: wrong state of the right length, caught by the arrays", self._control_arrays
        yield "modules unchanged", self._unchanged

    def _read(self, ids: Sequence[int], chunk: int, state: SequenceState | None = None) -> _Run:
        """Read `ids` on from `state` (default: a new one) with chunks of `chunk`, 0 for one pass."""
        state = state or self.model.new_state()
        start = state.position
        plan = PrefillPolicy(chunk).plan(
            start + len(ids), start, supported=self.model.supports_chunked_prefill
        )
        reading = read_prompt(self.model, [0] * start + list(ids), state, plan)
        if reading.logits is None:
            raise LedgerError("A reading that nobody stopped did not end.")
        return _Run(reading.logits, state)

    def _reference(self) -> _Run:
        if self._single is None:
            self._single = self._read(self._ids, 0)
        return self._single

    def _ledger(self) -> tuple[bool, str]:
        positions = self._reference().state.positions
        held = set(positions) == {len(self._ids)}
        return held, f"{len(positions)} layers stand at {min(positions):,} of {len(self._ids):,} tokens"

    def _arrays(self, chunk: int) -> tuple[bool, str]:
        difference = _difference(self._reference(), self._read(self._ids, chunk))
        return self._within(difference)

    def _within(self, difference: float) -> tuple[bool, str]:
        text = f"largest relative difference {difference:.1e}, tolerance {self._tolerance:.0e}"
        return difference <= self._tolerance, text

    def _boundaries(self, n: int) -> tuple[bool, str]:
        worst = 0.0
        for length in (n - 1, n, n + 1, n + 2, 2 * n, 2 * n + 1):
            ids = (self._ids * (length // len(self._ids) + 1))[:length]
            worst = max(worst, _difference(self._read(ids, 0), self._read(ids, n)))
        return self._within(worst)

    def _one_pass(self) -> tuple[bool, str]:
        plans = [PrefillPolicy(c).plan(2 * c + 1, supported=False) for c in self.chunks]
        return all(len(p.slices) == 1 for p in plans), "every prompt is read in exactly one slice"

    def _unrelated(self) -> tuple[bool, str]:
        chunk = self.chunks[0] if self.model.supports_chunked_prefill else 0
        fresh = self._read(self._ids, chunk)
        self._read(self._other, chunk)
        difference = _difference(fresh, self._read(self._ids, chunk))
        return difference == 0.0, f"largest difference after another prompt {difference:.1e}"

    def _unchanged(self) -> tuple[bool, str]:
        after = fingerprint(self.model)
        names = sorted(self._before.keys() | after.keys())
        changed = [name for name in names if self._before.get(name, ...) != after.get(name, ...)]
        return not changed, f"{len(self._before)} attributes compared" + (
            f"; changed: {changed[:5]}" if changed else ""
        )

    def _control_ledger(self) -> tuple[bool, str]:
        """The last part read into a new state: its ledger must say that the rest is missing."""
        half = len(self._ids) // 2
        run = self._read(self._ids[half:], 0)
        caught = run.state.position != len(self._ids)
        return caught, f"the state stood at {run.state.position:,} of {len(self._ids):,} tokens"

    def _control_arrays(self) -> tuple[bool, str]:
        """Another beginning of the same length: the ledger is content, the arrays must not be."""
        half = len(self._ids) // 2
        if self.model.supports_chunked_prefill:
            wrong = self._read(self._ids[half:], 0, self._read(self._other[:half], 0).state)
        else:
            wrong = self._read(self._other[:half] + self._ids[half:], 0)
        difference = _difference(self._reference(), wrong)
        needed = CONTROL_MARGIN * self._tolerance
        return difference > needed, f"largest relative difference {difference:.1e}, needed above {needed:.0e}"

    def _fact(self) -> tuple[bool, str]:
        """A fact in the first chunk, asked for after the last."""
        assert self._needle is not None  # steps() asks only then
        single = self._ask(0)
        if _CODE not in single:
            self.note = (
                "This model cannot answer the question about a planted fact; that witness was not counted."
            )
            return True, f"not counted: in one pass the model says “{single.strip()[:80]}”"
        chunk = self.chunks[0] if self.model.supports_chunked_prefill else 0
        chunked = self._ask(chunk)
        return chunked == single, f"“{chunked.strip()[:80]}” in chunks of {chunk}"

    def _ask(self, chunk: int) -> str:
        assert self._needle is not None
        prompt = self._needle.chat_format.prompt((Message("user", _DOCUMENT + _QUESTION),))
        generator = Generator(self.model, self._needle.tokenizer, SnapshotShelf(budget_count=1))
        options = Options(Sampling(temperature=0.0), max_tokens=48)
        return generator.generate(prompt, PrefillPolicy(chunk), options, Quiet()).text


_CODE = "blue-falcon-77"
_FACT = f"The password for the greenhouse computer is {_CODE}. "
_FILLER = (
    "The path follows the river past the old mill and the orchard wall. In the morning the mist lies "
    "low over the meadows, and the first boats go out before the bells. The baker opens at six, the "
    "post office at eight, and on market days the square is full of carts by nine. "
)
_DOCUMENT = _FACT + _FILLER * 12 + "\n\n"
_QUESTION = "What is the password for the greenhouse computer?"


def _difference(a: _Run, b: _Run) -> float:
    """Largest difference over logits and state arrays, each relative to its own largest value."""
    worst = 0.0
    for x, y in zip(a.arrays(), b.arrays(), strict=True):
        if x.shape != y.shape:
            return float("inf")
        x, y = x.astype(mx.float32), y.astype(mx.float32)
        scale = as_float(mx.abs(x).max())
        gap = as_float(mx.abs(x - y).max())
        if gap != gap:  # a NaN is never within tolerance
            return float("inf")
        worst = max(worst, gap / scale if scale else gap)
    return worst


def _tolerance(model: LanguageModel) -> float:
    """By activation dtype, or 2e-3 where float32 products are not float32."""
    dtype = next(
        (a.dtype for layer in model.new_state().layers for a in layer.pending() if a.dtype in TOLERANCE),
        mx.float32,
    )
    return max(TOLERANCE[dtype], 2e-3 if _reduced_products() else 0.0)


def _reduced_products() -> bool:
    """Whether float32 matrix products lose bits on this device (TF32 and its like)."""
    a = mx.random.normal((256, 256), key=mx.random.key(0))
    exact = mx.matmul(a, a, stream=mx.cpu)
    return as_float(mx.abs(a @ a - exact).max() / mx.abs(exact).max()) > 2e-5
