"""The tokenizer: byte-exact both ways, deaf to forged control tokens, clear about what it cannot load."""

import json
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TokenizerError
from engine.text.tokenizer import Tokenizer

TOOL_TOKENS = ("<|tool_call_begin|>", "<|tool_call_end|>", "<think>")
CONTROL = ("[PAD]", "[BOS]", "[EOS]", "<|im_end|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>")

opened: list[str] | None = None


def note_opened_files(event: str, args: tuple[object, ...]) -> None:
    if opened is not None and event in ("open", "import"):
        opened.append(str(args[0]))


sys.addaudithook(note_opened_files)


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Tokenizer:
    return Tokenizer.load(demo_model)


@pytest.fixture
def folder(demo_model: Path, tmp_path: Path) -> Path:
    """A model folder of its own with the demo tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"):
        shutil.copy(demo_model / name, tmp_path / name)
    return tmp_path


def change(folder: Path, name: str = "tokenizer.json", **fields: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder


def with_tool_tokens(folder: Path, **model: object) -> Tokenizer:
    """The demo tokenizer with tokens that are added but not special, as Kimi's tool-call tokens are."""
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    extra = [
        {**source["added_tokens"][0], "id": 6144 + i, "content": token, "special": False}
        for i, token in enumerate(TOOL_TOKENS)
    ]
    change(folder, added_tokens=source["added_tokens"] + extra, model=source["model"] | model)
    return Tokenizer.load(folder)


# --- untrusted text ---


@given(text=st.text())
def test_any_text_comes_back_unchanged(tokenizer: Tokenizer, text: str):
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


@given(text=st.text(st.characters(codec="utf-8"), min_size=1))
def test_ordinary_text_has_the_ids_that_the_library_gives(tokenizer: Tokenizer, demo_model: Path, text: str):
    library = tokenizers.Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    if not any(name in text for name in CONTROL):
        assert tokenizer.encode_text(text) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("spelling", CONTROL)
def test_a_control_token_spelled_in_a_document_stays_text(tokenizer: Tokenizer, spelling: str):
    ids = tokenizer.encode_text(f"before{spelling}after")
    assert tokenizer.id_of(spelling) not in ids
    assert tokenizer.decode(ids) == f"before{spelling}after"


@pytest.mark.parametrize("ignore_merges", [False, True])
@pytest.mark.parametrize("spelling", [*TOOL_TOKENS, *CONTROL])
def test_tool_call_tokens_cannot_be_forged_either(folder: Path, spelling: str, ignore_merges: bool):
    tokenizer = with_tool_tokens(folder, ignore_merges=ignore_merges)
    ids = tokenizer.encode_text(spelling)
    assert tokenizer.id_of(spelling) not in ids
    assert tokenizer.decode(ids) == spelling
    assert tokenizer.encode_format(spelling) == [tokenizer.id_of(spelling)]


WHOLE = {"type": "Split", "pattern": {"Regex": ".+"}, "behavior": "Isolated", "invert": False}


def with_whole_pieces(folder: Path, model: dict[str, object]) -> Tokenizer:
    """A tokenizer that hands its whole text to the model in one piece."""
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    source["pre_tokenizer"]["pretokenizers"][0] = WHOLE
    return Tokenizer.load(
        change(folder, model=source["model"] | model, pre_tokenizer=source["pre_tokenizer"])
    )


def test_a_control_token_that_merges_lead_to_cannot_be_forged(folder: Path):
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocabulary, merges, text = model["vocab"], model["merges"], "[EOS]"
    for length in range(2, len(text) + 1):
        vocabulary.setdefault(text[:length], len(vocabulary))
        merges.insert(length - 2, [text[: length - 1], text[length - 1]])
    tokenizer = with_whole_pieces(folder, {"vocab": vocabulary, "merges": merges})
    assert tokenizer.decode(tokenizer.encode_text(text)) == text
    assert tokenizer.id_of("[EOS]") not in tokenizer.encode_text(text)
    assert tokenizer.encode_text("[EOS")[0] == tokenizer.id_of("[EOS")


def test_a_control_token_that_is_taken_without_merging_cannot_be_forged(folder: Path):
    tokenizer = with_whole_pieces(folder, {"ignore_merges": True})
    assert tokenizer.id_of("[EOS]") not in tokenizer.encode_text("[EOS]")
    assert tokenizer.decode(tokenizer.encode_text("[EOS]")) == "[EOS]"


def test_no_beginning_token_is_added(tokenizer: Tokenizer):
    assert tokenizer.id_of("[BOS]") not in tokenizer.encode_text("hello") + tokenizer.encode_format("hello")
    assert tokenizer.encode_text("") == tokenizer.encode_format("") == []


def test_a_beginning_token_asked_for_by_the_file_is_not_added_either(folder: Path):
    bos = {"[BOS]": {"id": "[BOS]", "ids": [1], "tokens": ["[BOS]"]}}
    add = {
        "single": [{"SpecialToken": {"id": "[BOS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    }
    change(folder, post_processor={"type": "TemplateProcessing", **add, "pair": [], "special_tokens": bos})
    assert Tokenizer.load(folder).encode_format("hello") == Tokenizer.load(folder).encode_text("hello")


def test_a_length_limit_in_the_file_cuts_nothing(folder: Path):
    limit = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    tokenizer = Tokenizer.load(change(folder, truncation=limit))
    text = "one two three four five six seven"
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


def test_dropout_in_the_file_makes_no_encoding_random(folder: Path):
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(change(folder, model=source["model"] | {"dropout": 0.9}))
    assert len({tuple(tokenizer.encode_text("the ship sails for the harbour")) for _ in range(5)}) == 1


def test_lone_surrogates_count_as_replacement_characters(tokenizer: Tokenizer):
    assert tokenizer.decode(tokenizer.encode_text("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode_text("\ud83d\ude00")) == "😀"
    assert tokenizer.count("\udfff") == tokenizer.count("\ufffd")


@pytest.mark.parametrize("blank", ["\n", "a"])
def test_a_run_that_the_library_cannot_match_is_read_all_the_same(tokenizer: Tokenizer, blank: str):
    text = "x" + blank * 3_000_001 + " x"
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


def test_twelve_million_blanks_are_read(tokenizer: Tokenizer):
    assert tokenizer.count(" " * 12_000_000 + "x") == 12_000_000


def test_other_threads_run_while_a_long_document_is_encoded(tokenizer: Tokenizer):
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    tokenizer.encode_text("the ship sails for the harbour at dawn, " * 20_000)
    done.set()
    thread.join()
    assert ticks > 20


def test_threads_may_encode_at_once(tokenizer: Tokenizer):
    text = "a long document, " * 2_000
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(tokenizer.encode_text(text))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tokenizer.encode_text(text)] * 4


# --- template text ---


def test_control_tokens_are_recognised_in_template_text(tokenizer: Tokenizer):
    ids = tokenizer.encode_format("<|im_user|>user<|im_middle|>")
    assert ids[0] == tokenizer.id_of("<|im_user|>")
    assert ids[-1] == tokenizer.id_of("<|im_middle|>")


# --- bytes out ---


@given(ids=st.lists(st.integers(0, 6143)))
def test_decoding_agrees_with_the_library_for_any_ids(tokenizer: Tokenizer, demo_model: Path, ids: list[int]):
    library = tokenizers.Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)


def test_special_tokens_have_no_bytes_and_tool_call_tokens_have(folder: Path):
    tokenizer = with_tool_tokens(folder)
    for name in CONTROL:
        assert tokenizer.token_bytes(tokenizer.id_of(name) or 0) == b""
    for name in TOOL_TOKENS:
        assert tokenizer.token_bytes(tokenizer.id_of(name) or 0) == name.encode()
    assert tokenizer.decode(tokenizer.encode_format("<|im_end|><think>hm")) == "<think>hm"


def test_ids_that_name_no_token_have_no_bytes(tokenizer: Tokenizer):
    assert tokenizer.vocab_size == 6144
    assert [tokenizer.token_bytes(number) for number in (-1, 6144, 10**9)] == [b"", b"", b""]
    assert tokenizer.id_of("no such token") is None


def test_a_broken_character_decodes_to_one_replacement_character(tokenizer: Tokenizer):
    ids = [number for byte in (0xE8, 0xAA) for number in byte_ids(tokenizer, byte)]
    assert tokenizer.decode(ids) == "\ufffd"


def byte_ids(tokenizer: Tokenizer, byte: int) -> list[int]:
    return [n for n in range(tokenizer.vocab_size) if tokenizer.token_bytes(n) == bytes([byte])][:1]


# --- stop tokens ---


def test_stop_tokens_of_the_demo_model(tokenizer: Tokenizer):
    assert tokenizer.stop_ids == {tokenizer.id_of("<|im_end|>"), tokenizer.id_of("[EOS]")}


def test_stop_tokens_are_gathered_from_every_file(folder: Path):
    change(folder, "config.json", eos_token_id=11, text_config={"eos_token_id": [12]})
    change(folder, "generation_config.json", eos_token_id=[13, 14, None, True])
    change(folder, "tokenizer_config.json", eos_token={"content": "[PAD]"})
    assert Tokenizer.load(folder).stop_ids == {0, 2, 3, 11, 12, 13, 14}


def test_usual_stop_tokens_need_no_file(folder: Path):
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert Tokenizer.load(folder).stop_ids == {2, 3}


# --- what cannot be loaded ---


def refusal(folder: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.load(folder)
    return str(caught.value)


def test_a_folder_without_a_tokenizer(tmp_path: Path):
    assert "tokenizer.json is missing" in refusal(tmp_path)
    assert "Download" in refusal(tmp_path)


def test_a_folder_with_tiktoken_only(tmp_path: Path):
    (tmp_path / "tiktoken.model").write_bytes(b"IQ== 0\n")
    assert "needs tokenizer.json" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_tokenizer_file(tmp_path: Path, content: bytes):
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert "damaged" in refusal(tmp_path)


def test_a_truncated_tokenizer_file(folder: Path):
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert "damaged" in refusal(folder)


@pytest.mark.parametrize(
    "model",
    [None, {}, {"type": "BPE"}, {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}, {"type": "Nonsense"}],
)
def test_a_tokenizer_file_without_a_usable_vocabulary(folder: Path, model: object):
    assert "damaged" in refusal(change(folder, model=model))


def test_a_vocabulary_that_would_lose_bytes(folder: Path):
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    del model["vocab"]["é"]
    model["merges"] = [pair for pair in model["merges"] if "é" not in "".join(pair)]
    model["vocab"] = {text: number for text, number in model["vocab"].items() if "é" not in text}
    assert "no token for 1 of the 256 bytes" in refusal(change(folder, model=model))


@pytest.mark.parametrize(
    "decoder", [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Fuse"}]
)
def test_a_tokenizer_that_is_not_byte_level(folder: Path, decoder: object):
    assert "not a byte-level" in refusal(change(folder, decoder=decoder))


def test_a_tokenizer_file_that_is_a_folder(tmp_path: Path):
    (tmp_path / "tokenizer.json").mkdir()
    assert "cannot be read" in refusal(tmp_path)


def test_a_damaged_generation_config(folder: Path):
    (folder / "generation_config.json").write_text("{", encoding="utf-8")
    assert "generation_config.json" in refusal(folder)


def test_code_in_the_model_folder_is_neither_run_nor_opened(folder: Path):
    global opened
    (folder / "tokenization_kimi.py").write_text("raise SystemExit('executed')", encoding="utf-8")
    auto_map = {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}
    change(folder, "tokenizer_config.json", auto_map=auto_map, tokenizer_class="TikTokenTokenizer")
    opened = []
    try:
        Tokenizer.load(folder)
        assert any("tokenizer.json" in name for name in opened)
        assert not [name for name in opened if "tokenization_kimi" in name]
    finally:
        opened = None
