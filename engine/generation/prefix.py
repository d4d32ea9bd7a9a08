"""Snapshots of what has been read, so that a follow-up question reads only what is new.

Recurrent state cannot be trimmed, so a snapshot helps only a prompt that begins with exactly the
tokens it was taken after.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from engine.state import Snapshot

BUDGET_BYTES = 2 << 30
BUDGET_COUNT = 64


def ladder(slices: Sequence[tuple[int, int]]) -> frozenset[int]:
    """Which slice ends of a reading are worth keeping: dense towards the end, sparse before.

    The ends 1, 2, 4, 8, ... slices before the last, and the last. Going back to a place behind the first
    of them re-reads less than twice what must be read, and a reading of n slices costs about log2(n)
    snapshots instead of n.
    """
    kept = {slices[-1][1]}
    distance = 1
    while distance < len(slices):
        kept.add(slices[-1 - distance][1])
        distance *= 2
    return frozenset(kept)


@dataclass(frozen=True)
class _Entry:
    ids: "array[int]"
    snapshot: Snapshot


class SnapshotShelf:
    """Snapshots by the tokens they stand for; the least recently used go first.

    The budget counts every array once: snapshots along one conversation share their latent buffers.
    The newest snapshot always stays; the sequence that made it holds the same arrays anyway.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES, budget_count: int = BUDGET_COUNT) -> None:
        self._budget_bytes = budget_bytes
        self._budget_count = budget_count
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes that the snapshots keep alive."""
        held = {
            id(store): store.nbytes for e in self._entries for s in e.snapshot.layers for store in s.stores()
        }
        return sum(held.values())

    def put(self, ids: Sequence[int], snapshot: Snapshot) -> None:
        """Keep `snapshot`, taken after exactly `ids`."""
        if snapshot.position != len(ids):
            raise ValueError(f"a snapshot at {snapshot.position} cannot stand for {len(ids)} tokens")
        key = array("i", ids)
        self._entries = [entry for entry in self._entries if entry.ids != key]
        self._entries.append(_Entry(key, snapshot))
        while len(self._entries) > 1 and (
            len(self._entries) > self._budget_count or self.nbytes > self._budget_bytes
        ):
            self._entries.pop(0)

    def drop(self, ids: Sequence[int]) -> None:
        """Forget the snapshot taken after exactly `ids`, if it is kept."""
        key = array("i", ids)
        self._entries = [entry for entry in self._entries if entry.ids != key]

    def find(self, ids: Sequence[int]) -> Snapshot | None:
        """The longest snapshot that is a proper prefix of `ids`: one token is left to predict from."""
        wanted = array("i", ids)
        best: _Entry | None = None
        for entry in self._entries:
            length = len(entry.ids)
            longer = best is None or length > len(best.ids)
            if length < len(wanted) and longer and wanted[:length] == entry.ids:
                best = entry
        if best is None:
            return None
        self._entries.remove(best)
        self._entries.append(best)
        return best.snapshot

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
