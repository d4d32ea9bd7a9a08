"""Model families for tests: one that must be read in one pass, and the old fault in its variants.

The old fault: an engine kept the recurrent state in the model and began anew whenever a forward pass
saw more than one token. Chunk after chunk began from nothing, and the answer came from the last one.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from engine.checkpoint.weights import WeightReader
from engine.models import base
from engine.models.base import LanguageModel, Pulse
from engine.models.kimi_linear import KimiLinear, KimiLinearConfig
from engine.models.kimi_linear_layout import canonical_tensors
from engine.state import LatentState, RecurrentState, SequenceState
from tests.support.checkpoints import DENSE_MLP, PLAIN, WIDE, Recipe

TINY: dict[str, tuple[Recipe, ...]] = {"kimi_linear": (PLAIN, WIDE, DENSE_MLP)}
"""Tiny checkpoints for every family the engine registers; a test requires that none is missing."""


class RebuildsState(KimiLinear):
    """The old fault as the ledger sees it: several tokens at once begin with a new state."""

    family = "rebuilds_state"

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        if ids.shape[1] > 1:
            state.layers = self.new_state(ids.shape[0]).layers
        return super().forward(ids, state, pulse)


class WholePromptOnly(RebuildsState):
    """The same forward pass, honest about it."""

    family = "whole_prompt_only"
    supports_chunked_prefill = False
    single_pass_reason = "its forward pass begins anew with every part it is given"


class BypassesLedger(RebuildsState):
    """The old fault in a family that does not even let itself be counted while it reads."""

    family = "bypasses_ledger"

    def __call__(self, ids: mx.array, state: SequenceState, pulse: Pulse = lambda _: None) -> mx.array:
        return self.forward(ids, state, pulse)


class ZeroesArrays(KimiLinear):
    """The old fault where no count shows it: the recurrent arrays are emptied, the counts stay."""

    family = "zeroes_arrays"

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        if ids.shape[1] > 1:
            for layer in state.layers:
                if isinstance(layer, RecurrentState):
                    layer.window = mx.zeros_like(layer.window)
                    layer.memory = mx.zeros_like(layer.memory)
        return super().forward(ids, state, pulse)


class KeepsStateInside(KimiLinear):
    """The old fault as it was: the state lives in the model, the caller's is only a set of counts."""

    family = "keeps_state_inside"

    def __init__(self, config: KimiLinearConfig, weights: WeightReader) -> None:
        super().__init__(config, weights)
        self._inside: list[tuple[mx.array, mx.array] | None] = [None] * config.layers

    def forgets(self, tokens: int) -> bool:
        return tokens > 1

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        forgets = self.forgets(ids.shape[1])
        fresh = self.new_state(ids.shape[0]).layers
        for i, layer in enumerate(state.layers):
            if isinstance(layer, RecurrentState):
                kept, empty = self._inside[i], fresh[i]
                assert isinstance(empty, RecurrentState)
                begin = (empty.window, empty.memory)
                layer.window, layer.memory = begin if forgets or kept is None else kept
        logits = super().forward(ids, state, pulse)
        for i, layer in enumerate(state.layers):
            if isinstance(layer, RecurrentState):
                self._inside[i] = (layer.window, layer.memory)
        return logits


class LeaksIntoNextPrompt(KeepsStateInside):
    """Its twin: the state in the model is never cleared, so one prompt colours the next."""

    family = "leaks_into_next_prompt"

    def forgets(self, tokens: int) -> bool:
        return False


class MiscountsLayer(KimiLinear):
    """Its attention layers lose count of the last token they are given."""

    family = "miscounts_layer"

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        logits = super().forward(ids, state, pulse)
        for layer in state.layers:
            if isinstance(layer, LatentState):
                layer._position -= 1
        return logits


class DropsAttribute(KimiLinear):
    """Each forward pass takes something away from the model; harmless, yet a change of the model."""

    family = "drops_attribute"

    def __init__(self, config: KimiLinearConfig, weights: WeightReader) -> None:
        super().__init__(config, weights)
        self.scratch = list(range(100))

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        if hasattr(self, "scratch"):
            del self.scratch
        return super().forward(ids, state, pulse)


OLD_FAULTS = (RebuildsState, BypassesLedger, ZeroesArrays, KeepsStateInside, LeaksIntoNextPrompt)
SEEN_BY_THE_LEDGER = (RebuildsState, MiscountsLayer)
EVERY_TEST_FAMILY = (*OLD_FAULTS, MiscountsLayer, DropsAttribute, WholePromptOnly)


def _builder(kind: type[KimiLinear]) -> Callable[[Mapping[str, Any], WeightReader], LanguageModel]:
    def build(config: Mapping[str, Any], weights: WeightReader) -> LanguageModel:
        parsed = KimiLinearConfig.parse(config)
        return kind(parsed, canonical_tensors(parsed, weights))

    return build


@contextmanager
def registered(*kinds: type[KimiLinear]) -> Generator[None]:
    """While the block runs, checkpoints whose model_type is a test family's name load as that family."""
    for kind in kinds:

        def matches(config: Mapping[str, Any], name: str = kind.family) -> bool:
            return config.get("model_type") == name

        base.register(kind.family, matches, _builder(kind))
    try:
        yield
    finally:
        for kind in kinds:
            base.unregister(kind.family)
