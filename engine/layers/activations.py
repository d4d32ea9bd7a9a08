"""Pointwise functions and norms."""

import mlx.core as mx

from engine.kernels.fused import fused
from engine.kernels.pointwise import sigmoid


def silu(x: mx.array, few: bool = False) -> mx.array:
    """x * sigmoid(x), in the dtype of x. For `few` see `engine.kernels.pointwise`."""
    return x * sigmoid(x, few)


@fused
def _gated(gate: mx.array, up: mx.array, few: bool) -> mx.array:
    return silu(gate, few) * up


def gated_silu(gate_up: mx.array, few: bool = False) -> mx.array:
    """silu(gate) * up for gate | up side by side, [..., 2 * I] -> [..., I]."""
    gate, up = mx.split(gate_up, 2, axis=-1)
    return _gated(gate, up, few)


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """x * rsqrt(mean(x^2) + eps) * weight over the last axis; mean and rsqrt in float32."""
    return mx.fast.rms_norm(x, weight, eps)


def l2_norm(x: mx.array, scale: mx.array, eps: float = 1e-6) -> mx.array:
    """scale * x / sqrt(sum(x^2) + eps) over the last axis, float32.

    `scale` broadcasts against x. eps stands on the sum, as in the reference kernels of Kimi Linear.
    """
    x = x.astype(mx.float32)
    return x * (scale * mx.rsqrt((x * x).sum(axis=-1, keepdims=True) + eps))
