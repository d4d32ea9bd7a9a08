"""The next token: which ones may be drawn, against NumPy, and how often they are."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Sampling
from engine.errors import SettingError
from engine.generation.sampling import PENALTY_WINDOW, Sampler, filter_logits, penalize
from engine.scalars import as_int

VOCABULARY = 40

# Distinct, well separated logits: which of two equal tokens stays is nobody's business.
distinct = st.lists(st.integers(-400, 400), min_size=2, max_size=VOCABULARY, unique=True).map(
    lambda values: [v / 40 for v in values]
)


def kept(logits: list[float], options: Sampling) -> set[int]:
    """Tokens that can still be drawn."""
    filtered = filter_logits(mx.array([logits]), options)
    return set(np.flatnonzero(np.array(filtered)[0] > -math.inf).tolist())


def probabilities(logits: list[float]) -> np.ndarray:
    x = np.array(logits, np.float64)
    e = np.exp(x - x.max())
    return e / e.sum()


def draw(logits: list[float], options: Sampling, seed: int, count: int) -> list[int]:
    sampler = Sampler(options, seed)
    return [as_int(sampler(mx.array([logits]))) for _ in range(count)]


def random_logits(size: int = VOCABULARY, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(0, 2, size).tolist()


@given(distinct)
def test_temperature_zero_takes_the_most_likely_token(logits: list[float]):
    assert draw(logits, Sampling(temperature=0.0), seed=1, count=2) == [int(np.argmax(logits))] * 2


@given(distinct, st.integers(0, VOCABULARY + 3))
def test_top_k_keeps_the_k_most_likely(logits: list[float], k: int):
    wanted = set(np.argsort(logits)[::-1][: k or None].tolist())
    assert kept(logits, Sampling(temperature=1.0, top_k=k)) == wanted


@given(distinct, st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits: list[float], p: float):
    probs = probabilities(logits)
    order = np.argsort(probs)[::-1]
    before = np.concatenate([[0.0], np.cumsum(probs[order])[:-1]])
    if np.abs(before - p).min() < 1e-5:
        return  # which side of p a float32 sum falls is rounding
    wanted = set(order[before < p].tolist())
    assert kept(logits, Sampling(temperature=1.0, top_p=p)) == wanted


@given(distinct, st.floats(0.001, 1.0))
def test_min_p_keeps_tokens_that_are_likely_enough(logits: list[float], p: float):
    ratio = probabilities(logits) / probabilities(logits).max()
    if np.abs(ratio - p)[ratio < 1].min(initial=1.0) < 1e-5:
        return
    assert kept(logits, Sampling(temperature=1.0, min_p=p)) == set(np.flatnonzero(ratio >= p).tolist())


@given(distinct, st.integers(0, 10), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_the_most_likely_token_stays_whatever_is_asked(logits: list[float], k: int, p: float, low: float):
    assert int(np.argmax(logits)) in kept(logits, Sampling(temperature=1.0, top_k=k, top_p=p, min_p=low))


def test_filters_narrow_one_after_the_other():
    logits = random_logits()
    together = kept(logits, Sampling(temperature=1.0, top_k=10, top_p=0.8, min_p=0.1))
    assert together <= kept(logits, Sampling(temperature=1.0, top_k=10))
    assert together <= kept(logits, Sampling(temperature=1.0, min_p=0.1))
    assert 1 <= len(together) < 10


def test_kept_tokens_keep_their_proportions():
    logits = mx.array([random_logits()])
    filtered = filter_logits(logits, Sampling(temperature=1.0, top_k=12, top_p=0.9))
    both = mx.isfinite(filtered)
    assert bool((mx.where(both, filtered, 0) == mx.where(both, logits, 0)).all().item())


def test_a_seed_repeats_its_draws_and_another_gives_others():
    logits, options = [0.0] * VOCABULARY, Sampling(temperature=1.0)
    first = draw(logits, options, seed=5, count=30)
    assert draw(logits, options, seed=5, count=30) == first
    assert draw(logits, options, seed=6, count=30) != first
    assert len(set(first)) > 5  # one seed is a sequence of draws, not one draw


def test_draws_follow_the_probabilities():
    logits = [2.0, 1.0, 0.0, -1.0]
    counts = np.bincount(draw(logits, Sampling(temperature=1.0), seed=3, count=3000), minlength=4)
    assert np.abs(counts / 3000 - probabilities(logits)).max() < 0.04


def test_a_higher_temperature_flattens_and_a_lower_one_sharpens():
    logits = [2.0, 1.0, 0.0, -1.0]
    shares = [
        np.mean(np.array(draw(logits, Sampling(temperature=t), seed=3, count=600)) == 0) for t in (0.3, 1, 4)
    ]
    assert shares[0] > shares[1] > shares[2]


def test_a_repetition_penalty_makes_what_was_said_less_likely():
    logits = mx.array([[3.0, -2.0, 0.5, 0.0, 1.0]])
    penalized = penalize(logits, mx.array([0, 1, 3]), 1.5)[0].tolist()
    assert penalized == pytest.approx([2.0, -3.0, 0.5, 0.0, 1.0])


def test_a_token_said_twice_is_penalized_once():
    logits = mx.array([[3.0, 1.0]])
    assert penalize(logits, mx.array([0, 0]), 2.0)[0].tolist() == pytest.approx([1.5, 1.0])


def test_a_repetition_penalty_leads_greedy_answers_on_to_other_tokens():
    logits = [3.0, 2.9, 2.8, 0.0]
    assert draw(logits, Sampling(repetition_penalty=1.2), seed=0, count=3) == [0, 1, 2]


def test_a_repetition_penalty_looks_at_the_prompt_s_end_only():
    options = Sampling(repetition_penalty=2.0)
    near = Sampler(options, 0, [*[3] * PENALTY_WINDOW, 0])
    far = Sampler(options, 0, [0, *[3] * PENALTY_WINDOW])
    logits = mx.array([[3.0, 2.0, 1.0, 0.0]])
    assert as_int(near(logits)) == 1
    assert as_int(far(logits)) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Sampling(temperature=-0.1), "temperature"),
        (Sampling(temperature=6), "temperature"),
        (Sampling(top_p=1.5), "top-p"),
        (Sampling(top_p=0.0), "top-p of 0"),
        (Sampling(min_p=-1), "min-p"),
        (Sampling(top_k=-1), "top-k"),
        (Sampling(repetition_penalty=0.0), "repetition penalty"),
        (Sampling(temperature=math.nan), "temperature"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(options: Sampling, said: str):
    with pytest.raises(SettingError, match=said):
        Sampler(options, 0)
