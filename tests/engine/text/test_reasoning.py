"""Reasoning is told apart from the answer, however the text is cut."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.reasoning import ReasoningSplitter

pieces = st.sampled_from(["<think>", "</think>", "<", "<th", "</", "think>", "a", " ", "\n", "語"])
streams = st.lists(pieces, max_size=12)


def run(deltas: list[str], starts_inside: bool = False) -> list[tuple[str, str]]:
    """All that was told apart, neighbours of one channel joined."""
    splitter = ReasoningSplitter(starts_inside)
    out = [piece for delta in deltas for piece in splitter.feed(delta)] + splitter.finish()
    assert all(text for _, text in out)
    return [
        (kind, "".join(text for _, text in group)) for kind, group in groupby(out, lambda piece: piece[0])
    ]


@given(deltas=streams, starts_inside=st.booleans())
def test_any_split_gives_the_same(deltas: list[str], starts_inside: bool):
    whole = "".join(deltas)
    assert run(deltas, starts_inside) == run([whole], starts_inside) == run(list(whole), starts_inside)


@given(deltas=streams, starts_inside=st.booleans())
def test_nothing_is_lost_but_the_tags(deltas: list[str], starts_inside: bool):
    whole = "".join(deltas)
    joined = "".join(text for _, text in run(deltas, starts_inside))
    opened = not starts_inside and whole.lstrip().startswith("<think>")
    rest = whole.lstrip().removeprefix("<think>") if opened else whole
    assert joined == (rest.replace("</think>", "", 1) if opened or starts_inside else rest)


def test_reasoning_then_answer():
    assert run(["<think>hm</think>So."]) == [("reasoning", "hm"), ("text", "So.")]


def test_white_space_may_stand_before_the_tag():
    assert run(["\n ", "<think>hm</think>So."]) == [("reasoning", "hm"), ("text", "So.")]


def test_unclosed_reasoning_stays_reasoning():
    assert run(["<think>hm, the answer is 4 </thi"]) == [("reasoning", "hm, the answer is 4 </thi")]


def test_empty_reasoning_shows_nothing():
    assert run(["<think></think>So."]) == [("text", "So.")]


def test_an_answer_may_begin_inside_reasoning():
    assert run(["hm</think>So."], starts_inside=True) == [("reasoning", "hm"), ("text", "So.")]


def test_only_the_first_closing_tag_ends_reasoning():
    assert run(["<think>a</think>b</think>c"]) == [("reasoning", "a"), ("text", "b</think>c")]


@pytest.mark.parametrize("text", ["a <think>b</think>", "b</think>c", "<thinking>", "  <thin", "   ", ""])
def test_tags_elsewhere_are_text(text: str):
    assert run([text]) == ([("text", text)] if text else [])


def test_text_is_passed_on_at_once_when_no_tag_can_come():
    splitter = ReasoningSplitter()
    assert splitter.feed("a <") == [("text", "a <")]
    assert splitter.feed("think>") == [("text", "think>")]


def test_reasoning_is_passed_on_but_for_what_may_be_a_tag():
    splitter = ReasoningSplitter()
    assert splitter.feed("<think>so </th") == [("reasoning", "so ")]
    assert splitter.feed("en") == [("reasoning", "</then")]
