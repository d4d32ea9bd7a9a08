"""An append-only buffer of rows that states at several positions may share."""

import mlx.core as mx

GROWTH = 256
"""Rows a buffer grows by at least; a multiple of every query tile and row block."""

TAIL = 256
"""Rows that collect in a small array of their own before they are moved into the large one.

While decoding runs one step ahead, the step before still reads the buffer when the next row is
written, so MLX must copy what it writes into. Of the tail that is little, at any context length.
"""


class AppendOnlyRows:
    """Rows [B, written, W], kept in a large array and a small tail.

    Rows below `written` never change, so a (buffer, length) pair stays true for ever. Whoever
    appends anywhere but at `written` gets a copy of its own prefix.
    """

    def __init__(self, batch: int, width: int, dtype: mx.Dtype) -> None:
        self.batch, self.width, self.dtype = batch, width, dtype
        self.written = 0
        self._settled = 0
        self._head = mx.zeros((batch, 0, width), dtype)
        self._tail = mx.zeros((batch, TAIL, width), dtype)

    @property
    def capacity(self) -> int:
        """Rows the large array has room for."""
        return self._head.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes held, unused capacity included."""
        return self._head.nbytes + self._tail.nbytes

    def arrays(self) -> list[mx.array]:
        """The arrays themselves, to be evaluated."""
        return [self._head, self._tail]

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows; grows in steps so that appends do not copy each time."""
        if rows <= self.capacity:
            return
        target = max(rows, self.capacity + self.capacity // 8)
        target = -(-target // GROWTH) * GROWTH
        room = mx.zeros((self.batch, target - self.capacity, self.width), self.dtype)
        self._head = mx.concatenate([self._head, room], axis=1)

    def append(self, at: int, rows: mx.array) -> "AppendOnlyRows":
        """Write rows [B, n, W] at position `at`; returns the buffer that holds the result."""
        if at != self.written:
            return self.fork(at).append(at, rows)
        rows = rows.astype(self.dtype)
        count = rows.shape[1]
        if count > 1 or self.written - self._settled == TAIL:
            self._settle()
        if count > 1:
            self.reserve(at + count)
            self._head[:, at : at + count] = rows
            self._settled = at + count
        else:
            place = at - self._settled
            self._tail[:, place : place + 1] = rows
        self.written = at + count
        return self

    def pieces(self, length: int) -> list[mx.array]:
        """The first `length` rows as one or two arrays [B, n, W], without copying."""
        settled = min(self._settled, length)
        if settled == length:
            return [self._head[:, :settled]]
        tail = self._tail[:, : length - settled]
        return [self._head[:, :settled], tail] if settled else [tail]

    def joined(self, length: int) -> mx.array:
        """The first `length` rows as one array [B, length, W]; rows never written are undefined."""
        self._settle()
        self.reserve(length)
        return self._head[:, :length]

    def _settle(self) -> None:
        """Move the tail into the large array."""
        waiting = self.written - self._settled
        if waiting:
            self.reserve(self.written)
            self._head[:, self._settled : self.written] = self._tail[:, :waiting]
            self._settled = self.written

    def fork(self, length: int) -> "AppendOnlyRows":
        """A buffer of its own with the first `length` rows."""
        copy = AppendOnlyRows(self.batch, self.width, self.dtype)
        copy.reserve(length)
        place = 0
        for piece in self.pieces(length):
            copy._head[:, place : place + piece.shape[1]] = piece
            place += piece.shape[1]
        copy.written = copy._settled = length
        return copy
