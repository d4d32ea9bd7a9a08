"""The gated MLP: down(silu(gate(x)) * up(x))."""

from dataclasses import dataclass

import mlx.core as mx

from engine.layers.activations import gated_silu
from engine.layers.linear import Projection


@dataclass(frozen=True)
class GatedMLP:
    """gate_up gives gate and up side by side, [2 * intermediate]; down returns to the hidden size."""

    gate_up: Projection
    down: Projection

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., D] -> [..., D]."""
        return self.down(gated_silu(self.gate_up(x), few=x.size == x.shape[-1]))
