"""Speed and memory at several lengths, each run in a fresh process, alternating with a rival.

The rival reads the same checkpoint folder, the same random token ids, the same chunks, with the same
MLX and BLAS. It is a development extra and is imported only in its own process.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.checkpoint.files import read_config
from engine.errors import PerigeeError
from engine.planning import bare
from engine.planning.benchmark_report import (
    LINE,
    MESSAGE,
    OURS,
    Length,
    Limit,
    LongGeneration,
    Measurement,
    Report,
    Summary,
    Tenth,
    Workload,
    ratios,
)
from engine.planning.roofline import Ceilings, Parts, Work
from engine.planning.steps import Steps, silent


class BenchmarkError(PerigeeError):
    """A run failed or a rival is not installed."""

    kind = "benchmark"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured.

    Attributes:
        lengths: tokens of the prompts.
        generate: tokens written after each prompt.
        chunk: tokens a pass, 0 for one pass.
        runs: fresh processes of each engine, alternating.
        against: one of `RIVALS`, or None.
        rival_max_length: the rival is not asked for longer prompts; 0 asks for all.
        long_generation: tokens written after the shortest prompt in a run of its own; 0 for none.
        command: what to write into the report.
    """

    folder: Path
    lengths: tuple[int, ...]
    generate: int
    chunk: int
    runs: int = 3
    against: str | None = None
    rival_max_length: int = 0
    long_generation: int = 0
    command: str = ""

    def checked(self) -> "Plan":
        """With the lengths in order, each once.

        Raises:
            BenchmarkError: a number that measures nothing.
        """
        if not self.lengths:
            raise BenchmarkError("A benchmark needs at least one length, such as 2k.")
        least = (("prompt tokens", 1, min(self.lengths)), ("generated tokens", 1, self.generate))
        more = (("runs", 1, self.runs), ("tokens of a long generation", 10, self.long_generation or 10))
        for name, low, value in (*least, *more):
            if value < low:
                raise BenchmarkError(f"A benchmark needs at least {low} for its {name}, not {value}.")
        if self.against and 0 < self.rival_max_length < min(self.lengths):
            raise BenchmarkError(
                f"{self.against} is not to read more than {self.rival_max_length:,} tokens, but the shortest "
                f"length is {min(self.lengths):,}. Add a shorter one with --lengths."
            )
        return replace(self, lengths=tuple(sorted(set(self.lengths))))

    def workload(self, engine: str) -> Workload:
        """What one process of an engine has to do."""
        limit = self.rival_max_length if engine != OURS else 0
        lengths = tuple(n for n in self.lengths if not limit or n <= limit)
        return Workload(engine, str(self.folder), lengths, self.chunk, self.generate, self.long_generation)


@dataclass
class _Found:
    """Everything the processes of one engine said."""

    workload: Workload
    machine: dict[str, str] = field(default_factory=dict[str, str])
    measured: dict[int, list[Measurement]] = field(default_factory=dict[int, list[Measurement]])
    tenths: list[tuple[Tenth, ...]] = field(default_factory=list[tuple[Tenth, ...]])
    counted: dict[int, tuple[Parts, Parts]] = field(default_factory=dict[int, tuple[Parts, Parts]])
    ceilings: list[Ceilings] = field(default_factory=list[Ceilings])
    notes: dict[int, str] = field(default_factory=dict[int, str])

    def hear(self, line: dict[str, Any]) -> int | None:
        """Take a line of a process; returns the length if that length is done."""
        ((kind, value),) = line.items()
        if kind == "machine":
            self.machine = value
        elif kind == "measured":
            self.measured.setdefault(value["prompt_tokens"], []).append(Measurement(**value))
            return int(value["prompt_tokens"])
        elif kind == "failed":
            self.fail(value["prompt_tokens"], value["reason"])
        elif kind == "long_failed":
            length, reason = value["prompt_tokens"], value["reason"]
            self.notes[length] = f"{self.workload.engine} failed in the long generation: {reason}"
            self.workload = replace(self.workload, long_generation=0)
        elif kind == "long":
            self.tenths.append(tuple(Tenth(**tenth) for tenth in value["tenths"]))
        elif kind == "counted":
            prefill, decode = (_parts(value[name]) for name in ("prefill", "decode"))
            self.counted[value["prompt_tokens"]] = prefill, decode
        elif kind == "ceilings":
            self.ceilings.append(Ceilings(**value))
        return None

    def fail(self, length: int, reason: str) -> None:
        """Remember why a length has no figures, and try neither it nor longer ones again."""
        engine = self.workload.engine
        self.notes[length] = f"{engine} failed: {reason}"
        for later in (n for n in self.workload.lengths if n > length):
            self.notes[later] = f"{engine} was not asked, since it failed at {length:,} tokens"
        self.workload = replace(
            self.workload,
            lengths=tuple(n for n in self.workload.lengths if n < length),
            long_generation=self.workload.long_generation if length > self.workload.lengths[0] else 0,
        )

    @property
    def ceiling(self) -> Ceilings | None:
        """The best of all processes: a ceiling is what was reached at least once."""
        if not self.ceilings:
            return None
        return Ceilings(
            max(c.flops_per_second for c in self.ceilings),
            max(c.bytes_per_second for c in self.ceilings),
            self.ceilings[0].dtype,
        )


def _parts(plain: dict[str, list[float]]) -> Parts:
    return {name: Work(flops, nbytes) for name, (flops, nbytes) in plain.items()}


def benchmark(plan: Plan, steps: Steps = silent, keep: Callable[[Report], None] | None = None) -> Report:
    """Measure; with a rival, alternate with it and give ratios.

    Args:
        plan: what to measure.
        steps: told before each process and after each length.
        keep: given the report so far after each process, so that little is lost if the rest is.

    Raises:
        BenchmarkError: a run of ours failed, or the rival cannot be loaded; with its own message.
    """
    plan = plan.checked()
    read_config(plan.folder)  # a folder that is not there fails here, in its own words
    engines = [OURS] if plan.against is None else [OURS, plan.against]
    found = {engine: _Found(plan.workload(engine)) for engine in engines}
    total = plan.runs * sum(len(one.workload.lengths) for one in found.values())
    done = 0
    for run in range(plan.runs):
        for engine in engines:
            one = found[engine]
            asked, heard = one.workload.lengths, 0
            if not asked:
                continue
            name = f"{engine}, run {run + 1} of {plan.runs}"
            steps(done, total, name)
            for line in _lines(one.workload, one):
                if (length := one.hear(line)) is not None:
                    heard += 1
                    if heard < len(asked):
                        steps(done + heard, total, f"{name}, {length:,} tokens done")
            done += len(asked)
            if keep is not None:
                keep(_report(plan, found))
    steps(total, total, "done")
    return _report(plan, found)


def _lines(workload: Workload, found: _Found) -> Iterator[dict[str, Any]]:
    """What one process says, as it says it."""
    # By path, not with -m: nothing but what is measured has to be installed.
    command = [sys.executable, bare.__file__, "engine.planning.benchmark_run", workload.as_json()]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        heard: set[int] = set()
        for text in process.stdout:
            if text.startswith(LINE):
                line = json.loads(text.removeprefix(LINE))
                heard.update(value["prompt_tokens"] for kind, value in line.items() if kind == "measured")
                yield line
        if process.wait():
            errors.seek(0)
            _explain(workload, found, heard, process.returncode, errors.read())


def _explain(workload: Workload, found: _Found, heard: set[int], status: int, errors: str) -> None:
    """A rival that died is a note; one that is not installed, and any failure of ours, is an error."""
    reason = errors.rpartition(MESSAGE)[2].strip().splitlines()[-1:] or ["It gave no message."]
    missing = [n for n in workload.lengths if n not in heard]
    if workload.engine == OURS or MESSAGE in errors:
        text = errors.rpartition(MESSAGE)[2].strip() if MESSAGE in errors else reason[0]
        raise BenchmarkError(f"The run of {workload.engine} failed. {text}")
    if missing:
        found.fail(missing[0], f"its process ended with status {status}. {reason[0][:300]}")


def _report(plan: Plan, found: dict[str, _Found]) -> Report:
    ours = found[OURS]
    machine = {name: text for name, text in ours.machine.items() if name not in ("engine", "loop", "version")}
    machine |= {one.workload.engine: one.machine.get("version", "") for one in list(found.values())[1:]}
    return Report(
        command=plan.command,
        machine=machine,
        loops={engine: one.machine.get("loop", "") for engine, one in found.items()},
        prefill_chunk=plan.chunk,
        generated_tokens=plan.generate,
        runs=plan.runs,
        lengths=tuple(_length(plan, length, list(found.values())) for length in plan.lengths),
        ceilings=ours.ceiling,
        long_generations=tuple(
            LongGeneration.of(engine, plan.lengths[0], plan.long_generation, one.tenths)
            for engine, one in found.items()
            if one.tenths
        ),
    )


def _length(plan: Plan, length: int, found: Sequence[_Found]) -> Length:
    summaries = tuple(
        Summary.of(one.workload.engine, one.measured[length]) for one in found if length in one.measured
    )
    notes = [one.notes[length] for one in found if length in one.notes]
    if plan.against and 0 < plan.rival_max_length < length:
        notes.append(f"{plan.against} was not asked for more than {plan.rival_max_length:,} tokens")
    ours = found[0]
    limits: list[Limit | None] = [None, None]
    if length in ours.counted and ours.ceiling is not None:
        prefill, decode = ours.counted[length]
        seconds = length / summaries[0].prefill_tokens_per_second.median
        limits[0] = Limit.of(prefill, ours.ceiling, seconds)
        limits[1] = Limit.of(decode, ours.ceiling, summaries[0].step_median_ms.median / 1e3)
    return Length(length, summaries, ratios(summaries), limits[0], limits[1], tuple(notes))
