"""Random tiny Kimi Linear checkpoints, written the way published ones are.

A `Recipe` names a shape, a tensor layout, how the files are cut and how they are quantized; `write`
puts that folder on the disk. The same seed gives the same weights in every layout. Weights are of the
size a trained model has; the forget gates run from no decay at all to far below e^-5 a token.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import pytest

from engine.checkpoint.loader import load_model
from engine.checkpoint.weights import Numerics
from engine.models.base import LanguageModel

RESOURCES = Path(__file__).resolve().parents[2] / "resources"
DEMO_MODEL = RESOURCES / "demo-model"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
DEMO_VOCABULARY = 6144

Tensors = dict[str, mx.array]


@dataclass(frozen=True)
class Recipe:
    """A checkpoint to be. Layer numbers are 0-based; `mla` names the layers that are not KDA.

    Attributes:
        layout: "converted" (stacked experts, split kv_b_proj), "original" (as first published),
            "older" (converted, but kv_b_proj still whole) or "joined" (as transformers 5 saves it).
        shards: number of weight files; `index` adds model.safetensors.index.json.
        bits, group: affine quantization of every matrix whose rows are whole groups; 0 bits is dense.
        gate_bits: the quantization of the router that the config declares path by path.
        tokenizer: put the demo model's tokenizer and template into the folder.
        changes: fields of config.json to set, or to leave out (None stays None; use `without`).
    """

    name: str = "plain"
    seed: int = 0
    hidden: int = 64
    vocabulary: int = 192
    layers: int = 4
    mla: tuple[int, ...] = (3,)
    kda_heads: int = 2
    kda_width: int = 16
    kernel: int = 4
    heads: int = 2
    nope: int = 16
    shared: int = 8
    value: int = 16
    rank: int = 32
    intermediate: int = 96
    moe_intermediate: int = 32
    experts: int = 4
    top_k: int = 2
    groups: int = 1
    top_groups: int = 1
    shared_experts: int = 1
    first_dense: int = 1
    moe_every: int = 1
    renormalize: bool = True
    scaling: float = 1.5
    tied: bool = False
    window: int = 4096
    layout: Literal["converted", "original", "older", "joined"] = "converted"
    shards: int = 1
    index: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"
    bits: int = 0
    group: int = 32
    gate_bits: int = 8
    tokenizer: bool = False

    def but(self, name: str, **changes: Any) -> "Recipe":
        """This recipe under another name with some fields changed."""
        return replace(self, name=name, **changes)

    def is_moe(self, layer: int) -> bool:
        return self.experts > 0 and layer >= self.first_dense and layer % self.moe_every == 0


PLAIN = Recipe()
WIDE = Recipe(
    "wide",
    seed=1,
    layers=5,
    mla=(2, 4),
    kda_heads=3,
    kda_width=32,
    heads=4,
    nope=32,
    shared=16,
    value=8,
    rank=64,
    experts=8,
    groups=2,
    top_groups=1,
    shared_experts=2,
    first_dense=0,
    tied=True,
)
NARROW = Recipe(
    "narrow",
    seed=2,
    layers=6,
    mla=(1, 5),
    kda_heads=4,
    kda_width=8,
    nope=8,
    shared=4,
    value=24,
    rank=16,
    experts=6,
    shared_experts=0,
    first_dense=1,
    moe_every=2,
    renormalize=False,
)
DENSE_MLP = Recipe("no experts", seed=3, experts=0, mla=(1,), layers=4)
GROUPED = Recipe("groups of experts", seed=4, experts=8, groups=4, top_groups=2, layers=4, mla=(0,))
# Widths that are whole groups, so that embed_q, unembed_out and the low-rank gates are packed as well.
PACKABLE = Recipe(
    "packable", seed=5, kda_width=32, nope=32, shared=16, value=32, rank=64, moe_intermediate=64
)
SPOKEN = PLAIN.but("with a tokenizer", vocabulary=DEMO_VOCABULARY, tokenizer=True, seed=6)

SHAPES = (PLAIN, WIDE, NARROW, DENSE_MLP, GROUPED, PACKABLE)


def config_of(recipe: Recipe) -> dict[str, Any]:
    """config.json in the published spelling."""
    r = recipe
    config: dict[str, Any] = {
        "model_type": "kimi_linear",
        "architectures": ["KimiLinearForCausalLM"],
        "vocab_size": r.vocabulary,
        "hidden_size": r.hidden,
        "num_hidden_layers": r.layers,
        "num_attention_heads": r.heads,
        "num_key_value_heads": r.heads,
        "intermediate_size": r.intermediate,
        "moe_intermediate_size": r.moe_intermediate,
        "head_dim": r.hidden // r.heads,
        "hidden_act": "silu",
        "kv_lora_rank": r.rank,
        "q_lora_rank": None,
        "qk_nope_head_dim": r.nope,
        "qk_rope_head_dim": r.shared,
        "v_head_dim": r.value,
        "mla_use_nope": True,
        "linear_attn_config": {
            "kda_layers": [i + 1 for i in range(r.layers) if i not in r.mla],
            "full_attn_layers": [i + 1 for i in r.mla],
            "num_heads": r.kda_heads,
            "head_dim": r.kda_width,
            "short_conv_kernel_size": r.kernel,
        },
        "num_experts": r.experts,
        "num_experts_per_token": r.top_k,
        "num_shared_experts": r.shared_experts,
        "first_k_dense_replace": r.first_dense,
        "moe_layer_freq": r.moe_every,
        "moe_renormalize": r.renormalize,
        "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": r.scaling,
        "use_grouped_topk": True,
        "num_expert_group": r.groups,
        "topk_group": r.top_groups,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "model_max_length": r.window,
        "tie_word_embeddings": r.tied,
        "torch_dtype": r.dtype,
    }
    if r.bits:
        block: dict[str, Any] = {"group_size": r.group, "bits": r.bits}
        for i in filter(r.is_moe, range(r.layers)):
            block[f"model.layers.{i}.mlp.gate"] = {"group_size": r.group, "bits": r.gate_bits}
        config |= {"quantization": block, "quantization_config": block}
    return config


def _draws(seed: int) -> "Draws":
    return Draws(np.random.default_rng(seed))


@dataclass(frozen=True)
class Draws:
    """Random tensors of the sizes that trained weights have."""

    rng: np.random.Generator

    def matrix(self, *shape: int) -> mx.array:
        """Entries that keep the size of what they multiply."""
        return mx.array(self.rng.standard_normal(shape).astype(np.float32) * shape[-1] ** -0.5)

    def norm(self, *shape: int) -> mx.array:
        return mx.array(1.0 + 0.1 * self.rng.standard_normal(shape).astype(np.float32))

    def uniform(self, low: float, high: float, *shape: int) -> mx.array:
        return mx.array(self.rng.uniform(low, high, shape).astype(np.float32))


def tensors_of(recipe: Recipe) -> Tensors:
    """All tensors in the converted layout, dense float32."""
    r, draw = recipe, _draws(recipe.seed)
    tensors: Tensors = {
        "model.embed_tokens.weight": draw.uniform(-1.5, 1.5, r.vocabulary, r.hidden),
        "model.norm.weight": draw.norm(r.hidden),
    }
    if not r.tied:
        tensors["lm_head.weight"] = draw.matrix(r.vocabulary, r.hidden)
    for i in range(r.layers):
        name = f"model.layers.{i}"
        tensors[f"{name}.input_layernorm.weight"] = draw.norm(r.hidden)
        tensors[f"{name}.post_attention_layernorm.weight"] = draw.norm(r.hidden)
        attention = _mla_tensors(r, draw) if i in r.mla else _kda_tensors(r, draw)
        tensors |= {f"{name}.self_attn.{part}": array for part, array in attention.items()}
        mlp = _moe_tensors(r, draw) if r.is_moe(i) else _mlp_tensors(draw, r.hidden, r.intermediate)
        tensors |= {f"{name}.mlp.{part}": array for part, array in mlp.items()}
    return tensors


def _kda_tensors(r: Recipe, draw: Draws) -> Tensors:
    total, rank = r.kda_heads * r.kda_width, r.kda_width
    tensors: Tensors = {f"{p}_proj.weight": draw.matrix(total, r.hidden) for p in "qkv"}
    tensors |= {f"{p}_conv.conv.weight": draw.uniform(-0.7, 0.7, total, r.kernel, 1) for p in "qkv"}
    # One head that hardly forgets, one that forgets at once, the others between.
    scales = np.linspace(-7.0, np.log(16.0), r.kda_heads).astype(np.float32)
    return tensors | {
        "A_log": mx.array(scales).reshape(1, 1, r.kda_heads, 1),
        "dt_bias": draw.uniform(-6.0, 3.0, total),
        "f_a_proj.weight": draw.matrix(rank, r.hidden),
        "f_b_proj.weight": draw.matrix(total, rank),
        "g_a_proj.weight": draw.matrix(rank, r.hidden),
        "g_b_proj.weight": draw.matrix(total, rank),
        "b_proj.weight": draw.matrix(r.kda_heads, r.hidden),
        "o_norm.weight": draw.norm(r.kda_width),
        "o_proj.weight": draw.matrix(r.hidden, total),
    }


def _mla_tensors(r: Recipe, draw: Draws) -> Tensors:
    return {
        "q_proj.weight": draw.matrix(r.heads * (r.nope + r.shared), r.hidden),
        "kv_a_proj_with_mqa.weight": draw.matrix(r.rank + r.shared, r.hidden),
        "kv_a_layernorm.weight": draw.norm(r.rank),
        "embed_q.weight": draw.matrix(r.heads, r.rank, r.nope),
        "unembed_out.weight": draw.matrix(r.heads, r.value, r.rank),
        "o_proj.weight": draw.matrix(r.hidden, r.heads * r.value),
    }


def _mlp_tensors(draw: Draws, hidden: int, inner: int) -> Tensors:
    return {
        "gate_proj.weight": draw.matrix(inner, hidden),
        "up_proj.weight": draw.matrix(inner, hidden),
        "down_proj.weight": draw.matrix(hidden, inner),
    }


def _moe_tensors(r: Recipe, draw: Draws) -> Tensors:
    tensors: Tensors = {
        "gate.weight": draw.matrix(r.experts, r.hidden),
        "e_score_correction_bias": draw.uniform(-0.2, 0.2, r.experts),
        "switch_mlp.gate_proj.weight": draw.matrix(r.experts, r.moe_intermediate, r.hidden),
        "switch_mlp.up_proj.weight": draw.matrix(r.experts, r.moe_intermediate, r.hidden),
        "switch_mlp.down_proj.weight": draw.matrix(r.experts, r.hidden, r.moe_intermediate),
    }
    if r.shared_experts:
        shared = _mlp_tensors(draw, r.hidden, r.moe_intermediate * r.shared_experts)
        tensors |= {f"shared_experts.{part}": array for part, array in shared.items()}
    return tensors


def _whole_kv_b(tensors: Tensors) -> Tensors:
    """embed_q and unembed_out put back together as kv_b_proj."""
    found = dict(tensors)
    for name in [n for n in tensors if n.endswith(".embed_q.weight")]:
        module = name.removesuffix(".embed_q.weight")
        keys = found.pop(name).swapaxes(1, 2)
        both = mx.concatenate([keys, found.pop(f"{module}.unembed_out.weight")], axis=1)
        found[f"{module}.kv_b_proj.weight"] = both.reshape(-1, both.shape[-1])
    return found


def _as_published(tensors: Tensors) -> Tensors:
    """The original layout: one tensor per expert, convolutions [P, 1, K], other names."""
    experts = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    found: Tensors = {}
    for name, array in _whole_kv_b(tensors).items():
        moe = name.replace(".mlp.", ".block_sparse_moe.")
        if ".switch_mlp." in name:
            module, part = moe.split(".switch_mlp.")
            for number in range(array.shape[0]):
                found[f"{module}.experts.{number}.{experts[part.split('.')[0]]}.weight"] = array[number]
        elif ".shared_experts." in name or name.endswith(".mlp.gate.weight"):
            found[moe] = array
        elif name.endswith("e_score_correction_bias"):
            found[moe.replace(".e_score", ".gate.e_score")] = array
        elif name.endswith("_conv.conv.weight"):
            found[name.replace("_conv.conv.", "_conv1d.")] = array.swapaxes(1, 2)
        else:
            found[name] = array
    return found


def _as_saved_by_transformers(tensors: Tensors) -> Tensors:
    """Convolutions of q, k and v in one tensor [3P, 1, K], gate and up of all experts in one."""
    found: Tensors = {}
    for name, array in _whole_kv_b(tensors).items():
        module, _, part = name.rpartition(".self_attn.")
        if part in ("f_a_proj.weight", "f_b_proj.weight", "dt_bias", "A_log"):
            found[f"{module}.self_attn.forget_gate.{part}"] = array
        elif part == "q_conv.conv.weight":
            three = [tensors[f"{module}.self_attn.{p}_conv.conv.weight"] for p in "qkv"]
            found[f"{module}.self_attn.conv1d.weight"] = mx.concatenate(three).swapaxes(1, 2)
        elif name.endswith(".switch_mlp.gate_proj.weight"):
            stem = name.removesuffix(".switch_mlp.gate_proj.weight")
            both = [array, tensors[f"{stem}.switch_mlp.up_proj.weight"]]
            found[f"{stem}.experts.gate_up_proj"] = mx.concatenate(both, axis=1)
        elif name.endswith(".switch_mlp.down_proj.weight"):
            found[name.replace(".switch_mlp.", ".experts.").removesuffix(".weight")] = array
        elif not name.endswith((".switch_mlp.up_proj.weight", "_conv.conv.weight")):
            found[name.replace(".mlp.e_score", ".mlp.gate.e_score")] = array
    return found


_KEPT_FLOAT32 = ("A_log", "dt_bias", "e_score_correction_bias")
_NEVER_PACKED = ("norm.weight", "layernorm.weight", "conv.weight", "conv1d.weight")


def _cast(tensors: Tensors, dtype: str) -> Tensors:
    if dtype == "float32":
        return tensors
    return {
        name: array if name.endswith(_KEPT_FLOAT32) else array.astype(mx.bfloat16)
        for name, array in tensors.items()
    }


def _packed(tensors: Tensors, recipe: Recipe) -> Tensors:
    """Every matrix whose rows are whole groups, quantized; the router with its own number of bits."""
    found: Tensors = {}
    for name, array in tensors.items():
        dense = not name.endswith(".weight") or name.endswith(_NEVER_PACKED) or array.ndim < 2
        if dense or array.shape[-1] % recipe.group:
            found[name] = array
            continue
        bits = recipe.gate_bits if name.endswith("mlp.gate.weight") else recipe.bits
        module = name.removesuffix(".weight")
        parts = mx.quantize(array, group_size=recipe.group, bits=bits)
        found |= dict(zip((name, f"{module}.scales", f"{module}.biases"), parts, strict=True))
    return found


def stored_tensors(recipe: Recipe) -> Tensors:
    """The tensors as they stand in the files."""
    tensors = tensors_of(recipe)
    if recipe.layout == "original":
        tensors = _as_published(tensors)
    elif recipe.layout == "joined":
        tensors = _as_saved_by_transformers(tensors)
    elif recipe.layout == "older":
        tensors = _whole_kv_b(tensors)
    tensors = _cast(tensors, recipe.dtype)
    return _packed(tensors, recipe) if recipe.bits else tensors


def save(tensors: Mapping[str, mx.array], folder: Path, shards: int = 1, index: bool = False) -> None:
    """Write weight files the way publishers name them; neighbours go to different files."""
    names = [
        "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
        for i in range(shards)
    ]
    weight_map = {name: names[i % shards] for i, name in enumerate(tensors)}
    for file in names:
        held = {name: array for name, array in tensors.items() if weight_map[name] == file}
        mx.save_safetensors(str(folder / file), held, metadata={"format": "mlx"})
    if index:
        listed = json.dumps({"metadata": {}, "weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(listed, encoding="utf-8")


def write(recipe: Recipe, folder: Path) -> Path:
    """Write the checkpoint into `folder`, which is made; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config_of(recipe))
    save(stored_tensors(recipe), folder, recipe.shards, recipe.index)
    if recipe.tokenizer:
        for name in TOKENIZER_FILES:
            shutil.copy(DEMO_MODEL / name, folder)
    return folder


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def change_config(folder: Path, **fields: Any) -> None:
    """Set fields of a config.json that is already there."""
    path = folder / "config.json"
    write_config(folder, json.loads(path.read_text(encoding="utf-8")) | fields)


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, dtype: mx.Dtype = mx.float32) -> None:
    """Models loaded from now on take the forms of a GPU; with float32 activations only the forms differ."""
    monkeypatch.setattr(
        Numerics, "for_device", staticmethod(lambda config_dtype: Numerics(dtype, blocked=False))
    )


class Shop:
    """Writes and loads checkpoints once for a whole test session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[Recipe, Path] = {}
        self._models: dict[Recipe, LanguageModel] = {}

    def folder(self, recipe: Recipe) -> Path:
        """The checkpoint's folder; not to be changed by a test."""
        if recipe not in self._folders:
            self._folders[recipe] = write(recipe, self._root / str(len(self._folders)))
        return self._folders[recipe]

    def model(self, recipe: Recipe) -> LanguageModel:
        """The loaded model; it holds weights and nothing else, so tests may share it."""
        if recipe not in self._models:
            self._models[recipe] = load_model(self.folder(recipe)).model
        return self._models[recipe]


def decays_of(recipe: Recipe) -> Iterator[np.ndarray]:
    """Log-decays a token [H, D] of each KDA layer when its input says nothing."""
    tensors = tensors_of(recipe)
    for i in range(recipe.layers):
        if i not in recipe.mla:
            name = f"model.layers.{i}.self_attn"
            scale = np.exp(np.array(tensors[f"{name}.A_log"]).reshape(-1, 1))
            bias = np.array(tensors[f"{name}.dt_bias"]).reshape(recipe.kda_heads, recipe.kda_width)
            yield -scale * np.logaddexp(bias, 0.0)
