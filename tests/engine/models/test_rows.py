"""The buffer that snapshots share: right across its own seams, true for ever, and cheap to add to."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rows import GROWTH, TAIL, AppendOnlyRows
from engine.state import LatentState

WIDTH = 4


def some_rows(first: int, count: int, width: int = WIDTH, branch: int = 0) -> np.ndarray:
    """Rows that say where they stand and to which branch they belong."""
    rows = np.arange(first, first + count, dtype=np.float32)[None, :, None] + 0.25 * branch
    return np.repeat(rows, width, axis=2)


def held(rows: AppendOnlyRows, length: int) -> np.ndarray:
    return np.concatenate([np.array(piece) for piece in rows.pieces(length)], axis=1)


def filled(count: int, width: int = WIDTH) -> AppendOnlyRows:
    """A buffer with `count` rows appended at once."""
    rows = AppendOnlyRows(1, width, mx.float32)
    return rows.append(0, mx.array(some_rows(0, count, width))) if count else rows


# --- contents ---


@pytest.mark.parametrize("before", [0, 1, 255, 256, 257, 1000])
def test_rows_appended_one_by_one_stand_where_they_were_put(before: int):
    """Across the seam at which the tail is moved, with every length along the way kept by a reader."""
    rows = filled(before)
    kept: list[tuple[int, list[mx.array]]] = []
    for at in range(before, before + 300):
        rows = rows.append(at, mx.array(some_rows(at, 1)))
        assert rows.written == at + 1
        kept.append((at + 1, rows.pieces(at + 1)))
        mx.eval(rows.arrays())
    everything = some_rows(0, before + 300)
    for length, pieces in kept:
        found = np.concatenate([np.array(piece) for piece in pieces], axis=1)
        assert np.array_equal(found, everything[:, :length]), length
    assert len(rows.pieces(rows.written)) <= 2
    for length in range(1, before + 301, 37):
        assert np.array_equal(held(rows, length), everything[:, :length]), length
    assert np.array_equal(np.array(rows.joined(before + 300)), everything)


def test_pieces_join_to_what_joined_gives():
    rows = filled(500)
    for at in range(500, 500 + TAIL + 10):
        rows.append(at, mx.array(some_rows(at, 1)))
    for length in (1, 499, 500, 501, 500 + TAIL - 1, 500 + TAIL, 500 + TAIL + 1, 500 + TAIL + 10):
        before = held(rows, length)
        assert np.array_equal(before, some_rows(0, length))
        copy = rows.fork(length)
        assert np.array_equal(np.array(copy.joined(length)), before)
    assert np.array_equal(np.array(rows.joined(rows.written)), some_rows(0, rows.written))


def test_joined_may_ask_for_more_rows_than_were_written():
    rows = filled(10)
    rows.append(10, mx.array(some_rows(10, 1)))
    joined = rows.joined(700)
    assert joined.shape == (1, 700, WIDTH)
    assert np.array_equal(np.array(joined[:, :11]), some_rows(0, 11))
    assert rows.written == 11
    rows.append(11, mx.array(some_rows(11, 1)))
    assert np.array_equal(held(rows, 12), some_rows(0, 12))


def test_many_rows_behind_single_ones_keep_them_all():
    rows = filled(3)
    at = 3
    for count in (1, 1, 5, 1, 300, 1, 1, 2, 1):
        rows = rows.append(at, mx.array(some_rows(at, count)))
        at += count
        assert np.array_equal(held(rows, at), some_rows(0, at))


# --- memory ---


@pytest.mark.parametrize("length", [1, 5, 255, 256, 257, 1000])
def test_a_fork_has_only_the_room_it_needs(length: int):
    rows = AppendOnlyRows(1, WIDTH, mx.float32)
    rows.reserve(50_000)
    rows.append(0, mx.array(some_rows(0, 2000)))
    copy = rows.fork(length)
    assert length <= copy.capacity < length + GROWTH
    assert np.array_equal(held(copy, length), some_rows(0, length))


def test_appending_anywhere_but_at_the_end_leaves_the_first_buffer_alone():
    rows = filled(400)
    rows.append(400, mx.array(some_rows(400, 1)))
    for at in (0, 1, 256, 399, 400):
        other = rows.append(at, mx.array(some_rows(at, 3, branch=1)))
        assert other is not rows
        expected = np.concatenate([some_rows(0, at), some_rows(at, 3, branch=1)], axis=1)
        assert np.array_equal(held(other, at + 3), expected)
        assert np.array_equal(held(rows, 401), some_rows(0, 401))


def test_a_step_behind_a_reader_copies_the_tail_and_not_the_context():
    """Decoding runs one step ahead: the step before still reads the buffer while the next row is written."""
    width, count = 512, 8192
    rows = filled(count, width)
    mx.eval(rows.arrays())
    head = rows.arrays()[0].nbytes
    assert head > 16_000_000
    worst = 0
    for at in range(count, count + 20):
        row = mx.array(some_rows(at, 1, width))
        mx.eval(row)
        reader = rows.pieces(at)
        rows.append(at, row)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(rows.arrays())
        worst = max(worst, mx.get_peak_memory() - before)
        assert sum(piece.shape[1] for piece in reader) == at
    assert worst < head / 4
    assert worst <= 4 * TAIL * width * 4


# --- snapshots ---


def latents(state: LatentState) -> np.ndarray:
    return np.array(state.arrays()[0])


@pytest.mark.parametrize("settled", [0, 100])
@pytest.mark.parametrize("inside", [1, 10, TAIL - 1, TAIL, TAIL + 1])
def test_a_snapshot_taken_inside_the_tail_stays_true(settled: int, inside: int):
    state = LatentState(1, WIDTH, mx.float32)
    if settled:
        state.append(mx.array(some_rows(0, settled)))
    for at in range(settled, settled + inside):
        state.append(mx.array(some_rows(at, 1)))
    length = settled + inside
    snapshot = state.snapshot()
    for count in (1, 1, 40, 1, TAIL, 1):  # the first branch goes on
        state.append(mx.array(some_rows(state.position, count)))
    other = snapshot.thaw()
    assert other.position == length
    assert np.array_equal(latents(other), some_rows(0, length))
    other.append(mx.array(some_rows(length, 1, branch=1)))  # the second goes elsewhere
    other.append(mx.array(some_rows(length + 1, 30, branch=1)))
    branch = some_rows(length, 31, branch=1)
    assert np.array_equal(latents(other), np.concatenate([some_rows(0, length), branch], axis=1))
    assert np.array_equal(latents(state), some_rows(0, state.position))
    assert np.array_equal(latents(snapshot.thaw()), some_rows(0, length))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "one", "tail", "many", "back", "joined", "reserve"]), st.integers(0, 600)
        ),
        max_size=14,
    )
)
def test_whatever_is_done_to_a_buffer_every_length_of_it_stays_true(steps: list[tuple[str, int]]):
    rows, truth = filled(0), np.zeros((1, 0, WIDTH), np.float32)
    kept: list[tuple[AppendOnlyRows, np.ndarray]] = []

    def append(at: int, count: int, branch: int) -> None:
        nonlocal rows, truth
        new = some_rows(at, count, branch=branch)
        rows, truth = rows.append(at, mx.array(new)), np.concatenate([truth[:, :at], new], axis=1)

    for number, (step, size) in enumerate(steps):
        end = truth.shape[1]
        if step == "one":
            append(end, 1, number)
        elif step == "tail":
            for _ in range(min(size, TAIL + 2)):
                append(truth.shape[1], 1, number)
        elif step == "many":
            append(end, size + 1, number)
        elif step == "back":
            append(min(size, end), 1 + size % 3, number)
        elif step == "joined" and end:
            joined = np.array(rows.joined(end + size))
            assert np.array_equal(joined[:, :end], truth)
        else:
            rows.reserve(end + size)
        if truth.shape[1]:
            kept.append((rows, truth))
    for buffer, expected in kept:
        assert np.array_equal(held(buffer, expected.shape[1]), expected)
