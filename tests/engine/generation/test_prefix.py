"""Snapshots by their tokens: the longest proper prefix, an honest budget, and warm equals cold."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.generation.prefix import SnapshotShelf
from engine.models.base import LanguageModel
from engine.planning.tuning import random_ids
from engine.state import Snapshot
from tests.support.arrays import relative_gap, same_bits
from tests.support.checkpoints import PLAIN, Shop


@pytest.fixture
def model(shop: Shop) -> LanguageModel:
    return shop.model(PLAIN)


def empty(position: int) -> Snapshot:
    return Snapshot(position, ())


def read(model: LanguageModel, ids: list[int], snapshot: Snapshot | None = None) -> mx.array:
    state = model.new_state()
    if snapshot is not None:
        state.restore(snapshot)
    logits = model(mx.array([ids[state.position :]], mx.int32), state)
    mx.eval(logits)
    assert state.position == len(ids)
    return logits


def snapshot_after(model: LanguageModel, ids: list[int]) -> Snapshot:
    state = model.new_state()
    if ids:
        mx.eval(model(mx.array([ids], mx.int32), state))
    state.evaluate()
    return state.snapshot()


def test_the_longest_prefix_is_found():
    shelf = SnapshotShelf()
    for length in (2, 5, 3):
        shelf.put([1, 2, 3, 4, 5][:length], empty(length))
    found = shelf.find([1, 2, 3, 4, 9, 9])
    assert found is not None
    assert found.position == 3


def test_the_whole_prompt_is_never_taken_over():
    """One token must be left to predict from."""
    shelf = SnapshotShelf()
    shelf.put([1, 2, 3], empty(3))
    assert shelf.find([1, 2, 3]) is None
    assert shelf.find([1, 2]) is None
    shelf.put([1, 2], empty(2))
    found = shelf.find([1, 2, 3])
    assert found is not None
    assert found.position == 2


@pytest.mark.parametrize("ids", [[9], [9, 2, 3, 4], [1, 2, 9, 4], [1], []])
def test_a_prompt_that_begins_otherwise_finds_nothing(ids: list[int]):
    shelf = SnapshotShelf()
    shelf.put([1, 2, 3], empty(3))
    assert shelf.find(ids) is None


def test_a_snapshot_can_stand_only_for_the_tokens_it_was_taken_after():
    with pytest.raises(ValueError, match="a snapshot at 3 cannot stand for 4 tokens"):
        SnapshotShelf().put([1, 2, 3, 4], empty(3))


def test_the_same_tokens_are_kept_once():
    shelf = SnapshotShelf()
    for _ in range(3):
        shelf.put([1, 2], empty(2))
    assert len(shelf) == 1


def test_the_least_recently_used_goes_first():
    shelf = SnapshotShelf(budget_count=2)
    shelf.put([1], empty(1))
    shelf.put([2], empty(1))
    assert shelf.find([1, 0]) is not None
    shelf.put([3], empty(1))
    assert shelf.find([2, 0]) is None
    assert shelf.find([1, 0]) is not None
    assert shelf.find([3, 0]) is not None


def test_bytes_are_counted_and_kept_within_the_budget(model: LanguageModel):
    one = SnapshotShelf()
    one.put([1, 2], snapshot_after(model, [1, 2]))
    shelf = SnapshotShelf(budget_bytes=3 * one.nbytes)
    for token in range(10):
        shelf.put([token, 7], snapshot_after(model, [token, 7]))
        assert shelf.nbytes <= 3 * one.nbytes
    assert len(shelf) == 3
    assert shelf.find([9, 7, 1]) is not None
    shelf.clear()
    assert (len(shelf), shelf.nbytes) == (0, 0)
    assert shelf.find([9, 7, 1]) is None


def test_the_newest_is_kept_even_if_it_alone_is_over_the_budget(model: LanguageModel):
    shelf = SnapshotShelf(budget_bytes=1)
    shelf.put([1], snapshot_after(model, [1]))
    shelf.put([2], snapshot_after(model, [2]))
    assert len(shelf) == 1
    assert shelf.find([2, 3]) is not None


def test_what_unrelated_readings_hold_is_counted_with_their_latents(model: LanguageModel):
    """Otherwise long documents would stay in memory without end, far over the budget."""
    shelf = SnapshotShelf()
    mx.clear_cache()
    before = mx.get_active_memory()
    for seed in range(4):
        ids = random_ids(model, 2000, seed)
        shelf.put(ids, snapshot_after(model, ids))
    held = mx.get_active_memory() - before
    assert shelf.nbytes > 0.7 * held


def test_a_latent_buffer_that_snapshots_share_is_counted_once(model: LanguageModel):
    shelf = SnapshotShelf()
    ids, state = random_ids(model, 2048, seed=1), model.new_state()
    state.reserve(len(ids))
    mx.clear_cache()
    before = mx.get_active_memory()
    for start in range(0, 2048, 256):
        mx.eval(model(mx.array([ids[start : start + 256]], mx.int32), state))
        state.evaluate()
        shelf.put(ids[: start + 256], state.snapshot())
    held = mx.get_active_memory() - before + sum(a.nbytes for a in state.arrays())
    assert len(shelf) == 8
    assert shelf.nbytes < 1.5 * held


def test_warm_equals_cold_for_every_length_of_a_kept_prefix(model: LanguageModel):
    ids = random_ids(model, 70, seed=21)
    cold = read(model, ids)
    for length in range(1, len(ids)):
        shelf = SnapshotShelf()
        shelf.put(ids[:length], snapshot_after(model, ids[:length]))
        found = shelf.find(ids)
        assert found is not None
        assert found.position == length
        assert relative_gap(cold, read(model, ids, found)) < 1e-5, length


@pytest.mark.parametrize("place", [63, 64, 65, 127, 128])
def test_warm_equals_cold_around_the_edges_of_blocks(model: LanguageModel, place: int):
    ids = random_ids(model, 200, seed=22)
    cold, warm = read(model, ids), read(model, ids, snapshot_after(model, ids[:place]))
    assert relative_gap(cold, warm) < 1e-5
    if place % 64 == 0:
        assert same_bits(cold, warm)


def test_a_kept_snapshot_does_not_change_while_others_go_on_from_it(model: LanguageModel):
    ids = random_ids(model, 100, seed=23)
    shelf = SnapshotShelf()
    shelf.put(ids[:64], snapshot_after(model, ids[:64]))
    first = read(model, ids, shelf.find(ids))
    read(model, [*ids[:64], 5, 6, 7, 8], shelf.find([*ids[:64], 5, 6, 7, 8]))
    assert same_bits(first, read(model, ids, shelf.find(ids)))


tokens = st.lists(st.integers(0, 2), min_size=0, max_size=8)


@given(kept=st.lists(tokens.filter(bool), max_size=12), wanted=tokens)
def test_what_is_found_is_always_the_longest_proper_prefix(kept: list[list[int]], wanted: list[int]):
    shelf = SnapshotShelf()
    for ids in kept:
        shelf.put(ids, empty(len(ids)))
    proper = [len(ids) for ids in kept if len(ids) < len(wanted) and wanted[: len(ids)] == ids]
    found = shelf.find(wanted)
    assert (found.position if found else 0) == max(proper, default=0)
