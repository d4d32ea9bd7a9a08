"""Exponentials and their kin against NumPy in float64, from the smallest inputs to the largest."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from engine.kernels import pointwise

# Every magnitude that a gate or a score can have, both signs, and the edges.
MAGNITUDES = np.concatenate([[0.0], np.logspace(-8, 3.5, 400)]).astype(np.float32)
INPUTS = np.concatenate([-MAGNITUDES, MAGNITUDES, np.array([-np.inf], np.float32)])


def logistic(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (pointwise.exp, np.exp, -np.inf, 88.0),
        (pointwise.exp2, np.exp2, -np.inf, 127.0),
        (pointwise.sigmoid, logistic, -np.inf, np.inf),
        (pointwise.softplus, lambda x: np.logaddexp(0.0, x), -np.inf, np.inf),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_values_are_right_to_float32_rounding(
    ours: Callable[[mx.array], mx.array], theirs: Callable[[np.ndarray], np.ndarray], low: float, high: float
):
    x = INPUTS[(low <= INPUTS) & (high >= INPUTS)]
    wanted = theirs(x.astype(np.float64))
    got = np.array(ours(mx.array(x))).astype(np.float64)
    assert not np.isnan(got).any()
    normal = wanted > 1e-37  # below it float32 keeps fewer digits
    size = np.minimum(np.abs(x), 100.0)[normal]
    allowed = (4e-7 + 1.5e-7 * size) * wanted[normal]  # an argument of size n is rounded by n * 6e-8
    assert (np.abs(got - wanted)[normal] <= allowed).all()
    assert (got[~normal] < 2e-37).all()


def test_complete_forgetting_is_exactly_zero_and_none_exactly_one():
    assert pointwise.exp(mx.array([-2000.0, -float("inf"), 0.0])).tolist() == [0.0, 0.0, 1.0]
    assert pointwise.sigmoid(mx.array([-2000.0, 0.0, 2000.0])).tolist() == [0.0, 0.5, 1.0]
    assert pointwise.softplus(mx.array([-2000.0, 2000.0])).tolist() == [0.0, 2000.0]


def test_a_decay_never_exceeds_one():
    g = mx.array(-np.logspace(-12, 4, 2000).astype(np.float32))
    decays = np.array(pointwise.exp(g))
    assert (decays <= 1.0).all()
    assert (np.diff(decays) <= 0).all()
