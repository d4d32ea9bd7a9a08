"""Prefill speed and memory at several chunk sizes, measured on this machine."""

from collections.abc import Sequence

import mlx.core as mx

from engine.api import TunePoint
from engine.errors import PromptError, SettingError
from engine.generation.prefill import PrefillPolicy
from engine.generation.reading import read_prompt
from engine.models.base import LanguageModel
from engine.planning.steps import Steps, silent
from engine.scalars import as_ints


def random_ids(model: LanguageModel, count: int, seed: int) -> list[int]:
    """`count` token ids, uniform over the vocabulary, the same for the same seed."""
    drawn = mx.random.randint(0, model.vocab_size, (count,), key=mx.random.key(seed))
    return as_ints(drawn)


def tune(
    model: LanguageModel, prompt_tokens: int, chunks: Sequence[int], steps: Steps = silent
) -> tuple[TunePoint, ...]:
    """Read the same random prompt with each chunk size; the first is read once more to warm up.

    A model that is read in one pass gives one point, at chunk 0.
    """
    if not 1 <= prompt_tokens < model.context_window:
        raise PromptError(
            f"A prompt of {prompt_tokens:,} tokens does not fit this model's window of "
            f"{model.context_window:,}. Choose fewer."
        )
    if not chunks:
        raise SettingError("Tuning needs at least one chunk size, such as 2048.")
    ids = random_ids(model, prompt_tokens, seed=0)
    wanted = tuple(chunks) if model.supports_chunked_prefill else (0,)
    points: list[TunePoint] = []
    for step, chunk in enumerate((wanted[0], *wanted)):
        steps(step, len(wanted) + 1, f"reading {prompt_tokens:,} tokens in chunks of {chunk:,}")
        plan = PrefillPolicy(chunk).plan(prompt_tokens, supported=model.supports_chunked_prefill)
        mx.clear_cache()
        mx.reset_peak_memory()
        held = mx.get_active_memory()
        reading = read_prompt(model, ids, model.new_state(), plan)
        point = TunePoint(chunk, prompt_tokens / reading.seconds, mx.get_peak_memory() - held)
        if step:
            points.append(point)
    steps(len(wanted) + 1, len(wanted) + 1, "done")
    return tuple(points)
