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

from engine.kernels.selection import Choice, choose

ROW_BLOCK = 64
"""Rows per product on a CPU, and the grid on which cuts change no bit."""

UNPACK_FROM = 512
"""Rows from which a quantized product may go through dense weights."""


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
    unpacking: Choice | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        rows = x.size // x.shape[-1]
        if rows >= UNPACK_FROM and self.unpacking is not None and self.unpacking.used:
            return self.by_unpacking(x)
        return mx.quantized_matmul(
            x,
            self.weight,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
        )

    def by_unpacking(self, x: mx.array) -> mx.array:
        """The same through dense weights: where a product with packed ones unpacks them for each few rows."""
        weight = mx.dequantize(
            self.weight, self.scales, self.biases, group_size=self.group_size, bits=self.bits
        )
        return x @ weight.T


@lru_cache(maxsize=16)
def choose_unpacking(group_size: int, bits: int, dtype: mx.Dtype) -> Choice:
    """Whether products of UNPACK_FROM rows and more go through dense weights on this device."""
    keys = mx.random.split(mx.random.key(7), 2)
    weight = (mx.random.normal((2048, 2048), key=keys[0]) * 2048**-0.5).astype(dtype)
    packed = mx.quantize(weight, group_size=group_size, bits=bits)
    x = mx.random.normal((UNPACK_FROM, 2048), key=keys[1]).astype(dtype)
    sample = QuantizedLinear(packed[0], packed[1], packed[2], group_size, bits)
    exact = mx.dequantize(
        packed[0], *(part.astype(mx.float32) for part in packed[1:]), group_size=group_size, bits=bits
    )
    mx.eval(x, packed, exact)
    return choose(
        f"Projections, {bits}-bit, many tokens, unpacked",
        form=lambda: [sample.by_unpacking(x)],
        plain=lambda: [sample(x)],
        truth=lambda: [x.astype(mx.float32) @ exact.T],
        tolerance=1e-2,
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
        packed[0].unpacking,
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
