"""Tokens to text while they come, never half a character."""

import codecs
from typing import Protocol


class SpelledTokens(Protocol):
    """What spells a token: `engine.text.tokenizer.Tokenizer`."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """The bytes of a token; none for a control token."""
        ...


class StreamingDetokenizer:
    """Turns one token after another into text.

    A token may end inside a character; its bytes wait here until the rest arrives. Everything
    returned by `add` and `finish`, joined, equals `tokenizer.decode` of all the ids.
    """

    def __init__(self, tokenizer: SpelledTokens) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_id: int) -> str:
        """The characters that are complete with this token; may be empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What an unfinished character amounts to (U+FFFD), else nothing. Ready for a new text after."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
