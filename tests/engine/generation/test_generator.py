"""From a prompt to an answer with the demo model: what is read, what is shown, and what never is."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from engine.api import Document, Message, Sampling
from engine.checkpoint.loader import LoadedModel, load_model
from engine.errors import LedgerError, PromptError, PromptTooLongError, ReceiptError, SettingError
from engine.generation.generator import Generator, Options, Outcome
from engine.generation.prefill import PrefillPolicy
from engine.generation.prefix import SnapshotShelf
from engine.text.chat_format import ChatFormat, Prompt, PromptPart
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import DEMO_MODEL, PLAIN, SPOKEN, Recipe, Shop, change_config
from tests.support.families import SEEN_BY_THE_LEDGER, BypassesLedger, KimiLinear, WholePromptOnly
from tests.support.listening import Recorder
from tests.support.prose import FACTS, Fact, document

GREENHOUSE, BOATHOUSE = FACTS[:2]
LoadAs = Callable[[type[KimiLinear], Recipe | Path], LoadedModel]


@pytest.fixture
def generator(demo: LoadedModel, demo_tokenizer: Tokenizer) -> Generator:
    """A generator with nothing on its shelf."""
    return Generator(demo.model, demo_tokenizer)


@pytest.fixture(scope="module")
def pages(demo_tokenizer: Tokenizer) -> Document:
    """About 400 tokens with two facts in them."""
    return Document("pages.txt", document(400, {0.0: GREENHOUSE, 0.7: BOATHOUSE}, demo_tokenizer.count))


@pytest.fixture
def about(demo_format: ChatFormat, pages: Document) -> Callable[[Fact], Prompt]:
    """The question about a fact, behind the pages."""
    return lambda fact: demo_format.prompt((Message("user", fact.question, (pages,)),))


def answer(
    generator: Generator,
    prompt: Prompt,
    chunk: int = 0,
    options: Options | None = None,
    recorder: Recorder | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Outcome:
    return generator.generate(
        prompt,
        PrefillPolicy(chunk),
        options or Options(max_tokens=48),
        recorder if recorder is not None else Recorder(),
        cancelled,
    )


def plain_prompt(ids: Sequence[int]) -> Prompt:
    return Prompt((PromptPart("user", "by hand", tuple(ids)),))


# --- an answer and its account ---


@pytest.mark.parametrize("fact", [GREENHOUSE, BOATHOUSE], ids=lambda fact: fact.answer)
@pytest.mark.parametrize("chunk", [0, 64, 100, 512])
def test_a_question_about_a_document_is_answered_under_a_closed_receipt(
    generator: Generator, about: Callable[[Fact], Prompt], fact: Fact, chunk: int
):
    prompt, recorder = about(fact), Recorder()
    outcome = answer(generator, prompt, chunk, recorder=recorder)
    assert fact.answer in outcome.text
    assert outcome.finish_reason == "stop"
    assert outcome.text == "".join(recorder.texts)
    receipt = outcome.receipt
    assert receipt.closed
    assert receipt.prompt_tokens == receipt.read == prompt.length == outcome.stats.prompt_tokens
    assert {layer.position for layer in receipt.layers} == {prompt.length}
    assert sum(part.tokens for part in receipt.parts) == prompt.length
    assert [part.label for part in receipt.parts if part.kind == "document"] == ["pages.txt"]
    assert receipt.executed == receipt.plan.slices == PrefillPolicy(chunk).plan(prompt.length).slices


def test_the_same_text_comes_out_whatever_the_chunk(
    demo: LoadedModel, demo_tokenizer: Tokenizer, about: Callable[[Fact], Prompt]
):
    texts = {
        answer(Generator(demo.model, demo_tokenizer), about(GREENHOUSE), chunk).text
        for chunk in (0, 64, 65, 100, 256)
    }
    assert len(texts) == 1


def test_the_listener_hears_of_the_plan_then_of_progress_then_of_text(
    generator: Generator, about: Callable[[Fact], Prompt]
):
    prompt, recorder = about(GREENHOUSE), Recorder()
    answer(generator, prompt, 64, recorder=recorder)
    kinds = [kind for i, kind in enumerate(recorder.heard) if i == 0 or recorder.heard[i - 1] != kind]
    assert kinds == ["planned", "progress", "text"]
    done = [d for d, _ in recorder.steps]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, prompt.length)
    assert {total for _, total in recorder.steps} == {prompt.length}
    assert set(done) >= {end for _, end in recorder.plans[0].slices}


def test_what_was_measured_adds_up(generator: Generator, about: Callable[[Fact], Prompt]):
    outcome = answer(generator, about(GREENHOUSE), 64)
    stats = outcome.stats
    assert stats.generated_tokens == len(outcome.ids)
    assert stats.prefill_tokens_per_second == pytest.approx(stats.prompt_tokens / stats.prefill_seconds)
    assert stats.decode_seconds > 0
    assert stats.decode_tokens_per_second == pytest.approx((len(outcome.ids) - 1) / stats.decode_seconds)
    assert stats.peak_memory_bytes > 0


# --- families that cannot be chunked, and the old fault ---


def test_a_family_that_opted_out_gets_exactly_one_slice(load_as: LoadAs, demo_tokenizer: Tokenizer):
    loaded = load_as(WholePromptOnly, SPOKEN)
    generator = Generator(loaded.model, demo_tokenizer)
    prompt = plain_prompt(range(100, 400))
    for _ in range(2):  # the second time, too: nothing of the first may be taken over
        recorder = Recorder()
        outcome = answer(generator, prompt, 64, Options(max_tokens=4), recorder)
        assert outcome.receipt.executed == ((0, 300),)
        assert recorder.plans[0].slices == ((0, 300),)
        assert recorder.plans[0].reason == "single_pass_model"
        assert WholePromptOnly.single_pass_reason in recorder.plans[0].explanation
        assert outcome.receipt.closed


def test_a_family_that_opted_out_takes_nothing_from_a_shelf(load_as: LoadAs, demo_tokenizer: Tokenizer):
    model = load_as(WholePromptOnly, SPOKEN).model
    ids, state, shelf = list(range(100, 300)), model.new_state(), SnapshotShelf()
    model(mx.array([ids[:100]], mx.int32), state)
    shelf.put(ids[:100], state.snapshot())
    outcome = answer(Generator(model, demo_tokenizer, shelf), plain_prompt(ids), 64, Options(max_tokens=2))
    assert outcome.receipt.plan.reused == 0
    assert outcome.receipt.executed == ((0, 200),)


def test_a_family_that_opted_out_answers_as_its_honest_twin_does(
    shop: Shop, load_as: LoadAs, demo_tokenizer: Tokenizer
):
    prompt, options = plain_prompt(range(100, 400)), Options(max_tokens=12)
    twin = answer(Generator(shop.model(SPOKEN), demo_tokenizer), prompt, 0, options)
    whole = answer(Generator(load_as(WholePromptOnly, SPOKEN).model, demo_tokenizer), prompt, 64, options)
    assert whole.ids == twin.ids


@pytest.mark.parametrize("kind", SEEN_BY_THE_LEDGER, ids=lambda kind: kind.family)
def test_the_old_fault_is_refused_and_no_text_reaches_the_listener(
    load_as: LoadAs, demo_tokenizer: Tokenizer, about: Callable[[Fact], Prompt], kind: type[KimiLinear]
):
    generator = Generator(load_as(kind, DEMO_MODEL).model, demo_tokenizer)
    for _ in range(2):
        recorder = Recorder()
        with pytest.raises(LedgerError, match="withheld because it would not"):
            answer(generator, about(GREENHOUSE), 64, recorder=recorder)
        assert not recorder.answered
        assert "planned" in recorder.heard


def test_where_the_ledger_is_bypassed_the_receipt_withholds_the_answer(
    load_as: LoadAs, demo_tokenizer: Tokenizer, about: Callable[[Fact], Prompt]
):
    recorder = Recorder()
    generator = Generator(load_as(BypassesLedger, DEMO_MODEL).model, demo_tokenizer)
    generator._keep = lambda ids, state: None  # the shelf would refuse such a state even before
    with pytest.raises(ReceiptError, match="8 of 8 layers disagree"):
        answer(generator, about(GREENHOUSE), 64, recorder=recorder)
    assert not recorder.answered


def test_without_the_ledger_the_old_fault_would_have_given_a_fluent_wrong_answer(
    load_as: LoadAs,
    demo_tokenizer: Tokenizer,
    about: Callable[[Fact], Prompt],
    monkeypatch: pytest.MonkeyPatch,
):
    """The test above has power: the same family does speak once nobody counts."""
    monkeypatch.setattr("engine.generation.generator.require_closed", lambda receipt: None)
    generator = Generator(load_as(BypassesLedger, DEMO_MODEL).model, demo_tokenizer)
    generator._keep = lambda ids, state: None
    recorder = Recorder()
    outcome = answer(generator, about(GREENHOUSE), 64, recorder=recorder)
    assert recorder.answered
    assert GREENHOUSE.answer not in outcome.text
    assert not outcome.receipt.closed


# --- reuse ---


def test_a_follow_up_reads_only_what_is_new_and_answers_the_same_as_from_the_beginning(
    demo: LoadedModel, demo_tokenizer: Tokenizer, demo_format: ChatFormat, pages: Document
):
    warm = Generator(demo.model, demo_tokenizer)
    first = Message("user", GREENHOUSE.question, (pages,))
    begun = answer(warm, demo_format.prompt((first,)), 256)
    follow_up = demo_format.prompt(
        (first, Message("assistant", begun.text), Message("user", BOATHOUSE.question))
    )
    again = answer(warm, follow_up, 256)
    cold = answer(Generator(demo.model, demo_tokenizer), follow_up, 256)
    assert again.receipt.plan.reused > 0.8 * begun.stats.prompt_tokens
    assert cold.receipt.plan.reused == 0
    assert again.receipt.closed
    assert again.receipt.read == again.receipt.prompt_tokens
    assert again.text == cold.text
    assert BOATHOUSE.answer in again.text


def test_another_question_about_the_same_document_reuses_its_chunks(
    generator: Generator, about: Callable[[Fact], Prompt]
):
    first = answer(generator, about(GREENHOUSE), 64)
    second = answer(generator, about(BOATHOUSE), 64)
    assert second.receipt.plan.reused >= 320
    assert second.receipt.executed[0][0] == second.receipt.plan.reused
    assert BOATHOUSE.answer in second.text
    assert GREENHOUSE.answer in first.text


def test_the_same_prompt_again_is_answered_the_same(generator: Generator, about: Callable[[Fact], Prompt]):
    first, again = (answer(generator, about(GREENHOUSE), 64) for _ in range(2))
    assert 0 < again.receipt.plan.reused < again.receipt.prompt_tokens
    assert again.text == first.text


def test_an_unrelated_prompt_reuses_nothing(
    generator: Generator, about: Callable[[Fact], Prompt], demo: LoadedModel, demo_tokenizer: Tokenizer
):
    answer(generator, about(GREENHOUSE), 64)
    other = plain_prompt(range(500, 700))
    after = answer(generator, other, 64, Options(max_tokens=8))
    alone = answer(Generator(demo.model, demo_tokenizer), other, 64, Options(max_tokens=8))
    assert after.receipt.plan.reused == 0
    assert after.ids == alone.ids


def test_a_new_chunk_size_takes_effect_and_what_was_read_is_kept(
    generator: Generator, about: Callable[[Fact], Prompt]
):
    answer(generator, about(GREENHOUSE), 64)
    second = answer(generator, about(BOATHOUSE), 0)
    assert second.receipt.plan.reason == "off"
    assert second.receipt.plan.reused > 0
    assert BOATHOUSE.answer in second.text


# --- stopping ---


def test_a_cancel_during_reading_leaves_no_text_and_an_open_receipt(
    generator: Generator, about: Callable[[Fact], Prompt]
):
    recorder = Recorder()
    prompt = about(GREENHOUSE)
    stopped = answer(generator, prompt, 64, recorder=recorder, cancelled=lambda: recorder.steps[-1][0] >= 128)
    assert stopped.finish_reason == "cancelled"
    assert (stopped.text, stopped.ids, recorder.answered) == ("", (), False)
    assert not stopped.receipt.closed
    assert stopped.receipt.executed == ((0, 64), (64, 128))
    assert f"128 of {prompt.length} tokens were read" in stopped.receipt.problem


def test_asking_again_after_a_cancel_goes_on_where_it_stopped(
    generator: Generator, demo: LoadedModel, demo_tokenizer: Tokenizer, about: Callable[[Fact], Prompt]
):
    prompt, recorder = about(GREENHOUSE), Recorder()
    answer(generator, prompt, 64, recorder=recorder, cancelled=lambda: recorder.steps[-1][0] >= 192)
    resumed = answer(generator, prompt, 64)
    cold = answer(Generator(demo.model, demo_tokenizer), prompt, 64)
    assert resumed.receipt.plan.reused == 192
    assert resumed.receipt.closed
    assert resumed.ids == cold.ids


def test_another_prompt_after_a_cancel_equals_a_fresh_run(
    generator: Generator, demo: LoadedModel, demo_tokenizer: Tokenizer, about: Callable[[Fact], Prompt]
):
    recorder = Recorder()
    answer(generator, about(GREENHOUSE), 64, recorder=recorder, cancelled=lambda: recorder.steps[-1][0] >= 64)
    other, options = plain_prompt(range(700, 900)), Options(max_tokens=8)
    after = answer(generator, other, 64, options)
    assert after.ids == answer(Generator(demo.model, demo_tokenizer), other, 64, options).ids


def test_a_cancel_before_reading_reads_nothing(generator: Generator, about: Callable[[Fact], Prompt]):
    recorder = Recorder()
    stopped = answer(generator, about(GREENHOUSE), 64, recorder=recorder, cancelled=lambda: True)
    assert stopped.finish_reason == "cancelled"
    assert stopped.receipt.executed == ()
    assert {layer.position for layer in stopped.receipt.layers} == {0}


def test_a_cancel_during_the_answer_keeps_what_was_written(
    generator: Generator, about: Callable[[Fact], Prompt]
):
    recorder = Recorder()
    stopped = answer(
        generator, about(GREENHOUSE), 64, recorder=recorder, cancelled=lambda: len(recorder.texts) >= 3
    )
    assert stopped.finish_reason == "cancelled"
    assert stopped.receipt.closed
    assert stopped.text == "".join(recorder.texts) != ""
    whole = answer(generator, about(GREENHOUSE), 64)
    assert whole.text.startswith(stopped.text)
    assert whole.text != stopped.text


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_answer_ends_at_the_limit(generator: Generator, about: Callable[[Fact], Prompt], limit: int):
    outcome = answer(generator, about(GREENHOUSE), options=Options(max_tokens=limit))
    assert outcome.finish_reason == "length"
    assert len(outcome.ids) == outcome.stats.generated_tokens == limit


def test_a_stop_token_ends_the_answer_and_is_not_shown(
    generator: Generator, about: Callable[[Fact], Prompt], demo_tokenizer: Tokenizer
):
    outcome = answer(generator, about(GREENHOUSE))
    assert outcome.finish_reason == "stop"
    assert outcome.ids[-1] in demo_tokenizer.stop_ids
    assert not demo_tokenizer.stop_ids & set(outcome.ids[:-1])
    assert outcome.text == demo_tokenizer.decode(outcome.ids[:-1])


@pytest.mark.parametrize("stop", [" is", "falcon", "-77", "."])
def test_a_stop_string_ends_the_answer_and_is_not_shown(
    generator: Generator, about: Callable[[Fact], Prompt], stop: str
):
    recorder = Recorder()
    whole = answer(generator, about(GREENHOUSE)).text
    outcome = answer(
        generator, about(GREENHOUSE), options=Options(max_tokens=48, stop=(stop, "zebra")), recorder=recorder
    )
    assert outcome.finish_reason == "stop_string"
    assert outcome.text == "".join(recorder.texts) == whole[: whole.index(stop)]


def test_the_answer_ends_where_the_window_does(demo_tokenizer: Tokenizer, tmp_path: Path):
    folder = shutil.copytree(DEMO_MODEL, tmp_path / "short")
    change_config(folder, model_max_length=103)
    generator = Generator(load_model(folder).model, demo_tokenizer)
    outcome = answer(generator, plain_prompt(range(500, 600)), options=Options(max_tokens=1000))
    assert outcome.finish_reason in ("length", "stop")
    assert len(outcome.ids) <= 3


# --- refused before anything is read ---


@pytest.mark.parametrize("length", [PLAIN.window, PLAIN.window + 1, 3 * PLAIN.window])
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused_with_both_numbers(
    shop: Shop, demo_tokenizer: Tokenizer, length: int
):
    recorder = Recorder()
    generator = Generator(shop.model(PLAIN), demo_tokenizer)
    with pytest.raises(PromptTooLongError, match=f"{length:,} tokens.*{PLAIN.window:,}"):
        answer(generator, plain_prompt([5] * length), 64, recorder=recorder)
    assert recorder.heard == []


def test_an_empty_prompt_is_refused(generator: Generator):
    recorder = Recorder()
    with pytest.raises(PromptError, match="empty"):
        answer(generator, Prompt(()), recorder=recorder)
    assert recorder.heard == []


def test_tokens_of_another_model_are_refused(shop: Shop, demo_tokenizer: Tokenizer):
    recorder = Recorder()
    with pytest.raises(PromptError, match="belongs to another model"):
        answer(Generator(shop.model(PLAIN), demo_tokenizer), plain_prompt([1, 2, 192]), recorder=recorder)
    assert recorder.heard == []


@pytest.mark.parametrize(
    "options",
    [
        Options(max_tokens=0),
        Options(max_tokens=-1),
        Options(Sampling(temperature=9.0)),
        Options(Sampling(top_p=0.0)),
        Options(stop=("",)),
    ],
)
def test_options_that_make_no_sense_are_refused(
    generator: Generator, about: Callable[[Fact], Prompt], options: Options
):
    recorder = Recorder()
    with pytest.raises(SettingError):
        answer(generator, about(GREENHOUSE), options=options, recorder=recorder)
    assert recorder.heard == []


# --- sampling ---


def test_a_seed_repeats_an_answer_and_another_seed_gives_another(shop: Shop, demo_tokenizer: Tokenizer):
    def write(seed: int | None) -> tuple[int, ...]:
        generator = Generator(shop.model(SPOKEN), demo_tokenizer)
        options = Options(Sampling(temperature=1.0, top_p=0.95, seed=seed), max_tokens=20)
        return answer(generator, plain_prompt(range(100, 140)), options=options).ids

    assert write(3) == write(3)
    assert write(3) != write(4)
    assert write(None) != write(None)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_shortest_prompts_are_answered(shop: Shop, demo_tokenizer: Tokenizer, length: int):
    outcome = answer(
        Generator(shop.model(SPOKEN), demo_tokenizer),
        plain_prompt(range(100, 100 + length)),
        64,
        Options(max_tokens=3),
    )
    assert outcome.receipt.closed
    assert outcome.receipt.executed == ((0, length),)
    assert 1 <= len(outcome.ids) <= 3
