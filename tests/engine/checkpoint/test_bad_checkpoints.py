"""Whatever is wrong with a model folder is said before a weight is read, with what to do about it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.checkpoint.loader import load_model, prepare_model, read_weights
from engine.errors import CancelledError, CheckpointError, UnsupportedModelError
from tests.support.checkpoints import (
    PACKABLE,
    PLAIN,
    Recipe,
    Shop,
    change_config,
    config_of,
    save,
    stored_tensors,
    write,
    write_config,
)

SHARDED = PLAIN.but("in three files", shards=3, index=True)
WEIGHTS = "model.safetensors"
SECOND = "model-00002-of-00003.safetensors"


@pytest.fixture
def copy(shop: Shop, tmp_path: Path) -> Callable[[Recipe], Path]:
    """A folder of one's own to spoil."""
    return lambda recipe: shutil.copytree(shop.folder(recipe), tmp_path / "model")


def refusal(folder: Path, kind: type[CheckpointError] = CheckpointError) -> str:
    with pytest.raises(kind) as refused:
        load_model(folder)
    return str(refused.value)


# --- folder and files ---


def test_a_missing_folder(tmp_path: Path):
    message = refusal(tmp_path / "nowhere")
    assert "There is no folder" in message
    assert "nowhere" in message
    assert "Choose" in message


def test_a_file_instead_of_a_folder(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x")
    assert "is a file. Choose the folder" in refusal(path)


def test_an_empty_folder(tmp_path: Path):
    message = refusal(tmp_path)
    assert "config.json is missing" in message
    assert "Choose a folder that holds a whole model" in message


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", '"kimi_linear"', "null", "<!DOCTYPE html><html></html>", "{'a': 1}"]
)
def test_a_config_that_is_no_json_object(copy: Callable[[Recipe], Path], text: str):
    folder = copy(PLAIN)
    (folder / "config.json").write_text(text, encoding="utf-8")
    message = refusal(folder)
    assert "config.json" in message
    assert "ownload" in message


def test_a_config_in_no_encoding(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    (folder / "config.json").write_bytes(b"\xff\xfe\x00\xd8{}")
    assert "config.json" in refusal(folder)


def test_no_weights_at_all(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    (folder / WEIGHTS).unlink()
    assert "There are no .safetensors files" in refusal(folder)


def test_a_missing_shard_is_named_and_the_others_are_not(copy: Callable[[Recipe], Path]):
    folder = copy(SHARDED)
    (folder / SECOND).unlink()
    message = refusal(folder)
    assert "1 of 3 weight files are missing" in message
    assert SECOND in message
    assert "model-00001" not in message


def test_a_folder_where_a_shard_should_be(copy: Callable[[Recipe], Path]):
    folder = copy(SHARDED)
    (folder / SECOND).unlink()
    (folder / SECOND).mkdir()
    assert SECOND in refusal(folder)


def test_a_missing_shard_without_an_index_is_missed_by_its_tensors(copy: Callable[[Recipe], Path]):
    folder = copy(SHARDED)
    (folder / "model.safetensors.index.json").unlink()
    (folder / SECOND).unlink()
    gone = [name for i, name in enumerate(stored_tensors(SHARDED)) if i % 3 == 1]
    message = refusal(folder)
    assert f"{len(gone)} faults" in message
    assert all(f"missing: {name}," in message for name in gone)


# --- damaged files ---


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data[:-1], id="the last byte is missing"),
        pytest.param(lambda data: data + b"\0", id="a byte too many"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut in half"),
        pytest.param(lambda data: data[:100], id="cut inside the header"),
        pytest.param(lambda data: data[:5], id="cut inside the length"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"<!DOCTYPE html><html><body>404</body></html>", id="an error page"),
        pytest.param(lambda data: struct.pack("<Q", 1 << 60) + data[8:], id="an absurd header length"),
        pytest.param(lambda data: struct.pack("<Q", len(data) - 8) + data[8:], id="a header to the end"),
        pytest.param(lambda data: struct.pack("<Q", 2) + b"[]", id="a header that is a list"),
        pytest.param(lambda data: struct.pack("<Q", 4) + b"null", id="a header that is null"),
        pytest.param(lambda data: struct.pack("<Q", 8) + b'{"a": 1}', id="an entry that is a number"),
        pytest.param(lambda data: b"version https://git-lfs.github.com/spec/v1\n", id="a Git LFS pointer"),
    ],
)
@pytest.mark.parametrize("recipe", [PLAIN, SHARDED], ids=lambda recipe: recipe.name)
def test_a_damaged_weight_file_is_named(
    copy: Callable[[Recipe], Path], recipe: Recipe, change: Callable[[bytes], bytes]
):
    folder = copy(recipe)
    file = WEIGHTS if recipe is PLAIN else SECOND
    spoil(folder / file, change)
    message = refusal(folder)
    assert file in message
    assert "is damaged" in message
    assert "Download it again" in message


def with_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the JSON header of a weight file; its tensor bytes stay."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": "wide", "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1]},
        {"shape": [1], "data_offsets": [0, 4]},
    ],
)
def test_an_entry_that_makes_no_sense_is_named(copy: Callable[[Recipe], Path], entry: dict[str, Any]):
    folder = copy(PLAIN)
    with_header(folder / WEIGHTS, lambda header: header.update({"model.odd": entry}))
    message = refusal(folder)
    assert WEIGHTS in message
    assert "model.odd makes no sense" in message


def test_a_header_whose_shape_does_not_fit_its_bytes(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    with_header(folder / WEIGHTS, lambda header: header["model.norm.weight"].update(shape=[1000]))
    message = refusal(folder)
    assert WEIGHTS in message or "model.norm.weight" in message


# --- the index ---


def index_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))


def set_index(folder: Path, index: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "deeper/model.safetensors", "..", "."]
)
def test_an_index_that_leads_out_of_the_folder_is_refused(
    copy: Callable[[Recipe], Path], shop: Shop, name: str
):
    folder = copy(SHARDED)
    shutil.copy(shop.folder(PLAIN) / WEIGHTS, folder.parent / "outside.safetensors")
    index = index_of(folder)
    index["weight_map"]["model.norm.weight"] = name
    set_index(folder, index)
    assert f"“{name}”" in refusal(folder) or "missing" in refusal(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": None}, {"weight_map": "model"}])
def test_an_index_without_a_map(copy: Callable[[Recipe], Path], index: object):
    folder = copy(SHARDED)
    set_index(folder, index)
    assert "has no weight_map" in refusal(folder)


def test_an_index_that_names_tensors_no_file_holds(copy: Callable[[Recipe], Path]):
    folder = copy(SHARDED)
    index = index_of(folder)
    index["weight_map"] |= {f"model.extra.{i}": SECOND for i in range(20)}
    set_index(folder, index)
    message = refusal(folder)
    assert "model.extra.0" in message
    assert "and 12 more" in message


def test_a_stray_weight_file_is_ignored_when_there_is_an_index(copy: Callable[[Recipe], Path], shop: Shop):
    folder = copy(SHARDED)
    shutil.copy(shop.folder(PACKABLE) / WEIGHTS, folder / WEIGHTS)
    (folder / "model-00009-of-00009.safetensors").write_bytes(b"half a download")
    model, ids = load_model(folder).model, mx.array([[1, 2, 3]], mx.int32)
    expected = shop.model(SHARDED)
    assert bool(mx.array_equal(model(ids, model.new_state()), expected(ids, expected.new_state())).item())


def test_a_tensor_that_stands_in_two_files_is_named_with_both(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    mx.save_safetensors(str(folder / "other.safetensors"), {"model.norm.weight": mx.ones((64,))})
    message = refusal(folder)
    assert all(part in message for part in ("model.norm.weight", WEIGHTS, "other.safetensors"))


# --- tensors ---


def test_every_missing_unexpected_and_misshapen_tensor_is_named_in_one_error(tmp_path: Path):
    tensors = stored_tensors(PLAIN)
    missing = [
        "model.layers.0.self_attn.f_a_proj.weight",
        "model.layers.1.mlp.switch_mlp.up_proj.weight",
        "model.layers.2.self_attn.dt_bias",
        "model.layers.3.self_attn.kv_a_layernorm.weight",
        "model.norm.weight",
    ]
    for name in missing:
        del tensors[name]
    misshapen = {
        "model.layers.0.self_attn.q_proj.weight": mx.zeros((32, 63)),
        "model.layers.1.self_attn.A_log": mx.zeros((3,)),
        "model.layers.3.self_attn.embed_q.weight": mx.zeros((2, 16, 32)),
        "lm_head.weight": mx.zeros((191, 64)),
    }
    unexpected = {"model.layers.0.self_attn.q_proj.bias": mx.zeros((32,)), "model.layers.4.extra": mx.ones(1)}
    save(tensors | misshapen | unexpected, tmp_path)
    write_config(tmp_path, config_of(PLAIN))
    message = refusal(tmp_path)
    assert f"{len(missing) + len(misshapen) + len(unexpected)} faults" in message
    assert all(f"missing: {name}" in message for name in missing)
    assert all(f"unexpected: {name}" in message for name in unexpected)
    for name, array in misshapen.items():
        assert f"misshapen: {name} is [{', '.join(map(str, array.shape))}], expected [" in message
    assert "download it again" in message


def test_a_missing_expert_of_the_original_layout_is_named(tmp_path: Path):
    recipe = PLAIN.but("original", layout="original")
    tensors = stored_tensors(recipe)
    del tensors["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    save(tensors, tmp_path)
    write_config(tmp_path, config_of(recipe))
    message = refusal(tmp_path)
    assert "model.layers.1.mlp.experts.[2] up_proj.weight" in message


def test_a_misshapen_expert_of_the_original_layout_is_named(tmp_path: Path):
    recipe = PLAIN.but("original", layout="original")
    tensors = stored_tensors(recipe)
    tensors["model.layers.1.block_sparse_moe.experts.2.w3.weight"] = mx.zeros((32, 63))
    save(tensors, tmp_path)
    write_config(tmp_path, config_of(recipe))
    assert "misshapen: model.layers.1.mlp.experts: up_proj.weight" in refusal(tmp_path)


def test_the_last_expert_missing_is_a_misshapen_stack(tmp_path: Path):
    recipe = PLAIN.but("original", layout="original")
    tensors = stored_tensors(recipe)
    for part in ("w1", "w2", "w3"):
        del tensors[f"model.layers.1.block_sparse_moe.experts.3.{part}.weight"]
    save(tensors, tmp_path)
    write_config(tmp_path, config_of(recipe))
    message = refusal(tmp_path)
    assert "model.layers.1.mlp.switch_mlp.gate_proj.weight is [3, 32, 64], expected [4, 32, 64]" in message


def test_weights_of_another_shape_than_the_config_says(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    change_config(folder, hidden_size=32)
    message = refusal(folder)
    assert "misshapen: model.embed_tokens.weight is [192, 64], expected [192, 32]" in message


def test_a_hundred_and_more_faults_are_cut_with_their_number(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    config = config_of(PLAIN.but("longer", layers=30, mla=(3,)))
    write_config(folder, config)
    message = refusal(folder)
    assert "and " in message.splitlines()[-1]
    assert len(message.splitlines()) < 210


# --- what cannot be computed faithfully ---


@pytest.mark.parametrize("kind", ["llama", "kimi_k2", "qwen2", "", None, 7])
def test_an_unknown_model_type_is_refused_with_what_is_supported(
    copy: Callable[[Recipe], Path], kind: object
):
    folder = copy(PLAIN)
    change_config(folder, model_type=kind)
    message = refusal(folder, UnsupportedModelError)
    assert "It runs: kimi_linear" in message
    assert str(kind) in message or "does not say its model_type" in message


@pytest.mark.parametrize(
    "fields",
    [
        {"attn_res_block_size": 12},
        {"routed_expert_hidden_size": 3584},
        {"mla_use_output_gate": True},
        {"hidden_act": "situ"},
    ],
)
def test_the_text_part_of_kimi_k3_is_told_apart_though_it_says_kimi_linear(
    copy: Callable[[Recipe], Path], fields: dict[str, Any]
):
    folder = copy(PLAIN)
    change_config(folder, **fields)
    message = refusal(folder, UnsupportedModelError)
    assert next(iter(fields)) in message or "K3" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("hidden_act", None),
        ("mla_use_nope", False),
        ("q_lora_rank", 64),
        ("moe_router_activation_func", "softmax"),
        ("num_key_value_heads", 1),
    ],
)
def test_a_field_this_version_does_not_compute_is_refused_not_ignored(
    copy: Callable[[Recipe], Path], field: str, value: object
):
    folder = copy(PLAIN)
    change_config(folder, **{field: value})
    message = refusal(folder, UnsupportedModelError)
    assert f"{field} = {value!r}" in message
    assert "Choose another model" in message


@pytest.mark.parametrize(("field", "value"), [("gate_lower_bound", -5.0), ("use_full_rank_gate", True)])
def test_a_gate_this_version_does_not_compute_is_refused(
    copy: Callable[[Recipe], Path], field: str, value: object
):
    folder = copy(PLAIN)
    linear = config_of(PLAIN)["linear_attn_config"]
    change_config(folder, linear_attn_config=linear | {field: value})
    assert field in refusal(folder, UnsupportedModelError)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mxfp4"),
        ({"group_size": 32, "bits": 7}, "bits 7"),
        ({"group_size": 48, "bits": 4}, "48"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"group_size": 32, "bits": 4, "lm_head": {"group_size": 32, "bits": 4, "mode": "nvfp4"}}, "nvfp4"),
        (["bits", 4], "not a table"),
    ],
)
def test_a_quantization_this_version_cannot_read_is_refused(
    copy: Callable[[Recipe], Path], block: object, said: str
):
    folder = copy(PACKABLE.but("packed", bits=4))
    change_config(folder, quantization=block, quantization_config=block)
    assert said in refusal(folder, UnsupportedModelError)


def test_scales_the_config_says_nothing_of_are_named(copy: Callable[[Recipe], Path]):
    folder = copy(PACKABLE.but("packed", bits=4))
    config = config_of(PACKABLE)
    write_config(folder, config)
    message = refusal(folder)
    assert "model.layers.0.self_attn.q_proj has scales, but config.json does not say" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", "64"),
        ("hidden_size", 0),
        ("hidden_size", -64),
        ("hidden_size", 64.5),
        ("hidden_size", True),
        ("vocab_size", None),
        ("rms_norm_eps", "small"),
        ("tie_word_embeddings", "false"),
        ("linear_attn_config", None),
        ("linear_attn_config", [1]),
        ("num_experts", -1),
        ("num_experts_per_token", 5),
        ("num_expert_group", 3),
        ("topk_group", 2),
    ],
)
def test_a_field_that_makes_no_sense_is_named(copy: Callable[[Recipe], Path], field: str, value: object):
    folder = copy(PLAIN)
    change_config(folder, **{field: value})
    message = refusal(folder)
    assert "config.json" in message
    assert field in message or "experts" in message


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"num_expert_group": 4, "topk_group": 2}, id="a group is rated by its best two"),
        pytest.param({"num_expert_group": 2, "topk_group": 1, "num_experts_per_token": 3}, id="too few kept"),
    ],
)
def test_groups_that_hold_too_few_experts_to_choose_from_are_refused(
    copy: Callable[[Recipe], Path], fields: dict[str, Any]
):
    folder = copy(PLAIN)
    change_config(folder, **fields)
    assert "4 experts cannot be chosen from" in refusal(folder)


@pytest.mark.parametrize(
    ("kda", "full"),
    [
        ([1, 2, 3], []),
        ([1, 2, 3], [3, 4]),
        ([0, 1, 2], [3]),
        ([1, 2, 3], [5]),
        ([1, 2], [4]),
        ([1, "2"], [3]),
    ],
)
def test_layer_lists_that_do_not_name_each_layer_once_are_refused(
    copy: Callable[[Recipe], Path], kda: list[int], full: list[int]
):
    folder = copy(PLAIN)
    linear = config_of(PLAIN)["linear_attn_config"] | {"kda_layers": kda, "full_attn_layers": full}
    change_config(folder, linear_attn_config=linear)
    assert "kda_layers" in refusal(folder)


# --- safety and stopping ---


def test_code_in_a_model_folder_is_never_run(copy: Callable[[Recipe], Path]):
    folder = copy(PLAIN)
    marker = folder / "ran"
    (folder / "modeling_kimi.py").write_text(f"open({str(marker)!r}, 'w')", encoding="utf-8")
    change_config(
        folder, model_file="modeling_kimi.py", auto_map={"AutoModelForCausalLM": "modeling_kimi.Model"}
    )
    load_model(folder)
    assert not marker.exists()


def test_a_load_can_be_stopped_between_tensors(shop: Shop):
    prepared = prepare_model(shop.folder(PLAIN))
    seen: list[tuple[int, int]] = []
    with pytest.raises(CancelledError):
        read_weights(prepared, lambda done, total: seen.append((done, total)), lambda: len(seen) > 3)
    assert 0 < seen[-1][0] < prepared.weight_bytes


def test_progress_of_a_load_runs_from_nothing_to_all_bytes(shop: Shop):
    prepared = prepare_model(shop.folder(PLAIN))
    seen: list[tuple[int, int]] = []
    read_weights(prepared, lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, prepared.weight_bytes)
    assert {total for _, total in seen} == {prepared.weight_bytes}


def test_a_file_of_a_prepared_model_that_is_cut_before_it_is_read(tmp_path: Path):
    folder = write(PLAIN, tmp_path / "model")
    prepared = prepare_model(folder)
    with (folder / WEIGHTS).open("r+b") as stream:
        stream.truncate(2000)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_weights(prepared)
