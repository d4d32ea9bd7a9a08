"""A tokenizer that changes text instead of cutting it must never be read with: nothing may be lost unsaid."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.api import (
    Document,
    Event,
    Failed,
    Generate,
    LoadModel,
    Message,
    ModelReady,
    TextDelta,
    next_request,
)
from engine.errors import TokenizerError
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import DEMO_MODEL, SPOKEN, Shop

GENEROUS = 60.0


def split(pattern: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"normalizer": {"type": "Replace", "pattern": pattern, "content": content}}


def before_bytes(part: dict[str, Any]) -> dict[str, Any]:
    """The demo model's pre-tokenizer with a part in front."""
    source = json.loads((DEMO_MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    parts = source["pre_tokenizer"]["pretokenizers"]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [part, *parts]}}


PREFIXED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}

# fields of tokenizer.json, a text that they change, and one that they leave alone
CHANGING = {
    "digits deleted": (replace({"Regex": "[0-9]+"}, ""), "The rent is 482 crowns.", "The rent is high."),
    "letters exchanged": (replace({"String": "ß"}, "ss"), "Straße", "Strand"),
    "lower case": ({"normalizer": {"type": "Lowercase"}}, "The code is XK-7.", "the code is xk-7."),
    "NFKC": ({"normalizer": {"type": "NFKC"}}, "10² ﬁelds", "100 fields"),
    "NFD": ({"normalizer": {"type": "NFD"}}, "caf\u00e9", "cafe\u0301"),
    "a second normalizer": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}},
        " indented",
        "not indented",
    ),
    "punctuation removed": (
        before_bytes({"type": "Punctuation", "behavior": "Removed"}),
        "Pay 1,000; not 1.000!",
        "Pay a thousand",
    ),
    "a split that removes": (before_bytes(split(r"\d+", "Removed")), "Room 12", "Room twelve"),
    "white space removed": (before_bytes({"type": "WhitespaceSplit"}), "two words", "oneword"),
    "white space and more": (before_bytes({"type": "Whitespace"}), "two words", "oneword"),
    "a blank in front": ({"pre_tokenizer": PREFIXED}, "word", " word"),
}


def with_fields(folder: Path, fields: dict[str, Any]) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the demo model's tokenizer, to be changed."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"):
        shutil.copy(DEMO_MODEL / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", CHANGING)
def test_a_text_that_the_tokenizer_would_change_is_refused(folder: Path, name: str):
    fields, changed, unchanged = CHANGING[name]
    try:
        tokenizer = Tokenizer.load(with_fields(folder, fields))
    except TokenizerError:
        return  # refused as a whole is as good
    for call in (tokenizer.encode_text, tokenizer.count):
        with pytest.raises(TokenizerError, match="changes the text"):
            call(changed)
        with pytest.raises(TokenizerError, match="changes the text"):
            call(f"{unchanged} {changed} {unchanged}" if name != "a blank in front" else changed * 2)
    assert tokenizer.decode(tokenizer.encode_text(unchanged)) == unchanged


def test_one_character_lost_deep_in_a_long_text_is_noticed(folder: Path):
    tokenizer = Tokenizer.load(with_fields(folder, replace({"String": "\u00ad"}, "")))
    page = "The ferryman counted the barrels twice before the first bell. " * 2000
    assert tokenizer.decode(tokenizer.encode_text(page)) == page
    with pytest.raises(TokenizerError, match=r"bytes became"):
        tokenizer.encode_text(f"{page}bar\u00adrel {page}")


def test_a_text_changed_to_one_of_the_same_length_is_noticed(folder: Path):
    tokenizer = Tokenizer.load(with_fields(folder, replace({"String": "7"}, "1")))
    with pytest.raises(TokenizerError, match="changes the text"):
        tokenizer.encode_text("blue-falcon-77")


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "x"},
        {"model": 5},
        {"model": []},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": 5}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": None}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [5, "ByteLevel"]}},
        {"pre_tokenizer": "ByteLevel"},
        {"pre_tokenizer": [1]},
        {"normalizer": {"type": "Sequence", "normalizers": "all"}},
        {"normalizer": 7},
        {"decoder": {"type": "Sequence", "decoders": 5}},
        {"decoder": ["ByteLevel"]},
        {"decoder": "ByteLevel"},
        {"added_tokens": 5},
        {"added_tokens": "x"},
        {"added_tokens": [5]},
        {"added_tokens": {"a": 1}},
        {"added_tokens": [{"id": [], "content": {}}]},
        {"post_processor": 5, "truncation": "x", "model": None},
    ],
    ids=str,
)
def test_a_malformed_part_of_the_tokenizer_file_is_one_kind_of_error(folder: Path, fields: dict[str, Any]):
    with pytest.raises(TokenizerError) as refused:
        Tokenizer.load(with_fields(folder, fields))
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(
    "model",
    [
        {"vocab": 5},
        {"vocab": ["a"]},
        {"vocab": {"a": "b"}},
        {"merges": 5},
        {"merges": "a b"},
        {"merges": [5]},
        {"merges": ["ab"]},
        {"merges": [["a", "b", "c"]]},
        {"merges": [[1, 2]]},
        {"merges": [[[], {}]]},
        {"merges": {"a": "b"}},
    ],
    ids=str,
)
def test_a_malformed_vocabulary_is_one_kind_of_error(folder: Path, model: dict[str, Any]):
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    with pytest.raises(TokenizerError):
        Tokenizer.load(with_fields(folder, {"model": source | model}))


# --- what a person sees of it ---


def events_of(run: Callable[[Engine], None]) -> list[Event]:
    events: list[Event] = []
    engine = Engine(events.append)
    run(engine)
    engine.start()
    while not any(isinstance(event, Failed) for event in events):
        assert not engine._closing
        engine._model_thread.join(0.02)
    assert engine.close(GENEROUS)
    return events


def test_a_document_that_would_lose_its_numbers_is_not_answered_about(shop: Shop, tmp_path: Path):
    folder = shutil.copytree(shop.folder(SPOKEN), tmp_path / "model")
    with_fields(folder, replace({"Regex": "[0-9]+"}, ""))
    pages = Document("lease.txt", "The rent for the boathouse is 482 crowns a month.")
    ask = Generate(next_request(), (Message("user", "How much is the rent?", (pages,)),), max_tokens=4)

    def run(engine: Engine) -> None:
        engine.submit(LoadModel(next_request(), folder))
        engine.submit(ask)

    events = events_of(run)
    assert any(isinstance(event, ModelReady) for event in events)
    failed = next(event for event in events if isinstance(event, Failed))
    assert (failed.request, failed.error.kind) == (ask.request, "tokenizer")
    assert "Take tokenizer.json from the original model." in failed.error.message
    assert not any(isinstance(event, TextDelta) for event in events)


def test_counting_such_a_document_fails_too_instead_of_counting_what_is_left(folder: Path):
    tokenizer = Tokenizer.load(with_fields(folder, replace({"Regex": "[0-9]+"}, "")))
    with pytest.raises(TokenizerError):
        tokenizer.count("482 crowns")
