"""The same weights in every published form give the same model."""

import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from engine.checkpoint.loader import load_model
from engine.models.base import LanguageModel
from engine.models.kimi_linear import KimiLinear
from engine.planning.tuning import random_ids
from tests.support.arrays import largest, relative_gap, same_bits
from tests.support.checkpoints import (
    NARROW,
    PACKABLE,
    PLAIN,
    SHAPES,
    WIDE,
    Recipe,
    Shop,
    change_config,
    config_of,
    decays_of,
    save,
    stored_tensors,
    tensors_of,
    write_config,
)


def logits(model: LanguageModel, tokens: int = 70) -> mx.array:
    return model(mx.array([random_ids(model, tokens, seed=1)], mx.int32), model.new_state())


def loaded(tmp_path: Path, recipe: Recipe, tensors: dict[str, mx.array]) -> LanguageModel:
    write_config(tmp_path, config_of(recipe))
    save(tensors, tmp_path)
    return load_model(tmp_path).model


def test_the_random_checkpoints_forget_at_every_speed():
    """Decays from none to far below e^-5 a token, as in a trained model."""
    for recipe in SHAPES:
        decays = [decay for layer in decays_of(recipe) for decay in layer.flatten()]
        assert max(decays) > -1e-4
        assert min(decays) < -20
        assert sum(-5 < decay < -0.01 for decay in decays) > 3


@pytest.mark.parametrize("recipe", SHAPES, ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("layout", ["original", "older", "joined"])
def test_layouts_load_to_the_same_bits(shop: Shop, recipe: Recipe, layout: str):
    other = shop.model(recipe.but(f"{recipe.name}, {layout}", layout=layout))
    assert same_bits(logits(shop.model(recipe)), logits(other))


@pytest.mark.parametrize(("shards", "index"), [(1, True), (3, True), (3, False), (7, True)])
@pytest.mark.parametrize("layout", ["converted", "original"])
def test_one_file_or_many_with_or_without_an_index(shop: Shop, shards: int, index: bool, layout: str):
    cut = PLAIN.but(f"{shards} files", shards=shards, index=index, layout=layout)
    assert same_bits(logits(shop.model(PLAIN)), logits(shop.model(cut)))


@pytest.mark.parametrize("recipe", [PLAIN, PACKABLE], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("gate_bits", [4, 8])
def test_quantized_weights_are_those_that_were_stored(
    shop: Shop, tmp_path: Path, recipe: Recipe, bits: int, gate_bits: int
):
    """Equal to a dense checkpoint of the dequantized matrices, with the router's own number of bits."""
    packed = recipe.but("packed", bits=bits, gate_bits=gate_bits)
    stored = stored_tensors(packed)
    dense = {name: array for name, array in stored.items() if not name.endswith((".scales", ".biases"))}
    for name in [n for n in stored if n.endswith(".scales")]:
        module = name.removesuffix(".scales")
        dense[f"{module}.weight"] = mx.dequantize(
            stored[f"{module}.weight"],
            stored[name],
            stored[f"{module}.biases"],
            group_size=packed.group,
            bits=gate_bits if module.endswith("mlp.gate") else bits,
        )
    assert relative_gap(logits(loaded(tmp_path, recipe, dense)), logits(shop.model(packed))) < 1e-5
    error = relative_gap(logits(shop.model(recipe)), logits(shop.model(packed)))
    assert error > 1e-4  # quantization did something


def test_the_halves_of_kv_b_proj_may_be_packed_or_their_whole(shop: Shop):
    halves = PACKABLE.but("packed halves", bits=8)
    whole = PACKABLE.but("packed whole", bits=8, layout="older")
    assert {n.rpartition(".")[2] for n in stored_tensors(whole) if "kv_b_proj" in n} == {
        "weight",
        "scales",
        "biases",
    }
    assert any(n.endswith("embed_q.scales") for n in stored_tensors(halves))
    exact = logits(shop.model(PACKABLE))
    assert relative_gap(exact, logits(shop.model(halves))) < 0.05
    assert relative_gap(exact, logits(shop.model(whole))) < 0.05


def test_groups_of_64_load_as_well(shop: Shop):
    exact = logits(shop.model(PLAIN))
    packed = logits(shop.model(PLAIN.but("groups of 64", bits=8, group=64)))
    assert 1e-5 < relative_gap(exact, packed) < 0.05


def test_a_module_the_config_leaves_dense_may_stay_dense(shop: Shop, tmp_path: Path):
    recipe = PACKABLE.but("head left dense", bits=8)
    tensors = stored_tensors(recipe)
    for part in ("scales", "biases"):
        del tensors[f"lm_head.{part}"]
    tensors["lm_head.weight"] = tensors_of(recipe)["lm_head.weight"]
    model = loaded(tmp_path, recipe, tensors)
    block = config_of(recipe)["quantization"] | {"lm_head": False}
    change_config(tmp_path, quantization=block, quantization_config=block)
    assert same_bits(logits(model), logits(load_model(tmp_path).model))


@pytest.mark.parametrize("shape", [(1, 1, 2, 1), (2,), (2, 1)])
def test_the_decay_scales_come_in_three_shapes(shop: Shop, tmp_path: Path, shape: tuple[int, ...]):
    tensors = {n: a.reshape(shape) if n.endswith("A_log") else a for n, a in stored_tensors(PLAIN).items()}
    assert same_bits(logits(shop.model(PLAIN)), logits(loaded(tmp_path, PLAIN, tensors)))


def test_the_decay_biases_may_stand_by_head(shop: Shop, tmp_path: Path):
    tensors = {n: a.reshape(2, 16) if n.endswith("dt_bias") else a for n, a in stored_tensors(PLAIN).items()}
    assert same_bits(logits(shop.model(PLAIN)), logits(loaded(tmp_path, PLAIN, tensors)))


def test_layouts_may_be_mixed(shop: Shop, tmp_path: Path):
    old = stored_tensors(PLAIN.but("original", layout="original"))
    new = stored_tensors(PLAIN)
    mixed = {n: a for n, a in old.items() if ".layers.0." in n or ".layers.1." in n}
    mixed |= {n: a for n, a in new.items() if ".layers.0." not in n and ".layers.1." not in n}
    assert same_bits(logits(shop.model(PLAIN)), logits(loaded(tmp_path, PLAIN, mixed)))


def test_the_newer_spelling_of_the_config_is_read(shop: Shop, tmp_path: Path):
    renamed = {
        "num_experts": "n_routed_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group",
        "model_max_length": "max_position_embeddings",
    }
    config = {renamed.get(name, name): value for name, value in config_of(NARROW).items()}
    save(stored_tensors(NARROW), tmp_path)
    write_config(tmp_path, config)
    model = load_model(tmp_path).model
    assert model.context_window == NARROW.window
    assert same_bits(logits(shop.model(NARROW)), logits(model))


def test_fields_the_mathematics_does_not_use_may_be_absent(shop: Shop, tmp_path: Path):
    optional = {"head_dim", "rope_theta", "rope_scaling", "model_max_length", "moe_layer_freq", "topk_group"}
    config = {name: value for name, value in config_of(PLAIN).items() if name not in optional}
    save(stored_tensors(PLAIN), tmp_path)
    write_config(tmp_path, config)
    assert same_bits(logits(shop.model(PLAIN)), logits(load_model(tmp_path).model))


def test_tensors_that_are_known_and_not_needed_are_left_alone(shop: Shop, tmp_path: Path):
    tensors = stored_tensors(WIDE) | {
        "model.mtp.layers.0.weight": mx.ones((3,)),
        "lm_head.weight": mx.zeros((WIDE.vocabulary, WIDE.hidden)),  # WIDE is tied
    }
    assert same_bits(logits(shop.model(WIDE)), logits(loaded(tmp_path, WIDE, tensors)))


def test_a_tied_head_is_the_embedding(shop: Shop):
    model = shop.model(WIDE)
    assert isinstance(model, KimiLinear)
    assert same_bits(model.embedding, getattr(model.head, "weight"))  # noqa: B009


def test_half_precision_weights_are_close_to_exact_ones(shop: Shop):
    half = shop.model(PLAIN.but("half", dtype="bfloat16"))
    assert 1e-5 < relative_gap(logits(shop.model(PLAIN)), logits(half)) < 0.1


@pytest.mark.parametrize("recipe", SHAPES, ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("layout", ["converted", "original"])
def test_parameters_are_counted_the_same_in_every_layout(shop: Shop, recipe: Recipe, layout: str):
    recipe = recipe.but(f"{recipe.name}, {layout}", layout=layout)
    wanted = sum(array.size for array in tensors_of(recipe).values())
    assert load_model(shop.folder(recipe)).parameters == wanted


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_integers_count_as_the_values_they_hold(shop: Shop, bits: int):
    recipe = PACKABLE.but("packed", bits=bits, gate_bits=8)
    found = load_model(shop.folder(recipe))
    assert found.parameters == sum(array.size for array in tensors_of(recipe).values())
    assert found.quantization == f"{bits}-bit"


def test_what_is_known_of_a_loaded_model(shop: Shop):
    found = load_model(shop.folder(PLAIN))
    assert found.quantization == "not quantized"
    assert found.folder == shop.folder(PLAIN)
    assert found.weight_bytes >= 4 * found.parameters
    assert found.config["model_type"] == "kimi_linear"


def test_a_folder_may_be_moved_away_once_its_model_is_loaded(shop: Shop, tmp_path: Path):
    folder = shutil.copytree(shop.folder(PLAIN), tmp_path / "model")
    model = load_model(folder).model
    shutil.rmtree(folder)
    assert same_bits(logits(model), logits(shop.model(PLAIN)))
    assert largest(logits(model)) > 0
