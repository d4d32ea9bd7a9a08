"""The form that weights take on a GPU, run here on the CPU: plain products, grouped experts, wide tiles.

No Metal device runs these tests. What can be shown here is that this form is the same function.
"""

from pathlib import Path

import mlx.core as mx
import pytest

from engine.checkpoint.files import find_tensors, read_config
from engine.checkpoint.weights import Numerics, Quantization, WeightReader
from engine.layers.expert_matrices import DenseMatrices, PackedMatrices, sorted_product_is_right
from engine.layers.moe import GroupedExperts
from engine.models import kimi_linear
from engine.scalars import as_float
from tests.support import checkpoints

TOKENS = 300


def build(folder: Path, numerics: Numerics) -> kimi_linear.KimiLinear:
    config = read_config(folder)
    tensors: dict[str, mx.array] = {}
    for file in {entry.file for entry in find_tensors(folder).values()}:
        tensors |= mx.load(str(file))  # type: ignore[operator] - a safetensors file is a dict
    reader = WeightReader(tensors, Quantization(config), numerics)
    model = kimi_linear.build(config, reader)
    reader.finish()
    return model


def relative(a: mx.array, b: mx.array) -> float:
    return as_float(mx.abs(a - b).astype(mx.float32).max() / mx.abs(b).astype(mx.float32).max())


@pytest.fixture(params=["dense", "8-bit", "4-bit", "grouped", "wide"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    recipe = {
        "dense": checkpoints.PLAIN,
        "8-bit": checkpoints.PACKABLE.but("eight", bits=8),
        "4-bit": checkpoints.PACKABLE.but("four", bits=4),
        "grouped": checkpoints.GROUPED,
        "wide": checkpoints.WIDE,
    }[request.param]
    return checkpoints.write(recipe, tmp_path / "model")


def test_the_gpu_form_gives_the_cpu_forms_logits_and_state(folder: Path) -> None:
    cpu = build(folder, Numerics(mx.float32, blocked=True))
    gpu = build(folder, Numerics(mx.float32, blocked=False))
    ids = mx.random.randint(0, cpu.vocab_size, (1, TOKENS), key=mx.random.key(0)).astype(mx.int32)
    one, other = cpu.new_state(), gpu.new_state()
    assert relative(gpu(ids, other), cpu(ids, one)) < 1e-4
    step = mx.array([[3]], mx.int32)
    assert relative(gpu(step, other), cpu(step, one)) < 1e-4
    for a, b in zip(other.arrays(), one.arrays(), strict=True):
        assert relative(a, b) < 1e-4


def test_the_gpu_form_carries_its_state_across_chunks(folder: Path) -> None:
    model = build(folder, Numerics(mx.float32, blocked=False))
    ids = mx.random.randint(0, model.vocab_size, (1, TOKENS), key=mx.random.key(1)).astype(mx.int32)
    whole, pieces = model.new_state(), model.new_state()
    expected = model(ids, whole)
    got = expected
    for start in range(0, TOKENS, 97):
        got = model(ids[:, start : start + 97], pieces)
    assert got is not expected
    assert relative(got, expected) < 1e-5


def test_in_half_precision_chunks_stay_within_rounding(tmp_path: Path) -> None:
    folder = checkpoints.write(checkpoints.DENSE_MLP.but("half", dtype="bfloat16"), tmp_path / "half")
    model = build(folder, Numerics(mx.bfloat16, blocked=False))
    ids = mx.random.randint(0, model.vocab_size, (1, 130), key=mx.random.key(2)).astype(mx.int32)
    whole, pieces = model.new_state(), model.new_state()
    expected = model(ids, whole)
    model(ids[:, :64], pieces)
    assert relative(model(ids[:, 64:], pieces), expected) < 0.06
    dtypes = {a.dtype for a in pieces.arrays()}
    assert dtypes == {mx.bfloat16, mx.float32}  # latents and windows, and the recurrent matrices


def test_quantized_experts_stay_packed_and_dense_ones_dense(tmp_path: Path) -> None:
    kinds: dict[str, type] = {}
    for name, bits in (("dense", 0), ("packed", 8)):
        folder = checkpoints.write(checkpoints.PACKABLE.but(name, bits=bits), tmp_path / name)
        block = build(folder, Numerics(mx.float32, blocked=False)).blocks[1]
        experts = block.mlp.experts  # type: ignore[union-attr] - layer 1 is a mixture here
        assert isinstance(experts, GroupedExperts)
        kinds[name] = type(experts.gate)
    assert kinds == {"dense": DenseMatrices, "packed": PackedMatrices}


def test_a_sorted_product_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = mx.gather_mm

    def broken(*arguments: mx.array, sorted_indices: bool = False, **options: mx.array) -> mx.array:
        out = honest(*arguments, sorted_indices=sorted_indices, **options)
        return out[::-1] if sorted_indices else out

    sorted_product_is_right.cache_clear()
    assert sorted_product_is_right(48, 64, mx.float32, 0, 0)
    sorted_product_is_right.cache_clear()
    monkeypatch.setattr(mx, "gather_mm", broken)
    assert not sorted_product_is_right(48, 64, mx.float32, 0, 0)
    sorted_product_is_right.cache_clear()
