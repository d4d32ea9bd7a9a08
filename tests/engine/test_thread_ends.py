"""How the engine's threads begin and end: without MLX, twice, all at once, and from inside."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from engine.api import (
    CountTokens,
    Event,
    Failed,
    Generate,
    LoadModel,
    Message,
    ModelReady,
    PlanPrefill,
    PrefillPlanned,
    Sampling,
    ShutDown,
    Shutdown,
    TokensCounted,
    Tune,
    UnloadModel,
    Verify,
    next_request,
)
from engine.text.tokenizer import Tokenizer
from tests.conftest import ExpectedLogs
from tests.support.checkpoints import SPOKEN, Shop

GENEROUS = 60.0
"""Seconds to wait for what should take a fraction of that; only a hang reaches it."""


class Heard:
    """A callback that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._arrived = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._arrived:
            self.events.append(event)
            self._arrived.notify_all()

    def of(self, request: int) -> list[Event]:
        with self._arrived:
            return [event for event in self.events if event.request == request]

    def wait(self, kind: type[Event]) -> Event:
        def found() -> Event | None:
            return next((event for event in self.events if isinstance(event, kind)), None)

        with self._arrived:
            assert self._arrived.wait_for(lambda: found() is not None, GENEROUS), f"only {self.events}"
            event = found()
        assert event is not None
        return event


def question() -> Generate:
    return Generate(next_request(), (Message("user", "Who rang the bell?"),), max_tokens=2)


# --- an MLX that cannot be used ---


@pytest.fixture
def without_mlx(monkeypatch: pytest.MonkeyPatch, expect_log: ExpectedLogs) -> None:
    """A machine on which MLX finds no device."""

    def refuse(*_: object) -> None:
        raise RuntimeError("no Metal device")

    monkeypatch.setattr("engine.runtime.Runtime", refuse)
    expect_log("MLX cannot be used")


def test_without_mlx_every_command_says_so_instead_of_waiting(without_mlx: None, tmp_path: Path):
    heard = Heard()
    engine = Engine(heard)
    early = question()
    engine.submit(early)
    engine.start()
    commands = [
        early,
        LoadModel(next_request(), tmp_path),
        UnloadModel(next_request()),
        question(),
        Verify(next_request()),
        Tune(next_request()),
    ]
    for command in commands[1:]:
        engine.submit(command)
    plan = PlanPrefill(next_request(), 512, 2000)
    engine.submit(plan)
    heard.wait(PrefillPlanned)
    deadline = time.monotonic() + GENEROUS
    while not all(heard.of(command.request) for command in commands) and time.monotonic() < deadline:
        time.sleep(0.005)
    for command in commands:
        (event,) = heard.of(command.request)
        assert isinstance(event, Failed)
        assert event.error.kind == "backend"
        assert "no Metal device" in event.error.message
        assert "Install Perigee again." in event.error.message
    assert engine.close(GENEROUS)
    assert isinstance(heard.events[-1], ShutDown)


def test_without_mlx_closing_at_once_ends_with_the_shutdown_too(without_mlx: None):
    heard = Heard()
    engine = Engine(heard)
    command = question()
    engine.submit(command)
    assert engine.close(GENEROUS)
    (event,) = heard.of(command.request)
    assert isinstance(event, Failed)
    assert isinstance(heard.events[-1], ShutDown)


# --- starting and closing ---


def test_starting_twice_starts_once():
    heard = Heard()
    engine = Engine(heard)
    for _ in range(3):
        engine.start()
    names = [t.name for t in threading.enumerate() if t in (engine._model_thread, engine._desk_thread)]
    assert sorted(names) == ["perigee-desk", "perigee-engine"]
    assert engine.close(GENEROUS)
    engine.start()  # nor after the end
    assert engine.close(GENEROUS)
    assert sum(isinstance(event, ShutDown) for event in heard.events) == 1


@pytest.mark.parametrize("started", [False, True])
def test_many_threads_may_close_an_engine_at_once(started: bool):
    """A thread that raises would fail this test by itself."""
    for _ in range(15):
        heard = Heard()
        engine = Engine(heard)
        if started:
            engine.start()
        together = threading.Barrier(8)
        ended: list[bool] = []

        def close(
            engine: Engine = engine, together: threading.Barrier = together, ended: list = ended
        ) -> None:
            together.wait(GENEROUS)
            ended.append(engine.close(GENEROUS))

        threads = [threading.Thread(target=close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GENEROUS)
        assert ended == [True] * 8
        assert sum(isinstance(event, ShutDown) for event in heard.events) == 1


def test_starting_and_closing_may_happen_at_once():
    for _ in range(15):
        engine = Engine(Heard())
        starters = [threading.Thread(target=engine.start) for _ in range(4)]
        for thread in starters:
            thread.start()
        assert engine.close(GENEROUS)
        for thread in starters:
            thread.join(GENEROUS)


def test_a_command_that_took_the_number_of_the_shutdown_does_not_keep_the_engine_alive():
    heard = Heard()
    engine = Engine(heard)
    taken = [next_request() + ahead for ahead in (1, 2, 3)]
    for number in taken:
        engine.submit(Generate(number, (Message("user", "Who rang the bell?"),)))
    assert engine.close(GENEROUS)
    for number in taken:
        assert [type(event) for event in heard.of(number)] == [Failed]
    assert isinstance(heard.events[-1], ShutDown)


def test_a_shutdown_of_ones_own_and_a_close_get_along():
    heard = Heard()
    engine = Engine(heard)
    engine.submit(Shutdown(next_request()))
    assert engine.close(GENEROUS)
    assert sum(isinstance(event, ShutDown) for event in heard.events) == 1


# --- closing from inside ---


@pytest.mark.parametrize("where", ["the engine thread", "the desk thread"])
def test_closing_from_the_callback_does_not_wait_for_itself(where: str):
    returned: list[tuple[bool, float]] = []
    over = threading.Event()
    command = (
        UnloadModel(next_request()) if where == "the engine thread" else PlanPrefill(next_request(), 512, 9)
    )

    def hear(event: Event) -> None:
        if event.request == command.request:
            begun = time.monotonic()
            returned.append((engine.close(GENEROUS), time.monotonic() - begun))
        if isinstance(event, ShutDown):
            over.set()

    engine = Engine(hear)
    engine.start()
    engine.submit(command)
    assert over.wait(GENEROUS)
    assert engine.close(GENEROUS)
    assert len(returned) == 1
    assert returned[0][1] < 5


def test_closing_from_the_callback_of_the_shutdown_itself_is_no_harm():
    heard = Heard()

    def hear(event: Event) -> None:
        heard(event)
        if isinstance(event, ShutDown):
            engine.close(GENEROUS)

    engine = Engine(hear)
    assert engine.close(GENEROUS)
    assert isinstance(heard.wait(ShutDown), ShutDown)


# --- closing while a text is being counted ---


class LongCount:
    """A tokenizer at a text that takes it as long as the test likes."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, *_: object) -> int:
        self.begun.set()
        assert self.go_on.wait(GENEROUS)
        return 1


@pytest.fixture
def long_count(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongCount]:
    count = LongCount()
    monkeypatch.setattr(Tokenizer, "count", count)
    yield count
    count.go_on.set()


def counting(heard: Heard, shop: Shop, long_count: LongCount, engine: Engine) -> int:
    """Load a model and begin to count; returns the request."""
    engine.start()
    engine.submit(LoadModel(next_request(), shop.folder(SPOKEN)))
    heard.wait(ModelReady)
    command = CountTokens(next_request(), ("a book of a thousand pages",))
    engine.submit(command)
    assert long_count.begun.wait(GENEROUS)
    return command.request


def test_closing_does_not_wait_for_a_text_that_is_being_counted(shop: Shop, long_count: LongCount):
    heard = Heard()
    engine = Engine(heard)
    request = counting(heard, shop, long_count, engine)
    waiting = CountTokens(next_request(), ("another",))
    engine.submit(waiting)
    begun = time.monotonic()
    assert engine.close(GENEROUS)
    assert time.monotonic() - begun < 10
    assert isinstance(heard.events[-1], ShutDown)
    long_count.go_on.set()
    engine._desk_thread.join(GENEROUS)
    assert not engine._desk_thread.is_alive()
    assert isinstance(heard.events[-1], ShutDown)  # the count that outlived it says nothing more
    assert len(heard.of(request)) <= 1
    assert len(heard.of(waiting.request)) <= 1


def test_a_count_that_ends_while_the_shutdown_is_being_heard_says_nothing_more(
    shop: Shop, long_count: LongCount
):
    heard = Heard()

    def hear(event: Event) -> None:
        heard(event)
        if isinstance(event, ShutDown):
            long_count.go_on.set()
            engine._desk_thread.join(GENEROUS)

    engine = Engine(hear)
    counting(heard, shop, long_count, engine)
    assert engine.close(GENEROUS)
    assert isinstance(heard.events[-1], ShutDown)


def test_a_count_that_ends_in_time_still_gets_its_event(shop: Shop, long_count: LongCount):
    heard = Heard()
    engine = Engine(heard)
    request = counting(heard, shop, long_count, engine)
    threading.Timer(0.1, long_count.go_on.set).start()
    assert engine.close(GENEROUS)
    assert [type(event) for event in heard.of(request)] == [TokensCounted]
    assert isinstance(heard.events[-1], ShutDown)


# --- what is refused before anything is read ---


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_outside_the_range_is_refused_before_a_plan_is_made(shop: Shop, seed: int):
    heard = Heard()
    engine = Engine(heard)
    engine.submit(LoadModel(next_request(), shop.folder(SPOKEN)))
    ask = Generate(
        next_request(),
        (Message("user", "Hello"),),
        sampling=Sampling(temperature=1.0, seed=seed),
        max_tokens=2,
    )
    engine.submit(ask)
    engine.start()
    failed = heard.wait(Failed)
    assert isinstance(failed, Failed)
    assert (failed.request, failed.error.kind) == (ask.request, "setting")
    assert "between 0 and 2^64 - 1" in failed.error.message
    assert heard.of(ask.request) == [failed]
    assert engine.close(GENEROUS)
