"""Exponentials and what is built from them, in the form that is fast on the device at hand.

MLX's CPU back end computes `exp` and `sigmoid` one element at a time without vector instructions;
its `power` takes the C library's, which measured 2.4 times faster than `exp` there (docs/benchmarks.md).
On a GPU the plain functions are used, and for `few` elements everywhere: the numbers of one token, where
an operation costs more than its elements do.
"""

import math

import mlx.core as mx

LOG2_E = math.log2(math.e)


def _on_cpu() -> bool:
    return mx.default_device().type == mx.cpu


def exp2(x: mx.array) -> mx.array:
    """2^x. Callers that control the scale of x fold log2(e) into it once."""
    return mx.power(2.0, x) if _on_cpu() else mx.exp(x * math.log(2))


def exp(x: mx.array, few: bool = False) -> mx.array:
    """e^x. The rounding of x * log2(e) costs |x| * 6e-8 relative, as in any float32 exponential that
    reduces its argument in float32."""
    return mx.exp(x) if few or not _on_cpu() else mx.power(2.0, x * LOG2_E)


def sigmoid(x: mx.array, few: bool = False) -> mx.array:
    """1 / (1 + e^-x); 0 where e^-x overflows."""
    return mx.sigmoid(x) if few or not _on_cpu() else 1.0 / (1.0 + exp2(x * -LOG2_E))


def softplus(x: mx.array, few: bool = False) -> mx.array:
    """ln(1 + e^x) without overflow and without losing small results."""
    if few or not _on_cpu():
        return mx.logaddexp(x, 0.0)
    return mx.maximum(x, 0.0) + mx.log1p(exp2(mx.abs(x) * -LOG2_E))
