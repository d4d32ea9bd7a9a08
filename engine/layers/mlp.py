"""The gated MLP: down(silu(gate(x)) * up(x))."""

from dataclasses import dataclass

import mlx.core as mx

from engine.layers.activations import silu
from engine.layers.linear import Projection


@dataclass(frozen=True)
class GatedMLP:
    """gate_up gives gate and up side by side, [2 * intermediate]; down returns to the hidden size."""

    gate_up: Projection
    down: Projection

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., D] -> [..., D]."""
        gate, up = mx.split(self.gate_up(x), 2, axis=-1)
        return self.down(silu(gate) * up)
