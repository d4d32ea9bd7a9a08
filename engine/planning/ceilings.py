"""What this machine reaches when it does nothing but multiply, or nothing but copy."""

import time
from collections.abc import Callable

import mlx.core as mx

from engine.planning.roofline import Ceilings

_REPEATS = 5
_CHAINED = 4
"""Operations per evaluation, each on the result of the one before, so that starting them hides."""


def measure_ceilings(dtype: mx.Dtype) -> Ceilings:
    """The best of a few large matrix products in `dtype` and of a few large copies, in under two seconds.

    The copy adds one, which reads and writes every byte once.
    """
    on_cpu = mx.default_device().type == mx.cpu
    size, entries = (1024, 1 << 24) if on_cpu else (8192, 1 << 28)
    product = _product_seconds(size, dtype)
    source = mx.zeros((entries,), mx.float32 if on_cpu else mx.bfloat16)
    copy = _best_seconds(lambda x: x + 1, source)
    moved = 2 * source.nbytes
    del source
    mx.clear_cache()
    return Ceilings(2 * size**3 / product, moved / copy, str(dtype).removeprefix("mlx.core."))


def _product_seconds(size: int, dtype: mx.Dtype) -> float:
    """Seconds of one square product."""
    bound = (3 / size) ** 0.5  # products keep the size of what they multiply
    left, right = (
        mx.random.uniform(-bound, bound, (size, size), key=key).astype(dtype)
        for key in mx.random.split(mx.random.key(5), 2)
    )
    return _best_seconds(lambda x: x @ right, left)


def _best_seconds(operation: Callable[[mx.array], mx.array], x: mx.array) -> float:
    """Seconds of one `operation`, the best of several; the first is not timed."""
    mx.eval(x)
    best = float("inf")
    for attempt in range(_REPEATS + 1):
        begun = time.perf_counter()
        result = x
        for _ in range(_CHAINED):
            result = operation(result)
        mx.eval(result)
        if attempt:
            best = min(best, (time.perf_counter() - begun) / _CHAINED)
    return best
