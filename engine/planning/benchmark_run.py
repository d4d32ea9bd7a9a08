"""One engine measured at several lengths, alone in its process: ARGUMENT is a `Workload` as JSON.

    python engine/planning/bare.py engine.planning.benchmark_run ARGUMENT

Prints a line of JSON as soon as it has something to say, so that a crash keeps what was measured. Only
MLX is imported, and mlx-lm if it is the one to be measured.
"""

import gc
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.checkpoint.files import read_config
from engine.models.kimi_linear import KimiLinear
from engine.planning.benchmark_clock import Clock, Contender
from engine.planning.benchmark_ours import Perigee
from engine.planning.benchmark_report import LINE, MESSAGE, OURS, Measurement, Workload
from engine.planning.benchmark_rival import MlxLm, rival_version
from engine.planning.ceilings import measure_ceilings
from engine.planning.roofline import Form, Parts, decode_parts, prefill_parts
from engine.scalars import as_ints

_LOWEST, _HIGHEST = 16, 6000
"""Range of the random ids; below 16 stand control tokens."""

_WARM_UP_WRITTEN = 8
_CHUNK_OF_ONE_PASS = 2048
"""How warm-up counts chunks where a prompt is read in one pass."""


def random_prompt(vocabulary: int, count: int) -> list[int]:
    """The same `count` ids each time."""
    high = min(_HIGHEST, vocabulary)
    return as_ints(mx.random.randint(min(_LOWEST, high - 1), high, (count,), key=mx.random.key(7)))


class Bench:
    """A contender and its prompts."""

    def __init__(self, work: Workload, contender: Contender) -> None:
        self._work, self._contender = work, contender
        self._vocabulary = int(read_config(Path(work.folder))["vocab_size"])

    def measure(self, length: int, generate: int) -> tuple[Clock, int, int]:
        """A timed run after a warm-up: its clock, the bytes held before, and the most above them."""
        chunk = self._work.chunk or _CHUNK_OF_ONE_PASS
        self._run(min(length, 2 * chunk + 100), _WARM_UP_WRITTEN)
        gc.collect()
        mx.clear_cache()
        held = mx.get_active_memory()
        mx.reset_peak_memory()
        clock = self._run(length, generate)
        return clock, held, mx.get_peak_memory() - held

    def _run(self, length: int, generate: int) -> Clock:
        ids = random_prompt(self._vocabulary, length)
        clock = Clock(generate)
        self._contender.run(ids, generate, clock)
        return clock


def _measurement(length: int, clock: Clock, peak: int) -> Measurement:
    return Measurement(
        length,
        clock.prefill_seconds,
        clock.step_median_ms,
        clock.step_mean_ms,
        clock.host_share,
        peak,
        clock.state_bytes,
    )


def _say(kind: str, value: object) -> None:
    sys.stdout.write(f"{LINE}{json.dumps({kind: value})}\n")
    sys.stdout.flush()


def _attempt(prompt_tokens: int, ours: bool, act: Callable[[], None], kind: str = "failed") -> bool:
    """Whether it went well. Our own failures end the run, and a rival that is not installed
    does; its other failures are a line of the report."""
    try:
        act()
    except Exception as error:
        if ours or isinstance(error, ImportError):
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        _say(kind, {"prompt_tokens": prompt_tokens, "reason": reason})
        return False
    return True


def run(work: Workload) -> None:
    """Load, then measure at each length, the shortest first; a rival that fails is not asked for more."""
    ours = work.engine == OURS
    made: list[Contender] = []

    def load() -> None:
        made.append((Perigee if ours else MlxLm)(Path(work.folder), work.chunk))

    if not _attempt(work.lengths[0], ours, load):
        return
    contender = made.pop()
    bench = Bench(work, contender)
    _say("machine", _machine(work.engine, contender.loop))

    def one(length: int) -> None:
        clock, _, peak = bench.measure(length, work.generate)
        _say("measured", asdict(_measurement(length, clock, peak)))

    def long(length: int) -> None:
        clock, held, _ = bench.measure(length, work.long_generation)
        _say("long", {"prompt_tokens": length, "tenths": [asdict(t) for t in clock.tenths(held)]})

    for length in work.lengths:
        if not _attempt(length, ours, lambda length=length: one(length)):
            return
    if work.long_generation:
        _attempt(work.lengths[0], ours, lambda: long(work.lengths[0]), "long_failed")
    if isinstance(contender, Perigee):
        _say_roofline(work, contender)


def _machine(engine: str, loop: str) -> dict[str, str]:
    device = mx.default_device()
    name = mx.device_info().get("device_name", "") if device.type == mx.gpu else platform.processor()
    return {
        "engine": engine,
        "loop": loop,
        "device": f"{device.type.name} {name or platform.machine()}".strip(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "mlx": str(vars(mx)["__version__"]),
        "version": rival_version() if engine != OURS else "",
    }


def _say_roofline(work: Workload, contender: Perigee) -> None:
    """Work counted at each length, and what the machine reaches; families without a count say nothing."""
    model = contender.loaded.model
    if not isinstance(model, KimiLinear):
        return
    dtype = model.numerics.dtype
    form = _form(contender.loaded.config, dtype.size, packed=not model.numerics.blocked)
    for length in work.lengths:
        counted = {
            "prefill": _plain(prefill_parts(model.config, form, contender.plan(length).slices)),
            "decode": _plain(decode_parts(model.config, form, length)),
        }
        _say("counted", {"prompt_tokens": length, **counted})
    del contender.loaded
    gc.collect()
    _say("ceilings", asdict(measure_ceilings(dtype)))


def _form(config: dict[str, Any], activation_bytes: int, *, packed: bool) -> Form:
    """How this device holds the weights: on a CPU they are unpacked."""
    block = config.get("quantization") or config.get("quantization_config")
    if packed and block and "bits" in block:
        return Form.packed(int(block["bits"]), int(block["group_size"]), activation_bytes)
    return Form.dense(activation_bytes)


def _plain(parts: Parts) -> dict[str, tuple[float, float]]:
    return {name: (work.flops, work.nbytes) for name, work in parts.items()}


if __name__ == "__main__":
    try:
        run(Workload.from_json(sys.argv[1]))
    except Exception as failure:  # told to the parent process, which shows its message
        sys.stderr.write(f"{MESSAGE}{failure}\n")
        raise SystemExit(1) from failure
