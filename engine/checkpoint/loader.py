"""From a checkpoint folder to a model, with progress, on the thread that owns MLX."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.checkpoint.files import find_tensors, read_config
from engine.checkpoint.weights import Numerics, Quantization, WeightReader
from engine.errors import CancelledError, CheckpointError
from engine.models import base, kimi_linear
from engine.models.base import LanguageModel

_FAMILIES = (kimi_linear,)  # importing a family registers it

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LoadedModel:
    """A model and what is worth knowing about it. Sizes in bytes."""

    model: LanguageModel
    folder: Path
    config: dict[str, Any]
    parameters: int
    weight_bytes: int
    quantization: str


def load_model(
    folder: Path,
    progress: Progress = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """Load a checkpoint folder.

    Args:
        folder: holds config.json and one or several .safetensors files, with or without an index.
        progress: called with bytes of weights in place and bytes in all.
        cancelled: asked between tensors.

    Raises:
        CheckpointError: the folder, a file or a tensor is missing, damaged or misshapen.
        UnsupportedModelError: the config asks for something this version cannot compute.
        CancelledError: `cancelled` said so; everything loaded so far is freed.
    """
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
    del tensors
    model = build(config, reader)
    reader.finish()
    del reader
    arrays = parameters(model)
    _evaluate(arrays, progress, cancelled)
    return LoadedModel(
        model=model,
        folder=folder,
        config=config,
        parameters=_count(entries.values(), quantization),
        weight_bytes=sum(a.nbytes for a in arrays),
        quantization=quantization.describe(),
    )


def parameters(value: object) -> list[mx.array]:
    """Every array a model holds, each once, by walking its attributes."""
    found: dict[int, mx.array] = {}

    def walk(x: object) -> None:
        if isinstance(x, mx.array):
            found[id(x)] = x
        elif isinstance(x, list | tuple):
            for item in x:
                walk(item)
        elif hasattr(x, "__dict__") and type(x).__module__ != "builtins":
            for item in vars(x).values():
                walk(item)

    walk(value)
    return list(found.values())


def _evaluate(arrays: list[mx.array], progress: Progress, cancelled: Callable[[], bool]) -> None:
    total = sum(a.nbytes for a in arrays)
    done = 0
    progress(0, total)
    for array in arrays:
        if cancelled():
            raise CancelledError("Loading was stopped.")
        try:
            mx.eval(array)
        except RuntimeError as error:
            raise CheckpointError(f"The weights cannot be read ({error}). Download them again.") from error
        done += array.nbytes
        progress(done, total)


def _count(entries: Any, quantization: Quantization) -> int:
    """Parameters from the headers: packed integers count as the values they hold."""
    total = 0
    by_name = {e: e for e in entries}
    for entry in by_name:
        size = 1
        for extent in entry.shape:
            size *= extent
        total += size
    return total
