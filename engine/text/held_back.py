"""Marks in streamed text that may be cut anywhere by the stream."""

from collections.abc import Iterable


def held_back(text: str, marks: Iterable[str]) -> int:
    """Length of the longest end of `text`, in which no mark is left, with which one of `marks` begins.

    These characters must wait for the next delta: they may turn into a mark.
    """
    candidates = tuple(marks)
    longest = max((len(mark) - 1 for mark in candidates), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in candidates):
            return length
    return 0
