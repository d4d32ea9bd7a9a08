"""How a prompt is read: in one pass or in chunks, and why.

Pure arithmetic: nothing here touches a model or an array.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.api import PREFILL_CHUNK, PrefillPlanInfo
from engine.errors import SettingError

BLOCK = 64
"""The grid of absolute positions on which a cut changes no bit (see `engine.layers.linear`)."""

Doubt = Literal["", "failed_verification", "switched_off"]
"""Why a checkpoint is not to be read in chunks although its family can be."""

Reason = Literal["off", "single_pass_model", "failed_verification", "switched_off", "fits", "chunked"]

_DOUBTS: dict[Doubt, tuple[Reason, str]] = {
    "failed_verification": (
        "failed_verification",
        "Single pass, because this model failed verification on this machine: in chunks, part of the prompt "
        "could be lost.",
    ),
    "switched_off": ("switched_off", "Single pass, because chunking is switched off for this model."),
}


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """Slices (start, end) in absolute positions, in order, covering `reused`..`tokens` exactly.

    Raises:
        ValueError: if the slices do not cover the prompt, or one is empty.
    """

    tokens: int
    reused: int
    slices: tuple[tuple[int, int], ...]
    reason: Reason
    explanation: str
    chunk: int
    source: Literal["setting", "environment"] = "setting"

    def __post_init__(self) -> None:
        position = self.reused
        for start, end in self.slices:
            if start != position or end <= start:
                raise ValueError(f"slices {self.slices} do not cover {self.reused}..{self.tokens} in order")
            position = end
        if position != self.tokens:
            raise ValueError(f"slices end at {position}, the prompt at {self.tokens}")

    def info(self) -> PrefillPlanInfo:
        """The plan as a value for events and receipts."""
        return PrefillPlanInfo(
            self.tokens, self.reused, self.slices, self.reason, self.explanation, self.chunk, self.source
        )


@dataclass(frozen=True, slots=True)
class PrefillPolicy:
    """Turns a prompt into a plan.

    Attributes:
        configured: 0 (one pass) or a chunk size within `PREFILL_CHUNK`, in tokens.
        source: whether it came from the stored setting or from the environment.
    """

    configured: int
    source: Literal["setting", "environment"] = "setting"

    def __post_init__(self) -> None:
        name = PREFILL_CHUNK.environment_variable
        PREFILL_CHUNK.check(
            self.configured, f"{name}" if self.source == "environment" else "The prefill chunk"
        )

    @staticmethod
    def from_setting(configured: int, environment: Mapping[str, str] | None = None) -> "PrefillPolicy":
        """The policy in force: the environment variable overrides the stored setting.

        Raises:
            SettingError: if the value in force is outside the range; it names the range and, for the
                environment, the variable.
        """
        variable = PREFILL_CHUNK.environment_variable
        value = (os.environ if environment is None else environment).get(variable)
        if value is None:
            return PrefillPolicy(PREFILL_CHUNK.check(configured))
        return PrefillPolicy(
            PREFILL_CHUNK.check(value, f"The environment variable {variable}"), "environment"
        )

    def plan(
        self,
        tokens: int,
        reused: int = 0,
        *,
        supported: bool = True,
        single_pass_reason: str = "",
        doubt: Doubt = "",
    ) -> PrefillPlan:
        """The plan for a prompt of `tokens` tokens of which `reused` are already in the state.

        Args:
            tokens: prompt length, at least 1.
            reused: length of an adopted prefix, below `tokens`: at least one token must be read to
                predict the next.
            supported: the model's `supports_chunked_prefill`.
            single_pass_reason: the model's sentence, when it does not.
            doubt: why this checkpoint is read in one pass all the same.
        """
        if not 0 <= reused < tokens:
            raise SettingError(
                f"A prompt of {tokens} tokens cannot reuse {reused}; at least one must be read."
            )
        remaining = tokens - reused
        one_pass = ((reused, tokens),)
        if self.configured == 0:
            return self._make(tokens, reused, one_pass, "off", "Single pass, because chunking is off.")
        if not supported:
            why = single_pass_reason or "its forward pass cannot continue a prompt"
            text = f"This model reads the prompt in one pass, so the chunk size has no effect here: {why}"
            return self._make(tokens, reused, one_pass, "single_pass_model", text.rstrip(".") + ".")
        if doubt:
            return self._make(tokens, reused, one_pass, *_DOUBTS[doubt])
        if remaining <= self.configured:
            text = (
                f"Single pass, because {_count(remaining)} fit in one chunk of {self.configured:,}."
                if not reused
                else f"Single pass, because the remaining {_count(remaining)} fit in one chunk of "
                f"{self.configured:,}."
            )
            return self._make(tokens, reused, one_pass, "fits", text)
        slices = _cut(reused, tokens, self.configured)
        text = f"{len(slices)} chunks of up to {self.configured:,} tokens."
        return self._make(tokens, reused, slices, "chunked", text)

    def _make(
        self, tokens: int, reused: int, slices: tuple[tuple[int, int], ...], reason: Reason, text: str
    ) -> PrefillPlan:
        return PrefillPlan(tokens, reused, slices, reason, text, self.configured, self.source)


def _count(tokens: int) -> str:
    return f"{tokens:,} token" if tokens == 1 else f"{tokens:,} tokens"


def _cut(start: int, end: int, chunk: int) -> tuple[tuple[int, int], ...]:
    """Slices of `chunk` tokens, the remainder last; boundaries on the absolute grid where they fit.

    A chunk of whole blocks keeps every boundary on the grid; a prefill resumed off the grid meets it
    again at its first boundary, or at its second where the first would leave one token. A remainder of
    one token would take the one-token arithmetic path, so the slice before it gives up a block, or half
    of itself.
    """
    slices: list[tuple[int, int]] = []
    position = start
    while end - position > chunk:
        boundary = position + chunk
        if chunk % BLOCK == 0:
            on_grid = boundary // BLOCK * BLOCK
            boundary = on_grid if on_grid - position >= 2 else position + chunk // 2
        slices.append((position, boundary))
        position = boundary
    slices.append((position, end))
    if end - position == 1 and len(slices) > 1:
        first = slices[-2][0]
        give = BLOCK if position - first > BLOCK + 1 else (position - first + 1) // 2
        slices[-2:] = [(first, position - give), (position - give, end)]
    return tuple(slices)
