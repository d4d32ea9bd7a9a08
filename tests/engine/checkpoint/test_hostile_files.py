"""Files that are not what they say: every one ends as a CheckpointError that names what is wrong."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.files import read_header
from engine.checkpoint.loader import load_model
from engine.errors import CheckpointError, UnsupportedModelError
from tests.support.checkpoints import PACKABLE, PLAIN, Recipe, Shop, change_config, config_of

WEIGHTS = "model.safetensors"
DEEP = 200_000
PACKED = PACKABLE.but("packed in four bits", bits=4)


@pytest.fixture
def copy(shop: Shop, tmp_path: Path) -> Callable[[Recipe], Path]:
    """A folder of one's own to spoil."""
    return lambda recipe: shutil.copytree(shop.folder(recipe), tmp_path / "model")


def refusal(folder: Path, kind: type[CheckpointError] = CheckpointError) -> str:
    with pytest.raises(kind) as refused:
        load_model(folder)
    return str(refused.value)


# --- numbers in config.json ---

HUGE = 10**400

NUMBERS = [
    ("rms_norm_eps", -1),
    ("rms_norm_eps", 0),
    ("rms_norm_eps", float("inf")),
    ("rms_norm_eps", float("nan")),
    ("rms_norm_eps", HUGE),
    ("rms_norm_eps", True),
    ("routed_scaling_factor", float("inf")),
    ("routed_scaling_factor", -float("inf")),
    ("routed_scaling_factor", float("nan")),
    ("routed_scaling_factor", HUGE),
    ("hidden_size", 2**31),
    ("hidden_size", HUGE),
    ("hidden_size", float("inf")),
    ("num_hidden_layers", HUGE),
    ("vocab_size", 2**63),
    ("num_experts", 10**30),
    ("kv_lora_rank", 2**32 + 32),
    ("model_max_length", 10**30),
]


@pytest.mark.parametrize(("field", "value"), NUMBERS, ids=lambda x: str(x)[:24])
def test_a_number_beyond_all_bounds_is_refused_by_the_name_of_its_field(
    copy: Callable[[Recipe], Path], field: str, value: object
):
    folder = copy(PLAIN)
    change_config(folder, **{field: value})
    message = refusal(folder)
    assert field in message
    assert "ownload" in message
    assert len(message) < 300


@pytest.mark.parametrize("field", ["head_dim", "num_heads", "short_conv_kernel_size"])
@pytest.mark.parametrize("value", [10**30, 2**31, -1, float("inf"), HUGE], ids=lambda x: str(x)[:12])
def test_the_same_holds_for_the_linear_attention_part(
    copy: Callable[[Recipe], Path], field: str, value: object
):
    folder = copy(PLAIN)
    change_config(folder, linear_attn_config=config_of(PLAIN)["linear_attn_config"] | {field: value})
    assert field in refusal(folder)


LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": LARGEST},
        {"vocab_size": LARGEST},
        {"num_experts": LARGEST},
        {"num_attention_heads": LARGEST, "num_key_value_heads": LARGEST},
        {"kv_lora_rank": LARGEST},
        {"hidden_size": LARGEST, "intermediate_size": LARGEST},
    ],
    ids=str,
)
def test_the_largest_numbers_that_are_numbers_do_not_fit_the_weights(
    copy: Callable[[Recipe], Path], fields: dict[str, int]
):
    folder = copy(PLAIN)
    change_config(folder, **fields)
    raised = None
    try:
        load_model(folder)
    except Exception as error:  # noqa: BLE001 - printing a traceback's arrays would compute them
        raised = f"{type(error).__name__}: {error}"
    assert raised is not None
    assert raised.startswith("CheckpointError: The weights do not fit config.json")


@pytest.mark.parametrize(
    ("kda", "full"),
    [
        ([1, 2, 3, 3], [4]),
        ([1, 2, 2], [4]),
        ([1, 2, 3], [4, 4]),
        ([1, 1, 2, 3], [4]),
        ([True, 2, 3], [4]),
        ([1, 2, 3], [4.0]),
        ([1, 2, 10**30], [4]),
        ([1, [2], 3], [4]),
        ({"1": 1}, [4]),
        ("123", [4]),
    ],
    ids=str,
)
def test_layer_lists_with_anything_twice_or_no_number_are_refused(
    copy: Callable[[Recipe], Path], kda: object, full: object
):
    folder = copy(PLAIN)
    linear = config_of(PLAIN)["linear_attn_config"] | {"kda_layers": kda, "full_attn_layers": full}
    change_config(folder, linear_attn_config=linear)
    message = refusal(folder)
    assert "kda_layers" in message or "full_attn_layers" in message


# --- quantization ---


def test_a_width_that_is_no_whole_number_of_groups_is_one_error(copy: Callable[[Recipe], Path]):
    folder = copy(PACKED)
    load_model(folder)
    change_config(folder, kv_lora_rank=255)
    message = refusal(folder)
    assert "do not fit config.json" in message
    assert "kv_a_layernorm" in message
    assert "whole groups of 32" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("bits", value) for value in ("8", True, 8.0, None, [4], HUGE)),
        *(("group_size", value) for value in ("32", 32.0, {}, 0)),
    ],
    ids=lambda x: str(x)[:12],
)
@pytest.mark.parametrize("module", [None, "lm_head"])
def test_a_quantization_in_anything_but_a_plain_number_is_refused(
    copy: Callable[[Recipe], Path], field: str, value: object, module: str | None
):
    folder = copy(PACKED)
    block = dict(config_of(PACKED)["quantization"])
    block = block | (
        {field: value} if module is None else {module: {"bits": 4, "group_size": 32, field: value}}
    )
    change_config(folder, quantization=block, quantization_config=block)
    message = refusal(folder, UnsupportedModelError)
    assert field in message
    if module is not None:
        assert module in message


# --- JSON that is nested without end ---


@pytest.mark.parametrize("left", ["[", '{"a":'])
def test_a_config_nested_without_end_is_refused(copy: Callable[[Recipe], Path], left: str):
    folder = copy(PLAIN)
    for text in (left * DEEP, left * DEEP + "1" + ("]" if left == "[" else "}") * DEEP):
        (folder / "config.json").write_text(text, encoding="utf-8")
        assert "config.json" in refusal(folder)


def test_an_index_nested_without_end_is_refused(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    (folder / "model.safetensors.index.json").write_text('{"weight_map":' * DEEP, encoding="utf-8")
    assert "model.safetensors.index.json" in refusal(folder)


def packed(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize("left", [b"[", b'{"a":'])
def test_a_header_nested_without_end_is_refused(copy: Callable[[Recipe], Path], left: bytes):
    folder = copy(PLAIN)
    (folder / WEIGHTS).write_bytes(packed(left * DEEP))
    message = refusal(folder)
    assert WEIGHTS in message
    assert "is damaged" in message


# --- where tensors stand in a file ---


def entry(first: object, last: object, count: int = 1) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [count], "data_offsets": [first, last]}


def header_of(path: Path, entries: dict[str, Any], size: int) -> Path:
    path.write_bytes(packed(json.dumps(entries).encode(), bytes(size)))
    return path


@pytest.mark.parametrize(
    "offsets",
    [
        [0, float("inf")],
        [-float("inf"), 4],
        [0, float("nan")],
        [0, 10**400],
        [0, 2**64],
        [None, 4],
        [[], 4],
        {"0": 4},
        5,
        None,
    ],
    ids=lambda x: str(x)[:20],
)
def test_offsets_that_are_no_offsets_are_refused(tmp_path: Path, offsets: object):
    odd = {"odd": {"dtype": "F32", "shape": [1], "data_offsets": offsets}}
    with pytest.raises(CheckpointError, match="is damaged"):
        read_header(header_of(tmp_path / WEIGHTS, odd, 4))


@pytest.mark.parametrize("shape", [[float("inf")], [float("nan")], [None], [[1]], 5, None, {"a": 1}], ids=str)
def test_a_shape_that_is_none_is_refused(tmp_path: Path, shape: object):
    odd = {"odd": entry(0, 4) | {"shape": shape}}
    with pytest.raises(CheckpointError, match="odd makes no sense"):
        read_header(header_of(tmp_path / WEIGHTS, odd, 4))


@pytest.mark.parametrize(
    ("entries", "size"),
    [
        pytest.param({"a": entry(0, 4), "b": entry(0, 4)}, 4, id="one on the other"),
        pytest.param({"a": entry(0, 8, 2), "b": entry(4, 8)}, 8, id="one inside the other"),
        pytest.param({"a": entry(0, 8, 2), "b": entry(4, 12, 2)}, 12, id="half on the other"),
        pytest.param({"a": entry(0, 4), "b": entry(8, 12)}, 12, id="a gap between"),
        pytest.param({"a": entry(4, 8)}, 8, id="a gap in front"),
        pytest.param({"b": entry(8, 12), "a": entry(0, 4), "c": entry(12, 16)}, 16, id="out of order, a gap"),
    ],
)
def test_tensors_that_overlap_or_leave_gaps_are_refused(tmp_path: Path, entries: dict[str, Any], size: int):
    with pytest.raises(CheckpointError, match="overlap or leave gaps"):
        read_header(header_of(tmp_path / WEIGHTS, entries, size))


def test_tensors_in_any_order_and_empty_ones_are_fine(tmp_path: Path):
    entries = {"b": entry(4, 12, 2), "none": entry(4, 4, 0), "a": entry(0, 4), "end": entry(12, 12, 0)}
    found = read_header(header_of(tmp_path / WEIGHTS, entries, 12))
    assert {name: e.nbytes for name, e in found.items()} == {"b": 8, "none": 0, "a": 4, "end": 0}


def test_a_real_file_with_one_tensor_moved_onto_its_neighbour_is_refused(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    norm = header["model.norm.weight"]["data_offsets"]
    other = next(
        e
        for name, e in header.items()
        if name not in ("__metadata__", "model.norm.weight") and e["shape"] == [PLAIN.hidden]
    )
    other["data_offsets"] = norm
    (folder / WEIGHTS).write_bytes(packed(json.dumps(header).encode(), data[8 + length :]))
    assert "overlap or leave gaps" in refusal(folder)
