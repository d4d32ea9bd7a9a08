"""From a checkpoint folder to a model, with progress, on the thread that owns MLX."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import mlx.core as mx

from engine.checkpoint.files import TensorEntry, find_tensors, read_config
from engine.checkpoint.weights import Numerics, Quantization, WeightReader
from engine.errors import CancelledError, CheckpointError
from engine.kernels.lanes import prepare_thread
from engine.kernels.selection import Choice
from engine.models import base, kimi_linear
from engine.models.base import LanguageModel

_FAMILIES = (kimi_linear,)  # importing a family registers it

Progress = Callable[[int, int], None]

T = TypeVar("T")


def _silent(done: int, total: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and what is worth knowing about it. Sizes in bytes."""

    model: LanguageModel
    folder: Path
    config: dict[str, Any]
    parameters: int
    weight_bytes: int
    quantization: str


def load_model(folder: Path) -> LoadedModel:
    """Prepare a checkpoint and read its weights; see `prepare_model` and `read_weights`."""
    prepared = prepare_model(folder)
    read_weights(prepared)
    return prepared


def prepare_model(folder: Path) -> LoadedModel:
    """Check a checkpoint folder and build its model; no weight is read from disk yet.

    Args:
        folder: holds config.json and one or several .safetensors files, with or without an index.

    Raises:
        CheckpointError: the folder, a file or a tensor is missing, damaged or misshapen.
        UnsupportedModelError: the config asks for something this version cannot compute.
    """
    prepare_thread()
    config = read_config(folder)
    _, build = base.builder_for(config)
    quantization = Quantization(config)
    entries = find_tensors(folder)
    tensors: dict[str, mx.array] = {}
    for file in sorted({entry.file for entry in entries.values()}):
        try:
            loaded = mx.load(str(file))
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"{file.name} cannot be read ({error}). Download it again.") from error
        assert isinstance(loaded, dict)  # a safetensors file always is
        tensors |= {name: loaded[name] for name in entries if entries[name].file == file}
    dtype = config.get("dtype") or config.get("torch_dtype")
    reader = WeightReader(tensors, quantization, Numerics.for_device(dtype))
    model = build(config, reader)
    reader.finish()
    return LoadedModel(
        model=model,
        folder=folder,
        config=config,
        parameters=_count_parameters(entries, quantization),
        weight_bytes=sum(a.nbytes for a in parameters(model)),
        quantization=quantization.describe(),
    )


def read_weights(
    prepared: LoadedModel,
    progress: Progress = _silent,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Read the weights of a prepared model.

    Args:
        prepared: from `prepare_model`.
        progress: called with bytes of weights in place and bytes in all.
        cancelled: asked between tensors.

    Raises:
        CheckpointError: the bytes cannot be read.
        CancelledError: `cancelled` said so; drop the model to free what was loaded.
    """
    total, done = prepared.weight_bytes, 0
    progress(0, total)
    for array in parameters(prepared.model):
        if cancelled():
            raise CancelledError("Loading was stopped.")
        try:
            mx.eval(array)
        except RuntimeError as error:
            raise CheckpointError(f"The weights cannot be read ({error}). Download them again.") from error
        done += array.nbytes
        progress(done, total)


def parameters(value: object) -> list[mx.array]:
    """Every array a model holds, each once, by walking its attributes."""
    return _held(value, mx.array)


def kernel_choices(model: object) -> tuple[Choice, ...]:
    """What was decided about the faster forms a model can use, each once, by walking its attributes."""
    return tuple(dict.fromkeys(_held(model, Choice)))


def _held(value: object, kind: type[T]) -> list[T]:
    found: dict[int, T] = {}

    def walk(x: object) -> None:
        if isinstance(x, kind):
            found[id(x)] = x
        elif isinstance(x, list | tuple):
            for item in cast("Sequence[object]", x):
                walk(item)
        elif hasattr(x, "__dict__") and type(x).__module__ != "builtins":
            for item in vars(x).values():
                walk(item)

    walk(value)
    return list(found.values())


def _count_parameters(entries: Mapping[str, TensorEntry], quantization: Quantization) -> int:
    """Parameters from the headers; a packed integer counts as the values it holds."""
    total = 0
    for name, entry in entries.items():
        module, _, part = name.rpartition(".")
        if part in ("scales", "biases") and f"{module}.scales" in entries:
            continue
        packing = quantization.packing(module) if f"{module}.scales" in entries else None
        total += math.prod(entry.shape) * (32 // packing.bits if packing else 1)
    return total
