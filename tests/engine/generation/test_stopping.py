"""Stop strings end an answer without a piece of them being shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import SettingError
from engine.generation.stopping import StopStrings

letters = st.text("ab", max_size=20)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=4)


def run(strings: list[str], deltas: list[str]) -> tuple[str, bool]:
    """Everything shown, and whether the answer was ended."""
    watch = StopStrings(strings)
    shown = ""
    for delta in deltas:
        text, stopped = watch.feed(delta)
        shown += text
        if stopped:
            return shown, True
    return shown + watch.finish(), False


def expected(strings: list[str], text: str) -> tuple[str, bool]:
    """The rule written plainly: read one character at a time, stop at the first complete stop string."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in strings if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(strings=stop_lists, deltas=st.lists(letters))
def test_any_split_shows_the_same_and_stops_at_the_same_place(strings: list[str], deltas: list[str]):
    assert run(strings, deltas) == expected(strings, "".join(deltas))


@given(strings=stop_lists, deltas=st.lists(letters))
def test_only_what_could_become_a_stop_string_is_held_back(strings: list[str], deltas: list[str]):
    watch = StopStrings(strings)
    given_so_far = shown = ""
    for delta in deltas:
        text, stopped = watch.feed(delta)
        given_so_far += delta
        shown += text
        if stopped:
            break
        held = given_so_far.removeprefix(shown)
        assert held == "" or any(stop.startswith(held) and stop != held for stop in strings)


def test_the_stop_string_and_what_follows_are_not_shown():
    assert run(["END"], ["the answer E", "N", "D and more"]) == ("the answer ", True)


def test_a_beginning_that_turns_out_otherwise_is_shown():
    assert run(["END"], ["the EN", "ormous"]) == ("the ENormous", False)


def test_a_beginning_at_the_end_of_the_answer_is_shown():
    assert run(["END"], ["the EN"]) == ("the EN", False)


def test_of_two_that_end_together_the_longer_one_counts():
    assert run(["c", "bc"], ["abc"]) == ("a", True)


def test_after_the_end_nothing_is_shown():
    watch = StopStrings(["."])
    assert watch.feed("a.b") == ("a", True)
    assert watch.feed("c") == ("", True)
    assert watch.finish() == ""


def test_without_stop_strings_everything_passes_at_once():
    assert StopStrings([]).feed("text") == ("text", False)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(SettingError, match="must not be empty"):
        StopStrings(["END", ""])
