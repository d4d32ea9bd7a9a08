"""Carries out a prefill plan: slice by slice, evaluated, reported, stoppable."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.errors import CancelledError
from engine.generation.prefill import PrefillPlan
from engine.models.base import LanguageModel
from engine.state import SequenceState

Progress = Callable[[int, float], None]
"""Called with tokens done (reused ones included) and seconds since the reading began."""


def _silent(done: int, seconds: float) -> None:
    """Nobody listens."""


def _nothing(position: int) -> None:
    """Nothing is kept."""


@dataclass(frozen=True)
class Reading:
    """What came of a plan.

    Attributes:
        logits: [1, V] float32 of the last position, or None if the reading was stopped.
        executed: the slices that were run to their end.
        seconds: how long they took.
    """

    logits: mx.array | None
    executed: tuple[tuple[int, int], ...]
    seconds: float


def read_prompt(
    model: LanguageModel,
    ids: Sequence[int],
    state: SequenceState,
    plan: PrefillPlan,
    *,
    progress: Progress = _silent,
    cancelled: Callable[[], bool] = lambda: False,
    after_slice: Callable[[int], None] = _nothing,
) -> Reading:
    """Read ids[plan.reused:] into `state`, which must stand at plan.reused.

    After each slice the state is evaluated, MLX's allocator cache is trimmed, `after_slice` is told
    the position and cancel is checked. A long slice reports and checks after each layer as well; if
    it is stopped there, the state goes back to the end of the slice before.
    """
    started = time.perf_counter()
    executed: list[tuple[int, int]] = []
    logits: mx.array | None = None
    state.reserve(plan.tokens)
    progress(plan.reused, 0.0)
    for start, end in plan.slices:
        if cancelled():
            return Reading(None, tuple(executed), time.perf_counter() - started)

        def pulse(done: float, start: int = start, end: int = end) -> None:
            progress(start + int(done * (end - start)), time.perf_counter() - started)
            if cancelled():
                raise CancelledError("Reading was stopped.")

        before = state.snapshot()
        try:
            logits = model(mx.array([ids[start:end]], mx.int32), state, pulse)
        except CancelledError:
            state.restore(before)
            return Reading(None, tuple(executed), time.perf_counter() - started)
        del before
        mx.eval(logits)
        state.evaluate()
        mx.clear_cache()
        executed.append((start, end))
        after_slice(end)
        progress(end, time.perf_counter() - started)
    return Reading(logits, tuple(executed), time.perf_counter() - started)
