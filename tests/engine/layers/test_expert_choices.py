"""A faster form of the experts decides answers only where it was seen to be right on this device."""

from collections.abc import Iterator

import mlx.core as mx
import pytest

from engine.kernels.selection import Choice
from engine.layers import expert_choices
from engine.layers.expert_choices import chosen_forms
from engine.layers.expert_groups import ExpertForms
from engine.layers.expert_matrices import DenseMatrices, Matrices, PackedMatrices
from tests.conftest import ExpectedLogs

HIDDEN, INNER = 64, 32


@pytest.fixture(autouse=True)
def choose_anew() -> Iterator[None]:
    expert_choices._choose_forms.cache_clear()
    yield
    expert_choices._choose_forms.cache_clear()


def matrices(packed: bool) -> tuple[Matrices, Matrices]:
    weights = [mx.zeros((2, 2 * INNER, HIDDEN)), mx.zeros((2, HIDDEN, INNER))]
    if not packed:
        return DenseMatrices(weights[0]), DenseMatrices(weights[1])
    parts = [mx.quantize(weight, group_size=32, bits=4) for weight in weights]
    first, second = (PackedMatrices(*part, 32, 4) for part in parts)
    return first, second


def chosen(packed: bool = False) -> tuple[ExpertForms, dict[str, Choice]]:
    forms, choices = chosen_forms(HIDDEN, INNER, *matrices(packed), mx.float32)
    return forms, {choice.name.rpartition(", ")[2]: choice for choice in choices}


@pytest.mark.parametrize("packed", [False, True])
def test_every_form_is_compared_with_plain_products(packed: bool):
    forms, choices = chosen(packed)
    assert set(choices) == {"ordered", "batched"}  # and no kernel of ours on a CPU
    for name, choice in choices.items():
        assert choice.gap < 1e-4
        assert choice.used == getattr(forms, name) == (choice.seconds < choice.plain_seconds)
    assert not forms.mixed_by_kernel


def test_a_product_that_is_wrong_is_never_used(monkeypatch: pytest.MonkeyPatch, expect_log: ExpectedLogs):
    """As MLX's product over sorted rows is on CUDA."""
    expect_log("the fast form differs")
    right = mx.gather_mm

    def wrong(*arguments: mx.array, sorted_indices: bool = False, **options: mx.array) -> mx.array:
        out = right(*arguments, **options)
        return out * 1.1 if sorted_indices else out

    monkeypatch.setattr(mx, "gather_mm", wrong)
    forms, choices = chosen()
    assert not forms.ordered
    assert choices["ordered"].gap > 0.05
    assert "does not match" in choices["ordered"].reason


def test_a_product_that_is_wrong_only_sometimes_is_never_used(
    monkeypatch: pytest.MonkeyPatch, expect_log: ExpectedLogs
):
    """As with a race between threads of a device."""
    expect_log("the fast form differs")
    right, calls = mx.gather_mm, [0]

    def sometimes(*arguments: mx.array, sorted_indices: bool = False, **options: mx.array) -> mx.array:
        calls[0] += sorted_indices
        out = right(*arguments, **options)
        return out * 1.1 if sorted_indices and calls[0] > 2 else out

    monkeypatch.setattr(mx, "gather_mm", sometimes)
    assert not chosen()[0].ordered


def test_a_product_that_fails_is_never_used(monkeypatch: pytest.MonkeyPatch, expect_log: ExpectedLogs):
    expect_log("does not run here")
    right = mx.gather_mm

    def fails(*arguments: mx.array, sorted_indices: bool = False, **options: mx.array) -> mx.array:
        if sorted_indices:
            raise RuntimeError("not implemented on this device")
        return right(*arguments, **options)

    monkeypatch.setattr(mx, "gather_mm", fails)
    forms, choices = chosen()
    assert not forms.ordered
    assert choices["ordered"].reason == "does not run on this device"


def test_a_choice_is_made_once_a_process():
    assert chosen() == chosen()
