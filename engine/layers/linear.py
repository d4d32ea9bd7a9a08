"""Matrix products with weights [out, in]: dense, dense in fixed row blocks, and quantized.

On a CPU the bits of a BLAS product depend on how many rows it has. `BlockedLinear` therefore always
multiplies 64 rows at a time, so that a prompt read in chunks that end at multiples of 64 gives the
same bits as one read in a single pass. On a GPU the plain product is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import mlx.core as mx

ROW_BLOCK = 64
"""Rows per product on a CPU, and the grid on which cuts change no bit."""


class Projection(Protocol):
    """y = x W^T for x [..., in], giving [..., out]."""

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        ...


@dataclass(frozen=True)
class Linear:
    """A dense product. weight: [out, in]."""

    weight: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        return x @ self.weight.T


@dataclass(frozen=True)
class BlockedLinear:
    """A dense product in blocks of `ROW_BLOCK` rows. weight: [out, in]."""

    weight: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]; the leading axes must hold 1 row or a multiple of ROW_BLOCK."""
        return blocked_matmul(x, self.weight.T)


def blocked_matmul(x: mx.array, weight: mx.array) -> mx.array:
    """x [..., K] @ weight [K, N] in products of ROW_BLOCK rows each; one row is one product."""
    *lead, inner = x.shape
    rows = x.size // inner
    if rows % ROW_BLOCK:
        return x @ weight
    blocks = rows // ROW_BLOCK
    shared = mx.broadcast_to(weight, (blocks, *weight.shape))
    return (x.reshape(blocks, ROW_BLOCK, inner) @ shared).reshape(*lead, weight.shape[1])


@lru_cache(maxsize=64)
def row_kinds(inner: int, out: int) -> tuple[int, ...]:
    """A number for each of ROW_BLOCK rows of a product [ROW_BLOCK, inner] @ [inner, out] in float32.

    Rows of one number give the same bits for the same input. A BLAS may take the rows of a block in
    groups of different width, and then they do not all: OpenBLAS's kernels for AVX2 have two kinds,
    those for AVX512 one. Measured on equal rows, once a process.
    """
    x = mx.random.normal((1, inner), key=mx.random.key(5))
    weight = mx.random.normal((inner, out), key=mx.random.key(6))
    rows = (mx.broadcast_to(x, (1, ROW_BLOCK, inner)) @ weight[None])[0].view(mx.uint32)
    kinds: list[int] = []
    firsts: list[int] = []
    same = (rows[:, None] == rows[None]).all(axis=-1)
    for row in range(ROW_BLOCK):
        kind = next((k for k, first in enumerate(firsts) if same[row, first].item()), len(firsts))
        if kind == len(firsts):
            firsts.append(row)
        kinds.append(kind)
    return tuple(kinds)


@dataclass(frozen=True)
class QuantizedLinear:
    """An affine-quantized product.

    weight: [out, in * bits / 32] uint32; scales, biases: [out, in / group_size].
    """

    weight: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        return mx.quantized_matmul(
            x,
            self.weight,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
        )


def fuse(projections: Sequence[Projection]) -> Projection | None:
    """One projection with the outputs of all, in order; None if they cannot be joined.

    Dense ones can; quantized ones can when bits and group size agree.
    """
    first = projections[0]
    if any(type(p) is not type(first) for p in projections):
        return None
    if isinstance(first, Linear | BlockedLinear):
        dense = [p for p in projections if isinstance(p, Linear | BlockedLinear)]
        return type(first)(mx.concatenate([p.weight for p in dense], axis=0))
    packed = [p for p in projections if isinstance(p, QuantizedLinear)]
    if len({(p.bits, p.group_size) for p in packed}) != 1:
        return None
    return QuantizedLinear(
        mx.concatenate([p.weight for p in packed], axis=0),
        mx.concatenate([p.scales for p in packed], axis=0),
        mx.concatenate([p.biases for p in packed], axis=0),
        packed[0].group_size,
        packed[0].bits,
    )


@dataclass(frozen=True)
class Joined:
    """Several projections of the same input, as one product when their weights can be joined."""

    parts: tuple[Projection, ...]

    @staticmethod
    def of(projections: Sequence[Projection]) -> Projection:
        """The fused projection where possible, else one that concatenates the outputs."""
        return fuse(projections) or Joined(tuple(projections))

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., sum of outs]."""
        return mx.concatenate([part(x) for part in self.parts], axis=-1)
