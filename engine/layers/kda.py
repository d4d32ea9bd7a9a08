"""Kimi Delta Attention: short convolutions, a per-channel forget gate and the delta rule."""

from dataclasses import dataclass

import mlx.core as mx

from engine.kernels.delta_rule import delta_rule_blocks, delta_rule_step
from engine.kernels.pointwise import sigmoid, softplus
from engine.layers.activations import l2_norm, rms_norm
from engine.layers.conv import ShortConvolution
from engine.layers.linear import Projection
from engine.state import RecurrentState


@dataclass(frozen=True)
class KimiDeltaAttention:
    """One KDA block of H heads of width D (P = H * D); rank r of the two low-rank gates.

    Attributes:
        inputs: x -> q | k | v | f_a | g_a | beta, widths P, P, P, r, r, H.
        convolution: over q | k | v together (depthwise, so joining changes nothing).
        forget_up, gate_up: r -> P, the second halves of the low-rank gates.
        decay_scale: exp(A_log) [H, 1] float32.
        decay_bias: dt_bias [H, D] float32.
        qk_scale: [2H, 1] float32, D^-1/2 for the queries (the read-out scale) and 1 for the keys.
        output_norm: [D] float32, shared by all heads.
        output: P -> hidden.
    """

    heads: int
    width: int
    rank: int
    inputs: Projection
    convolution: ShortConvolution
    forget_up: Projection
    gate_up: Projection
    decay_scale: mx.array
    decay_bias: mx.array
    qk_scale: mx.array
    output_norm: mx.array
    output: Projection
    norm_eps: float

    def __call__(self, x: mx.array, state: RecurrentState, valid: int) -> mx.array:
        """Continue `state` by the first `valid` rows of x [B, T, hidden]; returns [B, T, hidden]."""
        batch, length = x.shape[:2]
        total = self.heads * self.width
        cuts = (3 * total, 3 * total + self.rank, 3 * total + 2 * self.rank)
        qkv, forget, gate, beta = mx.split(self.inputs(x), cuts, axis=-1)
        qkv, window = self.convolution(qkv, state.window, valid)
        qkv = qkv.reshape(batch, length, 3 * self.heads, self.width)
        qk, v = mx.split(qkv, (2 * self.heads,), axis=2)
        q, k = mx.split(l2_norm(qk, self.qk_scale), 2, axis=2)
        g = self._log_decay(self.forget_up(forget).reshape(q.shape))
        beta = sigmoid(beta.astype(mx.float32))
        if length == 1:
            o, memory = delta_rule_step(q[:, 0], k[:, 0], v[:, 0], g[:, 0], beta[:, 0], state.memory)
            o = o[:, None]
        else:
            if valid < length:
                token = mx.arange(length)[:, None] < valid
                g, beta = mx.where(token[..., None], g, 0.0), mx.where(token, beta, 0.0)
            o, memory = delta_rule_blocks(q, k, v, g, beta, state.memory)
        state.absorb(window, memory, valid)
        z = self.gate_up(gate).reshape(q.shape).astype(mx.float32)
        y = rms_norm(o, self.output_norm, self.norm_eps) * sigmoid(z)
        return self.output(y.astype(x.dtype).reshape(batch, length, total))

    def _log_decay(self, a: mx.array) -> mx.array:
        """g = -exp(A_log) * softplus(a + dt_bias), [B, T, H, D] float32, unbounded below."""
        return -self.decay_scale * softplus(a.astype(mx.float32) + self.decay_bias)
