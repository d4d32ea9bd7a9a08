"""Tool calls as the K2 line writes them, told apart from the answer while the text streams.

    <|tool_calls_section_begin|>
      <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{JSON}<|tool_call_end|> ...
    <|tool_calls_section_end|>

with nothing between the marks; `tool_call_section` is accepted as well.

Rules, the same for every way to cut the text into deltas:

- No mark is ever passed on as text.
- A call counts as complete only with an id, the argument mark and the end mark. Whatever else is
  written there (a call cut by another mark or by the end, no argument mark, words inside the
  section that belong to no call) is reported as an incomplete call, which nobody must run.
- White space behind a call or a section is dropped, wherever a mark has been read last.
- This parser stands in front of the `ReasoningSplitter`: calls written inside reasoning are
  reported as calls, and do not end the reasoning.
"""

import re
from typing import Literal

from engine.api import ToolCall
from engine.text.held_back import held_back

_SECTION_BEGIN = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_END = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_CALL_BEGIN = "<|tool_call_begin|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_CALL_END = "<|tool_call_end|>"
_MARKS = (*_SECTION_BEGIN, *_SECTION_END, _CALL_BEGIN, _ARGUMENTS, _CALL_END)
_MARK = re.compile("|".join(map(re.escape, _MARKS)))

Piece = str | ToolCall


class ToolCallParser:
    """Splits an answer into text and tool calls."""

    def __init__(self) -> None:
        self._place: Literal["text", "section", "id", "arguments"] = "text"
        self._in_section = False
        self._after_mark = False
        self._held = ""
        self._id = ""
        self._collected = ""
        self._malformed = False

    def feed(self, text: str) -> list[Piece]:
        """Take more text; return what has become certain, in order, no text empty."""
        pending = self._held + text
        out: list[Piece] = []
        position = 0
        for mark in _MARK.finditer(pending):
            self._take(pending[position : mark.start()], out)
            self._cross(mark.group(), out)
            position = mark.end()
        certain = len(pending) - held_back(pending[position:], _MARKS)
        self._take(pending[position:certain], out)
        self._held = pending[certain:]
        return out

    def finish(self) -> list[Piece]:
        """What was held back or left open, now that nothing follows."""
        out: list[Piece] = []
        held, self._held = self._held, ""
        self._take(held, out)
        self._close(out)
        self._place, self._in_section, self._after_mark = "text", False, False
        return out

    def _take(self, text: str, out: list[Piece]) -> None:
        """Put characters between two marks where they belong."""
        if self._place != "text":
            self._collected += text
            return
        if self._after_mark:
            text = text.lstrip()
        if text:
            self._after_mark = False
            if out and isinstance(out[-1], str):
                out[-1] += text
            else:
                out.append(text)

    def _cross(self, mark: str, out: list[Piece]) -> None:
        """Go where a mark leads."""
        self._after_mark = True
        if mark == _ARGUMENTS and self._place == "id":
            self._id, self._collected, self._place = self._collected, "", "arguments"
            return
        if mark == _ARGUMENTS:
            self._malformed = self._place == "arguments"
            return
        self._close(out, ended=mark == _CALL_END)
        if mark in _SECTION_BEGIN:
            self._in_section = True
        elif mark in _SECTION_END:
            self._in_section = False
        self._place = "id" if mark == _CALL_BEGIN else "section" if self._in_section else "text"

    def _close(self, out: list[Piece], ended: bool = False) -> None:
        """Report the call, or the stray words of a section, that ends here."""
        collected, self._collected = self._collected.strip(), ""
        identity, self._id = self._id.strip(), ""
        malformed, self._malformed = self._malformed, False
        if self._place == "arguments":
            name = _name_of(identity)
            out.append(ToolCall(identity, name, collected, ended and bool(name) and not malformed))
        elif self._place == "id":
            out.append(ToolCall(collected, _name_of(collected), "", complete=False))
        elif self._place == "section" and collected:
            out.append(ToolCall("", "", collected, complete=False))


def _name_of(identity: str) -> str:
    """`NAME` of `functions.NAME:INDEX`."""
    return re.sub(r":\d+$", "", identity).removeprefix("functions.")
