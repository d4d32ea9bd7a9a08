"""Whether a faster form of a computation may stand in for its plain twin on this device.

Both are run on the same random data at the model's own shapes, compared and timed in turns. The faster
form is used only if it is equal within the stated tolerance and faster. A form that does not compile,
does not run or does not match is a line in the log and the twin, never an error.
"""

import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.scalars import as_float

log = logging.getLogger(__name__)

Run = Callable[[], Sequence[mx.array]]
Clock = Callable[[], float]

_TURNS = 5

_COMPARISONS = 3
"""A race between threads of a device may spare one run and spoil the next."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided about one form.

    Attributes:
        name: what is computed, for the model info ("KDA, one token").
        used: whether the faster form decides answers.
        seconds, plain_seconds: medians of the form and of its twin; 0 where it was not timed.
        gap: largest difference relative to the largest value of the twin's outputs; inf where not compared.
        reason: why, in words for a person.
    """

    name: str
    used: bool
    seconds: float
    plain_seconds: float
    gap: float
    reason: str


def choose(
    name: str, form: Run, plain: Run, truth: Run, tolerance: float, clock: Clock = time.perf_counter
) -> Choice:
    """Compare `form` with `truth` and time it against `plain`.

    Args:
        form, plain: the two forms, on the same data in the dtypes of the model.
        truth: the twin again, on the same data in float32.
        tolerance: largest difference allowed, relative to the largest value of each output.
        clock: seconds since any moment.
    """
    gap, expected = 0.0, list(truth())
    for _ in range(_COMPARISONS):
        try:
            got = list(form())
            mx.eval(got)
        except (RuntimeError, ValueError, TypeError) as error:
            log.warning("%s: the fast form does not run here, the plain one is used: %s", name, error)
            return Choice(name, False, 0.0, 0.0, float("inf"), "does not run on this device")
        gap = max(gap, *(_gap(a, b) for a, b in zip(got, expected, strict=True)))
    if not gap <= tolerance:
        log.warning("%s: the fast form differs by %.1e, the plain one is used", name, gap)
        return Choice(name, False, 0.0, 0.0, gap, "does not match the plain form on this device")
    seconds, plain_seconds = _time_in_turns(form, plain, clock)
    used = seconds < plain_seconds
    reason = "equal and faster" if used else "equal, but not faster on this device"
    log.info("%s: %s (%.3f ms, plain %.3f ms)", name, reason, seconds * 1e3, plain_seconds * 1e3)
    return Choice(name, used, seconds, plain_seconds, gap, reason)


def _gap(got: mx.array, expected: mx.array) -> float:
    got, expected = got.astype(mx.float32), expected.astype(mx.float32)
    largest = as_float(mx.abs(expected).max())
    gap = as_float(mx.abs(got - expected).max())
    relative = gap / largest if largest else gap
    return relative if math.isfinite(relative) else math.inf  # of NaN, max() would keep either


def _time_in_turns(form: Run, plain: Run, clock: Clock) -> tuple[float, float]:
    """Median seconds of both, measured alternately after one unmeasured turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 1):
        for run, seconds in zip((form, plain), taken, strict=True):
            begin = clock()
            mx.eval(list(run()))
            if turn:
                seconds.append(clock() - begin)
    return statistics.median(taken[0]), statistics.median(taken[1])
