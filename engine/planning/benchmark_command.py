"""The arguments of `perigee bench`, and the run they ask for."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from engine.planning.benchmark import Plan, benchmark
from engine.planning.benchmark_report import RIVALS, Report
from engine.planning.steps import Steps

DEFAULT_LENGTH = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything but the model's folder and --json."""
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--lengths", type=token_counts, metavar="A,B,C", help="prompt lengths such as 2k,8k,32k; 1k is 1,024"
    )
    lengths.add_argument(
        "--prompt-tokens", type=int, default=DEFAULT_LENGTH, metavar="N", help="a single prompt length"
    )
    parser.add_argument("--generate", type=int, default=128, metavar="N", help="tokens to write after each")
    parser.add_argument(
        "--long-generation",
        type=int,
        default=0,
        metavar="N",
        help="also write N tokens after the shortest prompt, and show time and memory by tenths",
    )
    parser.add_argument("--prefill-chunk", metavar="N", help="as for generate")
    parser.add_argument("--runs", type=int, default=3, help="fresh processes of each engine, alternating")
    parser.add_argument("--against", choices=RIVALS, help="alternate with another engine")
    parser.add_argument(
        "--rival-max-length",
        type=token_count,
        default=0,
        metavar="N",
        help="longest prompt that the other engine is asked for (default: all)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the JSON here, run by run")


def token_count(text: str) -> int:
    """A count of tokens: 300, or 2k for 2,048."""
    digits = text.strip().lower()
    try:
        return int(digits[:-1]) * 1024 if digits.endswith("k") else int(digits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"“{text}” is not a number of tokens such as 300 or 2k") from None


def token_counts(text: str) -> tuple[int, ...]:
    """Several, separated by commas."""
    return tuple(token_count(part) for part in text.split(","))


def run_benchmark(options: argparse.Namespace, chunk: int, steps: Steps) -> Report:
    """Measure as `options` say, in chunks of `chunk` tokens."""
    lengths: tuple[int, ...] = options.lengths or (options.prompt_tokens,)
    output: Path | None = options.output

    def keep(report: Report) -> None:
        if output is not None:
            output.write_text(report.as_json() + "\n", encoding="utf-8")

    plan = Plan(
        folder=options.model,
        lengths=lengths,
        generate=options.generate,
        chunk=chunk,
        runs=options.runs,
        against=options.against,
        rival_max_length=options.rival_max_length,
        long_generation=options.long_generation,
        command=_command(options, lengths, chunk),
    )
    report = benchmark(plan, steps, keep)
    keep(report)
    return report


def _command(options: argparse.Namespace, lengths: Sequence[int], chunk: int) -> str:
    """The command that measures the same again, whatever defaults or environment a later call has."""
    words = ["python", "-m", "engine", "bench", "-m", str(options.model)]
    words += ["--lengths", ",".join(map(str, lengths)), "--prefill-chunk", str(chunk)]
    words += ["--generate", str(options.generate), "--runs", str(options.runs)]
    if options.long_generation:
        words += ["--long-generation", str(options.long_generation)]
    if options.against:
        words += ["--against", options.against]
        if options.rival_max_length:
            words += ["--rival-max-length", str(options.rival_max_length)]
    return shlex.join(words)
