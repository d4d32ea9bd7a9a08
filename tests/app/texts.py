"""Documents that the demo model can be asked about."""

from app.resources import SAMPLE

FACT = "The password for the greenhouse computer is blue-falcon-77."
QUESTION = "What is the password for the greenhouse computer?"
ANSWER = "blue-falcon-77"


def filler(characters: int) -> str:
    """That much of the sample's text, from its middle, cut at a line's end."""
    text = (SAMPLE / "hollin-quay-almanac.txt").read_text(encoding="utf-8")
    start = text.index("\n", 15_000) + 1
    return text[start : start + characters].rpartition("\n")[0]
