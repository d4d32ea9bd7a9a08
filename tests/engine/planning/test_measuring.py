"""Tuning and benchmarks give figures of what really ran. How fast it ran is not a test's business."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint.loader import LoadedModel
from engine.errors import CancelledError, CheckpointError, PromptError, SettingError
from engine.planning.benchmark import BenchmarkError, Spread, benchmark
from engine.planning.tuning import random_ids, tune
from tests.support.checkpoints import DEMO_MODEL, PLAIN, SPOKEN, Shop, change_config
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


def test_a_benchmark_measures_prefill_decode_and_memory_in_a_fresh_process():
    steps: list[int] = []
    report = benchmark(DEMO_MODEL, 150, 4, 64, runs=1, steps=lambda done, total, step: steps.append(done))
    found = json.loads(report.as_json())
    assert (found["prompt_tokens"], found["generated_tokens"], found["prefill_chunk"]) == (150, 4, 64)
    (ours,) = found["summaries"]
    assert ours["engine"] == "perigee"
    for figure in ("prefill_tokens_per_second", "decode_tokens_per_second", "peak_memory_bytes"):
        spread = ours[figure]
        assert positive(spread["median"])
        assert spread["low"] <= spread["median"] <= spread["high"]
    assert found["ratios"] == {}
    assert steps == [0, 1]
    assert "perigee" in report.as_table()


def test_a_benchmark_against_the_rival_gives_ratios_of_the_same_work(shop: Shop):
    report = benchmark(shop.folder(SPOKEN), 80, 3, 64, against="mlx-lm", runs=1)
    assert [summary.engine for summary in report.summaries] == ["perigee", "mlx-lm"]
    assert set(report.ratios) == {
        "prefill speed, perigee / mlx-lm",
        "decode speed, perigee / mlx-lm",
        "memory above weights, perigee / mlx-lm",
    }
    ours, theirs = report.summaries
    ratio = ours.prefill_tokens_per_second.median / theirs.prefill_tokens_per_second.median
    assert report.ratios["prefill speed, perigee / mlx-lm"] == ratio
    assert all(positive(value) for value in report.ratios.values())


def test_a_run_that_fails_says_why(shop: Shop, tmp_path: Path):
    damaged = tmp_path / "damaged"
    shutil.copytree(shop.folder(PLAIN), damaged)
    change_config(damaged, hidden_size=65)
    with pytest.raises(
        BenchmarkError, match=r"The run of perigee failed\. The weights do not fit config\.json"
    ):
        benchmark(damaged, 80, 3, 64, runs=1)


def test_a_folder_that_is_not_there_is_said_before_anything_runs(tmp_path: Path):
    with pytest.raises(CheckpointError, match="There is no folder"):
        benchmark(tmp_path / "nowhere", 80, 3, 64, runs=1)


def test_a_spread_is_of_the_values_it_was_given():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0)
