"""A faster form may decide answers only if it is equal to its twin here, and faster here."""

from collections.abc import Sequence

import mlx.core as mx
import pytest

from engine.kernels.selection import Choice, Run, choose
from tests.conftest import ExpectedLogs

X = mx.arange(1.0, 65.0)


def right() -> Sequence[mx.array]:
    return [X * 2, X + 1]


def choice(form: Run, seconds: float = 0.25, plain_seconds: float = 0.5) -> Choice:
    """What is decided of a form that takes `seconds` a run, by a clock that only the two forms move."""
    now = 0.0

    def taking(run: Run, time: float) -> Run:
        def timed() -> Sequence[mx.array]:
            nonlocal now
            now += time
            return run()

        return timed

    return choose(
        "A form",
        taking(form, seconds),
        taking(right, plain_seconds),
        right,
        tolerance=1e-3,
        clock=lambda: now,
    )


def test_an_equal_and_faster_form_is_used():
    decided = choice(lambda: [X + X, X + 1.0])
    assert decided.used
    assert (decided.seconds, decided.plain_seconds) == (0.25, 0.5)
    assert decided.gap == 0
    assert decided.reason == "equal and faster"


@pytest.mark.parametrize("seconds", [0.5, 0.75])
def test_an_equal_form_that_is_not_faster_is_not_used(seconds: float):
    decided = choice(right, seconds)
    assert not decided.used
    assert (decided.seconds, decided.plain_seconds) == (seconds, 0.5)
    assert "not faster" in decided.reason


@pytest.mark.parametrize("wrong", [1.01, float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("output", [0, 1])
def test_a_form_with_one_wrong_value_in_any_output_is_not_used(
    expect_log: ExpectedLogs, wrong: float, output: int
):
    expect_log("A form: the fast form differs by")
    place = mx.arange(64) == 63  # the largest value of both outputs
    spoilt = [mx.where(place, a * wrong, a) if i == output else a for i, a in enumerate(right())]
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


def test_by_the_real_clock_times_are_taken():
    decided = choose("A form", right, right, right, tolerance=1e-3)
    assert decided.seconds > 0
    assert decided.plain_seconds > 0
