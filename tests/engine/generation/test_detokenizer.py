"""Tokens to text while they come: exact for every split, and never half a character."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.generation.detokenizer import StreamingDetokenizer
from engine.text.tokenizer import Tokenizer

DIFFICULT = [
    "今日は天気がいいので、子供たちは庭で遊んでいます。",
    "👨‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumb, 🇩🇪 country",
    "e\u0301 and é, Z̷̢a̶l̴g̵o̶, \u202eright to left\u202c, \u200bzero width",
    "𝕌𝕟𝕚𝕔𝕠𝕕𝕖 𒀀 \U0010ffff",
    "a real \ufffd in the text",
]


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Tokenizer:
    return Tokenizer.load(demo_model)


@pytest.fixture(scope="module")
def byte_tokens(tokenizer: Tokenizer) -> dict[int, int]:
    """For each byte the token that is this byte alone."""
    single = [(tokenizer.token_bytes(n), n) for n in range(tokenizer.vocab_size)]
    return {content[0]: n for content, n in single if len(content) == 1}


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = StreamingDetokenizer(tokenizer)
    return [*(detokenizer.add(number) for number in ids), detokenizer.finish()]


@pytest.mark.parametrize("text", DIFFICULT)
def test_characters_cut_into_single_bytes_arrive_whole(
    tokenizer: Tokenizer, byte_tokens: dict[int, int], text: str
):
    pieces = stream(tokenizer, [byte_tokens[byte] for byte in text.encode()])
    assert "".join(pieces) == text
    assert sorted(piece for piece in pieces if piece) == sorted(text)


@given(text=st.text())
def test_the_tokens_of_any_text_stream_back_to_it(tokenizer: Tokenizer, text: str):
    assert "".join(stream(tokenizer, tokenizer.encode_text(text))) == text


@given(ids=st.lists(st.integers(-1, 6200)))
def test_any_tokens_stream_to_what_they_decode_to(tokenizer: Tokenizer, ids: list[int]):
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@given(data=st.binary())
def test_any_bytes_stream_to_what_they_decode_to(
    tokenizer: Tokenizer, byte_tokens: dict[int, int], data: bytes
):
    assert "".join(stream(tokenizer, [byte_tokens[byte] for byte in data])) == data.decode("utf-8", "replace")


@given(text=st.text(st.sampled_from("a語😀\u200dé"), min_size=1), cut=st.integers(0, 3))
def test_a_replacement_character_means_that_a_character_was_really_cut(
    tokenizer: Tokenizer, byte_tokens: dict[int, int], text: str, cut: int
):
    data = text.encode()[: len(text.encode()) - cut]
    pieces = stream(tokenizer, [byte_tokens[byte] for byte in data])
    assert "\ufffd" not in "".join(pieces[:-1])
    assert (pieces[-1] == "\ufffd") == (data.decode("utf-8", "ignore").encode() != data)


def test_control_tokens_show_nothing_and_do_not_disturb_a_waiting_character(
    tokenizer: Tokenizer, byte_tokens: dict[int, int]
):
    end = tokenizer.id_of("<|im_end|>")
    assert end is not None
    first, second, third = "語".encode()
    ids = [byte_tokens[first], end, byte_tokens[second], byte_tokens[third]]
    assert stream(tokenizer, ids) == ["", "", "", "語", ""]


def test_after_the_end_it_can_be_used_again(tokenizer: Tokenizer, byte_tokens: dict[int, int]):
    detokenizer = StreamingDetokenizer(tokenizer)
    detokenizer.add(byte_tokens[0xE8])
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.add(byte_tokens[ord("a")]) == "a"
    assert detokenizer.finish() == ""
