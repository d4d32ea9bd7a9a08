"""Draws benchmark reports as curves over the length: time per token read, and memory.

    python scripts/plot_benchmark.py REPORT.json [MORE.json ...] --out curves.svg

The reports are what `perigee bench --output` writes. Both axes are logarithmic; bands go from the lowest
run to the highest. The same reports give the same bytes.
"""

import argparse
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLOURS = ("#3b82c4", "#d07a3c", "#4f9d69", "#9a6fb8", "#b05a6a", "#7d8a3a")
INK = "#808890"
"""Reads on white and on dark paper."""


@dataclass(frozen=True)
class Curve:
    """One engine of one report: lengths with the low, median and high value at each."""

    label: str
    lengths: list[int]
    low: list[float]
    median: list[float]
    high: list[float]


def read_curves(files: Sequence[Path], value: Callable[[dict[str, Any]], tuple[float, ...]]) -> list[Curve]:
    """A curve for each engine; with several reports their file names tell them apart."""
    curves: list[Curve] = []
    for file in files:
        report = json.loads(file.read_text(encoding="utf-8"))
        points: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
        for length in report["lengths"]:
            for summary in length["summaries"]:
                found = points.setdefault(summary["engine"], [])
                found.append((length["prompt_tokens"], value(summary)))
        for engine, pairs in points.items():
            label = engine if len(files) == 1 else f"{engine}, {file.stem}"
            low, median, high = ([triple[i] for _, triple in pairs] for i in range(3))
            curves.append(Curve(label, [n for n, _ in pairs], low, median, high))
    return curves


def microseconds_per_token(summary: dict[str, Any]) -> tuple[float, ...]:
    """Low, median and high."""
    speed = summary["prefill_tokens_per_second"]
    return tuple(1e6 / speed[name] for name in ("high", "median", "low"))


def megabytes(summary: dict[str, Any]) -> tuple[float, ...]:
    """Low, median and high above weights and state; at least a kilobyte, for the logarithm."""
    memory = summary["peak_bytes_above_state"]
    return tuple(max(memory[name] / 1e6, 1e-3) for name in ("low", "median", "high"))


def draw(files: Sequence[Path], out: Path) -> None:
    """Write the picture."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
        tickers: Any = importlib.import_module("matplotlib.ticker")
    except ImportError as error:
        raise SystemExit(
            f"Drawing needs matplotlib, which is not installed ({error}). Run make setup."
        ) from error
    style = {"svg.hashsalt": "perigee", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    with matplotlib.rc_context(style):
        figure = figures.Figure(figsize=(9, 3.8), layout="constrained")
        figure.patch.set_alpha(0)
        panels = figure.subplots(1, 2)
        _panel(panels[0], "time", "microseconds per token read", read_curves(files, microseconds_per_token))
        _panel(panels[1], "memory", "MB above weights and state", read_curves(files, megabytes))
        for axes in panels:
            axes.xaxis.set_major_locator(tickers.LogLocator(base=2))
            axes.xaxis.set_major_formatter(tickers.FuncFormatter(_length_name))
        figure.savefig(out, format="svg", metadata={"Date": None})


def _length_name(tokens: float, _place: int | None) -> str:
    return f"{tokens / 1024:g}k" if tokens >= 1024 else f"{tokens:g}"


def _panel(axes: Any, kind: str, title: str, curves: Sequence[Curve]) -> None:
    axes.set_facecolor("none")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, color=INK, fontsize=10)
    axes.set_xlabel("tokens of the prompt", color=INK)
    axes.tick_params(which="both", colors=INK)
    axes.grid(visible=True, color=INK, alpha=0.25, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(INK)
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        axes.fill_between(curve.lengths, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
        (line,) = axes.plot(
            curve.lengths, curve.median, color=colour, marker="o", markersize=4, label=curve.label
        )
        line.set_gid(f"{kind}: {curve.label}")
    axes.legend(frameon=False, labelcolor=INK)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and draw."""
    parser = argparse.ArgumentParser(description="Draw benchmark reports as SVG.")
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    draw(options.reports, options.out)


if __name__ == "__main__":
    main()
