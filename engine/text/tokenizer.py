"""The checkpoint's tokenizer: untrusted text in, template text in, bytes out.

A checkpoint's tokenizer.json is held twice. The first instance knows the added tokens and encodes
template text only. The second has no added tokens at all and encodes whatever a person or a
document says, so that the spelling of a control token inside a document stays ordinary text. (The
library's own switch, `encode_special_tokens`, covers tokens marked special only; tool-call tokens
are not.) Code that a model folder may hold is neither executed nor opened.

Decoding does not use the library: a token of a byte-level vocabulary is a string of bytes, and
joining them is exact for any split of a character over tokens.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from engine.errors import TokenizerError

_USUAL_STOPS = ("<|im_end|>", "<|end_of_msg|>", "[EOS]", "[EOT]")

_RUN_LIMIT = 1_000_000
"""Characters of white space, or of anything else, in a row after which a text is cut. The library's
regular expressions give up (with a panic) after ten million steps in one match, and a run of twelve
million blanks is enough for that. No run of three times this length reaches them."""

_SPACE = re.compile(r"\s")
_NO_SPACE = re.compile(r"\S")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters that stand for bytes in a byte-level vocabulary (GPT-2's table).

    Printable Latin-1 bytes stand for themselves, the others for U+0100, U+0101, ... in order.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


class Tokenizer:
    """Encodes and decodes with the vocabulary of one checkpoint. Build it with `load`.

    All methods may be called from several threads at once.

    Attributes:
        vocab_size: one more than the highest token id.
        stop_ids: ids that end an answer.
    """

    def __init__(
        self, full: tokenizers.Tokenizer, plain: tokenizers.Tokenizer, stop_ids: frozenset[int]
    ) -> None:
        self._full = full
        self._plain = plain
        self._bytes: dict[int, bytes] = {
            number: b"" if token.special else token.content.encode()
            for number, token in full.get_added_tokens_decoder().items()
        }
        self._special = frozenset(
            number for number, token in full.get_added_tokens_decoder().items() if token.special
        )
        self.vocab_size: int = max(full.get_vocab(with_added_tokens=True).values()) + 1
        self.stop_ids = stop_ids

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read tokenizer.json and the stop tokens from a checkpoint folder.

        Raises:
            TokenizerError: there is no tokenizer, it is damaged, or it is of an unsupported kind.
        """
        source = _read_tokenizer_json(folder)
        _require_byte_level(source, folder)
        full = _build(_without_truncation(source), folder)
        plain = _build(_without_added_tokens(source), folder)
        _require_every_byte(plain, folder)
        return cls(full, plain, _stop_ids(folder, full))

    def encode_text(self, text: str) -> list[int]:
        """Ids of text that nobody vouches for: no control token ever comes out of it.

        Nothing is added in front or behind, and nothing is lost: the bytes of the tokens are the bytes
        of the text. Lone surrogates, which have no encoding, count as U+FFFD. Other threads run while
        the library works.

        Raises:
            TokenizerError: the tokenizer changes or drops text, so the model would not read what is there.
        """
        text = _encodable(text)
        ids = _encode(self._plain, text)
        spelled = b"".join(map(self.token_bytes, ids))
        if spelled != text.encode():
            raise TokenizerError(
                "The tokenizer of this model changes the text instead of only cutting it "
                f"({len(text.encode()):,} bytes became {len(spelled):,}), so the model would not read what "
                "is there. Take tokenizer.json from the original model."
            )
        return ids

    def encode_format(self, text: str) -> list[int]:
        """Ids of text that the chat template wrote: control tokens are recognised."""
        return _encode(self._full, _encodable(text))

    def count(self, text: str) -> int:
        """How many tokens `encode_text` makes of `text`."""
        return len(self.encode_text(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens, without special ones. Bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; possibly a part of a character only.

        Special tokens and ids that name no token have none; an added token that is not special
        (tool-call markers, for one) has the bytes of its spelling.
        """
        known = self._bytes.get(token_id)
        if known is None:
            token = self._full.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
            known = self._bytes[token_id] = b"" if token is None else _bytes_of(token)
        return known

    def id_of(self, token: str) -> int | None:
        """Id of a token by its spelling in the vocabulary, or None."""
        return self._full.token_to_id(token)

    def is_special(self, token_id: int) -> bool:
        """Whether this is a control token that is left out of decoded text."""
        return token_id in self._special


def _bytes_of(token: str) -> bytes:
    """Bytes of a vocabulary entry; one that is not written in the byte alphabet stands for itself."""
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()


# --- encoding ---


def _encodable(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates."""
    if _SURROGATE.search(text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _encode(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        # Only the batch form releases the interpreter lock.
        encodings = tokenizer.encode_batch_fast(_cut_long_runs(text), add_special_tokens=False)
    except BaseException as error:
        # A panic inside the library arrives as a BaseException of a class that it does not export.
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(
            "The tokenizer gave up on this text. Shorten very long stretches without line breaks in it."
        ) from error
    return encodings[0].ids if len(encodings) == 1 else [number for part in encodings for number in part.ids]


def _cut_long_runs(text: str) -> list[str]:
    """Cut inside very long runs only, at places that depend on this text alone."""
    cuts = [0]
    for start in range(0, len(text) - _RUN_LIMIT, _RUN_LIMIT):
        end = start + _RUN_LIMIT
        other = _NO_SPACE if text[start].isspace() else _SPACE
        if other.search(text, start, end + 1) is None:
            cuts.append(end)
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


# --- loading ---


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises `TokenizerError` if it is unreadable or something else."""
    try:
        value: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise TokenizerError(
            f"{path.name} in {path.parent} cannot be read ({error.strerror}). "
            "Check the permissions of the file."
        ) from error
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            f"{path.name} in {path.parent} is damaged: it is not JSON ({error}). Download it again."
        ) from error
    if not isinstance(value, dict):
        raise TokenizerError(
            f"{path.name} in {path.parent} is damaged: it does not hold a JSON object. Download it again."
        )
    return cast(dict[str, Any], value)


def _read_tokenizer_json(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer.json"
    if path.exists():
        return _read_json(path)
    if (folder / "tiktoken.model").exists():
        raise TokenizerError(
            f"{folder} has its tokenizer as tiktoken.model only; this version needs tokenizer.json. "
            "Put a converted tokenizer.json of the same model into the folder."
        )
    raise TokenizerError(
        f"{folder} has no tokenizer: tokenizer.json is missing. Download the model again, "
        "or copy tokenizer.json of the same model into the folder."
    )


def _kinds(part: object, inner: str) -> list[str]:
    """Type names of a component of tokenizer.json; those of its members if it is a sequence."""
    if not isinstance(part, dict):
        return []
    component = cast(dict[str, Any], part)
    if component.get("type") != "Sequence":
        return [str(component.get("type"))]
    members = component.get(inner)
    found = cast(list[object], members) if isinstance(members, list) else []
    return [kind for member in found for kind in _kinds(member, inner)]


def _require_byte_level(source: dict[str, Any], folder: Path) -> None:
    decoders = _kinds(source.get("decoder"), "decoders")
    splitters = _kinds(source.get("pre_tokenizer"), "pretokenizers")
    normalizers = _kinds(source.get("normalizer"), "normalizers")
    if decoders == ["ByteLevel"] and "ByteLevel" in splitters + normalizers:
        return
    raise TokenizerError(
        f"The tokenizer in {folder} is not a byte-level one (its decoder is "
        f"{' + '.join(decoders) or 'missing'}). Kimi models have a byte-level tokenizer: "
        "take tokenizer.json from the original model."
    )


def _build(source: dict[str, Any], folder: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(source))
    except Exception as error:  # The library raises bare Exception for whatever it cannot read.
        raise TokenizerError(
            f"tokenizer.json in {folder} is damaged or of a newer form ({error}). Download it again."
        ) from error


def _without_truncation(source: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer with nothing in it that drops, adds or rolls dice over tokens."""
    inner = source.get("model")
    model = {**(cast(dict[str, Any], inner) if isinstance(inner, dict) else {}), "dropout": None}
    return {**source, "truncation": None, "padding": None, "post_processor": None, "model": model}


def _without_added_tokens(source: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer for untrusted text: no added token, and none left in the vocabulary either.

    A control token in the vocabulary itself could still come out whole where the model takes a
    piece that is a token without merging, or where merges lead to it.
    """
    result = _without_truncation(source)
    try:
        added = {token["id"]: token["content"] for token in source.get("added_tokens") or []}
        model = cast(dict[str, Any], result["model"])
        vocabulary = cast(dict[str, int], model["vocab"])
        gone = {
            text
            for text, number in vocabulary.items()
            if (number in added or text in added.values()) and text not in _BYTE_OF
        }
        pairs = [
            (pair, tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair))
            for pair in cast(list[Any], model["merges"])
        ]
        model["vocab"] = {text: number for text, number in vocabulary.items() if text not in gone}
        model["merges"] = [
            pair for pair, (left, right) in pairs if gone.isdisjoint((left, right, left + right))
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TokenizerError(
            "tokenizer.json is damaged: its vocabulary or its merges are missing or malformed "
            f"({type(error).__name__}: {error}). Download it again."
        ) from error
    result["added_tokens"] = []
    return result


def _require_every_byte(plain: tokenizers.Tokenizer, folder: Path) -> None:
    """Bytes without a token would be dropped from a document in silence: refuse such a vocabulary."""
    missing = [character for character in ByteLevel.alphabet() if plain.token_to_id(character) is None]
    if missing:
        raise TokenizerError(
            f"The tokenizer in {folder} has no token for {len(missing)} of the 256 bytes, so it would "
            "lose text. tokenizer.json is damaged or incomplete: download it again."
        )


# --- stop tokens ---


def _stop_ids(folder: Path, full: tokenizers.Tokenizer) -> frozenset[int]:
    """Every id that some file of the checkpoint, or the usual name, says ends a turn."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            values = _read_json(folder / name)
            found.update(_ids(values.get("eos_token_id")))
            found.update(_ids(_member(values.get("text_config"), "eos_token_id")))
    if (folder / "tokenizer_config.json").exists():
        end = _read_json(folder / "tokenizer_config.json").get("eos_token")
        spelled = end if isinstance(end, str) else _member(end, "content")
        number = full.token_to_id(spelled) if isinstance(spelled, str) else None
        found.update(_ids(number))
    added = {token.content: number for number, token in full.get_added_tokens_decoder().items()}
    return frozenset(found | {added[name] for name in _USUAL_STOPS if name in added})


def _member(value: object, name: str) -> object:
    return cast(dict[str, object], value).get(name) if isinstance(value, dict) else None


def _ids(value: object) -> list[int]:
    """Token ids in a field that holds one, a list of them, or nothing of use."""
    entries = cast(list[object], value) if isinstance(value, list) else [value]
    return [entry for entry in entries if type(entry) is int and entry >= 0]
