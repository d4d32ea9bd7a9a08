"""The moments of one run, taken by the loop that is measured."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import mlx.core as mx

from engine.planning.benchmark_report import Tenth


class Clock:
    """Started before the prompt is read.

    Attributes:
        state_bytes: held by states or caches at the end of the prompt; set by the loop.
    """

    def __init__(self, tokens: int) -> None:
        self.state_bytes = 0
        self._marks = [tokens * tenth // 10 for tenth in range(1, 11)]
        self._active: dict[int, int] = {}
        self._handed: list[float] = []
        self._blocked: list[float] = []
        self._asked = 0.0
        self._begun = time.perf_counter()

    def waiting(self) -> None:
        """All that can be handed to the device has been; from here on the host only waits for a token."""
        self._asked = time.perf_counter()

    def handed(self) -> None:
        """A token is in hand."""
        now = time.perf_counter()
        self._handed.append(now)
        self._blocked.append(now - self._asked)
        if len(self._handed) in self._marks:
            self._active[len(self._handed)] = mx.get_active_memory()

    @property
    def prefill_seconds(self) -> float:
        """From the start to the first token."""
        return self._handed[0] - self._begun

    @property
    def steps(self) -> list[float]:
        """Seconds from each token to the next."""
        return [after - before for before, after in zip(self._handed, self._handed[1:], strict=False)]

    @property
    def step_median_ms(self) -> float:
        """Milliseconds a step; 0 if there was none."""
        return 1e3 * statistics.median(self.steps) if self.steps else 0.0

    @property
    def step_mean_ms(self) -> float:
        """Milliseconds a step; 0 if there was none."""
        return 1e3 * statistics.fmean(self.steps) if self.steps else 0.0

    @property
    def host_share(self) -> float:
        """Of all steps, the time in which the host was not waiting; 0 if there was no step."""
        whole = sum(self.steps)
        return 1 - sum(self._blocked[1:]) / whole if whole else 0.0

    def tenths(self, weights: int) -> tuple[Tenth, ...]:
        """The run in ten parts; `weights` are the bytes that were held before it."""
        found: list[Tenth] = []
        before = 0
        for mark in self._marks:
            seconds = self._handed[mark - 1] - self._handed[max(before - 1, 0)]
            steps = mark - max(before, 1)
            found.append(Tenth(1e3 * seconds / max(steps, 1), self._active[mark] - weights))
            before = mark
        return tuple(found)


class Contender(Protocol):
    """A loaded model with the loop of its engine.

    Attributes:
        loop: whose code reads and writes, for the report.
    """

    @property
    def loop(self) -> str:
        """See the class."""
        ...

    def run(self, ids: list[int], generate: int, clock: Clock) -> list[int]:
        """Read `ids` into a fresh state, write `generate` tokens, greedily, and tell the clock."""
        ...


def held_bytes(value: object) -> int:
    """Bytes of every array reachable from `value`, each counted once."""
    found: dict[int, int] = {}
    seen: set[int] = set()

    def walk(x: object) -> None:
        if isinstance(x, mx.array):
            found[id(x)] = x.nbytes
        elif isinstance(x, Mapping):
            walk(list(cast("Mapping[object, object]", x).values()))
        elif isinstance(x, list | tuple):
            for item in cast("Sequence[object]", x):
                walk(item)
        elif hasattr(x, "__dict__") and not isinstance(x, type) and id(x) not in seen:
            seen.add(id(x))
            walk(vars(x))

    walk(value)
    return sum(found.values())
