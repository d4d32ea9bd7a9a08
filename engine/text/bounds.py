"""How long a text a template is about to make, found out before it is made."""

from collections.abc import Callable, Iterable, Sized
from typing import Any

LIMIT = 4_000_000
"""Longest text a template may make at any point, in characters, and most items of a list."""

MAX_BITS = 256
MAX_POWER = 64
MAX_INDENT = 16


def result_size(operator: str, left: Any, right: Any) -> int:
    """Size of what `left operator right` makes: characters, items, or for integers bits over `MAX_BITS`."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
        return LIMIT + 1 if bits > MAX_BITS or (operator == "**" and right > MAX_POWER) else 0
    if operator == "*":
        for repeated, times in ((left, right), (right, left)):
            if isinstance(repeated, Sized) and isinstance(times, int):
                return len(repeated) * times
    if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        return len(left) + len(right)
    return LIMIT + 1 if operator == "%" and isinstance(left, str) else 0


def call_size(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Size of what a call of a text's own method makes."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, str) and name == "replace" and len(arguments) >= 2:
        return replaced_size(owner, str(arguments[0]), str(arguments[1]))
    if isinstance(owner, str) and name == "join" and arguments:
        return joined_size(owner, arguments[0])
    return 0


def replaced_size(text: str, old: str, new: str) -> int:
    """Length of text.replace(old, new)."""
    return len(text) + text.count(old) * max(0, len(new) - len(old))


def joined_size(separator: str, items: Iterable[Any]) -> int:
    """Length of the joined items; anything but a list or tuple is counted as too long to be sure."""
    if not isinstance(items, list | tuple):
        return 0 if isinstance(items, str) else LIMIT + 1
    return sum(len(str(item)) + len(separator) for item in items)
