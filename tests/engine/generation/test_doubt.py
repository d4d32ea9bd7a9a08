"""A checkpoint that failed verification, or that the user keeps to one pass, is read in one pass."""

import pytest

from engine.api import (
    Finished,
    Generate,
    LoadModel,
    Message,
    PlanPrefill,
    PrefillPlanned,
    Verify,
    next_request,
)
from engine.desk import Desk, Reader
from engine.generation.prefill import PrefillPolicy
from engine.planning.verification import TOLERANCE
from engine.runtime import Runtime
from tests.support.checkpoints import SPOKEN, Shop


@pytest.mark.parametrize("doubt", ["failed_verification", "switched_off"])
def test_a_doubted_model_is_read_in_one_pass_and_the_plan_says_why(doubt: str):
    plan = PrefillPolicy(64).plan(1000, doubt=doubt)  # type: ignore[arg-type] - one of the two
    assert plan.slices == ((0, 1000),)
    assert plan.reason == doubt
    assert {"failed_verification": "failed verification", "switched_off": "switched off"}[
        doubt
    ] in plan.explanation


def test_chunking_that_is_off_and_a_family_that_opts_out_are_said_first():
    assert PrefillPolicy(0).plan(1000, doubt="switched_off").reason == "off"
    plan = PrefillPolicy(64).plan(1000, supported=False, single_pass_reason="Because.", doubt="switched_off")
    assert plan.reason == "single_pass_model"


class Served:
    """A runtime with its desk, on this thread."""

    def __init__(self, shop: Shop) -> None:
        self.events: list[object] = []
        self.desk = Desk()
        self.runtime = Runtime(self.desk, self.events.append)
        self.runtime.serve(LoadModel(next_request(), shop.folder(SPOKEN)), lambda: False)

    def ask(self, text: str, *, single_pass: bool = False) -> Finished:
        command = Generate(
            next_request(), (Message("user", text),), max_tokens=2, prefill_chunk=64, single_pass=single_pass
        )
        event = self.runtime.serve(command, lambda: False)
        assert isinstance(event, Finished)
        return event


def test_the_users_switch_reaches_the_reading_and_the_plan(shop: Shop):
    served = Served(shop)
    finished = served.ask("one two three " * 60, single_pass=True)
    assert finished.receipt.plan.reason == "switched_off"
    assert len(finished.receipt.executed) == 1
    planned = served.desk.serve(PlanPrefill(next_request(), 64, 500, single_pass=True), lambda: False)
    assert isinstance(planned, PrefillPlanned)
    assert planned.plan.reason == "switched_off"


def test_after_a_failed_verification_nothing_is_continued_any_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    served = Served(shop)
    text = "one two three " * 60
    assert served.ask(text).receipt.plan.reason == "chunked"
    monkeypatch.setattr("engine.planning.verification.TOLERANCE", dict.fromkeys(TOLERANCE, -1.0))
    served.runtime.serve(Verify(next_request(), length=150, chunks=(64,)), lambda: False)
    assert isinstance(served.desk.reader, Reader)
    assert served.desk.reader.failed_verification
    finished = served.ask(text + "and four")
    assert finished.receipt.plan.reason == "failed_verification"
    assert finished.receipt.plan.reused == 0
    assert len(finished.receipt.executed) == 1
    monkeypatch.undo()
    served.runtime.serve(Verify(next_request(), length=150, chunks=(64,)), lambda: False)
    assert served.ask(text + "and five").receipt.plan.reused > 0
