"""What was decided about the forms of a model is in its description."""

from pathlib import Path

import pytest

from engine.checkpoint.loader import kernel_choices, load_model
from engine.runtime import describe
from engine.text.chat_format import ChatFormat
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import DEMO_VOCABULARY, Recipe, as_on_a_gpu, write


def test_every_choice_of_a_packed_model_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    as_on_a_gpu(monkeypatch)
    folder = write(Recipe(bits=4, group=32, tokenizer=True, vocabulary=DEMO_VOCABULARY), tmp_path / "packed")
    loaded = load_model(folder)
    choices = kernel_choices(loaded.model)
    assert {choice.name for choice in choices} == {
        "Projections, 4-bit, many tokens, unpacked",
        "Experts, many tokens, ordered",
        "Experts, many tokens, batched",
    }
    assert len(set(choices)) == len(choices)
    info = describe(loaded, ChatFormat.load(folder, Tokenizer.load(folder)))
    assert [(f.name, f.used, f.seconds, f.plain_seconds, f.reason) for f in info.forms] == [
        (c.name, c.used, c.seconds, c.plain_seconds, c.reason) for c in choices
    ]
    assert all(form.plain_seconds > 0 for form in info.forms)


def test_the_demo_model_has_nothing_to_choose_on_a_cpu(demo_model: Path):
    assert kernel_choices(load_model(demo_model).model) == ()
