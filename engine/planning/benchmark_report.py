"""What a benchmark found, as plain values: one run of one engine, and all runs together."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.planning.roofline import Ceilings, Parts, limit_seconds

OURS = "perigee"
RIVALS = ("mlx-lm",)

LINE = "benchmark line: "
"""Before each line of JSON that a measuring process prints: libraries may write there too."""

MESSAGE = "benchmark message: "
"""Before the message of a process that failed, on its standard error."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What one process measures.

    Attributes:
        engine: `OURS` or one of `RIVALS`.
        folder: the checkpoint.
        lengths: tokens of the prompts, ascending.
        chunk: tokens a pass, 0 for one pass.
        generate: tokens written after each prompt.
        long_generation: tokens written after the shortest prompt, in a run of its own; 0 for none.
    """

    engine: str
    folder: str
    lengths: tuple[int, ...]
    chunk: int
    generate: int
    long_generation: int = 0

    @staticmethod
    def from_json(text: str) -> "Workload":
        """The inverse of `as_json`."""
        values: dict[str, Any] = json.loads(text)
        values["lengths"] = tuple(values["lengths"])
        return Workload(**values)

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run at one length.

    Attributes:
        prompt_tokens: tokens read.
        prefill_seconds: from the token ids of the prompt to the first token in hand.
        step_median_ms, step_mean_ms: from one token in hand to the next; 0 if only one was written.
        host_share: of a step, the part in which the host was not waiting for a token, 0 to 1. On a CPU it
            says nothing: MLX waits there while work is handed over.
        peak_bytes: most memory held at once, above the weights.
        state_bytes: held by the states or caches at the end of the prompt.
    """

    prompt_tokens: int
    prefill_seconds: float
    step_median_ms: float
    step_mean_ms: float
    host_share: float
    peak_bytes: int
    state_bytes: int

    @property
    def prefill_tokens_per_second(self) -> float:
        """Tokens read a second."""
        return self.prompt_tokens / self.prefill_seconds


@dataclass(frozen=True, slots=True)
class Tenth:
    """A tenth of a long generation: mean milliseconds a step, and bytes above the weights at its end."""

    step_mean_ms: float
    active_bytes: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Lowest, median and highest of several runs."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """The spread of at least one value."""
        return Spread(min(values), statistics.median(values), max(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """All runs of one engine at one length; the fields are those of `Measurement`."""

    engine: str
    runs: int
    prefill_tokens_per_second: Spread
    step_median_ms: Spread
    step_mean_ms: Spread
    host_share: Spread
    peak_bytes: Spread
    state_bytes: Spread
    peak_bytes_above_state: Spread

    @staticmethod
    def of(engine: str, runs: Sequence[Measurement]) -> "Summary":
        """The spread of each figure over at least one run."""
        return Summary(
            engine,
            len(runs),
            Spread.of([run.prefill_tokens_per_second for run in runs]),
            Spread.of([run.step_median_ms for run in runs]),
            Spread.of([run.step_mean_ms for run in runs]),
            Spread.of([run.host_share for run in runs]),
            Spread.of([run.peak_bytes for run in runs]),
            Spread.of([run.state_bytes for run in runs]),
            Spread.of([run.peak_bytes - run.state_bytes for run in runs]),
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """The least that a part of a run can take on this machine, and how near our median came.

    Attributes:
        flops, nbytes: counted, see `engine.planning.roofline`.
        seconds: the time limit by the measured ceilings.
        reached: limit / measured, 0 to 1.
        parts: seconds by part of the model.
    """

    flops: float
    nbytes: float
    seconds: float
    reached: float
    parts: Mapping[str, float]

    @staticmethod
    def of(parts: Parts, ceilings: Ceilings, measured_seconds: float) -> "Limit":
        """The limit of the counted work beside a time."""
        seconds = limit_seconds(parts, ceilings)
        return Limit(
            sum(work.flops for work in parts.values()),
            sum(work.nbytes for work in parts.values()),
            seconds,
            seconds / measured_seconds if measured_seconds else 0.0,
            {name: limit_seconds({name: work}, ceilings) for name, work in parts.items()},
        )


@dataclass(frozen=True, slots=True)
class Length:
    """Everything at one length.

    Attributes:
        summaries: one an engine that was measured here, ours first.
        ratios: ours / theirs, of medians: speeds, then memory.
        prefill_limit, decode_limit: ours against the machine; None where it was not counted.
        notes: what was not measured, and why.
    """

    prompt_tokens: int
    summaries: tuple[Summary, ...]
    ratios: Mapping[str, float]
    prefill_limit: Limit | None = None
    decode_limit: Limit | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LongGeneration:
    """Tenths of a long generation of one engine, medians over the runs."""

    engine: str
    prompt_tokens: int
    tokens: int
    tenths: tuple[Tenth, ...]

    @staticmethod
    def of(engine: str, prompt_tokens: int, tokens: int, runs: Sequence[Sequence[Tenth]]) -> "LongGeneration":
        """The medians, tenth by tenth."""
        tenths = tuple(
            Tenth(
                statistics.median(tenth.step_mean_ms for tenth in same),
                int(statistics.median(tenth.active_bytes for tenth in same)),
            )
            for same in zip(*runs, strict=True)
        )
        return LongGeneration(engine, prompt_tokens, tokens, tenths)


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, where, and by which command.

    Attributes:
        machine: device, platform and versions, as the processes that measured saw them.
        loops: by engine, whose code read and wrote.
        runs: of each engine, as asked for.
    """

    command: str
    machine: Mapping[str, str]
    loops: Mapping[str, str]
    prefill_chunk: int
    generated_tokens: int
    runs: int
    lengths: tuple[Length, ...]
    ceilings: Ceilings | None = None
    long_generations: tuple[LongGeneration, ...] = field(default=())

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=2)


def ratios(summaries: Sequence[Summary]) -> dict[str, float]:
    """Ours / theirs of the medians; empty unless there are two. Above 1 is faster, or more memory."""
    if len(summaries) < 2:
        return {}
    ours, theirs = summaries
    figures = (
        ("prefill speed", ours.prefill_tokens_per_second, theirs.prefill_tokens_per_second),
        ("decode speed", theirs.step_median_ms, ours.step_median_ms),
        ("memory above weights", ours.peak_bytes, theirs.peak_bytes),
        ("memory above weights and state", ours.peak_bytes_above_state, theirs.peak_bytes_above_state),
    )
    return {name: top.median / below.median for name, top, below in figures if below.median > 0}
