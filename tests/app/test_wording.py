"""Numbers and sentences as the window shows them."""

from pathlib import Path

import pytest

from app import wording
from app.chat import receipt_text
from app.resources import DEMO_MODEL
from engine.api import PrefillProgress
from tests.app.receipts import FIVE, STATS, receipt


def test_the_line_under_an_answer():
    line = "read 9,214 of 9,214 tokens in 5 chunks · 312 tokens · 38 tok/s"
    assert wording.receipt_line(receipt(9214, FIVE), STATS) == line


def test_the_line_tells_one_pass_and_what_was_reused():
    assert wording.account(receipt(45, ((0, 45),))) == "read 45 of 45 tokens in one pass"
    reused = receipt(9275, ((9230, 9275),), reused=9230)
    assert wording.account(reused) == "reused 9,230, read 45 of 9,275 tokens in one pass"


def test_the_line_while_reading():
    progress = PrefillProgress(1, 41_984, 118_265, 1310.2, 58.2)
    assert wording.reading(progress, 58.2) == (
        "41,984 of 118,265 tokens · 35 % · 1,310 tok/s · about 58 s left"
    )
    assert wording.reading(PrefillProgress(1, 0, 100, 0.0, None), None) == "0 of 100 tokens · 0 %"


def test_a_hundred_percent_only_when_all_is_read():
    assert wording.share(118_264, 118_265) == 99
    assert wording.share(118_265, 118_265) == 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.84, "0.8 s"), (58.4, "58 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")],
)
def test_durations(seconds: float, text: str):
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 1 s left"),
        (58.2, "about 58 s left"),
        (59.8, "about 1 min left"),
        (190, "about 3 min left"),
    ],
)
def test_forecasts(seconds: float, text: str):
    assert wording.seconds_left(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(12, "12 B"), (12_600_000, "12.6 MB"), (38_300_000_000, "38.3 GB")]
)
def test_sizes(amount: int, text: str):
    assert wording.size(amount) == text


def test_stopped_while_reading():
    assert wording.stopped_while_reading(2048, 9214) == (
        "Stopped after 2,048 of 9,214 tokens; nothing was answered"
    )
    assert "before reading began" in wording.stopped_while_reading(0, 0)


def test_the_parts_of_a_receipt_add_up_to_the_prompt():
    shown = receipt_text.parts(receipt(9214, FIVE))
    assert [part.kind for part in shown] == ["document", "user", "format"]
    assert sum(part.tokens for part in shown) == 9214


def test_the_copied_receipt_holds_everything():
    text = receipt_text.as_text(receipt(9214, FIVE), STATS)
    for piece in (
        "All 9,214 tokens of the prompt were read",
        "Document · report.pdf: 9,190 tokens",
        "5 chunks.",
        "8,193–9,214: 1,022 tokens",
        "All 2 layer states stand at token 9,214",
        "0 KDA: 9,214",
        "Peak memory: 12.6 MB",
        "Receipt closed",
    ):
        assert piece in text


def test_a_receipt_that_is_not_closed_says_so():
    text = receipt_text.as_text(receipt(9214, FIVE[:1], closed=False), None)
    assert "2,048 of 9,214 tokens were read; nothing was answered from them" in text
    assert text.endswith("Receipt not closed")


def test_a_model_is_called_by_its_folder_and_the_one_that_comes_along_by_its_own_name(tmp_path: Path):
    assert wording.model_name(DEMO_MODEL) == "Kimi Linear demo"
    assert wording.model_name(tmp_path / "Kimi-Linear-48B-4bit") == "Kimi-Linear-48B-4bit"
    assert wording.model_name(None) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000496, "0.050 ms"),
        (0.00082, "0.82 ms"),
        (0.0099, "9.90 ms"),
        (0.0351, "35 ms"),
        (2.609, "2.6 s"),
    ],
)
def test_measured_times(seconds: float, text: str):
    assert wording.brief_time(seconds) == text
