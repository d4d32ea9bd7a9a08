"""What every model family promises, and the registry of families.

A model holds weights and nothing else. `new_state()` is the only way a sequence begins, and a
forward pass only ever continues the state it is given; nothing is inferred from a token count.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx

from engine.errors import LedgerError, UnsupportedModelError
from engine.state import SequenceState

STEPWISE_FROM = 256
"""Tokens in one call from which a forward pass evaluates layer by layer: transients stay bounded
and no single command buffer grows with the prompt."""


Pulse = Callable[[float], None]


def _no_pulse(done: float) -> None:
    """Nobody listens."""


class LanguageModel(ABC):
    """A causal language model.

    Attributes:
        family: name shown to users and used by the registry.
        supports_chunked_prefill: False for a family whose forward pass cannot continue a prompt;
            only the prefill policy asks.
        single_pass_reason: the sentence that says why, if it is False.
        context_window: longest sequence in tokens.
        vocab_size: width of the logits.
    """

    family: ClassVar[str]
    supports_chunked_prefill: bool = True
    single_pass_reason: str = ""
    context_window: int
    vocab_size: int

    @abstractmethod
    def new_state(self, batch: int = 1) -> SequenceState:
        """The state of `batch` sequences of which nothing has been read."""

    @abstractmethod
    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        """Continue `state` by ids [B, T] int32; return the last position's logits [B, V] float32.

        A long pass evaluates layer by layer and calls `pulse` after each.
        """

    def __call__(self, ids: mx.array, state: SequenceState, pulse: Pulse = _no_pulse) -> mx.array:
        """`forward`, with the ledger checked on both sides.

        Args:
            ids: [B, T] int32, T >= 1.
            state: what has been read so far; continued in place.
            pulse: told how far a long pass is (0 to 1). It may raise to abandon the pass; `state` is
                then torn between layers and must be restored from a snapshot.

        Raises:
            LedgerError: if the layers disagree, or did not each absorb exactly T tokens.
        """
        before, tokens = state.position, ids.shape[1]
        if tokens == 0:
            raise LedgerError("A forward pass needs at least one token.")
        logits = self.forward(ids, state, pulse)
        if state.position != before + tokens:
            raise LedgerError(
                f"The model was given {tokens} tokens to add to the {before} it had read, but its "
                f"state now stands at {state.position}. The answer was withheld because it would "
                "not be computed from the whole prompt."
            )
        return logits

    @abstractmethod
    def describe_layers(self) -> tuple[str, ...]:
        """The kind of each layer's state, in order ("KDA", "MLA")."""


Config = Mapping[str, Any]
Builder = Callable[[Config, Any], LanguageModel]
_FAMILIES: dict[str, tuple[Callable[[Config], bool], Builder]] = {}


def register(name: str, matches: Callable[[Config], bool], build: Builder) -> None:
    """Add a family: `matches(config)` decides, `build(config, weights)` makes the model."""
    _FAMILIES[name] = (matches, build)


_KNOWN: list[tuple[Callable[[Config], bool], str]] = []


def register_known(matches: Callable[[Config], bool], description: str) -> None:
    """Name a kind of model that is recognised but not supported, for a better message."""
    _KNOWN.append((matches, description))


def unregister(name: str) -> None:
    """Remove a family; for tests that add one."""
    _FAMILIES.pop(name, None)


def families() -> tuple[str, ...]:
    """Names of the registered families."""
    return tuple(_FAMILIES)


def builder_for(config: Config) -> tuple[str, Builder]:
    """The family a config.json belongs to.

    Raises:
        UnsupportedModelError: naming the model_type and what is supported.
    """
    for name, (matches, build) in _FAMILIES.items():
        if matches(config):
            return name, build
    kind = config.get("model_type")
    supported = ", ".join(sorted(_FAMILIES))
    what = f"has model_type “{kind}”" if kind else "does not say its model_type in config.json"
    what = next((known for matches, known in _KNOWN if matches(config)), what)
    raise UnsupportedModelError(
        f"This model {what}, which this version of Perigee cannot run. It runs: {supported}. "
        "Choose a folder with one of these models."
    )
