"""Matrices of all experts of a layer, and grouped products over tokens sorted by expert, for a GPU."""

import logging
from dataclasses import dataclass, replace
from functools import lru_cache

import mlx.core as mx

from engine.scalars import as_float

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DenseMatrices:
    """Matrices of all experts. weight: [E, out, in].

    sorted_ok: whether MLX may be told that rows come sorted by expert; see `sorted_product_is_right`.
    """

    weight: mx.array
    sorted_ok: bool

    def __call__(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """rows [.., 1, in] with expert numbers -> [.., 1, out]."""
        return mx.gather_mm(
            rows,
            self.weight.swapaxes(-1, -2),
            rhs_indices=experts,
            sorted_indices=ordered and self.sorted_ok,
        )


@dataclass(frozen=True)
class PackedMatrices:
    """Affine-quantized matrices of all experts. weight: [E, out, in * bits / 32] uint32."""

    weight: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    sorted_ok: bool

    def __call__(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """rows [.., 1, in] with expert numbers -> [.., 1, out]."""
        return mx.gather_qmm(
            rows,
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=experts,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            sorted_indices=ordered and self.sorted_ok,
        )


Matrices = DenseMatrices | PackedMatrices


_PROBE_ROWS = 256
_PROBE_EXPERTS = 8
_PROBE_TOLERANCE = 2e-2


@lru_cache(maxsize=64)
def sorted_product_is_right(out: int, inner: int, dtype: mx.Dtype, bits: int, group_size: int) -> bool:
    """Whether MLX's product over rows sorted by expert equals the unsorted one on this device.

    It is faster, but called this way it came out wrong on MLX's CUDA back end (0.32.4, cause unknown,
    see docs/benchmarks.md), and on Metal it has not been run by us. So it is compared on random rows
    and weights of the model's own shape, once a process, before it may decide an answer. `bits` 0
    means dense weights.
    """
    keys = mx.random.split(mx.random.key(3), 3)
    weight = mx.random.normal((_PROBE_EXPERTS, out, inner), key=keys[0]).astype(dtype)
    matrices: Matrices = DenseMatrices(weight, sorted_ok=False)
    if bits:
        packed, scales, biases = mx.quantize(weight, group_size=group_size, bits=bits)
        matrices = PackedMatrices(packed, scales, biases, group_size, bits, sorted_ok=False)
    fast = replace(matrices, sorted_ok=True)
    x = mx.random.normal((_PROBE_ROWS, inner), key=keys[1]).astype(dtype)
    chosen = mx.random.randint(0, _PROBE_EXPERTS, (_PROBE_ROWS, 2), key=keys[2]).astype(mx.int32)
    for _ in range(2):  # what a race spares once it may not spare twice
        rows, experts, _back = sort_by_expert(x, chosen)
        got = fast(rows, experts, ordered=True).astype(mx.float32)
        expected = matrices(rows, experts, ordered=True).astype(mx.float32)
        gap, scale = as_float(mx.abs(got - expected).max()), as_float(mx.abs(expected).max())
        if not gap <= _PROBE_TOLERANCE * scale:
            log.info(
                "sorted expert products differ on this device (%.1e); the unsorted form is used", gap / scale
            )
            return False
    return True


_SORT_FROM = 64
"""Pairs from which sorting by expert pays; below it the products are gathered as they come."""


def sort_by_expert(x: mx.array, chosen: mx.array) -> tuple[mx.array, mx.array, mx.array | None]:
    """Rows [.., 1, D] and expert numbers for grouped products, and the way back if sorted."""
    if chosen.size < _SORT_FROM:
        return x[:, None, None], chosen, None
    flat = chosen.reshape(-1)
    order = mx.argsort(flat)
    return x[order // chosen.shape[1]][:, None], flat[order], mx.argsort(order)


def unsort(out: mx.array, back: mx.array | None, chosen: mx.array) -> mx.array:
    """Rows [.., 1, D] from `sort_by_expert` back in the order of chosen [N, k] -> [N, k, D]."""
    if back is None:
        return out[:, :, 0]
    return out[:, 0][back].reshape(*chosen.shape, -1)
