"""Writes a Kimi Linear checkpoint of random weights, for measurements: no download, the same bytes each time.

    python scripts/make_checkpoint.py OUT --shape slice --layers 4          # bfloat16, 4.7 GB
    python scripts/make_checkpoint.py OUT --shape slice --layers 4 --bits 4

`slice` has the widths of Kimi-Linear-48B-A3B with fewer layers and 64 of its 256 experts; `tiny` is the
same structure for tests. The files are what mlx-lm's conversion writes, without a tokenizer, which
measurements on token ids do not need. Only `mlx` is imported. One shard a layer, so the memory needed
is that of one layer. The same seed gives the same bytes on the same kind of device.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

# Typed here because some releases of MLX leave its parameters without types.
save_safetensors: Any = vars(mx)["save_safetensors"]

GROUP = 64
GATE_BITS = 8
"""mlx-lm always packs the router with 8 bits."""

_FLOAT32 = ("A_log", "dt_bias", "e_score_correction_bias")
_NEVER_PACKED = ("norm.weight", "conv.weight", "embed_q.weight", "unembed_out.weight")
"""Norms and convolutions, as in every conversion, and the two halves of kv_b_proj."""

Tensors = dict[str, mx.array]


@dataclass(frozen=True)
class Shape:
    """Widths of a checkpoint; `heads` and the widths beside it are those of MLA."""

    hidden: int
    vocabulary: int
    kda_heads: int
    kda_width: int
    heads: int
    nope: int
    shared: int
    value: int
    rank: int
    experts: int
    top_k: int
    moe_intermediate: int
    intermediate: int
    kernel: int = 4
    window: int = 1048576


SHAPES = {
    "slice": Shape(
        hidden=2304,
        vocabulary=163840,
        kda_heads=32,
        kda_width=128,
        heads=32,
        nope=128,
        shared=64,
        value=128,
        rank=512,
        experts=64,
        top_k=8,
        moe_intermediate=1024,
        intermediate=9216,
    ),
    "tiny": Shape(
        hidden=128,
        vocabulary=512,
        kda_heads=2,
        kda_width=64,
        heads=2,
        nope=64,
        shared=64,
        value=64,
        rank=128,
        experts=8,
        top_k=2,
        moe_intermediate=64,
        intermediate=192,
    ),
}


class Draws:
    """Random tensors of the sizes that trained weights have, one after another from one seed."""

    def __init__(self, seed: int) -> None:
        self._key = mx.random.key(seed)

    def uniform(self, low: float, high: float, *shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        """Evenly between two values."""
        self._key, key = mx.random.split(self._key)
        return mx.random.uniform(low, high, shape, dtype, key=key)

    def matrix(self, *shape: int) -> mx.array:
        """bfloat16 entries that keep the size of what they multiply: variance 1 / columns."""
        bound = math.sqrt(3.0 / shape[-1])
        return self.uniform(-bound, bound, *shape, dtype=mx.bfloat16)

    def norm(self, width: int) -> mx.array:
        """Near 1."""
        return self.uniform(0.8, 1.2, width)


def is_mla(layer: int) -> bool:
    """Three KDA layers to one MLA layer; layers count from 0."""
    return layer % 4 == 3


def config_of(shape: Shape, layers: int, bits: int) -> dict[str, Any]:
    """config.json; `bits` 0 is not quantized."""
    config: dict[str, Any] = {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "dtype": "bfloat16",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "kv_lora_rank": shape.rank,
        "q_lora_rank": None,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.shared,
        "v_head_dim": shape.value,
        "mla_use_nope": True,
        "linear_attn_config": {
            "kda_layers": [i + 1 for i in range(layers) if not is_mla(i)],
            "full_attn_layers": [i + 1 for i in range(layers) if is_mla(i)],
            "num_heads": shape.kda_heads,
            "head_dim": shape.kda_width,
            "short_conv_kernel_size": shape.kernel,
        },
        "num_experts": shape.experts,
        "num_experts_per_token": shape.top_k,
        "num_shared_experts": 1,
        "moe_intermediate_size": shape.moe_intermediate,
        "moe_layer_freq": 1,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.446,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "model_max_length": shape.window,
        "tie_word_embeddings": False,
        "bos_token_id": shape.vocabulary - 256,
        "eos_token_id": shape.vocabulary - 254,
    }
    if bits:
        block = _quantization(layers, bits)
        config |= {"quantization": block, "quantization_config": block}
    return config


def _quantization(layers: int, bits: int) -> dict[str, Any]:
    """The block that mlx-lm writes, with the modules that are packed otherwise or not at all."""
    block: dict[str, Any] = {"group_size": GROUP, "bits": bits, "mode": "affine"}
    for i in range(layers):
        if i > 0:
            block[f"model.layers.{i}.mlp.gate"] = {"group_size": GROUP, "bits": GATE_BITS}
        if is_mla(i):
            block[f"model.layers.{i}.self_attn.embed_q"] = False
            block[f"model.layers.{i}.self_attn.unembed_out"] = False
    return block


def layer_tensors(shape: Shape, layer: int, draw: Draws) -> Tensors:
    """All tensors of a layer, dense, in the converted layout."""
    name = f"model.layers.{layer}"
    tensors = {
        f"{name}.input_layernorm.weight": draw.norm(shape.hidden),
        f"{name}.post_attention_layernorm.weight": draw.norm(shape.hidden),
    }
    attention = _mla(shape, draw) if is_mla(layer) else _kda(shape, draw)
    tensors |= {f"{name}.self_attn.{part}": array for part, array in attention.items()}
    mlp = _moe(shape, draw) if layer else _mlp(shape.hidden, shape.intermediate, draw)
    return tensors | {f"{name}.mlp.{part}": array for part, array in mlp.items()}


def _kda(s: Shape, draw: Draws) -> Tensors:
    """A head forgets at a rate of 1 to 16 times softplus(.. + dt_bias), which starts at 0.001 to 0.1."""
    total, rank = s.kda_heads * s.kda_width, s.kda_width
    tensors = {f"{p}_proj.weight": draw.matrix(total, s.hidden) for p in "qkv"}
    tensors |= {f"{p}_conv.conv.weight": draw.uniform(-0.7, 0.7, total, s.kernel, 1) for p in "qkv"}
    step = mx.exp(draw.uniform(math.log(0.001), math.log(0.1), total))
    return tensors | {
        "A_log": mx.log(draw.uniform(1.0, 16.0, 1, 1, s.kda_heads, 1)),
        "dt_bias": step + mx.log(-mx.expm1(-step)),
        "f_a_proj.weight": draw.matrix(rank, s.hidden),
        "f_b_proj.weight": draw.matrix(total, rank),
        "g_a_proj.weight": draw.matrix(rank, s.hidden),
        "g_b_proj.weight": draw.matrix(total, rank),
        "b_proj.weight": draw.matrix(s.kda_heads, s.hidden),
        "o_norm.weight": draw.norm(s.kda_width),
        "o_proj.weight": draw.matrix(s.hidden, total),
    }


def _mla(s: Shape, draw: Draws) -> Tensors:
    return {
        "q_proj.weight": draw.matrix(s.heads * (s.nope + s.shared), s.hidden),
        "kv_a_proj_with_mqa.weight": draw.matrix(s.rank + s.shared, s.hidden),
        "kv_a_layernorm.weight": draw.norm(s.rank),
        "embed_q.weight": draw.matrix(s.heads, s.nope, s.rank).swapaxes(1, 2),
        "unembed_out.weight": draw.matrix(s.heads, s.value, s.rank),
        "o_proj.weight": draw.matrix(s.hidden, s.heads * s.value),
    }


def _mlp(hidden: int, inner: int, draw: Draws) -> Tensors:
    return {
        "gate_proj.weight": draw.matrix(inner, hidden),
        "up_proj.weight": draw.matrix(inner, hidden),
        "down_proj.weight": draw.matrix(hidden, inner),
    }


def _moe(s: Shape, draw: Draws) -> Tensors:
    shared = _mlp(s.hidden, s.moe_intermediate, draw)
    return {f"shared_experts.{part}": array for part, array in shared.items()} | {
        "gate.weight": draw.matrix(s.experts, s.hidden),
        "e_score_correction_bias": draw.uniform(-0.05, 0.05, s.experts),
        "switch_mlp.gate_proj.weight": draw.matrix(s.experts, s.moe_intermediate, s.hidden),
        "switch_mlp.up_proj.weight": draw.matrix(s.experts, s.moe_intermediate, s.hidden),
        "switch_mlp.down_proj.weight": draw.matrix(s.experts, s.hidden, s.moe_intermediate),
    }


def outer_tensors(shape: Shape, draw: Draws) -> Tensors:
    """Embedding, last norm and head."""
    return {
        "model.embed_tokens.weight": draw.uniform(
            -math.sqrt(3), math.sqrt(3), shape.vocabulary, shape.hidden, dtype=mx.bfloat16
        ),
        "model.norm.weight": draw.norm(shape.hidden),
        "lm_head.weight": draw.matrix(shape.vocabulary, shape.hidden),
    }


def stored(tensors: Tensors, bits: int) -> Tensors:
    """The tensors as they stand in the files: float32 where published so, the rest bfloat16 or packed."""
    found: Tensors = {}
    for name, array in tensors.items():
        if name.endswith(_FLOAT32):
            found[name] = array
        elif not bits or name.endswith(_NEVER_PACKED):
            found[name] = mx.contiguous(array.astype(mx.bfloat16))
        else:
            module = name.removesuffix(".weight")
            width = GATE_BITS if module.endswith("mlp.gate") else bits
            parts = mx.quantize(array.astype(mx.bfloat16), group_size=GROUP, bits=width)
            found |= dict(zip((name, f"{module}.scales", f"{module}.biases"), parts, strict=True))
    return found


def write(folder: Path, shape: Shape, layers: int, bits: int, seed: int) -> int:
    """Write the checkpoint into `folder`, which is made; returns the bytes of all tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = Draws(seed)
    shards = layers + 1
    weight_map: dict[str, str] = {}
    total = 0
    for i in range(shards):
        dense = layer_tensors(shape, i, draw) if i < layers else outer_tensors(shape, draw)
        tensors = stored(dense, bits)
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_safetensors(str(folder / file), tensors, metadata={"format": "mlx"})
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(array.nbytes for array in tensors.values())
        del dense, tensors
        mx.clear_cache()
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    config = json.dumps(config_of(shape, layers, bits), indent=2)
    (folder / "config.json").write_text(config, encoding="utf-8")
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and write."""
    parser = argparse.ArgumentParser(description="Write a random Kimi Linear checkpoint for measurements.")
    parser.add_argument("out", type=Path, help="folder to write, made if need be")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="slice")
    parser.add_argument("--layers", type=int, default=4, choices=range(4, 28), metavar="N", help="4 to 27")
    parser.add_argument("--bits", type=int, default=0, choices=(0, 4, 8), help="0 is bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    total = write(options.out, SHAPES[options.shape], options.layers, options.bits, options.seed)
    form = f"{options.bits}-bit" if options.bits else "bfloat16"
    print(f"{options.out}: {options.shape}, {options.layers} layers, {form}, {total / 1e9:.3f} GB")


if __name__ == "__main__":
    main()
