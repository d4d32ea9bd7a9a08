"""The files of a checkpoint folder, checked before a single weight is read.

A safetensors file is eight bytes of header length, a JSON header and the tensor bytes; its size must
be exactly what the header says. That catches truncated downloads and error pages saved as weights.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.errors import CheckpointError

_HEADER_LIMIT = 100 << 20


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor stands. dtype is the file's own name for it ("BF16", "U32")."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the folder; errors name the file and say what to do."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.name} is missing in {path.parent}. Choose a folder that holds a whole model: "
            "config.json, tokenizer.json and the .safetensors files."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path.name} in {path.parent} cannot be read ({error}). Download that file again."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name} in {path.parent} is not a JSON object. Download it again.")
    return cast("dict[str, Any]", value)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder."""
    if not folder.exists():
        raise CheckpointError(f"There is no folder {folder}. Choose the folder that holds the model.")
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file. Choose the folder that holds the model.")
    return read_json(folder / "config.json")


def find_tensors(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the checkpoint, by name, from the headers of its files.

    With an index only the files it names are used; without one every *.safetensors file is.

    Raises:
        CheckpointError: naming each missing or damaged file.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        listed: object = read_json(index).get("weight_map")
        if not isinstance(listed, Mapping):
            raise CheckpointError(f"{index.name} has no weight_map. Download that file again.")
        weight_map = {str(k): str(v) for k, v in cast("Mapping[object, object]", listed).items()}
        files = [_inside(folder, name) for name in sorted(set(weight_map.values()))]
    else:
        weight_map = None
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CheckpointError(
                f"There are no .safetensors files in {folder}. Download the model's weights into it."
            )
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(files)} weight files are missing in {folder}: "
            f"{', '.join(missing)}. Download them again."
        )
    entries: dict[str, TensorEntry] = {}
    for file in files:
        for name, entry in read_header(file).items():
            if name in entries:
                raise CheckpointError(
                    f"The tensor {name} stands in both {entries[name].file.name} and {file.name}. "
                    "Remove the file that does not belong to this model."
                )
            entries[name] = entry
    if weight_map is not None:
        absent = [name for name in weight_map if name not in entries]
        if absent:
            raise CheckpointError(
                f"The index names tensors that no file holds: {_some(absent)}. Download the index "
                "and the weights again."
            )
    return entries


def _inside(folder: Path, name: str) -> Path:
    """A file named by the index; names that lead out of the folder are refused."""
    if Path(name).name != name:
        raise CheckpointError(f"The index names “{name}”, which is not a file name in the model folder.")
    return folder / name


def _some(names: list[str], limit: int = 8) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one safetensors file; the sizes must add up to the file's."""
    damaged = f"{file.name} in {file.parent} is damaged"
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            if len(start) < 8:
                raise CheckpointError(f"{damaged}: it has only {size} bytes. Download it again.")
            (length,) = struct.unpack("<Q", start)
            if length > min(size - 8, _HEADER_LIMIT):
                raise CheckpointError(
                    f"{damaged}: it is not a safetensors file or it was cut off. Download it again."
                )
            header: object = json.loads(stream.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{damaged} ({error}). Download it again.") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{damaged}: its header is not a table. Download it again.")
    entries: dict[str, TensorEntry] = {}
    spans: list[tuple[int, int]] = []
    for name, value in cast("dict[str, Any]", header).items():
        if name == "__metadata__":
            continue
        try:
            first, last = (int(x) for x in value["data_offsets"])
            shape = tuple(int(x) for x in value["shape"])
            entries[name] = TensorEntry(file, str(value["dtype"]), shape, last - first)
            if not 0 <= first <= last:
                raise ValueError("offsets run backwards")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{damaged}: the entry of {name} makes no sense. Download it again."
            ) from error
        spans.append((first, last))
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise CheckpointError(f"{damaged}: its tensors overlap or leave gaps. Download it again.")
        end = last
    expected = 8 + length + end
    if size != expected:
        raise CheckpointError(
            f"{damaged}: it has {size:,} bytes where its header says {expected:,}. Download it again."
        )
    return entries
