"""A faster form may decide answers only if it is equal to its twin here, and faster here."""

import time
from collections.abc import Sequence

import mlx.core as mx
import pytest

from engine.kernels.selection import Choice, choose
from tests.conftest import ExpectedLogs

X = mx.arange(1.0, 65.0)


def plain() -> Sequence[mx.array]:
    time.sleep(2e-3)
    return [X * 2, X + 1]


def choice(form: object, twin: object = plain) -> Choice:
    return choose("A form", form, twin, lambda: [X * 2, X + 1], tolerance=1e-3)  # type: ignore[arg-type]


def test_an_equal_and_faster_form_is_used():
    decided = choice(lambda: [X + X, X + 1.0])
    assert decided.used
    assert 0 < decided.seconds < decided.plain_seconds
    assert decided.gap == 0
    assert decided.reason == "equal and faster"


def test_an_equal_but_slower_form_is_not_used():
    def slow() -> Sequence[mx.array]:
        time.sleep(8e-3)
        return [X * 2, X + 1]

    decided = choice(slow)
    assert not decided.used
    assert decided.seconds > decided.plain_seconds > 0
    assert "not faster" in decided.reason


@pytest.mark.parametrize("wrong", [1.01, float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("output", [0, 1])
def test_a_form_with_one_wrong_value_in_any_output_is_not_used(
    expect_log: ExpectedLogs, wrong: float, output: int
):
    expect_log("A form: the fast form differs by")
    right = [X * 2, X + 1]
    place = mx.arange(64) == 63  # the largest value of both outputs
    spoilt = [mx.where(place, a * wrong, a) if i == output else a for i, a in enumerate(right)]
    decided = choice(lambda: spoilt)
    assert not decided.used
    assert not decided.gap <= 1e-3
    assert (decided.seconds, decided.plain_seconds) == (0, 0)


def test_a_form_within_the_tolerance_counts_as_equal():
    assert choice(lambda: [X * 2 * 1.0005, X + 1]).used


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError])
def test_a_form_that_fails_is_a_line_in_the_log(expect_log: ExpectedLogs, error: type[Exception]):
    expect_log("A form: the fast form does not run here, the plain one is used: no such instruction")

    def fails() -> Sequence[mx.array]:
        raise error("no such instruction")

    decided = choice(fails)
    assert not decided.used
    assert decided.reason == "does not run on this device"
    assert decided.gap == float("inf")
