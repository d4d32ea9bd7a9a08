"""State is a value: snapshots stay what they were, branches do not meet, nothing is kept by accident."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import LedgerError
from engine.layers.conv import ShortConvolution
from engine.layers.kda import KimiDeltaAttention
from engine.layers.mla import LatentAttention
from engine.models.base import LanguageModel
from engine.models.kimi_linear import KimiLinear
from engine.planning.tuning import random_ids
from engine.state import LatentState, RecurrentState, SequenceState, Snapshot
from tests.support.arrays import relative_gap, same_bits
from tests.support.checkpoints import NARROW, PLAIN, WIDE, Recipe, Shop

BOTH_KINDS = (PLAIN, WIDE)


def by_name(recipe: Recipe) -> str:
    return recipe.name


def go_on(model: LanguageModel, state: SequenceState, ids: list[int]) -> mx.array:
    logits = model(mx.array([ids], mx.int32), state)
    mx.eval(logits)
    state.evaluate()
    return logits


def contents(state: SequenceState) -> list[mx.array]:
    """Copies of every array of a state."""
    copies = [mx.array(a) for a in state.arrays()]
    mx.eval(copies)
    return copies


def same(a: list[mx.array], b: list[mx.array]) -> bool:
    return len(a) == len(b) and all(same_bits(x, y) for x, y in zip(a, b, strict=True))


def thawed(model: LanguageModel, snapshot: Snapshot) -> SequenceState:
    state = model.new_state()
    state.restore(snapshot)
    return state


@pytest.mark.parametrize("recipe", BOTH_KINDS, ids=by_name)
@pytest.mark.parametrize("place", [1, 2, 63, 64, 65, 127, 128, 199])
def test_going_on_from_a_snapshot_equals_the_straight_run(shop: Shop, recipe: Recipe, place: int):
    model = shop.model(recipe)
    ids = random_ids(model, 200, seed=1)
    straight = model.new_state()
    go_on(model, straight, ids[:place])
    snapshot = straight.snapshot()
    logits = go_on(model, straight, ids[place:])
    resumed = thawed(model, snapshot)
    assert resumed.position == place
    assert same_bits(go_on(model, resumed, ids[place:]), logits)
    assert same(contents(resumed), contents(straight))


@pytest.mark.parametrize("recipe", BOTH_KINDS, ids=by_name)
def test_later_tokens_do_not_change_a_snapshot(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    state = model.new_state()
    go_on(model, state, random_ids(model, 100, seed=2))
    snapshot = state.snapshot()
    before = contents(thawed(model, snapshot))
    for tokens in (1, 1, 7, 300, 1):
        go_on(model, state, random_ids(model, tokens, seed=tokens))
    assert snapshot.position == 100
    assert same(contents(thawed(model, snapshot)), before)


@pytest.mark.parametrize("recipe", BOTH_KINDS, ids=by_name)
def test_two_branches_of_one_snapshot_do_not_disturb_each_other(shop: Shop, recipe: Recipe):
    model = shop.model(recipe)
    trunk, left, right = (random_ids(model, n, seed=n) for n in (90, 75, 140))

    def straight(branch: list[int]) -> list[mx.array]:
        state = model.new_state()
        go_on(model, state, trunk)
        for start in range(0, len(branch), 25):
            go_on(model, state, branch[start : start + 25])
        return contents(state)

    state = model.new_state()
    go_on(model, state, trunk)
    snapshot = state.snapshot()
    one, two = thawed(model, snapshot), thawed(model, snapshot)
    for start in range(0, 140, 25):  # in turns, so that both append to what they share
        for branch, sequence in ((one, left), (two, right)):
            if sequence[start : start + 25]:
                go_on(model, branch, sequence[start : start + 25])
    assert same(contents(one), straight(left))
    assert same(contents(two), straight(right))


def test_going_back_and_reading_something_else_forgets_the_first_branch(shop: Shop):
    model = shop.model(PLAIN)
    trunk, wrong, right = (random_ids(model, n, seed=n) for n in (64, 65, 66))
    state = model.new_state()
    go_on(model, state, trunk)
    snapshot = state.snapshot()
    go_on(model, state, wrong)
    state.restore(snapshot)
    fresh = model.new_state()
    go_on(model, fresh, trunk)
    assert same_bits(go_on(model, state, right), go_on(model, fresh, right))
    assert same(contents(state), contents(fresh))


def test_snapshots_taken_in_a_loop_each_restore_their_own_state(shop: Shop):
    model = shop.model(PLAIN)
    kept: list[tuple[Snapshot, list[mx.array]]] = []
    for seed in range(3):
        state = model.new_state()
        go_on(model, state, random_ids(model, 20 + seed, seed))
        kept.append((state.snapshot(), contents(state)))
    for snapshot, expected in kept:
        assert same(contents(thawed(model, snapshot)), expected)


def test_a_snapshot_costs_no_copy(shop: Shop):
    model = shop.model(PLAIN)
    state = model.new_state()
    go_on(model, state, random_ids(model, 500, seed=1))
    held = mx.get_active_memory()
    snapshots = [state.snapshot() for _ in range(50)]
    assert mx.get_active_memory() == held
    assert len(snapshots) == 50


def test_a_snapshot_of_another_model_is_refused(shop: Shop):
    small, large = shop.model(PLAIN), shop.model(NARROW)
    with pytest.raises(LedgerError, match="another number of layers"):
        small.new_state().restore(large.new_state().snapshot())


def test_layers_that_disagree_are_an_error_that_names_them(shop: Shop):
    state = shop.model(PLAIN).new_state()
    recurrent = state.layers[1]
    assert isinstance(recurrent, RecurrentState)
    recurrent.absorb(recurrent.window, recurrent.memory, 5)
    with pytest.raises(LedgerError, match="layer 0: 0, layer 1: 5, layer 2: 0"):
        _ = state.position
    with pytest.raises(LedgerError):
        state.snapshot()


def test_a_recurrent_state_below_float32_is_refused(shop: Shop):
    layer = shop.model(PLAIN).new_state().layers[0]
    assert isinstance(layer, RecurrentState)
    with pytest.raises(LedgerError, match="float32"):
        layer.absorb(layer.window, layer.memory.astype(mx.bfloat16), 1)


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=25))
@settings(max_examples=40)
def test_latents_of_any_tree_of_branches_are_those_of_their_own_path(steps: list[tuple[int, int]]):
    """Branches share one append-only buffer; whoever appends elsewhere than at its end gets a copy."""
    width = 3
    states = [LatentState(1, width, mx.float32)]
    paths: list[list[float]] = [[]]
    for number, (choice, rows) in enumerate(steps):
        origin = choice % len(states)
        state = states[origin].snapshot().thaw() if choice % 2 else states[origin]
        assert isinstance(state, LatentState)
        state.append(mx.full((1, rows, width), float(number + 1)))
        path = [*paths[origin], *[float(number + 1)] * rows]
        if choice % 2:
            states.append(state)
            paths.append(path)
        else:
            paths[origin] = path
    for state, path in zip(states, paths, strict=True):
        assert state.position == len(path)
        found = state.arrays()[0]
        assert found.shape == (1, len(path), width)
        assert found[0, :, 0].tolist() == path


def test_a_latent_buffer_grows_in_steps_and_keeps_its_rows():
    state = LatentState(1, 2, mx.float32)
    sizes: set[int] = set()
    for number in range(600):
        state.append(mx.full((1, 1, 2), float(number)))
        mx.eval(state.pending())
        sizes.add(state.nbytes)
    assert len(sizes) <= 3
    assert state.arrays()[0][0, :, 1].tolist() == [float(n) for n in range(600)]


def kda_layer(model: LanguageModel) -> KimiDeltaAttention:
    assert isinstance(model, KimiLinear)
    return next(b.attention for b in model.blocks if isinstance(b.attention, KimiDeltaAttention))


def mla_layer(model: LanguageModel) -> LatentAttention:
    assert isinstance(model, KimiLinear)
    return next(b.attention for b in model.blocks if isinstance(b.attention, LatentAttention))


def test_the_convolution_window_does_not_keep_the_chunk_alive():
    channels, tokens = 512, 2048
    convolution = ShortConvolution(mx.random.normal((4, channels), key=mx.random.key(0)))
    window = mx.zeros((1, 3, channels))
    mx.eval(window, convolution.taps)
    mx.clear_cache()
    held = mx.get_active_memory()
    kept: list[mx.array] = []
    for number in range(8):
        chunk = mx.random.normal((1, tokens, channels), key=mx.random.key(number))
        out, window = convolution(chunk, window, tokens)
        mx.eval(out, window)
        kept.append(window)
        del chunk, out
    grown = mx.get_active_memory() - held
    assert grown < 8 * (window.nbytes + (64 << 10)) < tokens * channels * 4


@pytest.mark.parametrize("valid", [1, 2, 3, 4, 7])
def test_the_convolution_window_holds_the_inputs_before_the_padding(valid: int):
    convolution = ShortConvolution(mx.random.normal((4, 5), key=mx.random.key(0)))
    before = mx.random.normal((1, 3, 5), key=mx.random.key(1))
    inputs = mx.random.normal((1, 7, 5), key=mx.random.key(2))
    _, window = convolution(inputs, before, valid)
    wanted = mx.concatenate([before, inputs[:, :valid]], axis=1)[:, -3:]
    assert same_bits(window, wanted)


@pytest.mark.parametrize("recipe", BOTH_KINDS, ids=by_name)
def test_attention_takes_no_notice_of_where_in_the_sequence_it_stands(shop: Shop, recipe: Recipe):
    """No position is encoded: the order of what was read before does not matter to attention."""
    layer = mla_layer(shop.model(recipe))
    key = mx.random.key(3)
    earlier = mx.random.normal((1, 64, recipe.hidden), key=key)
    now = mx.random.normal((1, 64, recipe.hidden), key=mx.random.key(4))

    def outputs(history: mx.array) -> mx.array:
        state = LatentState(1, recipe.rank + recipe.shared, mx.float32)
        layer(history, state, history.shape[1])
        return layer(now, state, now.shape[1])

    def turned(history: mx.array, by: int) -> mx.array:
        return mx.concatenate([history[:, by:], history[:, :by]], axis=1)

    straight = outputs(earlier)
    for by in (1, 17, 63):
        assert relative_gap(straight, outputs(turned(earlier, by))) < 1e-5


@pytest.mark.parametrize("recipe", BOTH_KINDS, ids=by_name)
def test_attention_over_a_repeated_history_equals_attention_over_one_copy(shop: Shop, recipe: Recipe):
    """Shifting everything by whole copies of the history changes no output: softmax sees equal keys."""
    layer = mla_layer(shop.model(recipe))
    block = mx.random.normal((1, 64, recipe.hidden), key=mx.random.key(5))

    def last(copies: int) -> mx.array:
        state = LatentState(1, recipe.rank + recipe.shared, mx.float32)
        for _ in range(copies - 1):
            layer(block, state, 64)
        return layer(block, state, 64)[:, -1]

    once, shifted = last(1), last(16)  # the last query, 960 positions further on
    assert relative_gap(once, shifted) < 1e-5


@pytest.mark.parametrize("start", [0, 64, 1, 130])
def test_one_token_at_a_time_and_many_at_once_are_the_same_attention(shop: Shop, start: int):
    """The absorbed form for one token against the expanded form for many."""
    layer = mla_layer(shop.model(WIDE))
    x = mx.random.normal((1, start + 64, WIDE.hidden), key=mx.random.key(6))

    def begin() -> LatentState:
        state = LatentState(1, WIDE.rank + WIDE.shared, mx.float32)
        for t in range(start):
            layer(x[:, t : t + 1], state, 1)
        return state

    together = layer(x[:, start:], begin(), 64)
    state = begin()
    singly = mx.concatenate([layer(x[:, t : t + 1], state, 1) for t in range(start, start + 64)], axis=1)
    assert relative_gap(together, singly) < 1e-5


def test_attention_never_builds_scores_of_all_heads_for_the_whole_prompt(shop: Shop):
    """Queries go in tiles: memory beside the inputs grows with the context, not with its square."""
    layer = mla_layer(shop.model(PLAIN))

    def extra(tokens: int) -> int:
        x = mx.random.normal((1, tokens, PLAIN.hidden), key=mx.random.key(7))
        mx.eval(x)
        mx.clear_cache()
        mx.reset_peak_memory()
        held = mx.get_active_memory()
        state = LatentState(1, PLAIN.rank + PLAIN.shared, mx.float32)
        mx.eval(layer(x, state, tokens))
        return mx.get_peak_memory() - held

    whole_scores = PLAIN.heads * 4096 * 4096 * 4
    assert extra(4096) < whole_scores / 4


def test_padding_rows_leave_the_state_of_a_kda_layer_untouched(shop: Shop):
    layer = kda_layer(shop.model(PLAIN))
    x = mx.random.normal((1, 64, PLAIN.hidden), key=mx.random.key(8))
    noise = mx.random.normal((1, 64, PLAIN.hidden), key=mx.random.key(9))

    def begin() -> RecurrentState:
        state = shop.model(PLAIN).new_state().layers[0]
        assert isinstance(state, RecurrentState)
        return state

    for valid in (2, 3, 30, 63):
        plain, padded = begin(), begin()
        layer(x, plain, valid)
        layer(mx.concatenate([x[:, :valid], noise[:, valid:]], axis=1), padded, valid)
        assert plain.position == padded.position == valid
        assert same_bits(plain.memory, padded.memory)
        assert same_bits(plain.window, padded.window)
