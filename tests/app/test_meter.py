"""How long the next prompt will be: shown before it is sent, and close to what is then read."""

from pathlib import Path

import pytest

from app.bridge import Handler
from app.chat.meter import Reading
from engine.api import Command, CountTokens
from tests.app.driving import Driver


@pytest.fixture
def readings(driver: Driver) -> list[Reading]:
    seen: list[Reading] = []
    driver.services.meter.changed.connect(seen.append)
    return seen


def test_the_meter_adds_up_draft_attachments_and_history(
    driver: Driver,
    readings: list[Reading],
    tmp_path: Path,
    demo_model: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    driver.drop(driver.document(tmp_path))
    driver.wait(lambda: driver.services.chat.current.attachments[0].tokens is not None)
    count = driver.services.chat.current.attachments[0].tokens
    assert count is not None
    driver.wait(lambda: readings[-1].total == count)

    driver.type("What is the password for the greenhouse computer?")
    driver.wait(lambda: (readings[-1].total or 0) > count)
    shown = readings[-1].total
    assert shown is not None
    turn = driver.ask(" Please.")
    driver.finish(turn)
    assert turn.receipt is not None
    assert turn.stats is not None
    assert 0 <= turn.receipt.prompt_tokens - shown < 24  # control tokens, and the word added at the end

    history = turn.receipt.prompt_tokens + turn.stats.generated_tokens
    driver.wait(lambda: readings[-1].total == history)
    driver.load(demo_model)  # another model counts for itself: nothing is taken over from the old one
    driver.wait(lambda: readings[-1].total is not None and readings[-1].total != history)
    again = readings[-1].total
    assert again is not None
    assert abs(again - history) < 24

    counted: list[tuple[str, ...]] = []
    ask = driver.services.bridge.ask

    def record(command: Command, handler: Handler) -> int:
        if isinstance(command, CountTokens):
            counted.append(command.texts)
        return ask(command, handler)

    monkeypatch.setattr(driver.services.bridge, "ask", record)
    driver.type("and")
    driver.wait(lambda: (readings[-1].total or 0) > again)
    assert counted == [("and",)]  # the long document of the past is counted once, not with every key


def test_nothing_is_shown_for_nothing(driver: Driver, readings: list[Reading]):
    driver.type("x")
    driver.wait(lambda: driver.window.composer.meter.isVisible())
    driver.window.composer.editor.clear()
    driver.wait(lambda: not driver.window.composer.meter.isVisible())
    assert readings[-1].total == 0


def test_too_long_is_not_below_the_window():
    assert Reading(32_768, 32_768).too_long
    assert not Reading(32_767, 32_768).too_long
    assert not Reading(None, 32_768).too_long
