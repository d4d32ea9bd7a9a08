"""From a conversation to the tokens of a prompt, each token attributed to what it came from.

The checkpoint's template never sees a content. It is rendered with a random word in place of every
document, text and reasoning; the result is cut at those words. What the template wrote is encoded
with control tokens recognised, the contents without. So no document can forge a control token,
every token belongs to a part that the receipt can name, and the tokens of a document do not depend
on the question behind it. Each word must come out exactly once and in order: a template that
loses, repeats or reorders a message is an error, not a shorter prompt.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from engine.api import Message
from engine.errors import ChatTemplateError, PromptError
from engine.text.template import ChatTemplate, load_template
from engine.text.tokenizer import Tokenizer

DOCUMENT_END = "\n\n"
"""What stands behind each document: a blank line. It counts as format."""

FORMAT_LABEL = "Chat format"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A stretch of the prompt. `kind` is one of `api.ReceiptPart`; `label` is for people."""

    kind: str
    label: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in order.

    Attributes:
        parts: all of it; joined, their ids are the prompt.
        opens_reasoning: the format ends with an open think tag, so the answer begins inside it.
    """

    parts: tuple[PromptPart, ...]
    opens_reasoning: bool = False

    @property
    def ids(self) -> list[int]:
        """The whole prompt, in order."""
        return list(chain.from_iterable(part.ids for part in self.parts))

    @property
    def length(self) -> int:
        """Tokens in the prompt."""
        return sum(len(part.ids) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Content:
    """Something that a person or a model wrote, and the word that stands for it in the template."""

    kind: str
    label: str
    text: str
    word: str
    may_be_dropped: bool = False


class ChatFormat:
    """How one checkpoint writes conversations. Build it with `load`."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, problem: str) -> None:
        """`problem` says why there is no template; it is shown when a prompt is asked for."""
        self._tokenizer = tokenizer
        self._template = template
        self._problem = problem

    @classmethod
    def load(cls, folder: Path, tokenizer: Tokenizer) -> "ChatFormat":
        """Read the template from a checkpoint folder. A missing or broken one shows in `available`."""
        try:
            template = load_template(folder)
        except ChatTemplateError as error:
            return cls(tokenizer, None, str(error))
        return cls(
            tokenizer,
            template,
            f"{folder} has no chat template, so this model cannot be used for chat. "
            "Copy chat_template.jinja of the original model into the folder.",
        )

    @property
    def available(self) -> bool:
        """Whether there is a template that can be used."""
        return self._template is not None

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """The prompt that makes the model write the turn after `messages`.

        Raises:
            PromptError: there is nothing to answer, or a document has no text.
            ChatTemplateError: there is no template, it fails, or it loses or reorders a message.
        """
        if self._template is None:
            raise ChatTemplateError(self._problem)
        _require_content(messages)
        nonce = f"content{secrets.token_hex(16)}"
        contents: list[_Content] = []
        rendered = self._template.render(
            [_for_template(message, index, contents, nonce) for index, message in enumerate(messages)]
        )
        pieces = re.split(f"({nonce}n[0-9]+e)", rendered)
        _require_all_in_order(contents, pieces[1::2], pieces[0::2], nonce)
        by_word = {content.word: content for content in contents}
        parts: list[PromptPart] = []
        for piece in pieces:
            if content := by_word.get(piece):
                ids = self._tokenizer.encode_text(content.text)
                parts.append(PromptPart(content.kind, content.label, tuple(ids)))
            elif piece:
                parts.append(PromptPart("format", FORMAT_LABEL, tuple(self._tokenizer.encode_format(piece))))
        return Prompt(tuple(parts), opens_reasoning=pieces[-1].rstrip().endswith("<think>"))


def _require_content(messages: Sequence[Message]) -> None:
    if not messages:
        raise PromptError("The conversation is empty. Write a question first.")
    last = messages[-1]
    if last.role == "user" and not last.documents and not last.text.strip():
        raise PromptError("The message is empty. Write a question or add a document.")
    for document in chain.from_iterable(message.documents for message in messages):
        if not document.text:
            raise PromptError(f"The document “{document.name}” has no text. Remove it from the message.")


def _for_template(message: Message, index: int, contents: list[_Content], nonce: str) -> dict[str, str]:
    """The message as the template sees it; appends what its words stand for to `contents`."""

    def stand_in(kind: str, label: str, text: str, may_be_dropped: bool = False) -> str:
        if not text:
            return ""
        word = f"{nonce}n{len(contents)}e"
        contents.append(_Content(kind, label, text, word, may_be_dropped))
        return word

    where = f"message {index + 1} ({message.role})"
    values = {"role": message.role}
    if message.reasoning:
        label = f"Reasoning of {where}"
        values["reasoning_content"] = stand_in("assistant", label, message.reasoning, may_be_dropped=True)
    values["content"] = "".join(
        stand_in("document", document.name, document.text) + DOCUMENT_END for document in message.documents
    ) + stand_in(message.role, where.capitalize(), message.text)
    return values


def _require_all_in_order(
    contents: list[_Content], found: list[str], format_pieces: list[str], nonce: str
) -> None:
    """Every content exactly once and in order, or a `ChatTemplateError` that names the first wrong one."""
    for content in contents:
        times = found.count(content.word)
        if times > 1:
            raise ChatTemplateError(_blame(content, f"writes it {times} times"))
        if times == 0 and not content.may_be_dropped:
            raise ChatTemplateError(_blame(content, "leaves it out or changes it"))
    expected = [content for content in contents if content.word in found]
    for content, word in zip(expected, found, strict=False):
        if content.word != word:
            raise ChatTemplateError(_blame(content, "puts something else in its place"))
    if len(found) != len(expected) or any(nonce in piece.lower() for piece in format_pieces):
        raise ChatTemplateError(
            "The chat template of this model changes what was said, so it cannot be read in full. "
            "Put the chat template of the original model into the folder."
        )


def _blame(content: _Content, fault: str) -> str:
    kind = "document " if content.kind == "document" else ""
    return (
        f"The chat template of this model does not pass on {kind}“{content.label}”: it {fault}. "
        "The model would answer without having read everything, so nothing was sent. "
        "Remove that part, or put another chat_template.jinja into the model's folder."
    )
