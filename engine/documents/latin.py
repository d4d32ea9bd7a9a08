"""Which single-byte encoding of the Latin script a text is in, judged by the letters of languages.

General detectors mix these encodings up, since nearly every byte is a letter in each of them
(German in Windows-1252 is reported as Windows-1250 or 1257). But a language uses few letters beyond
ASCII, and read in the wrong encoding a text has letters that no one language has together.
"""

import re
from dataclasses import dataclass

_WESTERN = (
    "äöüß",  # German
    "àâæçéèêëîïôœùûüÿ",  # French
    "áéíñóúü",  # Spanish
    "áâãàçéêíóôõúü",  # Portuguese
    "àèéìíîòóùú",  # Italian
    "åäöé",  # Swedish, Finnish
    "æøåéòôèêóâü",  # Danish, Norwegian
    "éëïóöüèáíú",  # Dutch
    "áðéíóúýþæö",  # Icelandic
    "àçèéíïòóúü",  # Catalan
    "éèêëïñçöüà",  # loan words in English
)
_CENTRAL = (
    "áéíóöőúüű",  # Hungarian
    "ąćęłńóśźż",  # Polish
    "áčďéěíňóřšťúůýž",  # Czech
    "áäčďéíĺľňóôŕšťúýž",  # Slovak
    "čćđšž",  # Croatian, Slovene
    "ăâîşţ",  # Romanian
)
_TURKISH = ("âçğıîöşûü\u0307",)
_BALTIC = ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž")  # Lithuanian, Latvian, Estonian

# In order of preference where two fit equally well.
_ENCODINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cp1252", _WESTERN),
    ("cp1250", _CENTRAL),
    ("cp1254", _TURKISH),
    ("cp1257", _BALTIC),
    ("iso8859_15", _WESTERN),
    ("iso8859_2", _CENTRAL),
    ("mac_roman", _WESTERN),
    ("cp850", _WESTERN),
    ("cp437", _WESTERN),
)
_MARKS = frozenset("‘’‚‛“”„‟‹›«»–—…•·€£¥§©®™°±²³½¼¾×÷¿¡ªº´µ¶†‡‰\u00a0\u00ad")

# Marks where none can stand: an opening one behind a letter, a closing or a raised one before a letter.
_MISPLACED = re.compile("(?<=[^\\W\\d_])[¿¡„‚£¥§€]|[²³ªº©®¼½¾”](?=[^\\W\\d_])")


@dataclass(frozen=True, slots=True)
class LatinGuess:
    """`fit`: share of the characters beyond ASCII that the best-fitting language explains, 0 to 1."""

    encoding: str
    fit: float


def guess_latin(data: bytes) -> LatinGuess:
    """The best-fitting encoding of `data`, which holds bytes beyond ASCII."""
    guesses = [LatinGuess(encoding, _fit(data, encoding, languages)) for encoding, languages in _ENCODINGS]
    return max(guesses, key=lambda guess: guess.fit)


def _fit(data: bytes, encoding: str, languages: tuple[str, ...]) -> float:
    text = data.decode(encoding, "replace").lower()
    beyond = [character for character in text if character > "\x7f" and character not in _MARKS]
    wrong = len(_MISPLACED.findall(text))
    explained = max(sum(map(frozenset(letters).__contains__, beyond)) for letters in languages)
    return explained / (len(beyond) + wrong) if beyond or wrong else 1.0
