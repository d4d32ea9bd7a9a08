"""Numbers that are none: no text ever comes of them, and no temperature or seed makes them."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.api import Sampling
from engine.checkpoint.loader import load_model
from engine.errors import NumericsError, SettingError
from engine.generation.generator import Generator, Options, Outcome
from engine.generation.prefill import PrefillPolicy
from engine.generation.sampling import Sampler, check_sampling
from engine.models.base import LanguageModel
from engine.planning.tuning import random_ids
from engine.runtime import default_sampling
from engine.scalars import as_int
from engine.text.chat_format import Prompt, PromptPart
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import (
    DEMO_MODEL,
    SPOKEN,
    TOKENIZER_FILES,
    Shop,
    Tensors,
    config_of,
    save,
    stored_tensors,
    write_config,
)
from tests.support.listening import Recorder

NAN = float("nan")
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
EMBED = "model.embed_tokens.weight"


def written(folder: Path, tensors: Tensors) -> LanguageModel:
    """SPOKEN with other tensors."""
    folder.mkdir()
    save(tensors, folder)
    write_config(folder, config_of(SPOKEN))
    for name in TOKENIZER_FILES:
        shutil.copy(DEMO_MODEL / name, folder)
    return load_model(folder).model


def with_value(array: mx.array, value: float, *place: int) -> mx.array:
    changed = np.array(array)
    changed[place] = value
    return mx.array(changed)


def answer(
    model: LanguageModel,
    tokenizer: Tokenizer,
    recorder: Recorder,
    ids: list[int],
    options: Options,
    chunk: int = 0,
) -> Outcome:
    prompt = Prompt((PromptPart("user", "by hand", tuple(ids)),))
    return Generator(model, tokenizer).generate(prompt, PrefillPolicy(chunk), options, recorder)


# --- damaged weights ---


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda t: {NORM: mx.full((SPOKEN.hidden,), NAN)}, id="a norm of NaN"),
        pytest.param(lambda t: {NORM: mx.full((SPOKEN.hidden,), float("inf"))}, id="an infinite norm"),
        pytest.param(lambda t: {HEAD: with_value(t[HEAD], NAN, 100, 0)}, id="one NaN in the head"),
        pytest.param(
            lambda t: {EMBED: with_value(t[EMBED], NAN, 300, 5)}, id="one NaN in a word of the prompt"
        ),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_with_a_nan_give_an_error_and_no_text(
    spoil, temperature: float, tmp_path: Path, demo_tokenizer: Tokenizer
):
    tensors = stored_tensors(SPOKEN)
    model = written(tmp_path / "model", tensors | spoil(tensors))
    for chunk in (0, 64):
        recorder = Recorder()
        options = Options(Sampling(temperature=temperature, seed=1, top_k=40, min_p=0.01), max_tokens=8)
        with pytest.raises(NumericsError, match="not numbers") as refused:
            answer(model, demo_tokenizer, recorder, list(range(250, 450)), options, chunk)
        assert refused.value.kind == "numerics"
        assert not recorder.answered


def test_a_nan_that_only_the_answer_meets_ends_it_with_an_error(
    shop: Shop, tmp_path: Path, demo_tokenizer: Tokenizer
):
    ids, options = list(range(250, 290)), Options(max_tokens=8)
    first = answer(shop.model(SPOKEN), demo_tokenizer, Recorder(), ids, options).ids[0]
    assert first not in ids
    tensors = stored_tensors(SPOKEN)
    tensors[EMBED] = with_value(tensors[EMBED], NAN, first, 0)
    with pytest.raises(NumericsError):
        answer(written(tmp_path / "model", tensors), demo_tokenizer, Recorder(), ids, options)


def test_after_the_error_nothing_of_the_bad_reading_is_passed_off_as_an_answer(
    tmp_path: Path, demo_tokenizer: Tokenizer
):
    """The prompt's snapshot may be kept; whoever goes on from it must get the error as well."""
    tensors = stored_tensors(SPOKEN)
    tensors[EMBED] = with_value(tensors[EMBED], NAN, 300, 5)
    generator = Generator(written(tmp_path / "model", tensors), demo_tokenizer)
    for ids in (list(range(250, 450)), list(range(250, 460))):
        recorder = Recorder()
        prompt = Prompt((PromptPart("user", "by hand", tuple(ids)),))
        with pytest.raises(NumericsError):
            generator.generate(prompt, PrefillPolicy(64), Options(max_tokens=4), recorder)
        assert not recorder.answered


# --- temperatures next to nothing ---


@pytest.mark.parametrize(
    "temperature",
    [1e-20, 1e-38, 1e-40, 1e-45, 1e-46, 1e-60, 5e-324],
)
@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.05}], ids=str)
def test_a_temperature_next_to_nothing_takes_the_greedy_token(temperature: float, options: dict[str, float]):
    for seed in range(4):
        logits = mx.array([np.random.default_rng(seed).normal(0, 8, 200).tolist()])
        sampler = Sampler(Sampling(temperature=temperature, **options), seed)  # pyright: ignore[reportArgumentType]
        assert as_int(sampler(logits)) == as_int(mx.argmax(logits))


def test_a_temperature_next_to_nothing_writes_the_greedy_answer(shop: Shop, demo_tokenizer: Tokenizer):
    model = shop.model(SPOKEN)
    ids = random_ids(model, 100, seed=5)

    def ids_at(temperature: float) -> tuple[int, ...]:
        options = Options(Sampling(temperature=temperature, seed=3), max_tokens=12)
        return answer(model, demo_tokenizer, Recorder(), ids, options).ids

    assert ids_at(1e-45) == ids_at(1e-40) == ids_at(0.0)


# --- seeds ---


@pytest.mark.parametrize("seed", [-1, 1 << 64, -(10**30), 10**30])
def test_a_seed_outside_the_range_is_refused_before_anything_is_read(
    shop: Shop, demo_tokenizer: Tokenizer, seed: int
):
    recorder = Recorder()
    options = Options(Sampling(temperature=1.0, seed=seed), max_tokens=2)
    with pytest.raises(SettingError, match=r"seed must be between 0 and 2\^64 - 1") as refused:
        answer(shop.model(SPOKEN), demo_tokenizer, recorder, [100, 101], options)
    assert str(seed) in str(refused.value)
    assert recorder.heard == []


@pytest.mark.parametrize("seed", [0, 1, (1 << 32) + 1, (1 << 63), (1 << 64) - 1])
def test_every_seed_in_the_range_can_be_used(shop: Shop, demo_tokenizer: Tokenizer, seed: int):
    options = Options(Sampling(temperature=1.0, seed=seed), max_tokens=2)
    assert len(answer(shop.model(SPOKEN), demo_tokenizer, Recorder(), [100, 101], options).ids) in (1, 2)


# --- what generation_config.json asks for ---


def sampling_from(shop: Shop, folder: Path, text: str) -> Sampling:
    shutil.copytree(shop.folder(SPOKEN), folder)
    (folder / "generation_config.json").write_text(text, encoding="utf-8")
    return default_sampling(load_model(folder))


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 100},
        {"temperature": "hot"},
        {"temperature": 10**400},
        {"temperature": -1},
        {"temperature": NAN},
        {"temperature": float("inf")},
        {"temperature": []},
        {"temperature": None},
        {"top_p": 0},
        {"top_p": 7},
        {"top_k": -3},
        {"top_k": float("inf")},
        {"top_k": "many"},
    ],
    ids=lambda fields: str(fields)[:30],
)
def test_a_default_that_makes_no_sense_falls_back_to_one_that_does(shop: Shop, tmp_path: Path, fields):
    wanted = sampling_from(shop, tmp_path / "model", json.dumps({"do_sample": True} | fields))
    assert wanted == Sampling(temperature=0.6)
    check_sampling(wanted)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null"])
def test_a_file_of_defaults_that_is_none_is_as_if_it_were_not_there(shop: Shop, tmp_path: Path, text: str):
    assert sampling_from(shop, tmp_path / "model", text) == Sampling(temperature=0.6)


def test_temperature_top_p_and_top_k_are_taken_from_the_file(shop: Shop, tmp_path: Path):
    text = json.dumps({"do_sample": True, "temperature": 0.8, "top_p": 0.9, "top_k": 40})
    assert sampling_from(shop, tmp_path / "model", text) == Sampling(temperature=0.8, top_p=0.9, top_k=40)


def test_a_model_that_is_not_to_be_sampled_is_greedy(shop: Shop, tmp_path: Path):
    text = json.dumps({"do_sample": False, "temperature": 0.8})
    assert sampling_from(shop, tmp_path / "model", text) == Sampling(temperature=0.0)
