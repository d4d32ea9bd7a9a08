"""A benchmark's report as text."""

from collections.abc import Sequence

from engine.planning.benchmark_report import Length, Report, Spread, Summary

_WIDTH = 27


def as_table(report: Report) -> str:
    """Medians with their spread, a line per length and engine; ratios, limits and notes under them."""
    how = f"in chunks of {report.prefill_chunk:,}" if report.prefill_chunk else "in one pass"
    lines = [
        "  ".join(f"{name} {text}" for name, text in report.machine.items() if text),
        *(f"{engine}: {loop}" for engine, loop in report.loops.items() if loop),
        f"$ {report.command}",
        f"read {how}, {report.generated_tokens} generated, median of {report.runs} alternating runs "
        "(lowest to highest)",
        "",
        *_speed(report.lengths),
        "",
        *_memory(report.lengths),
    ]
    lines += _below(report)
    return "\n".join(line.rstrip() for line in lines)


def _speed(lengths: Sequence[Length]) -> list[str]:
    head = _row("tokens", "engine", "prefill tok/s", "ms a step, median", "ms a step, mean", "host share")
    rows = [
        _row(
            f"{length.prompt_tokens:,}",
            one.engine,
            _cell(one.prefill_tokens_per_second),
            _cell(one.step_median_ms, digits=2),
            _cell(one.step_mean_ms, digits=2),
            f"{one.host_share.median:.0%}",
        )
        for length, one in _each(lengths)
    ]
    return [head, *rows]


def _memory(lengths: Sequence[Length]) -> list[str]:
    head = _row("tokens", "engine", "MB above weights", "MB of state", "MB above weights and state")
    rows = [
        _row(
            f"{length.prompt_tokens:,}",
            one.engine,
            _cell(one.peak_bytes, 1e6),
            _cell(one.state_bytes, 1e6),
            _cell(one.peak_bytes_above_state, 1e6),
        )
        for length, one in _each(lengths)
    ]
    return [head, *rows]


def _each(lengths: Sequence[Length]) -> list[tuple[Length, Summary]]:
    return [(length, one) for length in lengths for one in length.summaries]


def _row(tokens: str, engine: str, *cells: str) -> str:
    return f"{tokens:>9}  {engine:10}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def _cell(spread: Spread, unit: float = 1.0, digits: int = 1) -> str:
    low, median, high = (f"{x / unit:,.{digits}f}" for x in (spread.low, spread.median, spread.high))
    return f"{median} ({low} to {high})"


def _below(report: Report) -> list[str]:
    lines: list[str] = []
    for length in report.lengths:
        if length.ratios:
            names = " / ".join(one.engine for one in length.summaries)
            figures = ", ".join(f"{name} {value:.2f}" for name, value in length.ratios.items())
            lines.append(f"{length.prompt_tokens:,} tokens, {names}: {figures}")
        lines.extend(f"{length.prompt_tokens:,} tokens: {note}" for note in length.notes)
    if report.ceilings is not None:
        c = report.ceilings
        lines += [
            "",
            f"This machine reached {c.flops_per_second / 1e12:,.2f} TFLOP/s ({c.dtype} product) and "
            f"{c.bytes_per_second / 1e9:,.1f} GB/s (copy). Counted work, and the part of that limit reached:",
        ]
        for length in report.lengths:
            for name, limit in (("prefill", length.prefill_limit), ("a step", length.decode_limit)):
                if limit is not None:
                    lines.append(
                        f"{length.prompt_tokens:>9,}  {name:8}{limit.flops / 1e9:>14,.2f} GFLOP"
                        f"{limit.nbytes / 1e9:>12,.3f} GB{1e3 * limit.seconds:>14,.3f} ms at best"
                        f"{limit.reached:>8.1%} reached"
                    )
    for long in report.long_generations:
        steps = ", ".join(f"{tenth.step_mean_ms:,.2f}" for tenth in long.tenths)
        memory = ", ".join(f"{tenth.active_bytes / 1e6:,.1f}" for tenth in long.tenths)
        lines += [
            "",
            f"{long.engine}, {long.tokens:,} tokens written after {long.prompt_tokens:,}, by tenths",
            f"ms a step: {steps}",
            f"MB above weights: {memory}",
        ]
    return lines
