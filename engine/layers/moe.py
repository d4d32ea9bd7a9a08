"""Mixture of experts: a float32 sigmoid router and experts applied to tokens sorted by expert."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import mlx.core as mx

from engine.kernels.pointwise import sigmoid
from engine.layers.activations import silu
from engine.layers.expert_matrices import Matrices, sort_by_expert, unsort
from engine.layers.linear import ROW_BLOCK, BlockedLinear, Linear, row_kinds
from engine.layers.mlp import GatedMLP
from engine.scalars import as_ints


@dataclass(frozen=True)
class Router:
    """Chooses `top_k` experts a token and their weights.

    s = sigmoid(gate x); chosen by s + bias; weights are s itself, without the bias, renormalised and
    scaled. With several groups only the `top_groups` with the best pair of choices stay.
    """

    gate: Linear | BlockedLinear
    bias: mx.array
    top_k: int
    renormalize: bool
    scaling: float
    groups: int = 1
    top_groups: int = 1

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """x [N, D] -> expert numbers [N, k] int32 and weights [N, k] float32."""
        scores = sigmoid(self.gate(x.astype(mx.float32)))
        choice = scores + self.bias
        if self.groups > 1:
            choice = self._keep_best_groups(choice)
        chosen = mx.argpartition(-choice, self.top_k - 1, axis=-1)[..., : self.top_k]
        weights = mx.take_along_axis(scores, chosen, axis=-1)
        if self.renormalize and self.top_k > 1:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
        return chosen.astype(mx.int32), weights * self.scaling

    def _keep_best_groups(self, choice: mx.array) -> mx.array:
        grouped = choice.reshape(*choice.shape[:-1], self.groups, -1)
        best_pair = mx.topk(grouped, 2, axis=-1).sum(axis=-1, keepdims=True)
        dropped = mx.argpartition(best_pair, self.groups - self.top_groups, axis=-2)
        dropped = dropped[..., : self.groups - self.top_groups, :]
        grouped = mx.put_along_axis(grouped, dropped, mx.array(-float("inf")), axis=-2)
        return grouped.reshape(choice.shape)


class Experts(Protocol):
    """All experts of a layer."""

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """x [N, D], chosen [N, k] -> [N, k, D], the output of each chosen expert."""
        ...


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

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """x [N, D], chosen [N, k] -> [N, k, D]."""
        if x.shape[0] < ROW_BLOCK:
            return self._one_by_one(x, chosen)
        order, places, blocks = self._placing(chosen)
        tokens = mx.zeros((sum(blocks) * ROW_BLOCK,), mx.int32)
        tokens[places] = order // chosen.shape[1]
        rows = x[tokens].reshape(-1, ROW_BLOCK, x.shape[1])
        outputs: list[mx.array] = []
        first = 0
        for expert, count in enumerate(blocks):
            if count:
                outputs.append(self._expert(rows[first : first + count], expert))
            first += count
        back = mx.zeros((chosen.size,), mx.int32)
        back[order] = places
        return mx.concatenate(outputs, axis=0)[back].reshape(*chosen.shape, -1)

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

    def _expert(self, rows: mx.array, expert: int) -> mx.array:
        """rows [b, ROW_BLOCK, D] -> [b * ROW_BLOCK, D] through one expert."""
        blocks = rows.shape[0]
        gate_up = mx.broadcast_to(self.gate_up[expert], (blocks, *self.gate_up.shape[1:]))
        gate, up = mx.split(rows @ gate_up, 2, axis=-1)
        down = mx.broadcast_to(self.down[expert], (blocks, *self.down.shape[1:]))
        return (silu(gate) * up @ down).reshape(blocks * ROW_BLOCK, -1)

    def _one_by_one(self, x: mx.array, chosen: mx.array) -> mx.array:
        rows = x[:, None, None]
        gate, up = mx.split(mx.gather_mm(rows, self.gate_up, rhs_indices=chosen), 2, axis=-1)
        return mx.gather_mm(silu(gate) * up, self.down, rhs_indices=chosen)[:, :, 0]


@lru_cache(maxsize=64)
def _places(*products: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The rows of a block by kind, where rows of one kind are of one kind in every product [in, out]."""
    kinds = list(zip(*(row_kinds(*shape) for shape in products), strict=True))
    return tuple(tuple(row for row, k in enumerate(kinds) if k == kind) for kind in sorted(set(kinds)))


@dataclass(frozen=True)
class GroupedExperts:
    """Experts for a GPU: grouped products over tokens sorted by expert."""

    gate: Matrices
    up: Matrices
    down: Matrices

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """x [N, D], chosen [N, k] -> [N, k, D]."""
        rows, experts, back = sort_by_expert(x, chosen)
        ordered = back is not None
        gate, up = self.gate(rows, experts, ordered), self.up(rows, experts, ordered)
        return unsort(self.down(silu(gate) * up, experts, ordered), back, chosen)


@dataclass(frozen=True)
class MixtureOfExperts:
    """Sum of the chosen experts, weighted after the down projection, plus the shared expert."""

    router: Router
    experts: Experts
    shared: GatedMLP | None

    def __call__(self, x: mx.array) -> mx.array:
        """x [B, T, D] -> [B, T, D]."""
        flat = x.reshape(-1, x.shape[-1])
        chosen, weights = self.router(flat)
        mixed = (self.experts(flat, chosen) * weights[..., None]).sum(axis=-2).astype(x.dtype)
        mixed = mixed.reshape(x.shape)
        return mixed if self.shared is None else mixed + self.shared(x)
