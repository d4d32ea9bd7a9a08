"""Our own side of a benchmark: what `engine.generation.generator` does with a prompt, timed.

The generator itself brings templates and tokenizers, which a machine that only measures need not have.
So its two halves stand here once more without text: the same reading with the same snapshots kept,
and the same decoding one step ahead. A test holds the two to the same tokens.
"""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from engine.api import Sampling
from engine.checkpoint.loader import LoadedModel, load_model
from engine.errors import NumericsError, PromptTooLongError
from engine.generation.prefill import PrefillPlan, PrefillPolicy
from engine.generation.prefix import SnapshotShelf, ladder
from engine.generation.reading import read_prompt
from engine.generation.sampling import Sampler
from engine.planning.benchmark_clock import Clock
from engine.scalars import as_int
from engine.state import SequenceState

TRIM_EVERY = 256
"""Decoded tokens between trims of MLX's allocator cache, as in the generator."""


class Perigee:
    """See `Contender`."""

    loop = "perigee's reading and decoding, without text"

    def __init__(self, folder: Path, chunk: int) -> None:
        self.loaded: LoadedModel = load_model(folder)
        self._policy = PrefillPolicy(chunk)

    def plan(self, tokens: int) -> PrefillPlan:
        """How a prompt of `tokens` tokens is read."""
        return self._policy.plan(tokens, supported=self.loaded.model.supports_chunked_prefill)

    def run(self, ids: list[int], generate: int, clock: Clock) -> list[int]:
        """See `Contender`."""
        model = self.loaded.model
        if len(ids) + generate > model.context_window:
            raise PromptTooLongError(
                f"{len(ids):,} tokens and {generate:,} written do not fit this model's window of "
                f"{model.context_window:,}. Measure shorter lengths."
            )
        state, plan = model.new_state(), self.plan(len(ids))
        kept = _keeper(SnapshotShelf(), ids, state, plan)
        reading = read_prompt(model, ids, state, plan, after_slice=kept)
        assert reading.logits is not None  # nothing stops this reading
        clock.state_bytes = state.nbytes
        return self._decode(reading.logits, state, generate, clock)

    def _decode(self, logits: mx.array, state: SequenceState, generate: int, clock: Clock) -> list[int]:
        """Greedy, one step ahead of the token in hand."""
        model, sampler = self.loaded.model, Sampler(Sampling(), seed=0)
        written: list[int] = []
        token, sound = sampler(logits), mx.isfinite(logits).all()
        mx.async_eval(token, sound)
        while True:
            following = following_sound = None
            if len(written) + 1 < generate:
                logits = model(token[:, None], state)
                following, following_sound = sampler(logits), mx.isfinite(logits).all()
                pending = (array for layer in state.layers for array in layer.pending())
                mx.async_eval(following, following_sound, *pending)
            clock.waiting()
            if not sound.item():
                raise NumericsError(
                    "The model computed numbers that are not numbers; its times mean nothing."
                )
            written.append(as_int(token))
            clock.handed()
            if following is None or following_sound is None:
                return written
            if len(written) % TRIM_EVERY == 0:
                mx.clear_cache()
            token, sound = following, following_sound


def _keeper(
    shelf: SnapshotShelf, ids: list[int], state: SequenceState, plan: PrefillPlan
) -> Callable[[int], None]:
    """Keeps the snapshots that the generator keeps while it reads: they hold memory too."""
    rungs = ladder(plan.slices)
    passing: list[int] = []

    def keep(position: int) -> None:
        shelf.put(ids[:position], state.snapshot())
        for earlier in passing:
            shelf.drop(ids[:earlier])
        passing[:] = [] if position in rungs else [position]

    return keep
