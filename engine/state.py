"""What one sequence has read, as an explicit value that the caller creates and passes.

A model holds weights and nothing else; everything a prompt leaves behind lives here. Each layer
state counts, itself, the tokens it has absorbed. `SequenceState.position` is what all of them agree
on, and a disagreement is an error, never a warning.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from engine.errors import LedgerError
from engine.rows import AppendOnlyRows


class Store(Protocol):
    """Something that holds memory."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


class LayerState(ABC):
    """The state of one layer.

    Attributes:
        kind: what the layer is, for receipts ("KDA", "MLA").
    """

    kind = "layer"

    def __init__(self, position: int = 0) -> None:
        self._position = position

    @property
    def position(self) -> int:
        """Tokens absorbed since the beginning of the sequence."""
        return self._position

    @abstractmethod
    def arrays(self) -> list[mx.array]:
        """The arrays that hold this state, cut to what has been absorbed."""

    @abstractmethod
    def pending(self) -> list[mx.array]:
        """The stored arrays to evaluate after a slice; cheap to call."""

    @abstractmethod
    def snapshot(self) -> "LayerSnapshot":
        """This state as a value that later tokens cannot change."""

    @property
    def nbytes(self) -> int:
        """Bytes held, unused capacity included."""
        return sum(array.nbytes for array in self.pending())


@dataclass(frozen=True)
class LayerSnapshot(ABC):
    """A layer state at one position. Valid at exactly that position."""

    position: int

    @abstractmethod
    def thaw(self) -> LayerState:
        """A new layer state that stands where the snapshot was taken."""

    @abstractmethod
    def stores(self) -> "Sequence[Store]":
        """What the snapshot keeps alive; several snapshots may share one."""


class RecurrentState(LayerState):
    """KDA: the convolution window and the recurrent matrix.

    Attributes:
        window: [B, K-1, C], the last K-1 inputs of the short convolution.
        memory: [B, H, Dv, Dk] float32; never stored below float32.
    """

    kind = "KDA"

    def __init__(self, window: mx.array, memory: mx.array, position: int = 0) -> None:
        super().__init__(position)
        self.window = window
        self.memory = memory

    def absorb(self, window: mx.array, memory: mx.array, tokens: int) -> None:
        """Continue by `tokens` tokens that led to these arrays."""
        if memory.dtype != mx.float32:
            raise LedgerError(f"A recurrent state must be float32, not {memory.dtype}.")
        self.window = window
        self.memory = memory
        self._position += tokens

    def arrays(self) -> list[mx.array]:
        """See `LayerState`."""
        return [self.window, self.memory]

    def pending(self) -> list[mx.array]:
        """See `LayerState`."""
        return [self.window, self.memory]

    def snapshot(self) -> "RecurrentSnapshot":
        """See `LayerState`."""
        return RecurrentSnapshot(self._position, self.window, self.memory)


@dataclass(frozen=True)
class RecurrentSnapshot(LayerSnapshot):
    """MLX arrays are values, so keeping them is a reference, not a copy."""

    window: mx.array
    memory: mx.array

    def thaw(self) -> RecurrentState:
        """See `LayerSnapshot`."""
        return RecurrentState(self.window, self.memory, self.position)

    def stores(self) -> "Sequence[Store]":
        """See `LayerSnapshot`."""
        return (self.window, self.memory)


class LatentState(LayerState):
    """MLA: the latent and the shared rope key of every token, side by side, [B, S, r + p].

    Append-only, so a snapshot is a length.
    """

    kind = "MLA"

    def __init__(
        self, batch: int, width: int, dtype: mx.Dtype, rows: AppendOnlyRows | None = None, position: int = 0
    ) -> None:
        super().__init__(position)
        self._rows = rows or AppendOnlyRows(batch, width, dtype)

    def append(self, rows: mx.array) -> None:
        """Continue by the rows [B, n, r + p] of n tokens."""
        self._rows = self._rows.append(self._position, rows)
        self._position += rows.shape[1]

    def reserve(self, tokens: int) -> None:
        """Make room for a sequence of `tokens` tokens in one step."""
        if self._position != self._rows.written:
            self._rows = self._rows.fork(self._position)
        self._rows.reserve(tokens)

    def rows(self, length: int) -> mx.array:
        """The first `length` rows [B, length, r + p] in one array; those not absorbed are to be masked."""
        return self._rows.joined(length)

    def pieces(self) -> list[mx.array]:
        """All rows absorbed, as one or two arrays [B, n, r + p] that join in this order."""
        return self._rows.pieces(self._position)

    def arrays(self) -> list[mx.array]:
        """See `LayerState`."""
        return [mx.concatenate(self.pieces(), axis=1)]

    def pending(self) -> list[mx.array]:
        """See `LayerState`."""
        return self._rows.arrays()

    def snapshot(self) -> "LatentSnapshot":
        """See `LayerState`."""
        return LatentSnapshot(self._position, self._rows)


@dataclass(frozen=True)
class LatentSnapshot(LayerSnapshot):
    """A length of an append-only buffer."""

    rows: AppendOnlyRows

    def thaw(self) -> LatentState:
        """See `LayerSnapshot`."""
        return LatentState(self.rows.batch, self.rows.width, self.rows.dtype, self.rows, self.position)

    def stores(self) -> "Sequence[Store]":
        """See `LayerSnapshot`."""
        return (self.rows,)


@dataclass(frozen=True)
class Snapshot:
    """A whole sequence state at one position."""

    position: int
    layers: tuple[LayerSnapshot, ...]


class SequenceState:
    """One `LayerState` per layer. Created by `LanguageModel.new_state`, continued by the model."""

    def __init__(self, layers: Sequence[LayerState]) -> None:
        self.layers = tuple(layers)

    @property
    def positions(self) -> tuple[int, ...]:
        """What each layer state says it has absorbed."""
        return tuple(layer.position for layer in self.layers)

    @property
    def position(self) -> int:
        """Tokens absorbed. Raises `LedgerError` if the layers disagree."""
        positions = self.positions
        if len(set(positions)) != 1:
            spelled = ", ".join(f"layer {i}: {p}" for i, p in enumerate(positions))
            raise LedgerError(
                "The layers of this model's state do not agree on how much of the prompt they have "
                f"read ({spelled}). The answer was withheld because it would not be computed from "
                "the whole prompt."
            )
        return positions[0]

    @property
    def nbytes(self) -> int:
        """Bytes held by all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def arrays(self) -> list[mx.array]:
        """Every array of the state, cut to what has been absorbed, layer by layer."""
        return [array for layer in self.layers for array in layer.arrays()]

    def evaluate(self) -> None:
        """Compute everything that is pending in the state."""
        mx.eval([array for layer in self.layers for array in layer.pending()])

    def reserve(self, tokens: int) -> None:
        """Make room for a sequence of `tokens` tokens in one step."""
        for layer in self.layers:
            if isinstance(layer, LatentState):
                layer.reserve(tokens)

    def snapshot(self) -> Snapshot:
        """This state as a value. Costs no copy: recurrent arrays by reference, latents by length."""
        return Snapshot(self.position, tuple(layer.snapshot() for layer in self.layers))

    def restore(self, snapshot: Snapshot) -> None:
        """Stand where `snapshot` was taken. Recurrent state cannot be trimmed, only restored."""
        if len(snapshot.layers) != len(self.layers):
            raise LedgerError("This snapshot belongs to a model with another number of layers.")
        self.layers = tuple(layer.thaw() for layer in snapshot.layers)
