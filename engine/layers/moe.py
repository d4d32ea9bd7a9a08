"""Mixture of experts: a float32 sigmoid router, the experts it chooses and a shared one."""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from engine.kernels.pointwise import sigmoid
from engine.layers.linear import BlockedLinear, Linear
from engine.layers.mlp import GatedMLP


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
        scores = sigmoid(self.gate(x.astype(mx.float32)), few=x.shape[0] == 1)
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

    def __call__(self, x: mx.array, chosen: mx.array, weights: mx.array) -> mx.array:
        """x [N, D], chosen [N, k] int32, weights [N, k] float32 -> [N, D].

        The weighted sum of the outputs of each token's experts.
        """
        ...


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
        mixed = self.experts(flat, chosen, weights).reshape(x.shape)
        return mixed if self.shared is None else mixed + self.shared(x)
