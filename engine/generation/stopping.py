"""Stop strings: end an answer at a given text without ever showing a piece of it."""

from collections.abc import Sequence

from engine.errors import SettingError
from engine.text.held_back import held_back


class StopStrings:
    """Watches streamed text for strings that end it.

    The result depends on the text alone, not on how it is cut into deltas: the answer ends at the
    stop string that is complete first, and where several end at the same character, at the longest.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Raises `SettingError` for an empty string, which would end every answer at once."""
        if "" in strings:
            raise SettingError(
                "A stop string must not be empty. Remove the empty one, or write a text in it."
            )
        self._stops = tuple(dict.fromkeys(strings))
        self._held = ""
        self._stopped = False

    def feed(self, text: str) -> tuple[str, bool]:
        """Take more text; return what can be shown for certain, and whether the answer has ended.

        Text that could still become a stop string is held back. After the end, nothing is shown.
        """
        if self._stopped:
            return "", True
        pending = self._held + text
        ends = [(start + len(stop), -len(stop)) for stop in self._stops if (start := pending.find(stop)) >= 0]
        if ends:
            end, minus_length = min(ends)
            self._stopped = True
            self._held = ""
            return pending[: end + minus_length], True
        safe = len(pending) - held_back(pending, self._stops)
        self._held = pending[safe:]
        return pending[:safe], False

    def finish(self) -> str:
        """The text that was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held
