"""Matrices of all experts of a layer, for a GPU."""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

Packing = tuple[int, int] | None
"""Group size and bits of affine-quantized weights; None where they are not packed."""


class Matrices(Protocol):
    """One matrix [out, in] of each of E experts."""

    @property
    def experts(self) -> int:
        """E."""
        ...

    @property
    def packings(self) -> tuple[Packing, ...]:
        """Of each part that stands side by side."""
        ...

    @property
    def unpacked_bytes(self) -> int:
        """Bytes that `dense` allocates for each expert."""
        ...

    def gather(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """rows [.., 1, in] with expert numbers -> [.., 1, out].

        `ordered` tells MLX that they come sorted by expert, which must have been found right here.
        """
        ...

    def dense(self, which: slice | mx.array) -> mx.array:
        """The matrices of some experts, [G, in, out]."""
        ...


@dataclass(frozen=True)
class DenseMatrices:
    """Matrices of all experts. weight: [E, out, in]."""

    weight: mx.array

    @property
    def experts(self) -> int:
        """See `Matrices`."""
        return self.weight.shape[0]

    @property
    def packings(self) -> tuple[Packing, ...]:
        """See `Matrices`."""
        return (None,)

    @property
    def unpacked_bytes(self) -> int:
        """See `Matrices`."""
        return 0

    def gather(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """See `Matrices`."""
        return mx.gather_mm(rows, self.weight.swapaxes(-1, -2), rhs_indices=experts, sorted_indices=ordered)

    def dense(self, which: slice | mx.array) -> mx.array:
        """See `Matrices`; a slice of experts is not copied."""
        return self.weight[which].swapaxes(-1, -2)


@dataclass(frozen=True)
class PackedMatrices:
    """Affine-quantized matrices of all experts. weight: [E, out, in * bits / 32] uint32."""

    weight: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    @property
    def experts(self) -> int:
        """See `Matrices`."""
        return self.weight.shape[0]

    @property
    def packings(self) -> tuple[Packing, ...]:
        """See `Matrices`."""
        return ((self.group_size, self.bits),)

    @property
    def unpacked_bytes(self) -> int:
        """See `Matrices`."""
        return self.scales.size // self.experts * self.group_size * self.scales.dtype.size

    def gather(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """See `Matrices`."""
        return mx.gather_qmm(
            rows,
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=experts,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            sorted_indices=ordered,
        )

    def dense(self, which: slice | mx.array) -> mx.array:
        """See `Matrices`."""
        return mx.dequantize(
            self.weight[which],
            self.scales[which],
            self.biases[which],
            group_size=self.group_size,
            bits=self.bits,
        ).swapaxes(-1, -2)


@dataclass(frozen=True)
class JoinedMatrices:
    """Matrices of the same input side by side, where they are packed differently."""

    parts: tuple[Matrices, ...]

    @property
    def experts(self) -> int:
        """See `Matrices`."""
        return self.parts[0].experts

    @property
    def packings(self) -> tuple[Packing, ...]:
        """See `Matrices`."""
        return tuple(packing for part in self.parts for packing in part.packings)

    @property
    def unpacked_bytes(self) -> int:
        """See `Matrices`."""
        return sum(part.unpacked_bytes for part in self.parts)

    def gather(self, rows: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        """See `Matrices`."""
        return mx.concatenate([part.gather(rows, experts, ordered) for part in self.parts], axis=-1)

    def dense(self, which: slice | mx.array) -> mx.array:
        """See `Matrices`."""
        return mx.concatenate([part.dense(which) for part in self.parts], axis=-1)


def side_by_side(first: Matrices, second: Matrices) -> Matrices:
    """One set of matrices with the outputs of both, in this order."""
    if isinstance(first, DenseMatrices) and isinstance(second, DenseMatrices):
        return DenseMatrices(mx.concatenate([first.weight, second.weight], axis=1))
    if not (isinstance(first, PackedMatrices) and isinstance(second, PackedMatrices)):
        return JoinedMatrices((first, second))
    if (first.group_size, first.bits) != (second.group_size, second.bits):
        return JoinedMatrices((first, second))
    return PackedMatrices(
        mx.concatenate([first.weight, second.weight], axis=1),
        mx.concatenate([first.scales, second.scales], axis=1),
        mx.concatenate([first.biases, second.biases], axis=1),
        first.group_size,
        first.bits,
    )
