"""Prefill and decode speed and peak memory, each run in a fresh process, alternating with a rival.

The rival is mlx-lm's own generation loop on the same checkpoint folder, with the same random
prompt, chunk size and BLAS. It is a development extra and is imported only in its own process.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.checkpoint.files import read_config
from engine.errors import PerigeeError
from engine.planning.steps import Steps, silent

OURS = "perigee"
RIVALS = ("mlx-lm",)
MESSAGE = "benchmark message: "
"""Before the message of a run that failed, on its standard error."""


class BenchmarkError(PerigeeError):
    """A run failed or a rival is not installed."""

    kind = "benchmark"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run: tokens per second, and bytes above the weights."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    peak_memory_bytes: int


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
    """All runs of one engine."""

    engine: str
    prefill_tokens_per_second: Spread
    decode_tokens_per_second: Spread
    peak_memory_bytes: Spread

    @staticmethod
    def of(engine: str, runs: Sequence[Measurement]) -> "Summary":
        """The spread of each figure."""
        return Summary(
            engine,
            Spread.of([run.prefill_tokens_per_second for run in runs]),
            Spread.of([run.decode_tokens_per_second for run in runs]),
            Spread.of([run.peak_memory_bytes for run in runs]),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, and ratios of medians: speeds ours / theirs, memory ours / theirs."""

    prompt_tokens: int
    generated_tokens: int
    prefill_chunk: int
    runs: int
    summaries: tuple[Summary, ...]
    ratios: Mapping[str, float]

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=2)

    def as_table(self) -> str:
        """Medians with their spread, one line per engine, then the ratios."""
        lines = [
            f"{self.prompt_tokens:,} prompt tokens in chunks of {self.prefill_chunk:,}, "
            f"{self.generated_tokens} generated, median of {self.runs} alternating runs (lowest to highest)",
            f"{'':10}{'prefill tok/s':>26}{'decode tok/s':>26}{'MB above weights':>26}",
        ]
        for s in self.summaries:
            cells = (
                _cell(s.prefill_tokens_per_second),
                _cell(s.decode_tokens_per_second),
                _cell(s.peak_memory_bytes, 1e6),
            )
            lines.append(f"{s.engine:10}" + "".join(f"{cell:>26}" for cell in cells))
        lines.extend(f"{name}: {value:.2f}" for name, value in self.ratios.items())
        return "\n".join(lines)


def _cell(spread: Spread, unit: float = 1.0) -> str:
    return f"{spread.median / unit:,.1f} ({spread.low / unit:,.1f} to {spread.high / unit:,.1f})"


def benchmark(
    folder: Path,
    prompt_tokens: int,
    generate: int,
    prefill_chunk: int,
    *,
    against: str | None = None,
    runs: int = 3,
    steps: Steps = silent,
) -> Report:
    """Measure; with `against`, alternate with the rival and give ratios.

    Raises:
        BenchmarkError: a run failed; its own message is in the error.
    """
    for name, value in (("prompt tokens", prompt_tokens), ("generated tokens", generate), ("runs", runs)):
        if value < 1:
            raise BenchmarkError(f"A benchmark needs at least 1 for its {name}, not {value}.")
    read_config(folder)  # a folder that is not there fails here, in its own words
    engines = [OURS] if against is None else [OURS, against]
    results: dict[str, list[Measurement]] = {engine: [] for engine in engines}
    total = runs * len(engines)
    for run in range(runs):
        for number, engine in enumerate(engines):
            steps(run * len(engines) + number, total, f"{engine}, run {run + 1} of {runs}")
            results[engine].append(_run(engine, folder, prompt_tokens, generate, prefill_chunk))
    steps(total, total, "done")
    summaries = tuple(Summary.of(engine, measured) for engine, measured in results.items())
    return Report(prompt_tokens, generate, prefill_chunk, runs, summaries, _ratios(summaries))


def _ratios(summaries: Sequence[Summary]) -> dict[str, float]:
    if len(summaries) < 2:
        return {}
    ours, theirs = summaries
    figures = (
        ("prefill speed", ours.prefill_tokens_per_second, theirs.prefill_tokens_per_second),
        ("decode speed", ours.decode_tokens_per_second, theirs.decode_tokens_per_second),
        ("memory above weights", ours.peak_memory_bytes, theirs.peak_memory_bytes),
    )
    return {
        f"{name}, {ours.engine} / {theirs.engine}": mine.median / other.median
        for name, mine, other in figures
        if other.median  # one generated token has no decode speed
    }


def _run(engine: str, folder: Path, prompt_tokens: int, generate: int, chunk: int) -> Measurement:
    """One run in a process of its own."""
    arguments = [engine, str(folder), str(prompt_tokens), str(generate), str(chunk)]
    done = subprocess.run(
        [sys.executable, "-m", "engine.planning.benchmark_run", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.rpartition(MESSAGE)[2].strip() or "It gave no message."
        raise BenchmarkError(f"The run of {engine} failed. {reason}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))
