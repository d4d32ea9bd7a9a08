"""Multi-head latent attention without position encoding (NoPE), with tiled queries.

The state keeps one latent and one shared rope key per token. For many tokens the latent is expanded
to keys and values, a group of heads at a time; for one token the absorbed form works on the latent
itself. Queries are tiled, so no heads x chunk x context array ever exists.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from engine.kernels.lanes import Part, run_in_lanes
from engine.kernels.pointwise import LOG2_E, exp2
from engine.layers.activations import rms_norm
from engine.layers.linear import ROW_BLOCK, Projection, blocked_matmul
from engine.state import LatentState

EXPANSION_BYTES = 256 << 20
"""Bound on the expanded keys and values alive at once; heads are taken in groups below it."""

KEY_TILE = 8192
"""On a CPU, keys of one product with a tile of queries: an array of scores then stays below the 32 MB from
which the C library fetches memory from the system anew each time."""

SCORE_BYTES = 256 << 20
"""On a GPU, bound on the scores of one tile of queries."""


@dataclass(frozen=True)
class LatentAttention:
    """One MLA block of H heads: n nope dims, p shared dims that are never rotated, rank r, value dv.

    Attributes:
        inputs: x -> q | latent | shared key, widths H * (n + p), r, p.
        latent_norm: [r], applied to the latent before it is stored.
        key_up: [H, r, n]; value_up: [H, r, dv]: the two halves of kv_b_proj, transposed.
        output: H * dv -> hidden.
        blocked: for a CPU. Latents are expanded and queries tiled in fixed blocks of ROW_BLOCK rows (see
            `engine.layers.linear`), and the softmax is written out in what is fast there. On a GPU it is
            MLX's, and tiles are as large as their scores may be.
        latent_eps: 1e-6 in every Kimi family, whatever rms_norm_eps says.
    """

    heads: int
    nope: int
    shared: int
    inputs: Projection
    latent_norm: mx.array
    key_up: mx.array
    value_up: mx.array
    output: Projection
    blocked: bool
    latent_eps: float = 1e-6

    def __call__(self, x: mx.array, state: LatentState, valid: int) -> mx.array:
        """Continue `state` by the first `valid` rows of x [B, T, hidden]; returns [B, T, hidden]."""
        batch, length = x.shape[:2]
        rank = self.latent_norm.shape[0]
        width = self.heads * (self.nope + self.shared)
        q, latent, shared = mx.split(self.inputs(x), (width, width + rank), axis=-1)
        latent = rms_norm(latent, self.latent_norm, self.latent_eps)
        start = state.position
        state.append(mx.concatenate([latent, shared], axis=-1)[:, :valid])
        q = q.reshape(batch, length, self.heads, self.nope + self.shared).swapaxes(1, 2)
        q = q * ((LOG2_E if self.blocked else 1.0) * (self.nope + self.shared) ** -0.5)
        if length == 1:
            context = self._absorbed(q, state.pieces())
        else:
            context = self._expanded(q, state.rows(_whole_blocks(start + length)), start)
        return self.output(context.swapaxes(1, 2).reshape(batch, length, -1))

    def _absorbed(self, q: mx.array, pieces: list[mx.array]) -> mx.array:
        """One query [B, H, 1, n + p] against rows in pieces [B, s, r + p]; returns [B, H, 1, dv]."""
        rank = self.latent_norm.shape[0]
        folded = q[..., : self.nope] @ self.key_up.swapaxes(-1, -2)
        query = mx.concatenate([folded, q[..., self.nope :]], axis=-1)[:, :, 0]
        # The whole row is mixed: a slice of the rows would be copied first, their product is not.
        scored = [(query @ rows.swapaxes(-1, -2), rows) for rows in pieces]
        mixed = _weighted_mean(scored, q.dtype) if self.blocked else _softmax_mean(scored)
        return mixed[..., :rank][:, :, None] @ self.value_up

    def _expanded(self, q: mx.array, rows: mx.array, start: int) -> mx.array:
        """Queries [B, H, T, n + p] at positions from `start` on; returns [B, H, T, dv]."""
        per_head = rows.shape[0] * rows.shape[1] * (self.nope + self.shared + self.value_up.shape[-1])
        group = max(1, EXPANSION_BYTES // (per_head * rows.dtype.size))
        outputs: list[mx.array] = []
        for head in range(0, self.heads, group):
            keys, values = self._expand(rows, head, min(head + group, self.heads))
            outputs.append(self._attend(q[:, head : head + group], keys, values, start))
        return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)

    def _expand(self, rows: mx.array, first: int, last: int) -> tuple[mx.array, mx.array]:
        """Keys [B, h, S, n + p] and values [B, h, S, dv] of heads first..last from rows [B, S, r + p]."""
        rank = self.latent_norm.shape[0]
        batch, context = rows.shape[:2]
        latent, shared = rows[..., :rank], rows[..., rank:]
        up = mx.concatenate([self.key_up[first:last], self.value_up[first:last]], axis=-1)
        up = up.swapaxes(0, 1).reshape(rank, -1)
        both = blocked_matmul(latent, up) if self.blocked else latent @ up
        both = both.reshape(batch, context, last - first, -1).swapaxes(1, 2)
        keys, values = mx.split(both, (self.nope,), axis=-1)
        shared = mx.broadcast_to(shared[:, None], (batch, last - first, context, self.shared))
        return mx.concatenate([keys, shared], axis=-1), mx.contiguous(values)

    def _attend(self, q: mx.array, keys: mx.array, values: mx.array, start: int) -> mx.array:
        """Causal attention, one tile of queries at a time."""
        length = q.shape[2]
        rows, attention = ROW_BLOCK, _tile_attention
        if not self.blocked:
            rows, attention = _tile_rows(keys.shape[1], start + length, q.dtype), _fast_attention

        def tile(first: int) -> Part[mx.array]:
            last = min(first + rows, length)
            seen = start + last
            output = attention(q[:, :, first:last], keys[:, :, :seen], values[:, :, :seen])
            mx.async_eval(output)
            yield (output,)
            return output

        outputs = run_in_lanes(tile(first) for first in range(0, length, rows))
        return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2)


def _tile_rows(heads: int, seen: int, dtype: mx.Dtype) -> int:
    """Queries whose scores of `heads` heads over `seen` keys stay within SCORE_BYTES; at least a block."""
    rows = SCORE_BYTES // (heads * seen * dtype.size)
    return max(rows // ROW_BLOCK, 1) * ROW_BLOCK


def _fast_attention(tile: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """As `_tile_attention`, by MLX's attention; the queries' scale is to base e."""
    return mx.fast.scaled_dot_product_attention(tile, keys, values, scale=1.0, mask="causal")


def _tile_attention(tile: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """Queries [B, H, n, d] of the last n positions over keys [B, H, S, d] and values [B, H, S, dv].

    Every query sees all keys before the tile, so only the tile's own keys are masked. log2(e) is in
    the scale of the queries.
    """
    rows = tile.shape[2]
    past = keys.shape[2] - rows
    ahead = mx.arange(rows)[None] > mx.arange(rows)[:, None]
    own = tile @ keys[:, :, past:].swapaxes(-1, -2)
    parts = [(mx.where(ahead, -float("inf"), own), values[:, :, past:])]
    for first in range(0, past, KEY_TILE):
        piece = slice(first, min(first + KEY_TILE, past))
        parts.append((tile @ keys[:, :, piece].swapaxes(-1, -2), values[:, :, piece]))
    return _weighted_mean(parts, tile.dtype)


def _weighted_mean(parts: list[tuple[mx.array, mx.array]], dtype: mx.Dtype) -> mx.array:
    """Softmax over scores [.., n, S] that come in parts, applied to values [.., S, d]; returns [.., n, d].

    Scores are to base 2; the sum, in float32, is divided out after the product with the values.
    """
    top = mx.array(-float("inf"), parts[0][0].dtype)
    for scores, _ in parts:
        top = mx.maximum(top, _folded(mx.max, scores).max(axis=-1, keepdims=True))
    total = mixed = mx.array(0.0)
    for scores, values in parts:
        weights = exp2(scores.astype(mx.float32) - top)
        total = total + _folded(mx.sum, weights).sum(axis=-1, keepdims=True)
        mixed = mixed + weights.astype(dtype) @ values
    return (mixed / total).astype(dtype)


def _folded(reduce: Callable[..., mx.array], x: mx.array) -> mx.array:
    """x [.., S] reduced to [.., ROW_BLOCK] where that divides S. MLX's CPU back end reduces many columns
    at a time with vector instructions, but a row one element after another."""
    *lead, columns = x.shape
    if columns % ROW_BLOCK or columns == ROW_BLOCK:
        return x
    return reduce(x.reshape(*lead, columns // ROW_BLOCK, ROW_BLOCK), axis=-2)


def _softmax_mean(parts: list[tuple[mx.array, mx.array]]) -> mx.array:
    """As `_weighted_mean` in fewer operations, for a GPU; scores are to base e."""
    if len(parts) == 1:
        ((scores, values),) = parts
        return mx.softmax(scores, axis=-1, precise=True) @ values
    weights = mx.softmax(mx.concatenate([scores for scores, _ in parts], axis=-1), axis=-1, precise=True)
    first = parts[0][0].shape[-1]
    return weights[..., :first] @ parts[0][1] + weights[..., first:] @ parts[1][1]


def _whole_blocks(rows: int) -> int:
    return -(-rows // ROW_BLOCK) * ROW_BLOCK
