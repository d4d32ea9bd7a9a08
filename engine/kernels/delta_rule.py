"""The gated delta rule of Kimi Delta Attention, in blocks and one token at a time.

One head keeps a matrix S [Dv, Dk]. A token fades it per key channel, looks up its key, writes what
is missing and reads with its query:

    S- = S Diag(exp g);  u = beta (v - S- k);  S = S- + u k^T;  o = S q

`delta_rule_step` is that recurrence for one token. `delta_rule_blocks` is the same function for any
number of tokens, computed in blocks whose only serial part is three matrix products a block. The
derivation is in docs/delta-rule.md. Inside a block, neighbouring
groups of 1, 2, 4, ... tokens are joined; the decay between a row on the right and a column on the
left splits at the seam into two factors in (0, 1], so no exponent is ever positive and no large
sums are subtracted. All sums of g, all exponentials, the triangular inverse and S are float32.

Cuts between calls at multiples of `block` change no bit of outputs or state.
"""

from typing import NamedTuple

import mlx.core as mx

from engine.kernels.lanes import Part, run_alone
from engine.kernels.pointwise import exp

BLOCK = 32
"""Tokens per block. A power of two that divides 64."""

SEGMENT = 512
"""Tokens whose block-local arrays are alive at once: bounds memory, changes no bit."""


def delta_rule_step(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """One token of the recurrence.

    Args:
        q, k: [B, H, Dk]; the read-out scale is already inside q.
        v: [B, H, Dv].
        g: [B, H, Dk] float32, log-decay, every entry <= 0.
        beta: [B, H] float32, write strength.
        state: [B, H, Dv, Dk] float32.

    Returns:
        The output [B, H, Dv] float32 and the new state [B, H, Dv, Dk] float32.
    """
    k = k.astype(mx.float32)
    faded = state * exp(g, few=True)[..., None, :]
    missing = v.astype(mx.float32) - (faded @ k[..., None])[..., 0]
    new = faded + (beta[..., None] * missing)[..., None] * k[..., None, :]
    return (new @ q.astype(mx.float32)[..., None])[..., 0], new


def delta_rule_blocks(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    block: int = BLOCK,
    segment: int = SEGMENT,
) -> tuple[mx.array, mx.array]:
    """The recurrence over T tokens, continuing `state`.

    Args:
        q, k: [B, T, H, Dk]; the read-out scale is already inside q.
        v: [B, T, H, Dv].
        g: [B, T, H, Dk] float32, log-decay, every entry <= 0 (-inf allowed).
        beta: [B, T, H] float32, write strength.
        state: [B, H, Dv, Dk] float32, what earlier tokens left.
        block: tokens per block, a power of two.
        segment: tokens per segment; rounded down to a multiple of `block`.

    Returns:
        Outputs [B, T, H, Dv] float32 and the new state [B, H, Dv, Dk] float32.
    """
    tokens = q.shape[1]
    segment = max(block, segment // block * block)
    outputs: list[mx.array] = []
    for start in range(0, tokens, segment):
        piece = [x[:, start : start + segment] for x in (q, k, v, g, beta)]
        terms = run_alone(block_terms(piece[0], piece[1], piece[2], piece[3], piece[4], block))
        out, state = run_alone(follow(terms, state))
        outputs.append(out[:, : piece[0].shape[1]])
        if tokens > segment:
            mx.eval(outputs[-1], state)
    return (outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)), state


class BlockTerms(NamedTuple):
    """What the blocks of some tokens are without the state they meet; n blocks of C tokens.

    Attributes:
        fresh: `T beta V`, [B, H, n, C, Dv].
        look_and_read: `[T beta K~; Q~]`, [B, H, n, 2C, Dk].
        writes: `K^`, [B, H, n, C, Dk].
        within: the causal query-key weights, [B, H, n, C, C].
        keep: the decay of each whole block, [B, H, n, 1, Dk].
    """

    fresh: mx.array
    look_and_read: mx.array
    writes: mx.array
    within: mx.array
    keep: mx.array


def block_terms(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, block: int = BLOCK
) -> Part[BlockTerms]:
    """The part of `delta_rule_blocks` that needs no state: all of it but three products a block."""
    q, k, v, g, beta = (_lay_out(x, block) for x in (q, k, v, g, beta))
    before, after, total, inverse, within = yield from _join_groups(q, k, g, beta)
    weighted = inverse * beta[..., None, :]
    look_and_read = mx.concatenate([weighted @ (k * before), q * before], axis=-2)
    terms = BlockTerms(weighted @ v, look_and_read, k * after, within, total)
    yield terms
    return terms


def follow(terms: BlockTerms, state: mx.array) -> Part[tuple[mx.array, mx.array]]:
    """Take `state` [B, H, Dv, Dk] through the blocks in order.

    Returns the outputs [B, n * C, H, Dv], of padding tokens too, and the state after the last block.
    """
    block = terms.writes.shape[3]
    rows: list[mx.array] = []
    for j in range(terms.writes.shape[2]):
        seen = terms.look_and_read[:, :, j] @ state.swapaxes(-1, -2)
        u = terms.fresh[:, :, j] - seen[:, :, :block]
        rows.append(seen[:, :, block:] + terms.within[:, :, j] @ u)
        state = state * terms.keep[:, :, j] + u.swapaxes(-1, -2) @ terms.writes[:, :, j]
        yield rows[-1], state
    return mx.concatenate(rows, axis=2).swapaxes(1, 2), state


def _lay_out(x: mx.array, block: int) -> mx.array:
    """[B, T, H, ...] -> [B, H, T/block, block, ...] float32, padded with tokens that do nothing.

    A padding token has q = k = v = 0, beta = 0 and g = 0: it neither fades nor writes.
    """
    x = x.astype(mx.float32)
    short = -x.shape[1] % block
    if short:
        x = mx.pad(x, [(0, 0), (0, short)] + [(0, 0)] * (x.ndim - 2))
    x = mx.contiguous(x.swapaxes(1, 2))
    return x.reshape(*x.shape[:2], x.shape[2] // block, block, *x.shape[3:])


def _join_groups(
    q: mx.array, k: mx.array, g: mx.array, beta: mx.array
) -> Part[tuple[mx.array, mx.array, mx.array, mx.array, mx.array]]:
    """Join groups of s tokens pairwise, s = 1, 2, 4, ..., until a group is a block.

    Returns, per block: the decay from the block start to each token (inclusive) and after each token to
    the block end [.., C, Dk], that of the whole block [.., 1, Dk]; the inverse of the unit-triangular
    system and the causal query-key weights [.., C, C]. Decays are products of exp(g), each computed
    once: factors in (0, 1], of which a rounding counts once a level.
    """
    lead, block, width = q.shape[:3], q.shape[3], q.shape[4]
    before = total = exp(g).reshape(*lead, block, 1, width)
    after = mx.ones_like(before)
    inverse = mx.ones((*lead, block, 1, 1), dtype=mx.float32)
    within = (q * k).sum(axis=-1).reshape(*lead, block, 1, 1)
    size = 1
    while size < block:
        groups = (*lead, block // size, size)
        before_l, before_r = _halves(before)
        after_l, after_r = _halves(after)
        total_l, total_r = _halves(total)
        inverse_l, inverse_r = _halves(inverse)
        within_l, within_r = _halves(within)
        k_l, k_r = _halves(k.reshape(*groups, width))
        _, q_r = _halves(q.reshape(*groups, width))
        _, beta_r = _halves(beta.reshape(*groups, 1))
        left = k_l if size == 1 else k_l * after_l
        look, read = _products(k_r * before_r, q_r * before_r, left)
        corner = beta_r * look
        corner = -corner if size == 1 else -(inverse_r @ (corner @ inverse_l))
        inverse = _lower(inverse_l, corner, inverse_r)
        within = _lower(within_l, read, within_r)
        before = mx.concatenate([before_l, before_r * total_l], axis=-2)
        after = mx.concatenate([after_l * total_r, after_r], axis=-2)
        total = total_l * total_r
        size *= 2
        yield inverse, within, before, after
    return before[:, :, :, 0], after[:, :, :, 0], total[:, :, :, 0], inverse[:, :, :, 0], within[:, :, :, 0]


def _halves(x: mx.array) -> tuple[mx.array, mx.array]:
    """Split [B, H, n, groups, ...] into left and right neighbours along the group axis."""
    x = x.reshape(*x.shape[:3], x.shape[3] // 2, 2, *x.shape[4:])
    return x[:, :, :, :, 0], x[:, :, :, :, 1]


def _products(k_rows: mx.array, q_rows: mx.array, columns: mx.array) -> tuple[mx.array, mx.array]:
    """Both products with the shared right factor; multiply-and-reduce where a matmul is too small."""
    size = k_rows.shape[-2]
    if size <= 2:
        spread = columns[..., None, :, :]
        return (k_rows[..., :, None, :] * spread).sum(-1), (q_rows[..., :, None, :] * spread).sum(-1)
    both = mx.concatenate([k_rows, q_rows], axis=-2) @ columns.swapaxes(-1, -2)
    return both[..., :size, :], both[..., size:, :]


def _lower(top: mx.array, corner: mx.array, bottom: mx.array) -> mx.array:
    """[[top, 0], [corner, bottom]]."""
    upper = mx.concatenate([top, mx.zeros_like(corner)], axis=-1)
    return mx.concatenate([upper, mx.concatenate([corner, bottom], axis=-1)], axis=-2)
