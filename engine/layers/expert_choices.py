"""Which forms of a layer's experts are right and faster on the device at hand.

MLX's product over rows sorted by expert came out wrong on its CUDA back end (0.32.4, see
docs/benchmarks.md), and on Metal it has not been run by us. So every form is compared with plain products on
random weights of the model's own shape, once a process, before it may decide an answer.
"""

from dataclasses import replace
from functools import lru_cache

import mlx.core as mx

from engine.kernels.device import language
from engine.kernels.mixing import mix_rows, mix_rows_kernel
from engine.kernels.selection import Choice, choose
from engine.layers.activations import silu
from engine.layers.expert_groups import ExpertForms, GroupedExperts
from engine.layers.expert_matrices import DenseMatrices, JoinedMatrices, Matrices, PackedMatrices, Packing

_TOLERANCE = 2e-2
"""Of the largest output. Two products and a gate in bfloat16, each rounded by up to 4e-3."""

_PROBE_EXPERTS = 8
_PROBE_TOKENS = 1024
_PROBE_TOP = 2


def chosen_forms(
    hidden: int, inner: int, gate_up: Matrices, down: Matrices, dtype: mx.Dtype
) -> tuple[ExpertForms, tuple[Choice, ...]]:
    """The forms to use for experts of these shapes and packings, and how they were chosen."""
    return _choose_forms(hidden, inner, gate_up.packings, down.packings, dtype)


@lru_cache(maxsize=16)
def _choose_forms(
    hidden: int, inner: int, gate_up: tuple[Packing, ...], down: tuple[Packing, ...], dtype: mx.Dtype
) -> tuple[ExpertForms, tuple[Choice, ...]]:
    keys = mx.random.split(mx.random.key(3), 5)
    sample = GroupedExperts(
        _random_matrices(2 * inner, hidden, gate_up, dtype, keys[0]),
        _random_matrices(hidden, inner, down, dtype, keys[1]),
    )
    x = mx.random.normal((_PROBE_TOKENS, hidden), key=keys[2]).astype(dtype)
    shape = (_PROBE_TOKENS, _PROBE_TOP)
    chosen = mx.random.randint(0, _PROBE_EXPERTS, shape, key=keys[3]).astype(mx.int32)
    weights = mx.random.uniform(0.0, 1.0, shape, key=keys[4])
    truth = _every_expert(sample, x, chosen, weights)
    mx.eval(x, chosen, weights, truth)

    forms, choices = ExpertForms(), list[Choice]()
    if language() is not None:
        rows = mx.random.normal((2 * _PROBE_TOKENS, hidden), key=keys[2]).astype(dtype)
        mixing = choose(
            "Experts, weighted sum",
            form=lambda: [mix_rows_kernel(rows, chosen, weights)],
            plain=lambda: [mix_rows(rows, chosen, weights)],
            truth=lambda: [mix_rows(rows.astype(mx.float32), chosen, weights)],
            tolerance=_TOLERANCE,
        )
        choices.append(mixing)
        forms = replace(forms, mixed_by_kernel=mixing.used)
    for name, better in (("ordered", {"ordered": True}), ("batched", {"batched": True})):
        plain, form = replace(sample, forms=forms), replace(sample, forms=replace(forms, **better))
        choice = choose(
            f"Experts, many tokens, {name}",
            form=lambda form=form: [form(x, chosen, weights)],
            plain=lambda plain=plain: [plain(x, chosen, weights)],
            truth=lambda: [truth],
            tolerance=_TOLERANCE,
        )
        choices.append(choice)
        forms = form.forms if choice.used else forms
    return forms, tuple(choices)


def _random_matrices(
    out: int, inner: int, packings: tuple[Packing, ...], dtype: mx.Dtype, key: mx.array
) -> Matrices:
    """Matrices [out, in] of a few experts, in as many parts, packed the same way."""
    parts: list[Matrices] = []
    for packing, part in zip(packings, mx.random.split(key, len(packings)), strict=True):
        shape = (_PROBE_EXPERTS, out // len(packings), inner)
        weight = (mx.random.normal(shape, key=part) * inner**-0.5).astype(dtype)
        if packing is None:
            parts.append(DenseMatrices(weight))
        else:
            packed = mx.quantize(weight, group_size=packing[0], bits=packing[1])
            parts.append(PackedMatrices(packed[0], packed[1], packed[2], *packing))
        mx.eval(weight)
    return parts[0] if len(parts) == 1 else JoinedMatrices(tuple(parts))


def _every_expert(sample: GroupedExperts, x: mx.array, chosen: mx.array, weights: mx.array) -> mx.array:
    """The same by plain float32 products of all tokens with each expert."""
    x, total = x.astype(mx.float32), mx.zeros(x.shape)
    for expert in range(_PROBE_EXPERTS):
        one = slice(expert, expert + 1)
        gate, up = mx.split(x @ sample.gate_up.dense(one)[0].astype(mx.float32), 2, axis=-1)
        out = (silu(gate) * up) @ sample.down.dense(one)[0].astype(mx.float32)
        share = mx.where(chosen == expert, weights, 0.0).sum(axis=-1, keepdims=True)
        total = total + share * out
    return total
