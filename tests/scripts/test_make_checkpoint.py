"""Checkpoints made for measurements load in both engines and mean the same to them."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx_lm.utils
import pytest
from mlx_lm.models.cache import make_prompt_cache

from engine.checkpoint.loader import load_model
from engine.planning.tuning import random_ids
from engine.scalars import as_float
from tests.support.arrays import relative_gap

TOLERANCE = 1e-4
SEED = 11


@pytest.fixture(scope="module")
def maker(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_checkpoint", root / "scripts" / "make_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=[0, 4], ids=["bfloat16", "4 bits"])
def folder(
    request: pytest.FixtureRequest, maker: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    maker.main(
        [str(made), "--shape", "tiny", "--layers", "5", "--bits", str(request.param), "--seed", str(SEED)]
    )
    return made


def in_float32(folder: Path, out: Path) -> Path:
    """The same numbers without bfloat16, so that neither engine rounds: scales and dense weights widened."""
    out.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"dtype": "float32"}
    (out / "config.json").write_text(json.dumps(config))
    for file in folder.glob("*.safetensors"):
        tensors: Any = mx.load(str(file))
        wide = {n: a.astype(mx.float32) if a.dtype == mx.bfloat16 else a for n, a in tensors.items()}
        mx.save_safetensors(str(out / file.name), wide)
    return out


def oracle(folder: Path) -> Any:
    """mlx-lm's model with the epsilon of the original implementations."""
    model: Any = mlx_lm.utils.load_model(folder)[0]
    for layer in model.layers:
        if hasattr(layer.self_attn, "kv_a_layernorm"):
            layer.self_attn.kv_a_layernorm.eps = 1e-6
    return model


def test_both_engines_compute_the_same_logits(folder: Path, tmp_path: Path):
    wide = in_float32(folder, tmp_path / "wide")
    ours, theirs = load_model(wide).model, oracle(wide)
    state, cache = ours.new_state(), make_prompt_cache(theirs)
    for length in (150, 1, 1):
        ids = mx.array([random_ids(ours, length, seed=length)], mx.int32)
        wanted = theirs(ids, cache=cache)[:, -1].astype(mx.float32)
        assert relative_gap(wanted, ours(ids, state)) < TOLERANCE


def test_other_weights_give_other_logits(folder: Path, maker: ModuleType, tmp_path: Path):
    """So the comparison above is not one of constants."""
    bits = json.loads((folder / "config.json").read_text()).get("quantization", {}).get("bits", 0)
    maker.main([str(tmp_path), "--shape", "tiny", "--layers", "5", "--bits", str(bits), "--seed", "12"])
    ours, other = load_model(folder).model, load_model(tmp_path).model
    ids = mx.array([random_ids(ours, 20, seed=1)], mx.int32)
    assert relative_gap(ours(ids, ours.new_state()), other(ids, other.new_state())) > 0.1


def test_the_same_seed_gives_the_same_bytes(folder: Path, maker: ModuleType, tmp_path: Path):
    bits = json.loads((folder / "config.json").read_text()).get("quantization", {}).get("bits", 0)
    maker.main([str(tmp_path), "--shape", "tiny", "--layers", "5", "--bits", str(bits), "--seed", str(SEED)])
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 5 + 1 + 2
    assert files == sorted(path.name for path in tmp_path.iterdir())
    assert all((folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in files)


def test_the_slice_has_the_published_widths_and_names_each_layer_once(maker: ModuleType):
    config = maker.config_of(maker.SHAPES["slice"], 8, 4)
    linear = config["linear_attn_config"]
    assert linear["kda_layers"] == [1, 2, 3, 5, 6, 7]
    assert linear["full_attn_layers"] == [4, 8]
    assert (config["hidden_size"], config["vocab_size"], config["num_experts"]) == (2304, 163840, 64)
    gates = [name for name in config["quantization"] if name.endswith("mlp.gate")]
    assert gates == [f"model.layers.{i}.mlp.gate" for i in range(1, 8)]


def test_decays_are_of_real_magnitude(folder: Path):
    """With no input a head keeps between e^-1.7 and e^-0.001 of its memory a token."""
    tensors: Any = mx.load(str(folder / "model-00001-of-00006.safetensors"))
    rate = mx.exp(tensors["model.layers.0.self_attn.A_log"].reshape(-1, 1))
    bias = tensors["model.layers.0.self_attn.dt_bias"]
    decay = rate * mx.logaddexp(bias.reshape(rate.shape[0], -1), mx.array(0.0))
    assert bias.dtype == rate.dtype == mx.float32
    assert 0.0009 < as_float(decay.min()) < as_float(decay.max()) < 1.7
