"""Benchmarks give figures of what really ran. How fast it ran is not a test's business."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.api import Sampling
from engine.errors import CheckpointError
from engine.generation.generator import Generator, Options
from engine.generation.prefill import PrefillPolicy
from engine.planning import bare, benchmark_rival, benchmark_run
from engine.planning import benchmark as module
from engine.planning.benchmark import BenchmarkError, Plan, benchmark
from engine.planning.benchmark_clock import Clock, held_bytes
from engine.planning.benchmark_command import token_counts
from engine.planning.benchmark_ours import Perigee
from engine.planning.benchmark_report import LINE, OURS, Report, Spread, Workload
from engine.planning.benchmark_rival import MlxLm
from engine.planning.benchmark_table import as_table
from engine.planning.quiet import Quiet
from engine.text.chat_format import Prompt, PromptPart
from tests.support.checkpoints import DEMO_MODEL, PLAIN, SPOKEN, Shop, change_config

REFUSED = (
    *("numpy", "transformers", "tokenizers", "jinja2", "PySide6", "safetensors", "regex", "tiktoken"),
    *("charset_normalizer", "platformdirs", "huggingface_hub", "pydantic", "yaml", "matplotlib"),
)


def positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


class Mute:
    """A tokenizer that spells nothing and ends nothing."""

    stop_ids: frozenset[int] = frozenset()

    def token_bytes(self, token_id: int, /) -> bytes:
        return b""


@pytest.fixture(scope="module")
def report() -> Report:
    """The demo model against the rival, at two lengths of which the rival reads one."""
    return benchmark(
        Plan(
            DEMO_MODEL,
            (600, 300),
            12,
            128,
            runs=1,
            against="mlx-lm",
            rival_max_length=400,
            long_generation=20,
        )
    )


def test_lengths_are_measured_in_order_and_the_rival_where_it_was_asked(report: Report):
    assert [length.prompt_tokens for length in report.lengths] == [300, 600]
    engines = [[one.engine for one in length.summaries] for length in report.lengths]
    assert engines == [["perigee", "mlx-lm"], ["perigee"]]
    assert report.lengths[1].notes == ("mlx-lm was not asked for more than 400 tokens",)
    assert report.lengths[1].ratios == {}


def test_every_figure_is_one(report: Report):
    for length in report.lengths:
        for one in length.summaries:
            spreads = (one.prefill_tokens_per_second, one.step_median_ms, one.step_mean_ms, one.peak_bytes)
            assert all(positive(spread.median) for spread in (*spreads, one.state_bytes))
            assert 0 <= one.host_share.median <= 1
            assert one.peak_bytes_above_state.median == one.peak_bytes.median - one.state_bytes.median


def test_ratios_are_of_the_same_work(report: Report):
    ours, theirs = report.lengths[0].summaries
    found = report.lengths[0].ratios
    assert found["prefill speed"] == (
        ours.prefill_tokens_per_second.median / theirs.prefill_tokens_per_second.median
    )
    assert found["decode speed"] == theirs.step_median_ms.median / ours.step_median_ms.median
    assert found["memory above weights"] == ours.peak_bytes.median / theirs.peak_bytes.median


def test_limits_stand_beside_our_figures(report: Report):
    assert report.ceilings is not None
    assert positive(report.ceilings.flops_per_second)
    assert positive(report.ceilings.bytes_per_second)
    for length in report.lengths:
        for limit in (length.prefill_limit, length.decode_limit):
            assert limit is not None
            assert positive(limit.reached)
            assert sum(limit.parts.values()) == pytest.approx(limit.seconds)
    short, long = (length.prefill_limit for length in report.lengths)
    assert short is not None
    assert long is not None
    assert short.flops < long.flops


def test_a_long_generation_is_told_by_tenths(report: Report):
    assert [(one.engine, one.tokens, len(one.tenths)) for one in report.long_generations] == [
        ("perigee", 20, 10),
        ("mlx-lm", 20, 10),
    ]
    for one in report.long_generations:
        assert all(positive(tenth.step_mean_ms) and tenth.active_bytes > 0 for tenth in one.tenths)


def test_a_report_says_where_and_how_it_was_made(report: Report):
    found = json.loads(report.as_json())
    assert found["loops"]["mlx-lm"] == "mlx-lm's own generate_step"
    assert found["machine"]["device"].startswith(("cpu", "gpu"))
    assert found["machine"]["mlx-lm"]
    table = as_table(report)
    assert "mlx-lm was not asked for more than 400 tokens" in table
    assert "TFLOP/s" in table
    assert "by tenths" in table


def test_the_measured_loop_writes_what_the_generator_writes():
    contender = Perigee(DEMO_MODEL, 128)
    ids = benchmark_run.random_prompt(6144, 300)
    generator = Generator(contender.loaded.model, Mute())
    prompt = Prompt((PromptPart("user", "random", tuple(ids)),))
    wanted = generator.generate(prompt, PrefillPolicy(128), Options(Sampling(), max_tokens=10), Quiet())
    assert contender.run(ids, 10, Clock(10)) == list(wanted.ids)


def test_the_loop_for_a_machine_without_transformers_writes_what_mlx_lm_writes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    rival = MlxLm(shop.folder(SPOKEN), 64)
    ids = benchmark_run.random_prompt(6144, 150)
    wanted = rival.run(ids, 10, Clock(10))
    monkeypatch.setattr(rival, "_step", benchmark_rival._generate_step)
    monkeypatch.setattr(rival, "_model", benchmark_rival.load_model(shop.folder(SPOKEN)))
    assert rival.run(ids, 10, Clock(10)) == wanted


@pytest.mark.parametrize("engine", ["perigee", "mlx-lm"])
def test_a_process_needs_nothing_but_mlx(engine: str):
    code = f"""
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {REFUSED!r}:
            raise ModuleNotFoundError(f"refused: {{name}}")
sys.meta_path.insert(0, Refuse())
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    work = Workload(engine, str(DEMO_MODEL), (150,), 64, 3)
    arguments = [bare.__file__, "engine.planning.benchmark_run", work.as_json()]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(x.removeprefix(LINE)) for x in done.stdout.splitlines() if x.startswith(LINE)]
    kinds = [kind for line in lines for kind in line]
    assert kinds == ["machine", "measured", *(("counted", "ceilings") if engine == OURS else ())]
    assert (engine == OURS) or lines[0]["machine"]["loop"].startswith("written after mlx-lm's")


def measured(length: int) -> dict[str, Any]:
    figures = {"prefill_seconds": 1.0, "step_median_ms": 2.0, "step_mean_ms": 2.0, "host_share": 0.5}
    return {"measured": {"prompt_tokens": length, **figures, "peak_bytes": 100, "state_bytes": 40}}


def test_a_rival_that_fails_is_a_note_and_is_asked_no_more(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, tuple[int, ...]]] = []
    kept: list[Report] = []

    def lines(work: Workload, found: object) -> Iterator[dict[str, Any]]:
        asked.append((work.engine, work.lengths))
        yield {"machine": {"engine": work.engine, "loop": "x", "version": "1"}}
        for length in work.lengths:
            if work.engine != OURS and length == 200:
                yield {"failed": {"prompt_tokens": 200, "reason": "out of memory"}}
                return
            yield measured(length)

    monkeypatch.setattr(module, "_lines", lines)
    done: list[int] = []
    found = benchmark(
        Plan(DEMO_MODEL, (100, 200, 300), 4, 64, runs=2, against="mlx-lm"),
        lambda step, total, text: done.append(step),
        kept.append,
    )
    assert asked == [
        ("perigee", (100, 200, 300)),
        ("mlx-lm", (100, 200, 300)),
        ("perigee", (100, 200, 300)),
        ("mlx-lm", (100,)),
    ]
    assert [len(length.summaries) for length in found.lengths] == [2, 1, 1]
    assert found.lengths[0].summaries[1].runs == 2
    assert found.lengths[1].notes == ("mlx-lm failed: out of memory",)
    assert found.lengths[2].notes == ("mlx-lm was not asked, since it failed at 200 tokens",)
    assert len(kept) == 4
    assert done == sorted(done)


def test_a_rival_whose_process_dies_keeps_what_it_had_measured():
    found = module._Found(Workload("mlx-lm", "x", (100, 200), 64, 4))
    found.hear(measured(100))
    module._explain(found.workload, found, {100}, -9, "")
    assert found.notes == {200: "mlx-lm failed: its process ended with status -9. It gave no message."}
    assert list(found.measured) == [100]


class Exhausted:
    loop = "one that fails"

    def __init__(self, folder: Path, chunk: int) -> None:
        pass

    def run(self, ids: list[int], generate: int, clock: Clock) -> list[int]:
        if len(ids) > 90:
            raise RuntimeError("[malloc] Unable to allocate")
        for _ in range(generate):
            clock.waiting()
            clock.handed()
        return ids[:generate]


def test_a_process_reports_the_failure_of_a_rival(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(benchmark_run, "MlxLm", Exhausted)
    benchmark_run.run(Workload("mlx-lm", str(DEMO_MODEL), (80, 100, 120), 64, 3))
    lines = [json.loads(x.removeprefix(LINE)) for x in capsys.readouterr().out.splitlines()]
    assert [next(iter(line)) for line in lines] == ["machine", "measured", "failed"]
    assert lines[2]["failed"] == {"prompt_tokens": 100, "reason": "[malloc] Unable to allocate"}


def test_a_run_of_ours_that_fails_says_why(shop: Shop, tmp_path: Path):
    damaged = tmp_path / "damaged"
    shutil.copytree(shop.folder(PLAIN), damaged)
    change_config(damaged, hidden_size=65)
    with pytest.raises(
        BenchmarkError, match=r"The run of perigee failed\. The weights do not fit config\.json"
    ):
        benchmark(Plan(damaged, (80,), 3, 64, runs=1))


def test_a_prompt_beyond_the_window_is_refused(shop: Shop):
    with pytest.raises(BenchmarkError, match=f"window of {PLAIN.window:,}"):
        benchmark(Plan(shop.folder(PLAIN), (PLAIN.window,), 3, 64, runs=1))


def test_a_folder_that_is_not_there_is_said_before_anything_runs(tmp_path: Path):
    with pytest.raises(CheckpointError, match="There is no folder"):
        benchmark(Plan(tmp_path / "nowhere", (80,), 3, 64, runs=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lengths": ()}, "at least one length"),
        ({"long_generation": 5}, "at least 10"),
        ({"against": "mlx-lm", "rival_max_length": 50}, "shortest length is 80"),
    ],
)
def test_a_plan_that_measures_nothing_is_refused(changes: dict[str, Any], said: str):
    plan: dict[str, Any] = {"folder": DEMO_MODEL, "lengths": (80,), "generate": 3, "chunk": 64}
    with pytest.raises(BenchmarkError, match=said):
        benchmark(Plan(**plan | changes))


def test_a_k_is_1024_tokens():
    assert token_counts("300,2k,128K") == (300, 2048, 131072)


def test_a_spread_is_of_the_values_it_was_given():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0)


def test_arrays_are_counted_once_wherever_they_hang():
    class Cache:
        def __init__(self) -> None:
            self.keys = mx.zeros((4, 4))
            self.again = [self.keys, {"other": mx.zeros((2,), mx.int8)}, None, self]

    assert held_bytes([Cache(), mx.zeros((1,))]) == 64 + 2 + 4
