"""For every family: a prompt read in chunks leaves what a single pass leaves, to the last array."""

import importlib
import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from engine.checkpoint.loader import load_model
from engine.errors import LedgerError
from engine.generation.prefill import PrefillPolicy
from engine.generation.reading import read_prompt
from engine.models import base
from engine.models.base import LanguageModel
from engine.planning.fingerprint import fingerprint
from engine.planning.tuning import random_ids
from engine.state import RecurrentState, SequenceState
from tests.support.arrays import relative_gap, same_bits
from tests.support.checkpoints import NARROW, PACKABLE, Recipe, Shop
from tests.support.families import TINY

importlib.import_module("engine.checkpoint.loader")  # registers every family

LENGTH = 517
SHORTER = 197  # for the smallest chunks of all but the first checkpoint of a family, to save time
CHUNKS = (1, 2, 3, 64, 100, LENGTH - 1, LENGTH)
TOLERANCE = 1e-5

EVERY_CHECKPOINT = [
    pytest.param(recipe, id=f"{family}-{recipe.name}")
    for family in base.families()
    for recipe in TINY.get(family, ())
]


class Read:
    """What a reading leaves behind: the last position's logits and every array of the state."""

    def __init__(self, logits: mx.array, state: SequenceState) -> None:
        self.position = state.position
        self.arrays = [logits, *state.arrays()]
        mx.eval(self.arrays)

    def same_bits(self, other: "Read") -> bool:
        return self.position == other.position and all(
            same_bits(a, b) for a, b in zip(self.arrays, other.arrays, strict=True)
        )

    def difference(self, other: "Read") -> float:
        """The largest difference of any array, in parts of that array's largest value."""
        assert self.position == other.position
        return max(relative_gap(a, b) for a, b in zip(self.arrays, other.arrays, strict=True))


def read(
    model: LanguageModel, ids: list[int], cuts: list[int] | None = None, state: SequenceState | None = None
) -> Read:
    """Continue `state` (default: a new one) by `ids`, cut at the given places."""
    state = state or model.new_state()
    cuts = cuts or []
    logits: mx.array | None = None
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        logits = model(mx.array([ids[start:end]], mx.int32), state)
        mx.eval(logits)
        state.evaluate()
    assert logits is not None
    return Read(logits, state)


def every(chunk: int, length: int) -> list[int]:
    return list(range(chunk, length, chunk))


def test_every_registered_family_has_a_tiny_checkpoint_here():
    assert base.families()
    assert set(base.families()) == set(TINY)
    assert all(TINY.values())


def test_a_tiny_checkpoint_loads_as_its_own_family(shop: Shop):
    for family, recipes in TINY.items():
        assert {shop.model(recipe).family for recipe in recipes} == {family}


def test_a_family_that_cannot_continue_a_prompt_says_why(shop: Shop):
    for recipes in TINY.values():
        for model in map(shop.model, recipes):
            assert model.supports_chunked_prefill or model.single_pass_reason


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_chunks_leave_what_a_single_pass_leaves(shop: Shop, recipe: Recipe, chunk: int):
    model = shop.model(recipe)
    if not model.supports_chunked_prefill:
        pytest.skip(model.single_pass_reason)
    first = recipe in {recipes[0] for recipes in TINY.values()}
    length = LENGTH if first or chunk > 3 else SHORTER
    ids = random_ids(model, length, seed=11)
    single, chunked = read(model, ids), read(model, ids, every(chunk, length))
    assert single.difference(chunked) < TOLERANCE
    if chunk % 64 == 0:
        assert single.same_bits(chunked)


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
@pytest.mark.parametrize("cuts", [[64], [256], [512], [64, 320, 448], [128, 130, 200]])
def test_cuts_on_the_grid_of_64_change_no_bit(shop: Shop, recipe: Recipe, cuts: list[int]):
    model = shop.model(recipe)
    ids = random_ids(model, LENGTH, seed=12)
    single, cut = read(model, ids), read(model, ids, cuts)
    if all(place % 64 == 0 for place in cuts):
        assert single.same_bits(cut)
    else:
        assert single.difference(cut) < TOLERANCE


@pytest.mark.parametrize("recipe", [NARROW, PACKABLE.but("packed in 4 bits", bits=4)], ids=lambda r: r.name)
def test_other_shapes_and_quantized_weights_hold_as_well(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    ids = random_ids(model, 200, seed=13)
    single = read(model, ids)
    assert single.same_bits(read(model, ids, every(64, 200)))
    for chunk in (3, 50, 199):
        assert single.difference(read(model, ids, every(chunk, 200))) < TOLERANCE


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_losing_the_first_token_is_far_beyond_the_tolerance(shop: Shop, recipe: Recipe):
    """The comparison above has power: not even one token can be lost within it."""
    model = shop.model(recipe)
    ids = random_ids(model, LENGTH, seed=11)
    whole = read(model, ids)
    replaced = read(model, [(ids[0] + 1) % model.vocab_size, *ids[1:]])
    assert whole.difference(replaced) > 100 * TOLERANCE


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_short_prompts_of_every_length_equal_reading_token_by_token(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    ids = random_ids(model, 70, seed=14)
    for length in (1, 2, 3, 4, 5, 63, 64, 65, 70):
        single = read(model, ids[:length])
        assert single.position == length
        assert single.difference(read(model, ids[:length], every(1, length))) < TOLERANCE, length


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_two_unrelated_prompts_in_a_row_equal_two_fresh_runs(shop: Shop, recipe: Recipe, tmp_path: Path):
    ids, other = (random_ids(shop.model(recipe), n, seed=n) for n in (300, 90))

    def fresh(name: str) -> LanguageModel:
        return load_model(shutil.copytree(shop.folder(recipe), tmp_path / name)).model

    alone = read(fresh("one"), ids, [128]), read(fresh("two"), other)
    model = fresh("both")
    in_a_row = read(model, ids, [128]), read(model, other)
    again = read(model, ids, [128])
    assert alone[0].same_bits(in_a_row[0])
    assert alone[1].same_bits(in_a_row[1])
    assert alone[0].same_bits(again)


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_two_sequences_can_be_read_in_turns(shop: Shop, recipe: Recipe):
    """Nothing of one sequence lives anywhere but in its own state."""
    model = shop.model(recipe)
    ids, other = random_ids(model, 192, seed=1), random_ids(model, 192, seed=2)
    states = model.new_state(), model.new_state()
    for start in range(0, 192, 64):
        for sequence, state in zip((ids, other), states, strict=True):
            last = model(mx.array([sequence[start : start + 64]], mx.int32), state)
            if start == 128:
                assert Read(last, state).same_bits(read(model, sequence))


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_a_cancel_between_chunks_leaves_nothing_for_the_next_prompt(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    ids, other = random_ids(model, 300, seed=3), random_ids(model, 200, seed=4)
    fresh = read(model, other, [64, 128, 192])
    plan = PrefillPolicy(64).plan(len(ids))
    state = model.new_state()
    stopped = read_prompt(model, ids, state, plan, cancelled=lambda: state.position >= 128)
    assert stopped.logits is None
    assert stopped.executed == plan.slices[:2]
    assert set(state.positions) == {128}
    after = model.new_state()
    reading = read_prompt(model, other, after, PrefillPolicy(64).plan(len(other)))
    assert reading.logits is not None
    assert Read(reading.logits, after).same_bits(fresh)


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_a_cancel_inside_a_long_slice_goes_back_to_the_slice_before(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    layers = len(model.describe_layers())
    ids = random_ids(model, 600, seed=5)
    plan = PrefillPolicy(320).plan(len(ids))
    asked: list[int] = []

    def cancelled() -> bool:
        """Yes, two layers into the second slice: asked before each slice and after each layer."""
        asked.append(1)
        return len(asked) > 1 + layers + 2

    state = model.new_state()
    stopped = read_prompt(model, ids, state, plan, cancelled=cancelled)
    assert stopped.logits is None
    assert stopped.executed == ((0, 320),)
    assert set(state.positions) == {320}
    rest = read(model, ids[320:], state=state)
    assert rest.same_bits(read(model, ids))


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_no_forward_pass_changes_anything_a_model_holds(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    arrays = _arrays_of(model)
    before, copies = fingerprint(model), [mx.array(a) for a in arrays]
    mx.eval(copies)
    state = model.new_state()
    for tokens in (1, 2, 3, 64, 300, 1, 1):
        mx.eval(model(mx.array([random_ids(model, tokens, seed=tokens)], mx.int32), state))
        state.evaluate()
    assert fingerprint(model) == before
    after = _arrays_of(model)
    assert [id(a) for a in after] == [id(a) for a in arrays]
    assert all(same_bits(a, b) for a, b in zip(after, copies, strict=True))


def _arrays_of(value: object) -> list[mx.array]:
    """Every array reachable through attributes and containers; all of them are kept alive."""
    if isinstance(value, mx.array):
        return [value]
    if isinstance(value, dict):
        return [a for item in value.values() for a in _arrays_of(item)]
    if isinstance(value, list | tuple):
        return [a for item in value for a in _arrays_of(item)]
    held = getattr(value, "__dict__", {}) if type(value).__module__ != "builtins" else {}
    return [a for item in held.values() for a in _arrays_of(item)]


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_recurrent_state_is_float32_whatever_the_weights_are(shop: Shop, recipe: Recipe):
    half = recipe.but(f"{recipe.name} in half precision", dtype="bfloat16")
    model = shop.model(half)
    state = model.new_state()
    for tokens in (70, 1, 2):
        mx.eval(model(mx.array([random_ids(model, tokens, seed=1)], mx.int32), state))
        recurrent = [layer for layer in state.layers if isinstance(layer, RecurrentState)]
        assert recurrent
        assert {layer.memory.dtype for layer in recurrent} == {mx.float32}


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_sequences_of_a_batch_do_not_touch_each_other(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    rows = [random_ids(model, 130, seed=s) for s in (1, 2, 3)]
    state = model.new_state(batch=3)
    logits = model(mx.array(rows, mx.int32), state)
    for number, row in enumerate(rows):
        alone = read(model, row)
        assert relative_gap(alone.arrays[0], logits[number : number + 1]) < TOLERANCE


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_a_pass_over_nothing_is_refused(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    with pytest.raises(LedgerError, match="at least one token"):
        model(mx.zeros((1, 0), mx.int32), model.new_state())


@pytest.mark.parametrize("recipe", EVERY_CHECKPOINT)
def test_the_parts_of_a_state_are_named_as_the_model_describes_them(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    assert tuple(layer.kind for layer in model.new_state().layers) == model.describe_layers()
    assert model.new_state().position == 0
