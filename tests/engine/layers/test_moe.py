"""Experts: chosen as written down, and the same outputs from every way of computing them."""

import os
import signal
import subprocess
import sys
from itertools import accumulate

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.layers import expert_groups
from engine.layers.expert_blocks import DenseExperts
from engine.layers.expert_groups import ExpertForms, GroupedExperts, plan_rounds
from engine.layers.expert_matrices import DenseMatrices, PackedMatrices, side_by_side
from engine.layers.linear import ROW_BLOCK, Linear
from engine.layers.moe import Experts, MixtureOfExperts, Router
from engine.scalars import as_ints
from tests.support.arrays import relative_gap, same_bits

HIDDEN, INNER, EXPERTS, TOP = 32, 64, 6, 2


def normal(seed: int, *shape: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)) * shape[-1] ** -0.5


def router(
    experts: int,
    top_k: int,
    groups: int = 1,
    top_groups: int = 1,
    *,
    renormalize: bool = True,
    bias: mx.array | None = None,
) -> Router:
    gate = Linear(normal(1, experts, HIDDEN) * 8)
    return Router(
        gate, normal(2, experts) if bias is None else bias, top_k, renormalize, 1.5, groups, top_groups
    )


def routed(r: Router, x: mx.array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chosen experts [N, k], their weights, and all scores and choices by NumPy."""
    chosen, weights = r(x)
    scores = 1.0 / (1.0 + np.exp(-np.array(x, np.float64) @ np.array(r.gate.weight, np.float64).T))
    return np.array(chosen), np.array(weights, np.float64), scores


@given(
    seed=st.integers(0, 10_000),
    per_group=st.integers(2, 4),
    groups=st.integers(1, 4),
    top_groups=st.integers(1, 4),
    top_k=st.integers(1, 4),
    renormalize=st.booleans(),
)
def test_the_best_experts_of_the_best_groups_are_chosen_and_weighed(
    seed: int, per_group: int, groups: int, top_groups: int, top_k: int, renormalize: bool
):
    assume(top_groups <= groups)
    assume(top_k <= per_group * top_groups)
    r = router(per_group * groups, top_k, groups, top_groups, renormalize=renormalize)
    chosen, weights, scores = routed(r, normal(seed, 5, HIDDEN) * 4)
    choice = scores + np.array(r.bias, np.float64)
    for row in range(5):
        rated = np.sort(choice[row].reshape(groups, per_group), axis=1)[:, -2:].sum(axis=1)
        kept = np.argsort(rated)[::-1][:top_groups]
        allowed = [e for e in range(per_group * groups) if e // per_group in kept]
        best = sorted(allowed, key=lambda e: -choice[row, e])[:top_k]
        assert set(chosen[row]) == set(best)
        own = scores[row, chosen[row]]  # without the bias, whatever it made of the choice
        total = own.sum() if renormalize and top_k > 1 else 1.0
        assert np.allclose(weights[row], 1.5 * own / total, rtol=1e-5)


def test_a_bias_changes_who_is_chosen_and_never_how_much_they_count():
    x = normal(5, 20, HIDDEN) * 4
    favoured = mx.array([10.0, 0.0, 0.0, 0.0])
    plain, biased = router(4, 1, bias=mx.zeros(4)), router(4, 1, bias=favoured)
    assert set(np.array(plain(x)[0]).ravel()) != {0}
    chosen, weights, scores = routed(biased, x)
    assert set(chosen.ravel()) == {0}
    assert np.allclose(weights[:, 0], 1.5 * scores[:, 0], rtol=1e-5)


def test_the_router_works_in_float32_whatever_its_input_is():
    x = normal(6, 50, HIDDEN) * 4
    r = router(EXPERTS, TOP)
    _, weights = r(x.astype(mx.bfloat16))
    assert weights.dtype == mx.float32
    assert relative_gap(r(x.astype(mx.bfloat16).astype(mx.float32))[1], weights) < 1e-6


# --- the forms ---


GATE, UP, DOWN = (
    normal(1, EXPERTS, INNER, HIDDEN),
    normal(2, EXPERTS, INNER, HIDDEN),
    normal(3, EXPERTS, HIDDEN, INNER),
)


def by_numpy(
    x: mx.array, chosen: mx.array, gate: mx.array = GATE, up: mx.array = UP, down: mx.array = DOWN
) -> mx.array:
    tokens, experts = np.array(x, np.float64), np.array(chosen)
    outputs = np.empty((*experts.shape, HIDDEN))
    for n, row in enumerate(experts):
        for place, expert in enumerate(row):
            g = np.array(gate[int(expert)], np.float64) @ tokens[n]
            u = np.array(up[int(expert)], np.float64) @ tokens[n]
            outputs[n, place] = np.array(down[int(expert)], np.float64) @ (g / (1 + np.exp(-g)) * u)
    return mx.array(outputs.astype(np.float32))


def dense() -> DenseExperts:
    gate_up = mx.concatenate([GATE, UP], axis=1).swapaxes(1, 2)
    return DenseExperts(mx.contiguous(gate_up), mx.contiguous(DOWN.swapaxes(1, 2)))


class WithThreeKindsOfRows(DenseExperts):
    """As for a BLAS that takes the rows of a block in three ways."""

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        rows = range(ROW_BLOCK)
        return tuple(r for r in rows if r % 4 == 1), tuple(r for r in rows if r % 4 > 1), tuple(rows[::4])


def with_three_kinds_of_rows() -> DenseExperts:
    return WithThreeKindsOfRows(dense().gate_up, dense().down)


def grouped(**forms: bool) -> GroupedExperts:
    gate_up = side_by_side(DenseMatrices(GATE), DenseMatrices(UP))
    return GroupedExperts(gate_up, DenseMatrices(DOWN), ExpertForms(**forms))


def outputs(experts: Experts, x: mx.array, chosen: mx.array) -> mx.array:
    """Each pair's own output [N, k, D]: the sum with the other weights zero."""
    each = [experts(x, chosen, mx.broadcast_to(row, chosen.shape)) for row in mx.eye(TOP)]
    return mx.stack(each, axis=1)


def chosen_for(rows: int, only: int | None = None) -> mx.array:
    drawn = mx.random.randint(0, EXPERTS, (rows, TOP), key=mx.random.key(rows)).astype(mx.int32)
    return drawn if only is None else mx.full((rows, TOP), only, mx.int32)


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("form", ["dense", "three kinds of rows", "grouped", "ordered", "batched"])
def test_every_form_gives_each_token_the_output_of_its_experts(rows: int, form: str):
    forms: dict[str, Experts] = {
        "dense": dense(),
        "three kinds of rows": with_three_kinds_of_rows(),
        "grouped": grouped(),
        "ordered": grouped(ordered=True),
        "batched": grouped(batched=True),
    }
    experts = forms[form]
    x = normal(rows, rows, HIDDEN) * 4
    for chosen in (chosen_for(rows), chosen_for(rows, only=3)):
        assert relative_gap(by_numpy(x, chosen), outputs(experts, x, chosen)) < 1e-5


@pytest.mark.parametrize("bits", [(4, 4), (8, 8), (4, 8)], ids=str)
@pytest.mark.parametrize("rows", [1, 33, 100])
@pytest.mark.parametrize("form", ["ordered", "batched", "batched, an expert at a time", "neither"])
def test_packed_experts_give_what_their_stored_weights_give(
    bits: tuple[int, int], rows: int, form: str, monkeypatch: pytest.MonkeyPatch
):
    if form.endswith("at a time"):
        monkeypatch.setattr(expert_groups, "UNPACKED_BYTES", 1)
    each = (bits[0], bits[1], bits[0])  # gate, up, down
    packed = [mx.quantize(w, group_size=32, bits=n) for w, n in zip((GATE, UP, DOWN), each, strict=True)]
    stored = [mx.dequantize(*p, group_size=32, bits=n) for p, n in zip(packed, each, strict=True)]
    gate, up, down = (PackedMatrices(*p, 32, n) for p, n in zip(packed, each, strict=True))
    forms = ExpertForms(ordered=form == "ordered", batched=form.startswith("batched"))
    experts = GroupedExperts(side_by_side(gate, up), down, forms)
    x, chosen = normal(rows, rows, HIDDEN) * 4, chosen_for(rows)
    assert relative_gap(by_numpy(x, chosen, *stored), outputs(experts, x, chosen)) < 1e-5


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=300))
def test_rounds_take_every_row_once_and_little_else(counts: list[int]):
    rounds = plan_rounds(counts)
    taken = [0] * len(counts)
    for round_ in rounds:
        for expert in round_.experts:
            assert round_.offset == taken[expert]  # nothing left out, nothing twice
            taken[expert] += round_.rows
    assert rounds[0].experts == tuple(range(len(counts)))
    assert all(rows >= count for rows, count in zip(taken, counts, strict=True))
    for round_ in rounds:
        left = sum(counts[e] - round_.offset for e in round_.experts)
        assert round_.rows <= 1.5 * left / len(round_.experts) + 33


@pytest.mark.parametrize("cut", [64, 128])
def test_a_token_s_output_does_not_depend_on_its_neighbours_by_a_single_bit(cut: int):
    x, chosen = normal(7, 192, HIDDEN), chosen_for(192)
    experts = dense()
    weights = mx.abs(normal(8, *chosen.shape))
    whole = experts(x, chosen, weights)
    parts = [experts(x[part], chosen[part], weights[part]) for part in (slice(cut), slice(cut, None))]
    assert same_bits(whole, mx.concatenate(parts, axis=0))


def test_a_token_s_rows_are_of_its_own_kind_whatever_else_is_read():
    """Placed by number: an expert that returns the row's kind shows where each token was."""
    experts = with_three_kinds_of_rows()
    kind_of = {row: kind for kind, rows in enumerate(experts.places) for row in rows}
    chosen = chosen_for(200)
    order, places, blocks = experts._placing(chosen)
    assert sorted(as_ints(order)) == list(range(chosen.size))
    rows = as_ints(places)
    assert len(set(rows)) == len(rows)
    assert max(rows) < sum(blocks) * ROW_BLOCK
    firsts = list(accumulate(blocks, initial=0))
    flat = as_ints(chosen.reshape(-1))
    for pair, row in zip(as_ints(order), rows, strict=True):
        assert kind_of[row % ROW_BLOCK] == kind_of[pair // TOP % ROW_BLOCK]
        assert firsts[flat[pair]] <= row // ROW_BLOCK < firsts[flat[pair] + 1]


@pytest.mark.skipif(sys.platform != "linux", reason="OpenBLAS serves MLX on Linux only")
@pytest.mark.parametrize("kernels", ["Haswell", "Zen", "SkylakeX", "Sandybridge"])
def test_no_bit_depends_on_neighbours_with_the_blas_kernels_of_another_processor(kernels: str):
    """What a BLAS does with a block's rows differs by processor; a machine that cannot run it says so."""
    code = """
from tests.engine.layers.test_moe import *
for cut in (64, 128):
    test_a_token_s_output_does_not_depend_on_its_neighbours_by_a_single_bit(cut)
print("kinds of rows:", len(dense().places))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_CORETYPE": kernels},
        check=False,
    )
    if run.returncode == -signal.SIGILL:
        pytest.skip(f"this processor cannot run the kernels for {kernels}")
    assert run.returncode == 0, run.stderr
    assert "kinds of rows:" in run.stdout


def test_a_mixture_is_the_weighted_sum_of_its_experts():
    x = normal(8, 70, HIDDEN)[None]
    r = router(EXPERTS, TOP)
    chosen, weights = r(x[0])
    wanted = (by_numpy(x[0], chosen) * weights[..., None]).sum(axis=1)[None]
    assert relative_gap(wanted, MixtureOfExperts(r, dense(), None)(x)) < 1e-5
