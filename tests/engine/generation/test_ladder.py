"""Which slice ends of a reading are kept, and what they let the next reading skip."""

import math
from collections.abc import Callable

import pytest

from engine.api import PrefillPlanInfo
from engine.generation.generator import Generator, Options, Outcome
from engine.generation.prefill import PrefillPolicy
from engine.generation.prefix import SnapshotShelf, ladder
from engine.models.base import LanguageModel
from engine.planning.tuning import random_ids
from engine.state import LatentSnapshot, RecurrentSnapshot
from engine.text.chat_format import Prompt, PromptPart
from tests.support.checkpoints import PLAIN, Shop
from tests.support.listening import Recorder


class Unspelled:
    """Tokens that nobody reads and that end nothing."""

    stop_ids: frozenset[int] = frozenset()

    def token_bytes(self, _token_id: int, /) -> bytes:
        return b""


@pytest.fixture
def model(shop: Shop) -> LanguageModel:
    return shop.model(PLAIN)


def read(
    model: LanguageModel,
    shelf: SnapshotShelf,
    ids: list[int],
    cancelled: Callable[[Recorder], bool] = lambda _: False,
) -> Outcome:
    recorder = Recorder()
    prompt = Prompt((PromptPart("user", "by hand", tuple(ids)),))
    generator = Generator(model, Unspelled(), shelf)
    return generator.generate(
        prompt, PrefillPolicy(64), Options(max_tokens=2), recorder, lambda: cancelled(recorder)
    )


def even(count: int) -> list[tuple[int, int]]:
    return [(64 * i, 64 * (i + 1)) for i in range(count)]


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (1, {1}),
        (2, {1, 2}),
        (3, {1, 2, 3}),
        (4, {2, 3, 4}),
        (5, {1, 3, 4, 5}),
        (9, {1, 5, 7, 8, 9}),
        (47, {15, 31, 39, 43, 45, 46, 47}),
    ],
)
def test_the_ends_1_2_4_8_slices_before_the_last_are_kept_and_the_last(count: int, kept: set[int]):
    assert ladder(even(count)) == {64 * number for number in kept}


@pytest.mark.parametrize("count", [*range(1, 70), 500, 1 << 12])
def test_the_ladder_is_short_and_an_edit_reads_less_than_twice_what_it_must(count: int):
    rungs = ladder(even(count))
    assert len(rungs) <= math.log2(count) + 2
    for needed in range(1, count + 1, max(1, count // 60)):
        before = max((end // 64 for end in rungs if end <= 64 * (count - needed)), default=0)
        assert needed <= count - before < 2 * needed


def test_the_ends_of_uneven_slices_are_taken_as_they_are():
    assert ladder([(10, 70), (70, 128), (128, 131)]) == {70, 128, 131}
    assert ladder([(500, 501)]) == {501}


def kept_at(shelf: SnapshotShelf) -> list[int]:
    return sorted(entry.snapshot.position for entry in shelf._entries)


def plan_of(model: LanguageModel, tokens: int, position: int = 0) -> PrefillPlanInfo:
    return PrefillPolicy(64).plan(tokens, position, supported=model.supports_chunked_prefill).info()


def test_a_reading_of_many_slices_leaves_the_ladder_and_its_end(model: LanguageModel):
    shelf, ids = SnapshotShelf(), random_ids(model, 47 * 64, seed=1)
    outcome = read(model, shelf, ids)
    slices = outcome.receipt.executed
    assert len(slices) == 47
    after_the_answer = max(kept_at(shelf))
    assert kept_at(shelf) == sorted(ladder(slices) | {after_the_answer})
    assert len(shelf) <= math.log2(47) + 3


def test_an_edit_is_read_from_the_rung_below_it(model: LanguageModel):
    ids = random_ids(model, 16 * 64, seed=2)
    for changed_slice, reused_slices in ((15, 15), (13, 12), (9, 8), (5, 0)):
        shelf = SnapshotShelf()
        read(model, shelf, ids)
        place = 64 * changed_slice + 5
        edited = [*ids[:place], (ids[place] + 1) % model.vocab_size, *ids[place + 1 :]]
        outcome = read(model, shelf, edited)
        assert outcome.receipt.plan.reused == 64 * reused_slices
        assert outcome.receipt.closed


@pytest.mark.parametrize("slices", [1, 2, 3, 6, 11])
def test_a_stopped_reading_is_taken_up_at_its_newest_slice_end(model: LanguageModel, slices: int):
    shelf, ids = SnapshotShelf(), random_ids(model, 20 * 64, seed=3)
    cold = read(model, SnapshotShelf(), ids)

    def stop(recorder: Recorder) -> bool:
        return bool(recorder.steps) and recorder.steps[-1][0] >= 64 * slices

    stopped = read(model, shelf, ids, stop)
    assert stopped.finish_reason == "cancelled"
    newest = stopped.receipt.executed[-1][1]
    assert newest == 64 * slices
    assert newest in kept_at(shelf)
    assert len(shelf) <= math.log2(20) + 3
    resumed = read(model, shelf, ids)
    assert resumed.receipt.plan.reused == newest
    assert resumed.receipt.executed == plan_of(model, len(ids), newest).slices
    assert resumed.receipt.closed
    assert resumed.ids == cold.ids


def test_a_reading_stopped_again_and_again_still_comes_to_its_end(model: LanguageModel):
    shelf, ids = SnapshotShelf(), random_ids(model, 9 * 64, seed=4)
    reused: list[int] = []
    for _ in range(40):
        begun: list[int] = []

        def stop(recorder: Recorder, begun: list[int] = begun) -> bool:
            begun[:] = [recorder.steps[0][0]] if recorder.steps else []
            return bool(begun) and recorder.steps[-1][0] >= begun[0] + 64

        outcome = read(model, shelf, ids, stop)
        reused.append(outcome.receipt.plan.reused)
        if outcome.receipt.closed:
            break
    assert reused == sorted(set(reused))
    assert reused[-1] == 8 * 64


def test_what_snapshots_of_one_reading_share_is_counted_once(model: LanguageModel):
    shelf, ids = SnapshotShelf(), random_ids(model, 16 * 64, seed=5)
    read(model, shelf, ids)
    assert len(shelf) > 4
    layers = [layer for entry in shelf._entries for layer in entry.snapshot.layers]
    buffers = {id(layer.rows): layer.rows.nbytes for layer in layers if isinstance(layer, LatentSnapshot)}
    own = [layer for layer in layers if isinstance(layer, RecurrentSnapshot)]
    memories = {id(x): x.nbytes for layer in own for x in (layer.window, layer.memory)}
    assert len(buffers) == len(PLAIN.mla)
    assert len(memories) == 2 * len(own)
    assert shelf.nbytes == sum(buffers.values()) + sum(memories.values())
