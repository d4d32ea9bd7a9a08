"""Kimi Delta Attention: short convolutions, a per-channel forget gate and the delta rule."""

from dataclasses import dataclass

import mlx.core as mx

from engine.layers.kda_core import CoreInputs, Cores, KdaParameters
from engine.layers.linear import Projection
from engine.state import RecurrentState


@dataclass(frozen=True)
class KimiDeltaAttention:
    """One KDA block of H heads of width D (P = H * D); rank r of the two low-rank gates.

    Attributes:
        inputs: x -> q | k | v | f_a | g_a | beta, widths P, P, P, r, r, H.
        forget_up, gate_up: r -> P, the second halves of the low-rank gates.
        core: what stands between the projections, in the forms this device wants.
        output: P -> hidden.
    """

    rank: int
    inputs: Projection
    forget_up: Projection
    gate_up: Projection
    parameters: KdaParameters
    core: Cores
    output: Projection

    def __call__(self, x: mx.array, state: RecurrentState, valid: int) -> mx.array:
        """Continue `state` by the first `valid` rows of x [B, T, hidden]; returns [B, T, hidden]."""
        projected = self.inputs(x)
        first = 3 * self.parameters.decay_bias.size
        forget = self.forget_up(projected[..., first : first + self.rank])
        gate = self.gate_up(projected[..., first + self.rank : first + 2 * self.rank])
        inputs = CoreInputs(projected, forget, gate, state.window, state.memory)
        y, window, memory = self.core(self.parameters, inputs, valid)
        state.absorb(window, memory, valid)
        return self.output(y)
