"""From logits to the next token, lazily, so that decoding can run one step ahead."""

from collections.abc import Sequence

import mlx.core as mx

from engine.api import Sampling
from engine.errors import SettingError

GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy: the next likeliest token would be drawn once in an age, and
float32 loses so small a divisor."""

PENALTY_WINDOW = 64
"""Recent tokens that a repetition penalty looks at."""


def check_sampling(options: Sampling) -> None:
    """Raise `SettingError` for a value that makes no sense, naming its range."""
    for name, value, low, high in (
        ("temperature", options.temperature, 0.0, 5.0),
        ("top-p", options.top_p, 0.0, 1.0),
        ("min-p", options.min_p, 0.0, 1.0),
        ("top-k", options.top_k, 0, 1_000_000),
        ("repetition penalty", options.repetition_penalty, 0.5, 3.0),
    ):
        if not low <= value <= high:
            raise SettingError(f"The {name} must be between {low} and {high}; {value} is outside that range.")
    if options.seed is not None and not 0 <= options.seed < 1 << 64:
        raise SettingError(f"The seed must be between 0 and 2^64 - 1; {options.seed} is outside that range.")
    if options.top_p == 0:
        raise SettingError("A top-p of 0 keeps no token; use a temperature of 0 for the most likely one.")


class Sampler:
    """Chooses tokens for one answer.

    The order is: repetition penalty, temperature, top-k, top-p, min-p, draw. Top-p keeps the smallest
    set of most likely tokens whose probability reaches p; min-p keeps tokens at least min_p times as
    likely as the most likely one. The most likely token always stays.
    """

    def __init__(self, options: Sampling, seed: int, recent: Sequence[int] = ()) -> None:
        check_sampling(options)
        self._options = options
        self._key = mx.random.key(seed)
        tail = list(recent)[-PENALTY_WINDOW:]
        self._recent = mx.array(tail, mx.int32) if tail else mx.zeros((0,), mx.int32)

    def __call__(self, logits: mx.array) -> mx.array:
        """logits [1, V] float32 -> the next token [1] int32, not evaluated."""
        options = self._options
        if options.repetition_penalty != 1.0 and self._recent.size:
            logits = penalize(logits, self._recent, options.repetition_penalty)
        if options.temperature < GREEDY_BELOW:
            token = mx.argmax(logits, axis=-1)
        else:
            self._key, now = mx.random.split(self._key)
            below = logits - logits.max(axis=-1, keepdims=True)  # no temperature can overflow the best
            filtered = filter_logits(below / options.temperature, options)
            token = mx.random.categorical(filtered, axis=-1, key=now)
        token = token.astype(mx.int32)
        if options.repetition_penalty != 1.0:
            self._recent = mx.concatenate([self._recent, token])[-PENALTY_WINDOW:]
        return token


def penalize(logits: mx.array, recent: mx.array, penalty: float) -> mx.array:
    """Make tokens in `recent` less likely: positive logits are divided, negative multiplied."""
    scores = logits[:, recent]
    scores = mx.where(scores > 0, scores / penalty, scores * penalty)
    return mx.put_along_axis(logits, recent[None], scores, axis=-1)


def filter_logits(logits: mx.array, options: Sampling) -> mx.array:
    """Tokens outside top-k, top-p or min-p get -inf. logits [1, V] are already divided by temperature."""
    floor = -float("inf")
    vocab = logits.shape[-1]
    if 0 < options.top_k < vocab:
        kept = mx.argpartition(-logits, options.top_k - 1, axis=-1)[..., : options.top_k]
        only = mx.full(logits.shape, floor, logits.dtype)
        logits = mx.put_along_axis(only, kept, mx.take_along_axis(logits, kept, axis=-1), axis=-1)
    if options.top_p < 1:
        order = mx.argsort(-logits, axis=-1)
        sorted_probs = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
        above = mx.cumsum(sorted_probs, axis=-1) - sorted_probs
        sorted_logits = mx.where(above < options.top_p, mx.take_along_axis(logits, order, axis=-1), floor)
        logits = mx.put_along_axis(logits, order, sorted_logits, axis=-1)
    if options.min_p > 0:
        probs = mx.softmax(logits, axis=-1)
        logits = mx.where(probs < options.min_p * probs.max(axis=-1, keepdims=True), floor, logits)
    return logits
