"""Comparing MLX arrays."""

import mlx.core as mx

from engine.scalars import as_float


def largest(array: mx.array) -> float:
    """The largest absolute value."""
    return as_float(mx.abs(array.astype(mx.float32)).max())


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Equal shapes, dtypes and values."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(mx.array_equal(a, b).item())


def relative_gap(a: mx.array, b: mx.array) -> float:
    """The largest difference, in parts of a's largest value; both must be finite and alike in form."""
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert bool((mx.isfinite(a).all() & mx.isfinite(b).all()).item())
    gap = largest(a.astype(mx.float32) - b.astype(mx.float32))
    return gap / max(largest(a), 1e-30)
