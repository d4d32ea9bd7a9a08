"""From generated tokens to what is shown: whole characters, stop strings, reasoning, tool calls."""

from typing import Protocol

from engine.api import ToolCall
from engine.generation.detokenizer import StreamingDetokenizer
from engine.generation.stopping import StopStrings
from engine.text.reasoning import Channel, ReasoningSplitter
from engine.text.tool_calls import ToolCallParser


class AnswerListener(Protocol):
    """Who hears of the answer."""

    def text(self, text: str) -> None:
        """More of the answer."""
        ...

    def reasoning(self, text: str) -> None:
        """More of the thinking before it."""
        ...

    def tool_call(self, call: ToolCall) -> None:
        """A tool call was written."""
        ...


class AnswerStream:
    """One answer as it is written.

    Attributes:
        text: all that was given to `listener.text`, joined.
    """

    def __init__(
        self,
        detokenizer: StreamingDetokenizer,
        stops: StopStrings,
        listener: AnswerListener,
        *,
        starts_in_reasoning: bool = False,
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._calls = ToolCallParser()
        self._splitter = ReasoningSplitter(starts_in_reasoning)
        self._listener = listener
        self._stopped = False
        self._said: list[str] = []

    @property
    def text(self) -> str:
        """The answer so far, without reasoning and tool calls."""
        return "".join(self._said)

    def add(self, token: int) -> bool:
        """Take the next token; True if a stop string has ended the answer."""
        return self._take(self._detokenizer.add(token))

    def finish(self) -> None:
        """Give out what was held back."""
        if not self._stopped and not self._take(self._detokenizer.finish()):
            self._show(self._stops.finish())
        self._pieces(self._calls.finish())
        self._channels(self._splitter.finish())

    def _take(self, text: str) -> bool:
        safe, self._stopped = self._stops.feed(text)
        self._show(safe)
        return self._stopped

    def _show(self, text: str) -> None:
        if text:
            self._pieces(self._calls.feed(text))

    def _pieces(self, pieces: list[str | ToolCall]) -> None:
        for piece in pieces:
            if isinstance(piece, ToolCall):
                self._listener.tool_call(piece)
            else:
                self._channels(self._splitter.feed(piece))

    def _channels(self, pieces: list[tuple[Channel, str]]) -> None:
        for channel, text in pieces:
            if channel == "reasoning":
                self._listener.reasoning(text)
            elif text:
                self._said.append(text)
                self._listener.text(text)
