"""Thinking aloud, told apart from the answer while the text streams."""

from typing import Literal

from engine.text.held_back import held_back

Channel = Literal["reasoning", "text"]

OPEN = "<think>"
CLOSE = "</think>"


class ReasoningSplitter:
    """Splits an answer at `<think>…</think>`.

    A think tag counts only at the start of an answer, where white space before it is dropped with
    it; the first closing tag ends the reasoning and everything after it is text. Without a closing
    tag everything stays reasoning. How the text is cut into deltas makes no difference.
    """

    def __init__(self, starts_inside: bool = False) -> None:
        """`starts_inside`: the prompt ended with an open think tag (see `Prompt.opens_reasoning`)."""
        self._state: Literal["start", "reasoning", "text"] = "reasoning" if starts_inside else "start"
        self._held = ""

    def feed(self, text: str) -> list[tuple[Channel, str]]:
        """Take more text; return what has become certain, in order, no piece empty."""
        pending = self._held + text
        self._held = ""
        out: list[tuple[Channel, str]] = []
        if self._state == "start":
            begun = pending.lstrip()
            if begun.startswith(OPEN):
                self._state, pending = "reasoning", begun.removeprefix(OPEN)
            elif OPEN.startswith(begun):
                self._held = pending
                return out
            else:
                self._state = "text"
        if self._state == "reasoning":
            before, tag, after = pending.partition(CLOSE)
            if tag:
                self._state, pending = "text", after
            else:
                certain = len(pending) - held_back(pending, (CLOSE,))
                before, self._held, pending = pending[:certain], pending[certain:], ""
            if before:
                out.append(("reasoning", before))
        if pending:
            out.append(("text", pending))
        return out

    def finish(self) -> list[tuple[Channel, str]]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [("reasoning" if self._state == "reasoning" else "text", held)]
