"""What the command line shows while it works: the answer on standard output, progress beside it."""

import sys
from typing import TYPE_CHECKING

from engine.api import Document, PrefillPlanInfo, ToolCall

if TYPE_CHECKING:
    from engine.generation.generator import Outcome


class _Line:
    """One line of standard error that is rewritten in place; silent when that is not a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._shown:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


class Say:
    """Streams an answer to standard output; reasoning and progress go to standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._line = _Line(quiet)

    def document(self, document: Document) -> None:
        """A word about a document that was not plain UTF-8, or not all of it."""
        if self._quiet or (document.encoding == "utf-8" and not document.replaced):
            return
        lost = f", {document.replaced:,} characters could not be decoded" if document.replaced else ""
        sys.stderr.write(f"{document.name}: read as {document.encoding}{lost}\n")

    def planned(self, plan: PrefillPlanInfo) -> None:
        """How the prompt will be read."""
        self._line.show(plan.explanation)

    def progress(self, done: int, total: int, tokens_per_second: float, seconds_left: float | None) -> None:
        """Tokens read."""
        left = f", {seconds_left:.0f} s left" if seconds_left else ""
        self._line.show(f"reading {done:,} of {total:,} tokens, {tokens_per_second:,.0f} tok/s{left}")

    def text(self, text: str) -> None:
        """More of the answer."""
        self._line.clear()
        if not self._quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    def reasoning(self, text: str) -> None:
        """More of the thinking."""
        self._line.clear()
        if not self._quiet:
            sys.stderr.write(text)
            sys.stderr.flush()

    def tool_call(self, call: ToolCall) -> None:
        """A tool call; shown, never run."""
        self._line.clear()
        if not self._quiet:
            sys.stdout.write(f"[calls {call.name} with {call.arguments}]\n")

    def done(self, outcome: "Outcome") -> None:
        """The line under the answer."""
        self._line.clear()
        if self._quiet:
            return
        sys.stdout.write("\n")
        sys.stdout.flush()
        receipt, stats = outcome.receipt, outcome.stats
        how = "in one pass" if len(receipt.executed) == 1 else f"in {len(receipt.executed)} chunks"
        sys.stderr.write(
            f"read {receipt.read:,} of {receipt.prompt_tokens:,} tokens {how} at "
            f"{stats.prefill_tokens_per_second:,.0f} tok/s; wrote {stats.generated_tokens:,} at "
            f"{stats.decode_tokens_per_second:,.1f} tok/s\n"
        )


class CountingBar:
    """Steps done of steps in all, on one line of standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._line = _Line(quiet)

    def __call__(self, done: int, total: int, step: str) -> None:
        """See `engine.planning.steps.Steps`."""
        if done == total:
            self._line.clear()
        else:
            self._line.show(f"{done + 1} of {total}: {step}")
