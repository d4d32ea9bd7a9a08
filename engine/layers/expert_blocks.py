"""Experts for a CPU: dense products in blocks of rows, so that cuts between chunks change no bit."""

from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx

from engine.kernels.lanes import Part, run_in_lanes
from engine.kernels.mixing import mix_rows, weigh
from engine.layers.activations import gated_silu
from engine.layers.linear import ROW_BLOCK, row_kinds
from engine.scalars import as_ints

PART_BLOCKS = 16
"""Blocks of rows of one expert that a lane takes at a time."""


@dataclass(frozen=True)
class DenseExperts:
    """Experts with dense weights, for a CPU.

    Attributes:
        gate_up: [E, D, 2 * I]. down: [E, I, D].

    Tokens are sorted by expert and each expert's rows are filled up to whole blocks of ROW_BLOCK rows.
    A token keeps the kind of row it had in the prompt (see `engine.layers.linear.row_kinds`), so its
    bits do not depend on its neighbours.
    """

    gate_up: mx.array
    down: mx.array

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """Of each kind of row, its rows within a block."""
        return _places(self.gate_up.shape[1:], self.down.shape[1:])

    def __call__(self, x: mx.array, chosen: mx.array, weights: mx.array) -> mx.array:
        """See `Experts`."""
        if x.shape[0] < ROW_BLOCK:
            return weigh(self._one_by_one(x, chosen), weights)
        order, places, blocks = self._placing(chosen)
        tokens = mx.zeros((sum(blocks) * ROW_BLOCK,), mx.int32)
        tokens[places] = order // chosen.shape[1]
        rows = x[tokens].reshape(-1, ROW_BLOCK, x.shape[1])
        parts: list[Part[mx.array]] = []
        first = 0
        for expert, count in enumerate(blocks):
            for some in range(0, count, PART_BLOCKS):
                last = min(some + PART_BLOCKS, count)
                parts.append(self._expert(rows[first + some : first + last], expert))
            first += count
        outputs = run_in_lanes(parts)
        back = mx.zeros((chosen.size,), mx.int32)
        back[order] = places
        return mix_rows(mx.concatenate(outputs, axis=0), back.reshape(chosen.shape), weights)

    def _placing(self, chosen: mx.array) -> tuple[mx.array, mx.array, list[int]]:
        """Pairs [N * k] in the order of experts, the row each is placed at, and each expert's blocks."""
        kinds, experts = len(self.places), self.gate_up.shape[0]
        token_kind = mx.zeros((ROW_BLOCK,), mx.int32)
        for kind, rows in enumerate(self.places):
            token_kind[mx.array(rows)] = kind
        sort_key = chosen * kinds + token_kind[mx.arange(chosen.shape[0]) % ROW_BLOCK][:, None]
        flat = sort_key.reshape(-1)
        counts = as_ints((flat[:, None] == mx.arange(experts * kinds)).sum(axis=0))
        places: list[mx.array] = []
        blocks: list[int] = []
        first = 0
        for expert in range(experts):
            own = counts[expert * kinds : (expert + 1) * kinds]
            for count, rows in zip(own, self.places, strict=True):
                at = mx.arange(count)
                place = mx.array(rows)[at % len(rows)] + at // len(rows) * ROW_BLOCK
                places.append(place + first * ROW_BLOCK)
            blocks.append(max(-(-count // len(rows)) for count, rows in zip(own, self.places, strict=True)))
            first += blocks[-1]
        return mx.argsort(flat), mx.concatenate(places).astype(mx.int32), blocks

    def _expert(self, rows: mx.array, expert: int) -> Part[mx.array]:
        """rows [b, ROW_BLOCK, D] -> [b * ROW_BLOCK, D] through one expert."""
        blocks = rows.shape[0]
        gate_up = mx.broadcast_to(self.gate_up[expert], (blocks, *self.gate_up.shape[1:]))
        inner = gated_silu(rows @ gate_up)
        down = mx.broadcast_to(self.down[expert], (blocks, *self.down.shape[1:]))
        output = (inner @ down).reshape(blocks * ROW_BLOCK, -1)
        yield (output,)
        return output

    def _one_by_one(self, x: mx.array, chosen: mx.array) -> mx.array:
        inner = mx.gather_mm(x[:, None, None], self.gate_up, rhs_indices=chosen)
        inner = gated_silu(inner, few=x.shape[0] == 1)
        return mx.gather_mm(inner, self.down, rhs_indices=chosen)[:, :, 0]


@lru_cache(maxsize=64)
def _places(*products: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The rows of a block by kind, where rows of one kind are of one kind in every product [in, out]."""
    kinds = list(zip(*(row_kinds(*shape) for shape in products), strict=True))
    return tuple(tuple(row for row, k in enumerate(kinds) if k == kind) for kind in sorted(set(kinds)))
