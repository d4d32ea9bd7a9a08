"""Weights as a GPU holds them (packed, in grouped products, no fixed row blocks) give the same model."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from engine.checkpoint.loader import load_model
from engine.models.base import LanguageModel
from engine.models.kimi_linear import KimiLinear
from engine.planning.tuning import random_ids
from engine.planning.verification import verify
from tests.support.arrays import relative_gap
from tests.support.checkpoints import (
    DENSE_MLP,
    GROUPED,
    NARROW,
    PACKABLE,
    PLAIN,
    WIDE,
    Recipe,
    Shop,
    as_on_a_gpu,
)

CHECKPOINTS = [
    PLAIN,
    WIDE,
    NARROW,
    GROUPED,
    PLAIN.but("original", layout="original"),
    PACKABLE.but("4 bits", bits=4),
    PACKABLE.but("8 bits, older", bits=8, layout="older"),
    WIDE.but("8 bits in groups of 64", bits=8, group=64),
]

Load = Callable[[Recipe], LanguageModel]


@pytest.fixture
def load_as_on_a_gpu(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The choice of a GPU, with float32 activations so that only the forms differ."""

    def load(recipe: Recipe) -> LanguageModel:
        as_on_a_gpu(monkeypatch)
        model = load_model(shop.folder(recipe)).model
        assert isinstance(model, KimiLinear)
        assert not model.numerics.blocked
        return model

    return load


def logits(model: LanguageModel, ids: list[int], cuts: list[int]) -> list[mx.array]:
    """The last logits and every state array."""
    state = model.new_state()
    out = mx.zeros((1, 1))
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        out = model(mx.array([ids[start:end]], mx.int32), state)
    return [out, *state.arrays()]


@pytest.mark.parametrize("recipe", CHECKPOINTS, ids=lambda recipe: recipe.name)
def test_logits_and_state_are_those_of_the_other_form(shop: Shop, load_as_on_a_gpu: Load, recipe: Recipe):
    usual = shop.model(recipe)
    other = load_as_on_a_gpu(recipe)
    for length in (1, 2, 40, 200):
        ids = random_ids(usual, length, seed=length)
        pairs = zip(logits(usual, ids, []), logits(other, ids, []), strict=True)
        assert max(relative_gap(a, b) for a, b in pairs) < 2e-5


@pytest.mark.parametrize("recipe", [PLAIN, WIDE, PACKABLE.but("4 bits", bits=4)], ids=lambda r: r.name)
@pytest.mark.parametrize("cuts", [[1], [64, 128], [3, 50, 199], list(range(1, 300, 100))])
def test_chunks_leave_what_a_single_pass_leaves(load_as_on_a_gpu: Load, recipe: Recipe, cuts: list[int]):
    model = load_as_on_a_gpu(recipe)
    ids = random_ids(model, 300, seed=1)
    pairs = zip(logits(model, ids, []), logits(model, ids, cuts), strict=True)
    assert max(relative_gap(a, b) for a, b in pairs) < 2e-5


def test_the_proof_holds(load_as_on_a_gpu: Load):
    report = verify(load_as_on_a_gpu(PACKABLE.but("8 bits", bits=8)), length=150, chunks=(64, 100))
    assert report.held


def test_half_precision_activations_keep_a_float32_state(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    as_on_a_gpu(monkeypatch, mx.bfloat16)
    recipe = DENSE_MLP.but("half", dtype="bfloat16")  # a CPU has no grouped products in half precision
    model = load_model(shop.folder(recipe)).model
    state = model.new_state()
    out = model(mx.array([random_ids(model, 80, seed=1)], mx.int32), state)
    assert out.dtype == mx.float32
    assert {str(a.dtype) for a in state.arrays()} == {"mlx.core.float32", "mlx.core.bfloat16"}
    report = verify(model, length=150, chunks=(64,))
    assert report.held
