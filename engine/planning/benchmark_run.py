"""One benchmark run, alone in its process: `python -m engine.planning.benchmark_run ENGINE DIR N G C`.

Prints one JSON line. Both engines read the same random token ids and are timed by the moment their
own loop hands over the first token and the last.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.checkpoint.loader import load_model
from engine.generation.generator import Generator, Options
from engine.generation.prefill import PrefillPolicy
from engine.planning.benchmark import MESSAGE, OURS, BenchmarkError, Measurement
from engine.planning.quiet import Quiet
from engine.scalars import as_ints
from engine.text.chat_format import Prompt, PromptPart

_LOWEST, _HIGHEST = 16, 6000
"""Range of the random ids; below 16 stand control tokens."""

_WARM_UP = 128
"""Tokens read and written before anything is timed."""


class _Mute:
    """A tokenizer for measurements: nothing ends the answer and nothing is spelled."""

    stop_ids: frozenset[int] = frozenset()

    def token_bytes(self, _token_id: int, /) -> bytes:
        """No bytes."""
        return b""


def _prompt(count: int) -> list[int]:
    drawn = mx.random.randint(_LOWEST, _HIGHEST, (count,), key=mx.random.key(7))
    return as_ints(drawn)


def _perigee(folder: Path, chunk: int) -> Callable[[list[int], int], tuple[float, float]]:
    model = load_model(folder).model
    policy = PrefillPolicy(chunk)

    def run(ids: list[int], generate: int) -> tuple[float, float]:
        prompt = Prompt((PromptPart("user", "random", tuple(ids)),))
        generator = Generator(model, _Mute())
        stats = generator.generate(prompt, policy, Options(max_tokens=generate), Quiet()).stats
        return stats.prefill_tokens_per_second, stats.decode_tokens_per_second

    return run


def _mlx_lm(folder: Path, chunk: int) -> Callable[[list[int], int], tuple[float, float]]:
    try:
        load: Any = importlib.import_module("mlx_lm.utils").load_model
        loop: Any = importlib.import_module("mlx_lm.generate").generate_step
    except ImportError as error:
        raise BenchmarkError(f"mlx-lm is not installed ({error}). Run make setup.") from error
    model = load(folder)[0]

    def run(ids: list[int], generate: int) -> tuple[float, float]:
        step = chunk or len(ids)
        begun = time.perf_counter()
        tokens: Iterator[Any] = loop(mx.array(ids), model, max_tokens=generate, prefill_step_size=step)
        first = last = 0.0
        count = 0
        for _ in tokens:
            last = time.perf_counter()
            first = first or last
            count += 1
        return len(ids) / (first - begun), (count - 1) / (last - first) if count > 1 else 0.0

    return run


def main(arguments: list[str]) -> None:
    """Load, warm up, measure once, print."""
    engine, folder, prompt_tokens, generate, chunk = arguments
    make = _perigee if engine == OURS else _mlx_lm
    run = make(Path(folder), int(chunk))
    run(_prompt(_WARM_UP), 4)
    mx.clear_cache()
    weights = mx.get_active_memory()
    mx.reset_peak_memory()
    prefill, decode = run(_prompt(int(prompt_tokens)), int(generate))
    measured = Measurement(prefill, decode, mx.get_peak_memory() - weights)
    sys.stdout.write(json.dumps(asdict(measured)) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as failure:  # told to the parent process, which shows its message
        sys.stderr.write(f"{MESSAGE}{failure}\n")
        raise SystemExit(1) from failure
