"""Bytes to text: the encoding is found, stated, and never guessed at silently.

In this order: a byte order mark, UTF-16 or UTF-32 without one, UTF-8, UTF-8 with some damage, then
charset-normalizer, which is good at telling scripts apart but not the encodings of the Latin one;
those are told by `latin`.
"""

import codecs
import re
import string
import unicodedata
from dataclasses import dataclass
from typing import NoReturn

import charset_normalizer

from engine.documents.latin import guess_latin
from engine.errors import DocumentError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with the one of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_SAMPLE = 1 << 16
"""Bytes or characters that a guess is based on."""

_LEAD = 256
"""Bytes of plain ASCII that a sample takes along before a line's first character beyond it."""

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_BETWEEN = (b"\n", b" ", b",", b".")
"""Bytes that are never the second half of a character, in any encoding of several bytes."""

_MOST_CONTROLS = 0.02
"""Share of control characters from which on bytes are no text."""

_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "cp936": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}
"""Encodings replaced by a superset of them."""

_LATIN_GUESSES = frozenset(
    {
        "cp437",
        "cp775",
        "cp850",
        "cp852",
        "cp858",
        "cp1250",
        "cp1252",
        "cp1254",
        "cp1257",
        "hp_roman8",
        "latin_1",
        "mac_iceland",
        "mac_latin2",
        "mac_roman",
        "mac_turkish",
        "iso8859_2",
        "iso8859_3",
        "iso8859_4",
        "iso8859_9",
        "iso8859_10",
        "iso8859_13",
        "iso8859_14",
        "iso8859_15",
        "iso8859_16",
    }
)
"""Names that charset-normalizer gives to text in the Latin script; it can be believed about others."""

_RIGHT_FOR_EACH_WRONG = 2
_SCRIPTS = (
    "latin-1",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp874",
    "gb2312",
    "big5",
    "euc_jp",
    "euc_kr",
)
_OF_ONE_SCRIPT = 0.9
_ASCII_LETTERS = [letter.encode() for letter in string.ascii_letters]
_GOOD_LATIN_FIT = 0.9
_FEW_BEYOND_ASCII = 0.3
"""Share of letters beyond ASCII up to which a text is taken to be in the Latin script."""


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text, the encoding it was in, and how many characters could not be decoded (U+FFFD)."""

    text: str
    encoding: str
    replaced: int = 0


def decode_text(data: bytes, name: str) -> DecodedText:
    """Decode the content of a file; `name` is for messages.

    Raises:
        DocumentError: the bytes are no text, or in an encoding that cannot be told.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark) and not (encoding == "utf-32-le" and len(data) % 4):
            return _require_text(_decode(data[len(mark) :], encoding), name)
    if b"\0" in data:
        wide = _wide_encoding(data)
        return _decode(data, wide) if wide else _refuse(name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_unknown(data, name)
    if b"\x1b$" in data and (decoded := _decode(data, "iso2022_jp")).replaced == 0:
        return decoded
    return _require_text(DecodedText(text, "utf-8"), name)


def _decode_unknown(data: bytes, name: str) -> DecodedText:
    """Text that is neither marked nor UTF-8 throughout."""
    if _is_mostly_utf8(data):
        return _require_text(_decode(data, "utf-8"), name)
    sample = _sample(data)
    latin = guess_latin(sample)
    is_latin = latin.fit >= _GOOD_LATIN_FIT
    if is_latin and _share_beyond_ascii(sample) < _FEW_BEYOND_ASCII:
        return _require_text(_decode(data, latin.encoding), name)
    best = charset_normalizer.from_bytes(sample).best()
    if best is None or (is_latin and best.encoding in _LATIN_GUESSES):
        return _require_text(_decode(data, latin.encoding), name)
    return _require_text(_decode(data, _WIDER.get(best.encoding, best.encoding)), name)


def _sample(data: bytes) -> bytes:
    """The beginning, if much of it is beyond ASCII, else those lines that have something beyond it."""
    head = _cut(data, 0)
    if _share_beyond_ascii(head) >= _FEW_BEYOND_ASCII:
        return head
    lines: list[bytes] = []
    size = position = 0
    while size < _SAMPLE and (found := _BEYOND_ASCII.search(data, position)):
        start = max(position, data.rfind(b"\n", position, found.start()) + 1, found.start() - _LEAD)
        end = data.find(b"\n", found.start()) + 1
        lines.append(data[start:end] if 0 < end <= start + _SAMPLE else _cut(data, start))
        position = start + len(lines[-1])
        size += len(lines[-1])
    return b"".join(lines)


def _cut(data: bytes, start: int) -> bytes:
    """At least `_SAMPLE` bytes from `start`, up to the first place that is surely between characters."""
    ends = [data.find(mark, start + _SAMPLE) for mark in _BETWEEN]
    return data[start : min((end + 1 for end in ends if end >= 0), default=len(data))]


def _share_beyond_ascii(data: bytes) -> float:
    """Bytes beyond ASCII among the bytes of letters."""
    beyond = len(data) - len(data.decode("ascii", "ignore"))
    letters = sum(map(data.count, _ASCII_LETTERS)) if beyond else 0
    return beyond / max(1, beyond + letters)


def _decode(data: bytes, encoding: str) -> DecodedText:
    try:
        return DecodedText(data.decode(encoding), encoding.replace("_", "-"))
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    meant = data.count("\ufffd".encode()) if encoding == "utf-8" else 0
    return DecodedText(text, encoding.replace("_", "-"), text.count("\ufffd") - meant)


def _is_mostly_utf8(data: bytes) -> bool:
    """Whether far more characters beyond ASCII are right in UTF-8 than wrong."""
    decoded = _decode(data, "utf-8")
    beyond = len(decoded.text) - len(decoded.text.encode("ascii", "ignore"))
    return beyond - decoded.replaced >= _RIGHT_FOR_EACH_WRONG * decoded.replaced


def _wide_encoding(data: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, in the byte order in which more of it is ASCII; or None."""
    candidates: list[tuple[int, str]] = []
    for encoding in _WIDE:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and _looks_like_text(text) and _is_of_one_script(text[:_SAMPLE]):
            candidates.append((sum(character < "\x80" for character in text[:_SAMPLE]), encoding))
    return max(candidates)[1] if candidates else None


def _is_of_one_script(text: str) -> bool:
    """Whether an older encoding, made for the texts of one region, has nearly all the characters.

    Binary data read as UTF-16 gives characters from all over, or such as nobody writes.
    """
    return any(
        len(text.encode(encoding, "ignore").decode(encoding)) >= _OF_ONE_SCRIPT * len(text)
        for encoding in _SCRIPTS
    )


def _looks_like_text(text: str) -> bool:
    """Whether the beginning of `text` has assigned characters and hardly any control ones."""
    head = text[:_SAMPLE]
    categories = [unicodedata.category(character) for character in head if character not in "\t\n\r\f\b\x1b"]
    controls = sum(category == "Cc" for category in categories)
    unassigned = sum(category in ("Cn", "Co", "Cs") for category in categories)
    return controls <= _MOST_CONTROLS * len(head) and unassigned <= _MOST_CONTROLS * len(head)


def _require_text(decoded: DecodedText, name: str) -> DecodedText:
    if "\0" in decoded.text or not _looks_like_text(decoded.text):
        _refuse(name)
    return decoded


def _refuse(name: str) -> NoReturn:
    raise DocumentError(
        f"“{name}” is a binary file, not a text. Export its content as plain text and add that file."
    )
