"""Counted work, against a count that walks every layer, head, token and pair."""

import pytest

from engine.models.kimi_linear import KimiLinearConfig
from engine.planning.roofline import (
    Ceilings,
    Form,
    Work,
    decode_parts,
    expected_experts,
    limit_seconds,
    prefill_parts,
)
from tests.support.checkpoints import DENSE_MLP, PLAIN, WIDE, Recipe, config_of

FORM = Form(weight_bits=4.5, activation_bytes=2)


def parsed(recipe: Recipe) -> KimiLinearConfig:
    return KimiLinearConfig.parse(config_of(recipe))


def matrices(c: KimiLinearConfig, layer: int) -> dict[str, list[tuple[int, int]]]:
    """The matrices that one token passes in a layer, by part."""
    p, r = c.kda_heads * c.kda_width, c.kda_width
    if layer in c.kda_layers:
        found = [(c.hidden, p)] * 3 + [(c.hidden, r), (c.hidden, r), (c.hidden, c.kda_heads)]
        projections = [*found, (r, p), (r, p), (p, c.hidden)]
    else:
        projections = [
            (c.hidden, c.heads * (c.nope + c.shared)),
            (c.hidden, c.rank + c.shared),
            (c.heads * c.value, c.hidden),
        ]

    def gated(inner: int) -> list[tuple[int, int]]:
        return [(c.hidden, inner), (c.hidden, inner), (inner, c.hidden)]

    if not c.is_moe(layer):
        return {"projections": projections, "dense MLP": gated(c.intermediate)}
    experts = [matrix for _ in range(c.top_k) for matrix in gated(c.moe_intermediate)]
    found = {"projections": projections, "router": [(c.hidden, c.experts)], "experts": experts}
    if c.shared_experts:
        found["shared expert"] = gated(c.moe_intermediate * c.shared_experts)
    return found


def block_flops(c: KimiLinearConfig, tokens: int, block: int) -> int:
    """The delta rule of one layer in blocks, entry by entry."""
    macs, d = 0, c.kda_width
    for _head in range(c.kda_heads):
        for start in range(0, tokens, block):
            rows = range(min(block, tokens - start))
            for i in rows:
                macs += 3 * d * d
                for j in range(i + 1):
                    macs += d  # query and key
                    macs += 2 * d  # the inverse applied to a key and to a value
                    macs += d  # the weight applied to what is written
                    if j < i:
                        macs += d  # key and key
                        macs += sum(1 for between in rows if j < between < i)  # the inverse itself
    return 2 * macs


@pytest.mark.parametrize("recipe", [PLAIN, WIDE, DENSE_MLP], ids=lambda r: r.name)
@pytest.mark.parametrize("slices", [((0, 10),), ((0, 8), (8, 13)), ((5, 12),)], ids=str)
def test_flops_of_a_prefill_are_those_of_a_count_by_hand(recipe: Recipe, slices: tuple[tuple[int, int], ...]):
    c, wanted = parsed(recipe), {"head": 2 * recipe.hidden * recipe.vocabulary}

    def add(name: str, flops: int) -> None:
        wanted[name] = wanted.get(name, 0) + flops

    for start, end in slices:
        for layer in range(c.layers):
            for _token in range(start, end):
                for name, shapes in matrices(c, layer).items():
                    add(name, sum(2 * a * b for a, b in shapes))
            if layer in c.kda_layers:
                add("delta rule", block_flops(c, end - start, 4))
                continue
            for _head in range(c.heads):
                for _row in range(end):
                    add("expanding latents", 2 * c.rank * (c.nope + c.value))
                for query in range(start, end):
                    for _key in range(query + 1):
                        add("attention", 2 * (c.nope + c.shared + c.value))
    found = prefill_parts(c, FORM, slices, block=4)
    assert {name: work.flops for name, work in found.items()} == wanted


@pytest.mark.parametrize("recipe", [PLAIN, WIDE, DENSE_MLP], ids=lambda r: r.name)
def test_a_decoded_step_reads_each_active_weight_state_and_latent_once(recipe: Recipe):
    c, context = parsed(recipe), 9
    nbytes = {"head": c.hidden * c.vocab_size * 4.5 / 8 + 2 * (c.hidden + c.vocab_size)}
    flops: dict[str, float] = {"head": 2 * c.hidden * c.vocab_size}

    def add(name: str, operations: float, moved: float) -> None:
        flops[name] = flops.get(name, 0) + operations
        nbytes[name] = nbytes.get(name, 0) + moved

    for layer in range(c.layers):
        for name, shapes in matrices(c, layer).items():
            bits = 32 if name == "router" else 4.5
            for inner, out in shapes:
                add(name, 2 * inner * out, inner * out * bits / 8)
        if layer in c.kda_layers:
            for _head in range(c.kda_heads):
                d = c.kda_width
                add("delta rule", d * d * (1 + 2 + 2 + 2), 2 * d * d * 4 + 4 * d * 2 + (d + 1) * 4)
            continue
        for _head in range(c.heads):
            add("attention", 2 * c.rank * (c.nope + c.value), 2 * c.rank * (c.nope + c.value))
            add("attention", 0, 2 * (c.nope + 2 * c.rank + c.value))  # in and out of the two products
            for _row in range(context + 1):
                add("attention", 2 * (c.rank + c.shared) + 2 * c.rank, 0)
        add("attention", 0, (context + 2) * (c.rank + c.shared) * 2)  # all read, the new one written
    found = decode_parts(c, FORM, context)
    assert {name: work.flops for name, work in found.items()} == flops
    exact = {"head", "delta rule", "attention"}
    assert {n: found[n].nbytes for n in exact & set(found)} == pytest.approx({n: nbytes[n] for n in exact})
    for name in set(found) - exact:  # beside the weights a few vectors pass
        assert nbytes[name] < found[name].nbytes < nbytes[name] + 2 * c.layers * 64 * (c.hidden + 512)


def test_weights_are_read_once_a_slice():
    c = parsed(PLAIN)
    one, two = (prefill_parts(c, FORM, s)["projections"] for s in (((0, 128),), ((0, 64), (64, 128))))
    weights = sum(a * b * 4.5 / 8 for layer in range(c.layers) for a, b in matrices(c, layer)["projections"])
    assert two.flops == one.flops
    assert two.nbytes - one.nbytes == pytest.approx(weights)


def test_packed_weights_bring_their_scales():
    assert Form.packed(4, 64, 2) == Form(4.5, 2)
    assert Form.dense(4) == Form(32, 4)


def test_few_tokens_touch_few_experts():
    assert expected_experts(8, 2, 1) == pytest.approx(2)
    assert expected_experts(8, 2, 2) == pytest.approx(3.5)
    assert expected_experts(8, 2, 1000) == pytest.approx(8)


def test_each_part_is_bound_by_the_slower_of_computing_and_moving():
    ceilings = Ceilings(flops_per_second=10, bytes_per_second=5, dtype="float32")
    assert limit_seconds({"a": Work(100, 10), "b": Work(10, 20)}, ceilings) == 10 + 4
