"""The engine thread: one final event for every command, prompt cancels, plain values, and a clean end."""

import dataclasses
import gc
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.api import (
    FINAL_EVENTS,
    Cancel,
    CancelAccepted,
    Command,
    CountTokens,
    Document,
    DocumentRead,
    Event,
    Failed,
    Finished,
    Generate,
    LoadModel,
    Message,
    ModelLoading,
    ModelReady,
    ModelUnloaded,
    PlanPrefill,
    PrefillPlanned,
    PrefillProgress,
    ReadDocument,
    Sampling,
    ShutDown,
    Shutdown,
    TextDelta,
    TokensCounted,
    Tune,
    Tuned,
    UnloadModel,
    Verified,
    Verify,
    WorkProgress,
    next_request,
)
from tests.conftest import ExpectedLogs
from tests.support.checkpoints import DEMO_MODEL, PLAIN, SPOKEN, Shop
from tests.support.prose import FACTS, document

GENEROUS = 60.0
"""Seconds to wait for what should take a fraction of that; only a hang reaches it."""

GREENHOUSE = FACTS[0]
VARIABLE = "PERIGEE_PREFILL_CHUNK"


class Desk:
    """An engine and everything it said, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.threads: set[str] = set()
        self._arrived = threading.Condition()
        self._hooks: list[Callable[[Event], None]] = []
        self._generating: set[int] = set()
        self.engine = Engine(self._hear)
        self.engine.start()

    def _hear(self, event: Event) -> None:
        with self._arrived:
            self.events.append(event)
            self.threads.add(threading.current_thread().name)
            self._arrived.notify_all()
        for hook in self._hooks:
            hook(event)

    def on_event(self, hook: Callable[[Event], None]) -> None:
        """Call `hook` for every event, on the thread it arrives on."""
        self._hooks.append(hook)

    def submit(self, command: Command) -> int:
        if isinstance(command, Generate):
            self._generating.add(command.request)
        self.engine.submit(command)
        return command.request

    def of(self, request: int) -> list[Event]:
        with self._arrived:
            return [event for event in self.events if event.request == request]

    def wait(self, request: int, kind: Any = None, seconds: float = GENEROUS) -> Any:
        """The first event of a request that is of `kind`, by default its final one."""

        def found() -> Event | None:
            for event in self.events:
                wanted = isinstance(event, kind) if kind else self.ends(event)
                if event.request == request and wanted:
                    return event
            return None

        with self._arrived:
            assert self._arrived.wait_for(lambda: found() is not None, seconds), f"only {self.events}"
            return found()

    def run(self, command: Command) -> Any:
        """Submit and wait for the final event."""
        return self.wait(self.submit(command))

    def ends(self, event: Event) -> bool:
        """Whether this is a final event; `PrefillPlanned` is one unless a generation has sent it."""
        if isinstance(event, PrefillPlanned):
            return event.request not in self._generating
        return isinstance(event, FINAL_EVENTS)

    def finals(self, request: int) -> list[Event]:
        return [event for event in self.of(request) if self.ends(event)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    assert desk.engine.close(GENEROUS)


@pytest.fixture
def loaded(desk: Desk) -> Desk:
    """With the demo model."""
    assert isinstance(desk.run(LoadModel(next_request(), DEMO_MODEL)), ModelReady)
    return desk


def question(text: str = GREENHOUSE.question, pages: int = 0, **options: Any) -> Generate:
    documents = ()
    if pages:
        text_of_pages = document(pages, {0.0: GREENHOUSE}, lambda text: len(text) // 4)
        documents = (Document("pages.txt", text_of_pages),)
    return Generate(next_request(), (Message("user", text, documents),), **options)


def long_answer(**options: Any) -> Generate:
    """An answer that goes on until it is stopped: SPOKEN speaks at random and has a window of 4,096."""
    return question(sampling=Sampling(temperature=1.0, seed=1), max_tokens=4000, **options)


@pytest.fixture
def talkative(desk: Desk, shop: Shop) -> Desk:
    """With a tiny random model that hardly ever ends its turn."""
    assert isinstance(desk.run(LoadModel(next_request(), shop.folder(SPOKEN))), ModelReady)
    return desk


# --- one final event for every command ---


def test_every_command_gets_exactly_one_final_event_of_its_own_kind(
    talkative: Desk, shop: Shop, tmp_path: Path
):
    notes = tmp_path / "notes.txt"
    notes.write_text("The tide turned.", encoding="utf-8")
    commands: list[tuple[Command, type]] = [
        (ReadDocument(next_request(), notes), DocumentRead),
        (CountTokens(next_request(), ("one", "two words", "")), TokensCounted),
        (PlanPrefill(next_request(), 512, 2000), PrefillPlanned),
        (question(max_tokens=3), Finished),
        (Verify(next_request(), length=140, chunks=(64,)), Verified),
        (Tune(next_request(), prompt_tokens=130, chunks=(64, 128)), Tuned),
        (Cancel(next_request(), 999_999), CancelAccepted),
        (UnloadModel(next_request()), ModelUnloaded),
        (LoadModel(next_request(), shop.folder(SPOKEN)), ModelReady),
    ]
    for command, kind in commands:
        assert isinstance(talkative.run(command), kind)
    for command, _ in commands:
        assert len(talkative.finals(command.request)) == 1
        assert talkative.of(command.request)[-1] is talkative.finals(command.request)[0]


def test_commands_that_cannot_be_carried_out_fail_once_with_a_kind_and_a_message(desk: Desk, tmp_path: Path):
    wrong: list[tuple[Command, str]] = [
        (LoadModel(next_request(), tmp_path / "nowhere"), "checkpoint"),
        (ReadDocument(next_request(), tmp_path / "nothing.txt"), "document"),
        (CountTokens(next_request(), ("a",)), "no_model"),
        (question(), "no_model"),
        (Verify(next_request()), "no_model"),
        (Tune(next_request()), "no_model"),
        (PlanPrefill(next_request(), 7, 100), "setting"),
        (PlanPrefill(next_request(), 512, 0), "setting"),
    ]
    for command, kind in wrong:
        event = desk.run(command)
        assert isinstance(event, Failed)
        assert event.error.kind == kind
        assert event.error.message.endswith(".")
        assert desk.of(command.request) == [event]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (lambda: question(prefill_chunk=7), "setting"),
        (lambda: question(sampling=Sampling(temperature=77.0)), "setting"),
        (lambda: question(max_tokens=0), "setting"),
        (lambda: question(text="   "), "prompt"),
        (lambda: Generate(next_request(), ()), "prompt"),
        (lambda: question(text="word " * 40_000), "prompt_too_long"),
        (lambda: Verify(next_request(), length=5), "prompt"),
        (lambda: Verify(next_request(), chunks=(1,)), "setting"),
        (lambda: Tune(next_request(), prompt_tokens=10**9), "prompt"),
    ],
)
def test_a_refused_command_leaves_the_engine_working(loaded: Desk, command: Callable[[], Command], kind: str):
    event = loaded.run(command())
    assert isinstance(event, Failed)
    assert event.error.kind == kind
    assert not any(isinstance(e, TextDelta) for e in loaded.of(event.request))
    assert isinstance(loaded.run(question(max_tokens=2)), Finished)


def test_the_same_number_twice_does_not_end_the_engine(loaded: Desk):
    """Numbers are the caller's; a mistake with them must not cost the engine its life."""
    command = question(max_tokens=2)
    loaded.submit(command)
    loaded.submit(command)
    after = loaded.submit(question(max_tokens=2))
    assert isinstance(loaded.wait(after, seconds=15), Finished)


def test_commands_after_the_end_are_refused(desk: Desk):
    assert desk.engine.close(GENEROUS)
    event = desk.run(question())
    assert isinstance(event, Failed)
    assert event.error.kind == "closed"
    assert isinstance(desk.run(PlanPrefill(next_request(), 512, 100)), Failed)


def test_commands_in_the_queue_at_the_end_all_get_their_event(talkative: Desk):
    running = talkative.submit(long_answer())
    talkative.wait(running, TextDelta)
    waiting = [talkative.submit(question()) for _ in range(4)]
    waiting += [talkative.submit(CountTokens(next_request(), ("a",))) for _ in range(4)]
    assert talkative.engine.close(GENEROUS)
    for request in [running, *waiting]:
        assert len(talkative.finals(request)) == 1
    assert isinstance(talkative.events[-1], ShutDown)


def test_the_last_event_of_all_is_that_of_the_shutdown(desk: Desk):
    request = desk.submit(Shutdown(next_request()))
    assert isinstance(desk.wait(request), ShutDown)
    assert desk.events[-1] == ShutDown(request)


# --- answers ---


def test_a_question_about_a_document_is_answered_with_progress_and_a_receipt(loaded: Desk):
    command = question(pages=1500, prefill_chunk=256)
    done = loaded.run(command)
    assert GREENHOUSE.answer in done.text
    assert done.receipt.closed
    events = loaded.of(command.request)
    assert isinstance(events[0], PrefillPlanned)
    assert done.text == "".join(e.text for e in events if isinstance(e, TextDelta))
    progress = [e for e in events if isinstance(e, PrefillProgress)]
    assert [e.done for e in progress] == sorted(e.done for e in progress)
    assert (progress[0].done, progress[-1].done) == (0, done.stats.prompt_tokens)
    assert progress[0].seconds_left is None
    assert progress[-1].tokens_per_second > 0
    assert events.index(progress[-1]) < min(i for i, e in enumerate(events) if isinstance(e, TextDelta))


def test_the_environment_overrides_the_chunk_of_a_command(loaded: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "64")
    done = loaded.run(question(pages=600, prefill_chunk=0))
    assert (done.receipt.plan.reason, done.receipt.plan.source, done.receipt.plan.chunk) == (
        "chunked",
        "environment",
        64,
    )
    planned = loaded.run(PlanPrefill(next_request(), 2048, 130))
    assert planned.plan.slices == ((0, 64), (64, 128), (128, 130))
    monkeypatch.setenv(VARIABLE, "many")
    event = loaded.run(question())
    assert event.error.kind == "setting"
    assert VARIABLE in event.error.message


def test_a_plan_needs_no_model(desk: Desk):
    planned = desk.run(PlanPrefill(next_request(), 512, 1025))
    assert planned.plan.slices == ((0, 512), (512, 960), (960, 1025))


def test_counts_are_those_of_the_loaded_tokenizer(loaded: Desk):
    counted = loaded.run(CountTokens(next_request(), ("", "The tide turned.", "The tide turned. " * 2)))
    assert counted.counts[0] == 0
    assert 0 < counted.counts[1] < counted.counts[2]


def test_two_engines_in_one_process_give_the_same_answer_side_by_side(loaded: Desk):
    other = Desk()
    assert isinstance(other.run(LoadModel(next_request(), DEMO_MODEL)), ModelReady)
    commands = [question(pages=400, prefill_chunk=64) for _ in range(2)]
    for desk, command in zip((loaded, other), commands, strict=True):
        desk.submit(command)
    texts = [desk.wait(command.request).text for desk, command in zip((loaded, other), commands, strict=True)]
    assert texts[0] == texts[1]
    assert GREENHOUSE.answer in texts[0]
    assert other.engine.close(GENEROUS)


def test_events_come_from_engine_threads_and_mlx_from_one_of_them(loaded: Desk):
    loaded.run(question(max_tokens=2))
    loaded.run(CountTokens(next_request(), ("a",)))
    assert loaded.threads == {"perigee-engine", "perigee-desk"}


# --- cancel ---


def test_a_cancel_during_the_answer_ends_it_with_what_was_written(talkative: Desk):
    command = long_answer()
    talkative.submit(command)
    talkative.wait(command.request, TextDelta)
    accepted = talkative.run(Cancel(next_request(), command.request))
    assert accepted.running
    done = talkative.wait(command.request)
    assert isinstance(done, Finished)
    assert done.finish_reason == "cancelled"
    assert 0 < done.stats.generated_tokens < 3000
    assert len(talkative.finals(command.request)) == 1


def test_a_cancel_during_reading_stops_within_one_chunk_and_shows_no_text(loaded: Desk):
    command = question(pages=1500, prefill_chunk=64)
    at: list[int] = []

    def stop(event: Event) -> None:
        if isinstance(event, PrefillProgress) and event.done >= 192 and not at:
            at.append(event.done)
            loaded.engine.submit(Cancel(next_request(), command.request))

    loaded.on_event(stop)
    done = loaded.run(command)
    assert (done.text, done.finish_reason) == ("", "cancelled")
    assert not done.receipt.closed
    assert done.receipt.read <= at[0] + 64
    assert not any(isinstance(e, TextDelta) for e in loaded.of(command.request))
    resumed = loaded.run(dataclasses.replace(command, request=next_request(), prefill_chunk=0, max_tokens=1))
    assert resumed.receipt.plan.reused == done.receipt.read


def test_a_cancel_before_the_start_fails_that_command_alone(talkative: Desk):
    running = talkative.submit(long_answer())
    talkative.wait(running, TextDelta)
    waiting, after = talkative.submit(long_answer()), talkative.submit(question(max_tokens=2))
    talkative.run(Cancel(next_request(), waiting))
    talkative.run(Cancel(next_request(), running))
    stopped = talkative.wait(waiting)
    assert isinstance(stopped, Failed)
    assert stopped.error.kind == "cancelled"
    assert talkative.of(waiting) == [stopped]
    assert isinstance(talkative.wait(after), Finished)


def test_a_cancel_of_what_is_over_or_never_was_changes_nothing(loaded: Desk):
    done = loaded.run(question(max_tokens=2))
    assert not loaded.run(Cancel(next_request(), done.request)).running
    assert not loaded.run(Cancel(next_request(), 10**9)).running
    assert len(loaded.finals(done.request)) == 1


@pytest.mark.parametrize(
    "command", [lambda: Verify(next_request()), lambda: Tune(next_request(), prompt_tokens=2000)]
)
def test_a_cancel_ends_a_measurement(loaded: Desk, command: Callable[[], Command]):
    request = loaded.submit(command())
    loaded.wait(request, WorkProgress)
    loaded.run(Cancel(next_request(), request))
    event = loaded.wait(request)
    assert isinstance(event, Failed)
    assert event.error.kind == "cancelled"


def test_a_cancel_ends_a_load_and_another_can_follow(desk: Desk):
    request = next_request()

    def stop(event: Event) -> None:
        if isinstance(event, ModelLoading) and event.done < event.total:
            desk.engine.submit(Cancel(next_request(), request))

    desk.on_event(stop)
    event = desk.run(LoadModel(request, DEMO_MODEL))
    assert isinstance(event, Failed)
    assert event.error.kind == "cancelled"
    assert isinstance(desk.run(question()), Failed)
    desk._hooks.clear()
    assert isinstance(desk.run(LoadModel(next_request(), DEMO_MODEL)), ModelReady)
    assert isinstance(desk.run(question(max_tokens=2)), Finished)


# --- while an answer is being written ---


def test_documents_are_read_and_counted_while_an_answer_is_written(talkative: Desk, tmp_path: Path):
    notes = tmp_path / "notes.txt"
    notes.write_text("The tide turned.", encoding="utf-8")
    running = talkative.submit(long_answer())
    talkative.wait(running, TextDelta)
    read = talkative.run(ReadDocument(next_request(), notes))
    counted = talkative.run(CountTokens(next_request(), (read.document.text,)))
    planned = talkative.run(PlanPrefill(next_request(), 512, counted.counts[0]))
    assert planned.plan.tokens == counted.counts[0] > 0
    assert talkative.finals(running) == []  # all of it came while the answer was still being written
    talkative.run(Cancel(next_request(), running))
    assert isinstance(talkative.wait(running), Finished)


# --- loading ---


def broken(folder: Path) -> Path:
    shutil.copytree(DEMO_MODEL, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    return folder


def test_a_broken_folder_leaves_the_loaded_model_in_place(loaded: Desk, tmp_path: Path, shop: Shop):
    for folder in (broken(tmp_path / "cut"), tmp_path / "nowhere", shop.folder(PLAIN)):
        event = loaded.run(LoadModel(next_request(), folder))
        assert isinstance(event, Failed)
        assert event.error.kind in ("checkpoint", "tokenizer")
    assert isinstance(loaded.run(CountTokens(next_request(), ("a",))), TokensCounted)
    assert GREENHOUSE.answer in loaded.run(question(pages=200)).text


def test_what_is_said_of_a_loaded_model(desk: Desk):
    request = desk.submit(LoadModel(next_request(), DEMO_MODEL))
    info = desk.wait(request).info
    assert (info.name, info.family, info.quantization) == ("demo-model", "kimi_linear", "8-bit")
    assert (info.context_window, info.parameters) == (32768, 11_104_976)
    assert info.layers == ("KDA", "KDA", "KDA", "MLA") * 2
    assert info.supports_chunked_prefill
    assert info.has_chat_template
    progress = [event for event in desk.of(request) if isinstance(event, ModelLoading)]
    assert [e.done for e in progress] == sorted(e.done for e in progress)
    assert progress[-1].done == progress[-1].total == info.weight_bytes


def test_unloading_gives_the_memory_back(loaded: Desk):
    import mlx.core as mx

    gc.collect()
    before = mx.get_active_memory()
    assert isinstance(loaded.run(UnloadModel(next_request())), ModelUnloaded)
    assert before - mx.get_active_memory() > 40e6
    assert loaded.run(question()).error.kind == "no_model"


def test_another_model_can_be_loaded_in_its_place(loaded: Desk, shop: Shop):
    ready = loaded.run(LoadModel(next_request(), shop.folder(SPOKEN)))
    assert ready.info.parameters < 2e6
    assert isinstance(loaded.run(question(max_tokens=2)), Finished)


# --- what the thread itself must withstand ---


def plain(value: object) -> bool:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return all(plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool | Path)


def test_events_hold_nothing_but_plain_values(talkative: Desk, tmp_path: Path):
    notes = tmp_path / "notes.txt"
    notes.write_text("The tide turned.", encoding="utf-8")
    talkative.run(question(pages=400, prefill_chunk=64, max_tokens=8))
    talkative.run(Verify(next_request(), length=140, chunks=(64,)))
    talkative.run(Tune(next_request(), prompt_tokens=130, chunks=(64,)))
    talkative.run(ReadDocument(next_request(), notes))
    talkative.run(CountTokens(next_request(), ("a",)))
    talkative.run(LoadModel(next_request(), tmp_path))
    kinds = {type(event) for event in talkative.events}
    assert {
        ModelReady,
        ModelLoading,
        WorkProgress,
        PrefillProgress,
        TextDelta,
        Finished,
        Verified,
        Tuned,
        DocumentRead,
        TokensCounted,
        Failed,
    } <= kinds
    assert [event for event in talkative.events if not plain(event)] == []
    assert not plain((1, [2]))  # the walk does see what is not plain


def test_a_callback_that_raises_does_not_end_the_thread(loaded: Desk, expect_log: ExpectedLogs):
    expect_log("the event callback raised for")

    def burst(event: Event) -> None:
        raise RuntimeError("the window has gone")

    loaded.on_event(burst)
    assert isinstance(loaded.run(question(max_tokens=3)), Finished)
    assert isinstance(loaded.run(CountTokens(next_request(), ("a",))), TokensCounted)


def test_a_callback_may_submit_commands(loaded: Desk):
    follow_up = question(max_tokens=2)

    def ask_again(event: Event) -> None:
        if isinstance(event, Finished) and event.request != follow_up.request:
            loaded.submit(follow_up)

    loaded.on_event(ask_again)
    loaded.submit(question(max_tokens=2))
    assert isinstance(loaded.wait(follow_up.request), Finished)


def test_an_error_nobody_foresaw_becomes_a_message_and_the_thread_lives_on(
    loaded: Desk, monkeypatch: pytest.MonkeyPatch, expect_log: ExpectedLogs
):
    expect_log("Generate failed")
    with monkeypatch.context() as patch:
        patch.setattr("engine.text.chat_format.ChatFormat.prompt", lambda *_: 1 / 0)
        event = loaded.run(question())
    assert isinstance(event, Failed)
    assert event.error.kind == "internal"
    assert "Nothing you wrote is lost" in event.error.message
    assert "ZeroDivisionError" in event.error.detail
    assert isinstance(loaded.run(question(max_tokens=2)), Finished)


def test_running_out_of_memory_is_said_as_such(loaded: Desk, monkeypatch: pytest.MonkeyPatch):
    def exhausted(*_: object) -> None:
        raise RuntimeError("[malloc] Unable to allocate 17179869184 bytes.")

    with monkeypatch.context() as patch:
        patch.setattr("engine.text.chat_format.ChatFormat.prompt", exhausted)
        event = loaded.run(question())
    assert event.error.kind == "memory"
    assert "smaller prefill chunk" in event.error.message


def test_an_idle_engine_burns_no_processor_time(loaded: Desk):
    loaded.run(question(max_tokens=2))
    time.sleep(0.2)
    begun, used = time.monotonic(), time.process_time()
    time.sleep(2.0)
    share = (time.process_time() - used) / (time.monotonic() - begun)
    assert share < 0.05


def test_closing_ends_an_answer_that_is_being_written(talkative: Desk):
    command = long_answer()
    talkative.submit(command)
    talkative.wait(command.request, TextDelta)
    assert talkative.engine.close(GENEROUS)
    assert len(talkative.finals(command.request)) == 1
    assert talkative.wait(command.request).finish_reason == "cancelled"


def test_closing_ends_a_reading_in_one_pass(loaded: Desk):
    command = question(pages=3000, prefill_chunk=0)
    loaded.submit(command)
    loaded.wait(command.request, PrefillProgress)
    assert loaded.engine.close(GENEROUS)
    done = loaded.of(command.request)[-1]
    assert isinstance(done, Finished | Failed)
    assert not any(isinstance(e, TextDelta) for e in loaded.of(command.request))


def test_closing_twice_is_no_harm(desk: Desk):
    assert desk.engine.close(GENEROUS)
    assert desk.engine.close(GENEROUS)


def test_commands_may_be_submitted_from_many_threads(loaded: Desk):
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work() -> None:
        for _ in range(5):
            waiting.put(loaded.submit(CountTokens(next_request(), ("a word",))))
            waiting.put(loaded.submit(PlanPrefill(next_request(), 512, 100)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests = [waiting.get() for _ in range(60)]
    for request in requests:
        assert not isinstance(loaded.wait(request), Failed)
    assert all(len(loaded.finals(request)) == 1 for request in requests)


def test_an_engine_that_never_started_still_answers_every_command():
    events: list[Event] = []
    engine = Engine(events.append)
    commands = [question(), CountTokens(next_request(), ("a",))]
    for command in commands:
        engine.submit(command)
    assert engine.close(GENEROUS)
    for command in commands:
        assert [type(e) for e in events if e.request == command.request] == [Failed]
    assert isinstance(events[-1], ShutDown)
