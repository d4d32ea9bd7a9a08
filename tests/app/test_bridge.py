"""Events cross from the engine's threads to the GUI thread: joined, in order, none lost."""

import threading

import pytest

from app.bridge import EngineBridge, joined
from engine.api import (
    CountTokens,
    Event,
    Failed,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    next_request,
)


@pytest.fixture
def bridge(qapp):
    made = EngineBridge()
    made.start()
    yield made
    assert made.close()
    made.deleteLater()


def test_adjacent_text_of_one_request_is_joined_and_nothing_else():
    progress = PrefillProgress(1, 1, 2, 3.0, None)
    events: list[Event] = [
        TextDelta(1, "a"), TextDelta(1, "b"), TextDelta(2, "c"), progress, TextDelta(1, "d"),
        ReasoningDelta(1, "r"), TextDelta(1, "e"), TextDelta(1, "f"),
    ]  # fmt: skip
    assert list(joined(events)) == [
        TextDelta(1, "ab"), TextDelta(2, "c"), progress, TextDelta(1, "d"), ReasoningDelta(1, "r"),
        TextDelta(1, "ef"),
    ]  # fmt: skip


def test_handlers_run_on_the_gui_thread_until_the_final_event(bridge: EngineBridge, qtbot):
    seen: list[tuple[Event, threading.Thread]] = []
    request = next_request()
    bridge.ask(CountTokens(request, ("x",)), lambda event: seen.append((event, threading.current_thread())))
    qtbot.waitUntil(lambda: bool(seen))
    event, thread = seen[0]
    assert isinstance(event, Failed)
    assert event.error.kind == "no_model"
    assert thread is threading.main_thread()
    with qtbot.waitSignal(bridge.unclaimed):
        bridge._post(TextDelta(request, "too late"))
    assert len(seen) == 1


def test_a_hundred_thousand_tokens_are_few_calls_and_no_character_is_lost(bridge: EngineBridge, qtbot):
    texts: list[str] = []
    bridge._asked[7] = (CountTokens(7, ()), lambda event: texts.append(event.text))  # type: ignore[union-attr]

    def write() -> None:
        for number in range(100_000):
            bridge._post(TextDelta(7, f"{number} "))

    writer = threading.Thread(target=write)
    writer.start()
    qtbot.waitUntil(lambda: bool(texts) and texts[-1].endswith("99999 "), timeout=30_000)
    writer.join()
    assert "".join(texts) == "".join(f"{number} " for number in range(100_000))
    assert len(texts) < 20_000


def test_a_handler_that_raises_costs_no_other_event(bridge: EngineBridge, qtbot):
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("broken handler")

    bridge._asked[8] = (CountTokens(8, ()), broken)
    bridge._asked[9] = (CountTokens(9, ()), seen.append)
    with qtbot.captureExceptions() as caught:
        bridge._post(TextDelta(8, "x"))
        bridge._post(TextDelta(9, "y"))
        qtbot.waitUntil(lambda: bool(seen))
    assert [str(error) for _, error, _ in caught] == ["broken handler"]
    assert seen == [TextDelta(9, "y")]


def test_what_is_forgotten_is_heard_of_no_more(bridge: EngineBridge, qtbot):
    seen: list[Event] = []
    unclaimed: list[Event] = []
    bridge.unclaimed.connect(unclaimed.append)
    request = next_request()
    bridge.ask(CountTokens(request, ("x",)), seen.append)
    bridge.forget(request)
    qtbot.wait(100)
    assert seen == []
    assert unclaimed == []


def test_nothing_arrives_after_closing(qapp, qtbot):
    bridge = EngineBridge()
    bridge.start()
    seen: list[Event] = []
    bridge.ask(CountTokens(next_request(), ("x",)), seen.append)
    assert bridge.close()
    bridge._post(TextDelta(1, "late"))
    qtbot.wait(50)
    assert seen == []
