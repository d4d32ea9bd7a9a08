"""Brings both published tensor layouts of Kimi Linear to one: the converted (MLX) layout.

The original checkpoints name the MoE `block_sparse_moe`, keep one tensor per expert, store the
convolutions as [P, 1, K] under `*_conv1d` and the two halves of kv_b_proj together. Older
conversions still have kv_b_proj. Folders saved by transformers 5 join the three convolutions and the
experts' gate and up. Every rule looks at what is there, so mixtures load too.
"""

import re
from typing import TYPE_CHECKING

import mlx.core as mx

from engine.checkpoint.weights import WeightReader

if TYPE_CHECKING:
    from engine.models.kimi_linear import KimiLinearConfig

_EXPERT = re.compile(r"(.+\.mlp)\.experts\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj)\.(\w+)$")
_EXPERT_PART = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def canonical_tensors(config: "KimiLinearConfig", weights: WeightReader) -> WeightReader:
    """`weights` with every tensor under its converted name and in its converted layout."""
    for name in list(weights.names()):
        if name.startswith(("model.mtp", "mtp.")) or (config.tied and name.startswith("lm_head.")):
            weights.ignore(name)
        elif ".block_sparse_moe." in name:
            weights.rename(name, name.replace(".block_sparse_moe.", ".mlp."))
    for name in list(weights.names()):
        if name.endswith(".mlp.gate.e_score_correction_bias"):
            weights.rename(name, name.replace(".gate.e_score", ".e_score"))
        elif name.endswith("_conv1d.weight"):
            weights.rename(name, name.replace("_conv1d.weight", "_conv.conv.weight"))
    for name in list(weights.names()):
        if ".self_attn.forget_gate." in name:
            weights.rename(name, name.replace(".forget_gate.", "."))
        elif name.endswith(".self_attn.conv1d.weight"):
            _split_rows(weights, name, [name.replace("conv1d", f"{p}_conv.conv") for p in "qkv"])
        elif name.endswith(".mlp.experts.gate_up_proj"):
            stem = name.replace(".experts.gate_up_proj", ".switch_mlp.")
            _split_rows(weights, name, [f"{stem}gate_proj.weight", f"{stem}up_proj.weight"])
        elif name.endswith(".mlp.experts.down_proj"):
            weights.rename(name, name.replace(".experts.", ".switch_mlp.") + ".weight")
    for name in list(weights.names()):
        if name.endswith("_conv.conv.weight"):
            _time_first(weights, name, config.kernel)
    _stack_experts(weights)
    for i in range(config.layers):
        if i not in config.kda_layers:
            _split_kv_b(config, weights, f"model.layers.{i}.self_attn")
    return weights


def _split_rows(weights: WeightReader, name: str, parts: list[str]) -> None:
    """Cut a joined tensor into equal parts along its output axis, the last but one or, in a convolution,
    the first. One that does not divide is left for `finish` to name."""
    array = weights.raw(name)
    axis = 0 if name.endswith("conv1d.weight") else -2
    if array.ndim < 2 or array.shape[axis] % len(parts):
        return
    for part, piece in zip(parts, mx.split(array, len(parts), axis=axis), strict=True):
        weights.replace(part, piece, consumes=(name,))


def _time_first(weights: WeightReader, name: str, kernel: int) -> None:
    """[P, 1, K] -> [P, K, 1]."""
    shape = weights.shape(name)
    if len(shape) == 3 and shape[1:] == (1, kernel):
        weights.replace(name, weights.raw(name).swapaxes(1, 2))


def _stack_experts(weights: WeightReader) -> None:
    """One tensor per expert -> one tensor for all, in order of the expert number."""
    found: dict[tuple[str, str, str], dict[int, str]] = {}
    for name in weights.names():
        match = _EXPERT.match(name)
        if match:
            module, number, part, kind = match.groups()
            found.setdefault((module, _EXPERT_PART.get(part, part), kind), {})[int(number)] = name
    for (module, part, kind), members in found.items():
        missing = [i for i in range(max(members) + 1) if i not in members]
        if missing:
            weights.fault(f"missing: {module}.experts.{missing} {part}.{kind}")
        arrays = [weights.raw(members[i]) for i in sorted(members)]
        shapes = {tuple(a.shape) for a in arrays}
        if len(shapes) > 1:
            weights.fault(f"misshapen: {module}.experts: {part}.{kind} has shapes {sorted(shapes)}")
            arrays = [a for a in arrays if a.shape == arrays[0].shape]
        weights.replace(f"{module}.switch_mlp.{part}.{kind}", mx.stack(arrays), consumes=members.values())


def _split_kv_b(c: "KimiLinearConfig", weights: WeightReader, name: str) -> None:
    """kv_b_proj [H * (n + dv), r] -> embed_q [H, r, n] and unembed_out [H, dv, r]."""
    if not weights.has(f"{name}.kv_b_proj.weight"):
        return
    both = weights.matrix(f"{name}.kv_b_proj", c.heads * (c.nope + c.value), c.rank)
    both = both.reshape(c.heads, c.nope + c.value, c.rank)
    weights.replace(f"{name}.embed_q.weight", both[:, : c.nope].swapaxes(1, 2))
    weights.replace(f"{name}.unembed_out.weight", both[:, c.nope :])
