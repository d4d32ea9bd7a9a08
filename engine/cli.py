"""The `perigee` command: generate, verify, bench.

Everything is done on the main thread, which thereby owns MLX. Answers and results go to standard
output, progress and messages to standard error. Exit status: 0 done, 1 failed or not proved, 2 wrong
usage, 130 stopped by the user.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api import PREFILL_CHUNK, Document, Message, Sampling
from engine.errors import PerigeeError, PromptError
from engine.explain import explain
from engine.planning.benchmark_command import add_arguments, run_benchmark
from engine.planning.benchmark_table import as_table
from engine.terminal import CountingBar, Say

if TYPE_CHECKING:
    from engine.generation.generator import Outcome
    from engine.generation.prefill import PrefillPolicy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no “ is no reason to stop
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("perigee: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what is left
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends as a message and a status
        info = explain(error)
        if options.json:
            print(json.dumps({"error": {"kind": info.kind, "message": info.message}}))
        if not isinstance(error, PerigeeError):
            print(info.detail, file=sys.stderr)
        print(f"perigee: {info.message}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="perigee",
        description="Run Kimi models on this machine; every answer is computed from the whole prompt.",
    )
    commands = parser.add_subparsers(title="commands", required=True)
    _add_generate(commands.add_parser("generate", help="answer a question, with or without documents"))
    _add_verify(commands.add_parser("verify", help="prove that reading in chunks loses nothing"))
    _add_bench(commands.add_parser("bench", help="measure prefill, decode and memory"))
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", type=Path, required=True, metavar="DIR", help="checkpoint folder")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_generate(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("-p", "--prompt", required=True, help="the question; - reads standard input")
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        action="append",
        default=[],
        help="a document to put before the question; repeatable",
    )
    parser.add_argument("--system", default="", help="a system prompt")
    parser.add_argument("-n", "--max-tokens", type=int, default=1024, metavar="MAX", help="longest answer")
    parser.add_argument(
        "--prefill-chunk",
        metavar="N",
        help=f"tokens read at a time: 0 for one pass, or {PREFILL_CHUNK.low} to {PREFILL_CHUNK.high} "
        f"(default: {PREFILL_CHUNK.environment_variable}, else {PREFILL_CHUNK.default})",
    )
    parser.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default: the model's)")
    parser.add_argument("--top-p", type=float, default=None)
    parser.add_argument("--top-k", type=int, default=None)
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int, metavar="S", help="makes sampling repeatable")
    parser.add_argument("--stop", action="append", default=[], help="a text that ends the answer; repeatable")
    _add_json(parser)
    parser.set_defaults(run=_generate)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--length", type=int, default=517, metavar="N", help="tokens of the random prompt")
    parser.add_argument(
        "--chunks", type=_numbers, default=(64, 100, 256), metavar="A,B,C", help="chunk sizes"
    )
    _add_json(parser)
    parser.set_defaults(run=_verify)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    add_arguments(parser)
    _add_json(parser)
    parser.set_defaults(run=_bench)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"“{text}” is not a list of numbers such as 64,100,256") from None


def _generate(options: argparse.Namespace) -> int:
    from engine.checkpoint.loader import prepare_model, read_weights
    from engine.documents import read_document
    from engine.generation.generator import Generator, Options
    from engine.runtime import default_sampling
    from engine.text.chat_format import ChatFormat
    from engine.text.tokenizer import Tokenizer

    policy = _policy(options)
    question = _standard_input() if options.prompt == "-" else options.prompt
    if not question.strip() and not options.file:
        raise PromptError("The prompt is empty. Give a question with -p, or a document with -f.")
    documents = tuple(read_document(path) for path in options.file)
    say = Say(quiet=options.json)
    for document in documents:
        say.document(document)
    messages = (Message("user", question, documents),)
    if options.system:
        messages = (Message("system", options.system), *messages)
    loaded = prepare_model(options.model)
    tokenizer = Tokenizer.load(options.model)
    prompt = ChatFormat.load(options.model, tokenizer).prompt(messages)
    defaults = default_sampling(loaded)
    sampling = Sampling(
        temperature=defaults.temperature if options.temperature is None else options.temperature,
        top_p=defaults.top_p if options.top_p is None else options.top_p,
        top_k=defaults.top_k if options.top_k is None else options.top_k,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        seed=options.seed,
    )
    wanted = Options(sampling, options.max_tokens, tuple(options.stop))
    generator = Generator(loaded.model, tokenizer)
    generator.check(prompt.ids, wanted)  # before the weights are read, which can take long
    read_weights(loaded)
    outcome = generator.generate(prompt, policy, wanted, say)
    say.done(outcome)
    if options.json:
        print(json.dumps(outcome_as_json(outcome, documents)))
    return 0


def _policy(options: argparse.Namespace) -> "PrefillPolicy":
    """--prefill-chunk if it was given, else the environment variable, else the default."""
    from engine.generation.prefill import PrefillPolicy

    if options.prefill_chunk is None:
        return PrefillPolicy.from_setting(PREFILL_CHUNK.default)
    return PrefillPolicy(PREFILL_CHUNK.check(options.prefill_chunk, "--prefill-chunk"))


def _standard_input() -> str:
    """The question from standard input, which must be UTF-8: a guess would change it in silence."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"Standard input is not UTF-8 (byte {error.start}). Convert it, or put the text into a file and "
            "give it with -f, where other encodings are recognised."
        ) from error


def outcome_as_json(outcome: "Outcome", documents: Sequence[Document] = ()) -> dict[str, object]:
    """The documented JSON of `perigee generate`."""
    stats, receipt = outcome.stats, outcome.receipt
    return {
        "text": outcome.text,
        "finish_reason": outcome.finish_reason,
        "prompt_tokens": stats.prompt_tokens,
        "generated_tokens": stats.generated_tokens,
        "prefill": {
            "reason": receipt.plan.reason,
            "explanation": receipt.plan.explanation,
            "chunk": receipt.plan.chunk,
            "source": receipt.plan.source,
            "slices": [list(piece) for piece in receipt.executed],
            "reused": receipt.plan.reused,
            "seconds": stats.prefill_seconds,
            "tokens_per_second": stats.prefill_tokens_per_second,
        },
        "decode": {"seconds": stats.decode_seconds, "tokens_per_second": stats.decode_tokens_per_second},
        "peak_memory_bytes": stats.peak_memory_bytes,
        "documents": [
            {"name": d.name, "characters": len(d.text), "encoding": d.encoding, "replaced": d.replaced}
            for d in documents
        ],
        "receipt": {
            "closed": receipt.closed,
            "problem": receipt.problem,
            "parts": [{"kind": p.kind, "label": p.label, "tokens": p.tokens} for p in receipt.parts],
            "layers": [{"layer": x.layer, "kind": x.kind, "position": x.position} for x in receipt.layers],
        },
    }


def _verify(options: argparse.Namespace) -> int:
    from engine.checkpoint.loader import load_model
    from engine.planning.verification import load_needle, verify

    loaded = load_model(options.model)
    needle, note = load_needle(options.model)
    bar = CountingBar(quiet=options.json)
    report = verify(
        loaded.model, length=options.length, chunks=options.chunks, needle=needle, note=note, progress=bar
    )
    if options.json:
        witnesses = [{"name": w.name, "held": w.held, "detail": w.detail} for w in report.witnesses]
        summary = {
            "held": report.held,
            "control_caught": report.control_caught,
            "length": report.length,
            "chunks": list(report.chunks),
            "witnesses": witnesses,
            "note": report.note,
        }
        print(json.dumps(summary))
    else:
        for witness in report.witnesses:
            print(f"{'holds ' if witness.held else 'FAILED'}  {witness.name}: {witness.detail}")
        if report.note:
            print(report.note)
        print("Proved: nothing is lost between chunks." if report.held else "Not proved; see above.")
    return 0 if report.held else 1


def _bench(options: argparse.Namespace) -> int:
    bar = CountingBar(quiet=options.json)
    report = run_benchmark(options, _policy(options).configured, bar)
    print(report.as_json() if options.json else as_table(report))
    return 0
