"""Progress of a measurement, and how it is stopped."""

from collections.abc import Callable

Steps = Callable[[int, int, str], None]
"""Called with steps done, steps in all and what is being done. May raise `CancelledError`."""


def silent(done: int, total: int, step: str) -> None:
    """Nobody listens."""
