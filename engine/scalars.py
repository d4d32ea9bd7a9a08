"""Evaluated arrays as Python numbers. MLX types them as any scalar; these say which."""

from typing import cast

import mlx.core as mx


def as_float(array: mx.array) -> float:
    """The one element of a real array."""
    return float(cast("float", array.item()))


def as_int(array: mx.array) -> int:
    """The one element of an integer array."""
    return int(cast("int", array.item()))


def as_ints(array: mx.array) -> list[int]:
    """The elements of a one-dimensional integer array."""
    return cast("list[int]", array.tolist())
