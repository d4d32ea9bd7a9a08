"""Where the time of a prefill goes: CPU seconds per part of the model, one BLAS thread.

    OPENBLAS_NUM_THREADS=1 python -m engine.planning.profile_prefill resources/demo-model 8192 2048

Each part is evaluated before and after it is timed, so the sum is a little above a plain run's.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.checkpoint.loader import load_model
from engine.kernels.lanes import Part, run_alone
from engine.layers import conv, expert_blocks, kda, kda_core, linear, mla, mlp, moe
from engine.planning.tuning import random_ids

spent: dict[str, float] = defaultdict(float)
_inner: list[float] = []


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, adding the CPU time spent in it, and not in timed parts inside it, to `spent[name]`."""

    def run(*args: Any, **kwargs: Any) -> Any:
        mx.eval([a for a in args if isinstance(a, mx.array)])
        begun = time.process_time()
        _inner.append(0.0)
        result = function(*args, **kwargs)
        mx.eval(result)
        whole = time.process_time() - begun
        spent[name] += whole - _inner.pop()
        if _inner:
            _inner[-1] += whole
        return result

    return run


def timed_part(name: str, function: Callable[..., Part[Any]]) -> Callable[..., Part[Any]]:
    """As `timed`, for what runs in lanes: here in one turn."""
    whole = timed(name, lambda *args: run_alone(function(*args)))

    def run(*args: Any) -> Part[Any]:
        result = whole(*args)
        yield ()
        return result

    return run


PARTS: tuple[tuple[Any, str, str], ...] = (
    (kda.KimiDeltaAttention, "__call__", "KDA, the rest"),
    (kda_core, "block_terms", "delta rule, without the memory"),
    (kda_core, "follow", "delta rule, through the memory"),
    (kda_core, "_gates", "forget gate and write strength"),
    (conv.ShortConvolution, "__call__", "short convolution"),
    (mla.LatentAttention, "__call__", "MLA, the rest"),
    (mla.LatentAttention, "_attend", "attention in tiles"),
    (mla.LatentAttention, "_expand", "expanding latents"),
    (moe.MixtureOfExperts, "__call__", "MoE, the rest"),
    (moe.Router, "__call__", "router"),
    (expert_blocks.DenseExperts, "__call__", "experts"),
    (mlp.GatedMLP, "__call__", "MLP, the rest"),
    (linear.BlockedLinear, "__call__", "projections"),
)


def main(folder: str, tokens: str, chunk: str) -> None:
    """Read random tokens once and print the parts, the largest first."""
    model = load_model(Path(folder)).model
    ids = mx.array([random_ids(model, int(tokens), seed=0)], mx.int32)
    state = model.new_state()
    state.reserve(int(tokens))
    for place, attribute, name in PARTS:
        function = getattr(place, attribute)
        wrap = timed_part if isgeneratorfunction(function) else timed
        setattr(place, attribute, wrap(name, function))
    begun = time.process_time()
    for start in range(0, int(tokens), int(chunk)):
        mx.eval(model(ids[:, start : start + int(chunk)], state))
        state.evaluate()
        mx.clear_cache()
    sys.stdout.write(f"{time.process_time() - begun:6.2f} s in all\n")
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{seconds:6.2f} s {name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
