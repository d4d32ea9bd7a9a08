"""A listener for measurements, where nobody watches."""

from engine.api import PrefillPlanInfo, ToolCall


class Quiet:
    """Hears everything, says nothing."""

    def planned(self, plan: PrefillPlanInfo) -> None:
        """How the prompt will be read."""

    def progress(self, done: int, total: int, tokens_per_second: float, seconds_left: float | None) -> None:
        """Tokens read."""

    def text(self, text: str) -> None:
        """More of the answer."""

    def reasoning(self, text: str) -> None:
        """More of the thinking."""

    def tool_call(self, call: ToolCall) -> None:
        """A tool call."""
