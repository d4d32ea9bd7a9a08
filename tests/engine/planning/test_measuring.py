"""Tuning gives figures of what really ran. How fast it ran is not a test's business."""

import math
from collections.abc import Callable

import pytest

from engine.checkpoint.loader import LoadedModel
from engine.errors import CancelledError, PromptError, SettingError
from engine.planning.tuning import random_ids, tune
from tests.support.checkpoints import PLAIN, Shop
from tests.support.families import WholePromptOnly

LoadAs = Callable[..., LoadedModel]


def positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def test_tuning_gives_a_point_for_every_chunk_in_order(shop: Shop):
    steps: list[tuple[int, int]] = []
    points = tune(
        shop.model(PLAIN), 300, (64, 128, 256), lambda done, total, step: steps.append((done, total))
    )
    assert [point.chunk for point in points] == [64, 128, 256]
    assert all(positive(point.tokens_per_second) for point in points)
    assert all(point.peak_memory_bytes > 0 for point in points)
    assert steps == [(i, 4) for i in range(5)]


def test_tuning_a_family_that_opted_out_gives_its_one_way_of_reading(load_as: LoadAs):
    points = tune(load_as(WholePromptOnly).model, 300, (64, 128))
    assert [point.chunk for point in points] == [0]


@pytest.mark.parametrize("tokens", [0, -1, PLAIN.window])
def test_tuning_refuses_a_prompt_that_does_not_fit(shop: Shop, tokens: int):
    with pytest.raises(PromptError, match=f"{PLAIN.window:,}"):
        tune(shop.model(PLAIN), tokens, (64,))


def test_tuning_refuses_a_chunk_outside_the_range(shop: Shop):
    with pytest.raises(SettingError, match="between 64 and 32768"):
        tune(shop.model(PLAIN), 100, (7,))


def test_tuning_of_no_chunk_at_all_is_refused(shop: Shop):
    with pytest.raises(SettingError):
        tune(shop.model(PLAIN), 100, ())


def test_tuning_can_be_stopped(shop: Shop):
    def stop(done: int, total: int, step: str) -> None:
        if done:
            raise CancelledError("Stopped.")

    with pytest.raises(CancelledError):
        tune(shop.model(PLAIN), 300, (64, 128), stop)


def test_random_prompts_are_the_same_for_the_same_seed_and_within_the_vocabulary(shop: Shop):
    model = shop.model(PLAIN)
    ids = random_ids(model, 500, seed=1)
    assert ids == random_ids(model, 500, seed=1) != random_ids(model, 500, seed=2)
    assert all(0 <= i < model.vocab_size for i in ids)
