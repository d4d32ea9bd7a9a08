"""The picture of a report: valid, complete, the same each time."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest


def spread(value: float) -> dict[str, float]:
    return {"low": value * 0.9, "median": value, "high": value * 1.2}


def summary(engine: str, speed: float, memory: float) -> dict[str, Any]:
    figures = {"prefill_tokens_per_second": spread(speed), "peak_bytes_above_state": spread(memory)}
    return {"engine": engine, **figures}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    lengths = [
        {"prompt_tokens": 2048, "summaries": [summary("perigee", 9e3, 1e8), summary("mlx-lm", 4e3, 3e8)]},
        {"prompt_tokens": 8192, "summaries": [summary("perigee", 8e3, 1e8), summary("mlx-lm", 2e3, 9e8)]},
        {"prompt_tokens": 32768, "summaries": [summary("perigee", 6e3, 0.0)]},
    ]
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"lengths": lengths}))
    return file


def draw(root: Path, out: Path, *reports: Path) -> bytes:
    script = root / "scripts" / "plot_benchmark.py"
    done = subprocess.run(
        [sys.executable, script, *reports, "--out", out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def test_the_picture_is_svg_with_a_curve_for_each_engine_and_the_same_twice(
    root: Path, report: Path, tmp_path: Path
):
    drawn = draw(root, tmp_path / "a.svg", report)
    assert drawn == draw(root, tmp_path / "b.svg", report)
    tree = ET.fromstring(drawn)
    assert tree.tag.endswith("svg")
    curves = [kind for x in tree.iter() if (kind := x.get("id", "")).startswith(("time: ", "memory: "))]
    assert curves == ["time: perigee", "time: mlx-lm", "memory: perigee", "memory: mlx-lm"]
    texts = {"".join(x.itertext()).strip() for x in tree.iter() if x.tag.endswith("text")}
    assert {"microseconds per token read", "MB above weights and state", "2k", "8k", "32k"} <= texts


def test_several_reports_are_told_apart_by_their_names(root: Path, report: Path, tmp_path: Path):
    other = tmp_path / "later.json"
    other.write_bytes(report.read_bytes())
    drawn = draw(root, tmp_path / "a.svg", report, other).decode()
    assert "time: perigee, report" in drawn
    assert "time: perigee, later" in drawn
