"""A listener that remembers everything it was told, in order."""

from dataclasses import dataclass, field

from engine.api import PrefillPlanInfo, ToolCall


@dataclass
class Recorder:
    """See `engine.generation.generator.Listener`."""

    heard: list[str] = field(default_factory=list)
    plans: list[PrefillPlanInfo] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def planned(self, plan: PrefillPlanInfo) -> None:
        self.heard.append("planned")
        self.plans.append(plan)

    def progress(self, done: int, total: int, tokens_per_second: float, seconds_left: float | None) -> None:
        self.heard.append("progress")
        self.steps.append((done, total))

    def text(self, text: str) -> None:
        self.heard.append("text")
        self.texts.append(text)

    def reasoning(self, text: str) -> None:
        self.heard.append("reasoning")
        self.thoughts.append(text)

    def tool_call(self, call: ToolCall) -> None:
        self.heard.append("tool_call")
        self.calls.append(call)

    @property
    def answered(self) -> bool:
        """Whether anything of an answer was given out."""
        return bool(self.texts or self.thoughts or self.calls)
