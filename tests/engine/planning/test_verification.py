"""The proof holds for models that carry their state, fails for each way of losing it, and has controls."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from engine.api import VerificationReport
from engine.checkpoint.loader import LoadedModel
from engine.errors import CancelledError, PromptError, SettingError
from engine.models import base
from engine.planning.fingerprint import fingerprint
from engine.planning.verification import Needle, load_needle, verify
from engine.text.chat_format import ChatFormat
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import DEMO_MODEL, NARROW, PACKABLE, PLAIN, SPOKEN, WIDE, Recipe, Shop
from tests.support.families import (
    OLD_FAULTS,
    DropsAttribute,
    KeepsStateInside,
    KimiLinear,
    LeaksIntoNextPrompt,
    MiscountsLayer,
    RebuildsState,
    WholePromptOnly,
    ZeroesArrays,
)

LoadAs = Callable[..., LoadedModel]


def outcome(report: VerificationReport) -> dict[str, bool]:
    return {witness.name: witness.held for witness in report.witnesses}


def failed(report: VerificationReport) -> set[str]:
    return {name.split(",")[0].split(" of ")[0] for name, held in outcome(report).items() if not held}


def test_it_holds_for_the_demo_model_and_names_what_was_checked(
    demo: LoadedModel, demo_tokenizer: Tokenizer, demo_format: ChatFormat
):
    steps: list[tuple[int, int, str]] = []
    report = verify(
        demo.model,
        length=260,
        chunks=(64, 100),
        needle=Needle(demo_tokenizer, demo_format),
        progress=lambda done, total, step: steps.append((done, total, step)),
    )
    assert report.held
    assert report.control_caught
    assert report.note == ""
    assert set(outcome(report)) == {
        "ledger",
        *(f"state arrays, chunks of {n}" for n in (64, 100)),
        *(f"boundary lengths of {n}" for n in (64, 100)),
        "two unrelated prompts in a row",
        "a fact in the first chunk",
        "control: state dropped, caught by the ledger",
        "control: wrong state of the right length, caught by the arrays",
        "modules unchanged",
    }
    fact = next(w for w in report.witnesses if w.name == "a fact in the first chunk")
    assert "blue-falcon-77" in fact.detail
    assert [done for done, _, _ in steps] == list(range(len(report.witnesses) + 1))
    assert {total for _, total, _ in steps} == {len(report.witnesses)}


@pytest.mark.parametrize(
    "recipe",
    [PLAIN, WIDE, NARROW, PACKABLE.but("packed in 4 bits", bits=4), PLAIN.but("half", dtype="bfloat16")],
    ids=lambda recipe: recipe.name,
)
def test_it_holds_for_tiny_checkpoints(shop: Shop, recipe: Recipe):
    report = verify(shop.model(recipe), length=150, chunks=(64, 100))
    assert failed(report) == set()
    assert report.held
    assert report.control_caught


@pytest.mark.parametrize("kind", [*OLD_FAULTS, MiscountsLayer], ids=lambda kind: kind.family)
def test_it_fails_for_every_way_of_losing_the_state(load_as: LoadAs, kind: type[KimiLinear]):
    report = verify(load_as(kind).model, length=200, chunks=(64, 100))
    assert not report.held


def test_the_ledger_s_own_words_are_the_detail(load_as: LoadAs):
    report = verify(load_as(RebuildsState).model, length=200, chunks=(64,))
    details = {witness.name: witness.detail for witness in report.witnesses}
    assert "was given 64 tokens to add to the 64 it had read" in details["state arrays, chunks of 64"]


def test_arrays_that_are_emptied_behind_right_counts_are_seen_in_the_arrays_alone(load_as: LoadAs):
    report = verify(load_as(ZeroesArrays).model, length=200, chunks=(64, 100))
    assert failed(report) == {"state arrays", "boundary lengths"}
    assert outcome(report)["ledger"]
    assert report.control_caught


def test_state_inside_the_model_is_seen_in_its_modules_too(load_as: LoadAs):
    report = verify(load_as(KeepsStateInside).model, length=200, chunks=(64,))
    assert failed(report) == {"state arrays", "boundary lengths", "modules unchanged"}
    details = {witness.name: witness.detail for witness in report.witnesses}
    assert "_inside" in details["modules unchanged"]


def test_a_prompt_that_colours_the_next_is_seen_in_two_prompts_in_a_row(load_as: LoadAs):
    report = verify(load_as(LeaksIntoNextPrompt).model, length=200, chunks=(64,))
    assert {"two unrelated prompts in a row", "modules unchanged"} <= failed(report)


def test_something_taken_away_from_a_module_is_a_change_too(load_as: LoadAs):
    report = verify(load_as(DropsAttribute).model, length=150, chunks=(64,))
    assert failed(report) == {"modules unchanged"}


def test_an_opted_out_family_is_proved_to_be_read_in_one_pass(load_as: LoadAs):
    report = verify(load_as(WholePromptOnly).model, length=200, chunks=(64, 100))
    assert WholePromptOnly.single_pass_reason in report.note
    assert "one pass" in outcome(report)
    assert not any(name.startswith("state arrays") for name in outcome(report))
    assert failed(report) == set()
    assert report.held
    assert report.control_caught


def test_a_model_that_cannot_answer_is_not_asked_to_prove_it_can(
    shop: Shop, demo_tokenizer: Tokenizer, demo_format: ChatFormat
):
    needle = Needle(demo_tokenizer, demo_format)
    report = verify(shop.model(SPOKEN), length=150, chunks=(64,), needle=needle)
    assert report.held
    assert "cannot answer the question about a planted fact" in report.note


def test_the_needle_comes_with_a_folder_or_a_reason(shop: Shop):
    needle, note = load_needle(DEMO_MODEL)
    assert needle is not None
    assert note == ""
    needle, note = load_needle(shop.folder(PLAIN))
    assert needle is None
    assert note.startswith("No question was asked about a planted fact:")


@pytest.mark.parametrize("length", [0, 129, PLAIN.window, 10**9])
def test_a_length_that_proves_nothing_or_does_not_fit_is_refused(shop: Shop, length: int):
    with pytest.raises(PromptError, match=f"from 130 to below.*{PLAIN.window:,}.*not {length}"):
        verify(shop.model(PLAIN), length=length, chunks=(64,))


@pytest.mark.parametrize("chunk", [1, 63, 40000, -5])
def test_a_chunk_outside_the_range_is_refused(shop: Shop, chunk: int):
    with pytest.raises(SettingError, match="between 64 and 32768"):
        verify(shop.model(PLAIN), length=200, chunks=(64, chunk))


def test_a_proof_without_a_single_chunk_size_is_refused(shop: Shop):
    """It would compare nothing and hold."""
    with pytest.raises(SettingError):
        verify(shop.model(PLAIN), length=200, chunks=())


def test_it_can_be_stopped_between_steps(shop: Shop):
    def stop(done: int, total: int, step: str) -> None:
        if done == 2:
            raise CancelledError("Stopped.")

    with pytest.raises(CancelledError):
        verify(shop.model(PLAIN), length=150, chunks=(64,), progress=stop)


class Holder:
    """Something with attributes."""

    def __init__(self) -> None:
        self.weight = mx.ones((4,))
        self.parts = [Part(), Part()]
        self.table = {"a": mx.zeros((2,))}
        self.name = "holder"


class Part:
    def __init__(self) -> None:
        self.count = 0
        self.memory: mx.array | None = None


def rebind(holder: Holder) -> None:
    holder.weight = holder.weight + 1


def rewrite(holder: Holder) -> None:
    holder.weight[0] = 5


def count(holder: Holder) -> None:
    holder.parts[1].count += 1


def remember(holder: Holder) -> None:
    holder.parts[0].memory = mx.ones((2,))


def fill(holder: Holder) -> None:
    holder.table["b"] = mx.zeros((2,))


def grow(holder: Holder) -> None:
    holder.parts.append(Part())


def add(holder: Holder) -> None:
    setattr(holder, "cache", None)  # noqa: B010


def remove(holder: Holder) -> None:
    del holder.name


@pytest.mark.parametrize("change", [rebind, rewrite, count, remember, fill, grow, add, remove])
def test_a_fingerprint_sees_every_change_of_what_a_model_holds(change: Callable[[Holder], None]):
    holder = Holder()
    kept = holder.weight  # alive, so that its identity cannot be given to another array
    before = fingerprint(holder)
    assert fingerprint(holder) == before
    change(holder)
    assert fingerprint(holder) != before
    del kept


def test_the_families_of_the_tests_are_gone_once_a_test_is_over():
    assert not {kind.family for kind in OLD_FAULTS} & set(base.families())
