"""Pointwise functions as one kernel on a GPU.

MLX compiles them there; on a CPU that would need a C++ compiler on the user's machine, so there the
function itself runs.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import mlx.core as mx

P = ParamSpec("P")
R = TypeVar("R")


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose result at a place depends on its arguments at that place alone."""
    compiled: Callable[P, R] = mx.compile(function, shapeless=True)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        form = function if mx.default_device().type == mx.cpu else compiled
        return form(*args, **kwargs)

    return run
