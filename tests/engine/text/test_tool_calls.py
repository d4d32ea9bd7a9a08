"""Tool calls are found in every cut of a stream; marks never leak; cut calls are reported as such."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ToolCall
from engine.text.reasoning import ReasoningSplitter
from engine.text.tool_calls import Piece, ToolCallParser

BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
WEATHER = (
    '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
)
TIME = '<|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{"zone": "UTC<|"}<|tool_call_end|>'
weather = ToolCall("functions.get_weather:0", "get_weather", '{"city": "Paris"}', complete=True)
time = ToolCall("functions.time:1", "time", '{"zone": "UTC<|"}', complete=True)

GOLDEN: dict[str, tuple[str, list[Piece]]] = {
    "no call": ("Plain <b>text</b> with a < and a <|.", ["Plain <b>text</b> with a < and a <|."]),
    "one call": (f"{BEGIN}{WEATHER}{END}", [weather]),
    "text before": (f"Let me see.\n{BEGIN}{WEATHER}{END}", ["Let me see.\n", weather]),
    "several calls": (f"{BEGIN}{WEATHER}{TIME}{END}", [weather, time]),
    "other spelling": (
        f"{BEGIN}{WEATHER}{END}".replace("tool_calls_section", "tool_call_section"),
        [weather],
    ),
    "white space in and behind": (f"{BEGIN}\n {WEATHER}\n{TIME}\n{END}\n\n ", [weather, time]),
    "text behind": (f"{BEGIN}{WEATHER}{END}\n\nDone.", [weather, "Done."]),
    "two sections": (f"{BEGIN}{WEATHER}{END}and{BEGIN}{TIME}{END}", [weather, "and", time]),
    "call without a section": (f"See {WEATHER}\nthere", ["See ", weather, "there"]),
    "no end of the section": (f"{BEGIN}{WEATHER}{TIME}", [weather, time]),
    "cut in the arguments": (
        f"{BEGIN}{WEATHER}{TIME[: TIME.index('UTC')]}",
        [weather, ToolCall("functions.time:1", "time", '{"zone": "', complete=False)],
    ),
    "cut in the name": (
        f"{BEGIN}<|tool_call_begin|>functions.ti",
        [ToolCall("functions.ti", "ti", "", complete=False)],
    ),
    "cut behind the beginning": (f"{BEGIN}<|tool_call_begin|>", [ToolCall("", "", "", complete=False)]),
    "cut behind the section's beginning": (f"ok{BEGIN}", ["ok"]),
    "no argument mark": (
        f"{BEGIN}<|tool_call_begin|>functions.time:1<|tool_call_end|>{END}ok",
        [ToolCall("functions.time:1", "time", "", complete=False), "ok"],
    ),
    "no end of the call": (
        f"{BEGIN}{WEATHER.removesuffix('<|tool_call_end|>')}{TIME}{END}",
        [ToolCall("functions.get_weather:0", "get_weather", '{"city": "Paris"}', complete=False), time],
    ),
    "section ends inside a call": (
        f"{BEGIN}{WEATHER.removesuffix('<|tool_call_end|>')}{END}",
        [ToolCall("functions.get_weather:0", "get_weather", '{"city": "Paris"}', complete=False)],
    ),
    "two argument marks": (
        WEATHER.replace("Paris", "<|tool_call_argument_begin|>"),
        [ToolCall("functions.get_weather:0", "get_weather", '{"city": ""}', complete=False)],
    ),
    "no name": (
        "<|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>",
        [ToolCall("", "", "{}", complete=False)],
    ),
    "words that belong to no call": (
        f"{BEGIN} stray {WEATHER}{END}",
        [ToolCall("", "", "stray", complete=False), weather],
    ),
    "foreign id": (
        WEATHER.replace("functions.get_weather:0", "call_7f"),
        [ToolCall("call_7f", "call_7f", '{"city": "Paris"}', complete=True)],
    ),
    "marks without a place": (f"a{END}b<|tool_call_end|>c<|tool_call_argument_begin|>d", ["abcd"]),
}
MARKS = ("tool_call_", "tool_calls_", "section_", "argument_begin")


def run(deltas: list[str]) -> list[Piece]:
    """All that was found, neighbouring texts joined."""
    parser = ToolCallParser()
    out: list[Piece] = []
    for piece in [piece for delta in deltas for piece in parser.feed(delta)] + parser.finish():
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return out


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stream(name: str):
    text, expected = GOLDEN[name]
    assert run([text]) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stream_cut_in_two_at_every_place(name: str):
    text, expected = GOLDEN[name]
    for cut in range(len(text) + 1):
        assert run([text[:cut], text[cut:]]) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stream_in_single_characters(name: str):
    text, expected = GOLDEN[name]
    assert run(list(text)) == expected


@given(name=st.sampled_from(sorted(GOLDEN)), cuts=st.lists(st.integers(0, 300)))
def test_golden_stream_in_any_deltas(name: str, cuts: list[int]):
    text, expected = GOLDEN[name]
    bounds = [0, *sorted(cuts), len(text)]
    assert run([text[start:end] for start, end in pairwise(bounds)]) == expected


fragments = st.sampled_from(
    [BEGIN, END, WEATHER, TIME, "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
     "<|tool_ca", "<|", "a", " ", "\n", "{}", "f:0"]
)  # fmt: skip


@given(deltas=st.lists(fragments, max_size=10))
def test_any_stream_gives_the_same_in_any_cut_and_leaks_no_mark(deltas: list[str]):
    whole = "".join(deltas)
    found = run(deltas)
    assert found == run([whole]) == run(list(whole))
    texts = [piece for piece in found if isinstance(piece, str)]
    assert not [text for text in texts if "section_begin|>" in text or "<|tool_call_begin|>" in text]
    assert sum(isinstance(piece, ToolCall) for piece in found) >= whole.count(WEATHER)


@pytest.mark.parametrize("cut", range(1, len(BEGIN + WEATHER)))
def test_a_stream_cut_by_the_length_limit_never_yields_a_runnable_call(cut: int):
    found = run([(BEGIN + WEATHER)[:cut]])
    assert not [piece for piece in found if isinstance(piece, ToolCall) and piece.complete]


def test_a_call_is_reported_as_soon_as_it_ends():
    parser = ToolCallParser()
    assert parser.feed(f"{BEGIN}{WEATHER}") == [weather]


def test_text_is_passed_on_but_for_what_may_be_a_mark():
    parser = ToolCallParser()
    assert parser.feed("a <|tool") == ["a "]
    assert parser.feed("box|>") == ["<|toolbox|>"]


@pytest.mark.parametrize("between", ["</think>", ""])
def test_a_call_inside_reasoning_is_a_call_and_its_surroundings_stay_reasoning(between: str):
    parser, splitter = ToolCallParser(), ReasoningSplitter()
    calls: list[ToolCall] = []
    shown: list[tuple[str, str]] = []
    for character in f"<think>hm {BEGIN}{WEATHER}{END} more{between}":
        for piece in parser.feed(character):
            if isinstance(piece, ToolCall):
                calls.append(piece)
            else:
                shown += splitter.feed(piece)
    shown += splitter.finish()
    assert calls == [weather]
    assert "".join(text for _, text in shown) == "hm more"
    assert {kind for kind, _ in shown} == {"reasoning"}
