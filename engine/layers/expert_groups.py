"""Experts for a GPU: gathered products for few tokens, batched products for many.

Batched, every expert's rows are filled up to one number of rows and all experts are multiplied at once;
what an expert has above that number follows in a further round. Packed weights are then unpacked for a
few experts at a time, since a product with packed weights pays for few rows only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import mlx.core as mx

from engine.kernels.mixing import mix_rows, mix_rows_kernel
from engine.kernels.selection import Choice
from engine.layers.activations import gated_silu
from engine.layers.expert_matrices import Matrices
from engine.scalars import as_ints

SORT_FROM = 64
"""Pairs of token and expert from which sorting by expert pays; below it they are taken as they come."""

BATCH_FROM = 2
"""Pairs for each expert from which the batched form is used, where it was found faster."""

UNPACKED_BYTES = 256 << 20
"""Bound on unpacked weights alive at once."""

_ROW_STEP = 32
_SLACK = 1.5


@dataclass(frozen=True)
class Round:
    """One batched product: `rows` rows of each of `experts`, from each one's row `offset` on."""

    experts: tuple[int, ...]
    offset: int
    rows: int


def plan_rounds(counts: Sequence[int]) -> list[Round]:
    """Rounds that take counts[e] rows of each expert e, all experts in the first.

    A round's rows are at most 1.5 times what is left for its experts on average, and a multiple of 32,
    so that one crowded expert does not make all the others as long.
    """
    rounds: list[Round] = []
    experts, offset = tuple(range(len(counts))), 0
    while experts:
        left = [counts[e] - offset for e in experts]
        rows = min(max(left), int(_SLACK * sum(left) / len(left)) + 1)
        rows = -(-max(rows, 1) // _ROW_STEP) * _ROW_STEP
        rounds.append(Round(experts, offset, rows))
        offset += rows
        experts = tuple(e for e in experts if counts[e] > offset)
    return rounds


@dataclass(frozen=True)
class ExpertForms:
    """What was found right and faster on this device; see `engine.layers.expert_choices`."""

    ordered: bool = False
    batched: bool = False
    mixed_by_kernel: bool = False


@dataclass(frozen=True)
class GroupedExperts:
    """gate_up: D -> 2 * I. down: I -> D. See `Experts`."""

    gate_up: Matrices
    down: Matrices
    forms: ExpertForms = field(default_factory=ExpertForms)
    choices: tuple[Choice, ...] = ()

    def __call__(self, x: mx.array, chosen: mx.array, weights: mx.array) -> mx.array:
        """See `Experts`."""
        if self.forms.batched and chosen.size >= BATCH_FROM * self.gate_up.experts:
            rows, places = self._batched(x, chosen)
        else:
            rows, places = self._gathered(x, chosen)
        mix = mix_rows_kernel if self.forms.mixed_by_kernel else mix_rows
        return mix(rows, places, weights)

    def _gathered(self, x: mx.array, chosen: mx.array) -> tuple[mx.array, mx.array]:
        """Each pair's output [N * k, D] and its row [N, k]."""
        if chosen.size < SORT_FROM:
            inner = gated_silu(self.gate_up.gather(x[:, None, None], chosen, ordered=False))
            rows = self.down.gather(inner, chosen, ordered=False)
            return rows.reshape(chosen.size, -1), _in_order(*chosen.shape)
        flat = chosen.reshape(-1)
        order = mx.argsort(flat)
        experts = flat[order]
        inner = gated_silu(
            self.gate_up.gather(x[order // chosen.shape[1]][:, None], experts, self.forms.ordered)
        )
        rows = self.down.gather(inner, experts, self.forms.ordered)[:, 0]
        return rows, mx.argsort(order).astype(mx.int32).reshape(chosen.shape)

    def _batched(self, x: mx.array, chosen: mx.array) -> tuple[mx.array, mx.array]:
        """Outputs [R, D], R >= N * k with rows of filling, and each pair's row [N, k]."""
        flat, top_k = chosen.reshape(-1), chosen.shape[1]
        total = self.gate_up.experts
        order = mx.argsort(flat)
        counted = (flat[:, None] == mx.arange(total)).sum(axis=0)
        starts = mx.cumsum(counted) - counted
        tokens = order // top_k
        rank = mx.argsort(order) - starts[flat]  # of each pair among its expert's
        outputs: list[mx.array] = []
        places, done = mx.zeros(flat.shape, mx.int32), 0
        for round_ in plan_rounds(as_ints(counted)):
            slots = mx.zeros((total,), mx.int32)
            which = mx.array(round_.experts)
            slots[which] = mx.arange(len(round_.experts))
            own = done + slots[flat] * round_.rows + (rank - round_.offset)
            places = mx.where(rank >= round_.offset, own, places)  # a later round overrides
            at = starts[which][:, None] + (round_.offset + mx.arange(round_.rows))
            taken = tokens[mx.minimum(at, flat.size - 1)]
            outputs += self._round(x, taken, round_, whole=len(round_.experts) == total)
            done += len(round_.experts) * round_.rows
        rows = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=0)
        return rows, places.astype(mx.int32).reshape(chosen.shape)

    def _round(self, x: mx.array, tokens: mx.array, round_: Round, whole: bool) -> list[mx.array]:
        """Outputs [g * rows, D] of tokens [G, rows], a few experts at a time."""
        unpacked = max(self.gate_up.unpacked_bytes, self.down.unpacked_bytes)
        step = max(1, UNPACKED_BYTES // unpacked) if unpacked else len(round_.experts)
        outputs: list[mx.array] = []
        for first in range(0, len(round_.experts), step):
            last = min(first + step, len(round_.experts))
            which = slice(first, last) if whole else mx.array(round_.experts[first:last])
            inner = gated_silu(x[tokens[first:last]] @ self.gate_up.dense(which))
            outputs.append((inner @ self.down.dense(which)).reshape(-1, x.shape[1]))
            if unpacked:
                mx.async_eval(outputs[-1])
        return outputs


@lru_cache(maxsize=SORT_FROM)
def _in_order(tokens: int, top_k: int) -> mx.array:
    """Row numbers [N, k] of pairs taken as they come; kept, since every step of decoding needs them."""
    return mx.arange(tokens * top_k, dtype=mx.int32).reshape(tokens, top_k)
