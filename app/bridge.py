"""Between the engine's threads and the widgets: the only importer of `engine.Engine`."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, Signal

from engine import Engine
from engine.api import (
    FINAL_EVENTS,
    Cancel,
    Command,
    Event,
    PlanPrefill,
    PrefillPlanned,
    TextDelta,
    next_request,
)

Handler = Callable[[Event], None]


def joined(events: Iterable[Event]) -> deque[Event]:
    """`events` with adjacent `TextDelta`s of one request made one."""
    result: deque[Event] = deque()
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta) and last.request == event.request:
            result[-1] = replace(last, text=last.text + event.text)
        else:
            result.append(event)
    return result


class EngineBridge(QObject):
    """Sends commands to the engine and hands each event to whoever asked, on the GUI thread.

    The engine calls `_post` on its own threads. Events wait in a deque under a lock, with one
    wake signal pending at a time, so a fast answer costs one call per drain, not one per token.

    Signals:
        unclaimed: an event of a request that nobody waits for any more.
    """

    unclaimed = Signal(object)
    _wake = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._waking = False
        self._closed = False
        self._asked: dict[int, tuple[Command, Handler]] = {}
        self._wake.connect(self._drain, Qt.ConnectionType.QueuedConnection)
        self._engine = Engine(self._post)

    def start(self) -> None:
        """Start the engine's threads."""
        self._engine.start()

    def ask(self, command: Command, handler: Handler) -> int:
        """Submit `command`; `handler` gets each of its events. Returns the request number."""
        self._asked[command.request] = (command, handler)
        self._engine.submit(command)
        return command.request

    def cancel(self, target: int) -> None:
        """Stop the request `target`; it still sends its own final event."""
        self.ask(Cancel(next_request(), target), _ignore)

    def forget(self, request: int) -> None:
        """Stop `request` and deliver nothing more of it."""
        if request in self._asked:
            self._asked[request] = (self._asked[request][0], _ignore)
            self.cancel(request)

    def close(self, timeout: float = 1.0) -> bool:
        """End the engine's threads; True if they ended within `timeout` seconds.

        They are daemon threads: one that is inside a long step does not keep the process alive.
        """
        with self._lock:
            self._closed = True
            self._events.clear()
        self._asked.clear()
        return self._engine.close(timeout)

    def _post(self, event: Event) -> None:
        with self._lock:
            if self._closed:
                return
            self._events.append(event)
            if not self._waking:
                self._waking = True
                self._wake.emit()

    def _drain(self) -> None:
        with self._lock:
            batch = joined(self._events)
            self._events.clear()
            self._waking = False
        try:
            while batch:
                self._deliver(batch.popleft())
        finally:
            # A handler that raised must not cost the events behind it.
            for event in batch:
                self._post(event)

    def _deliver(self, event: Event) -> None:
        if event.request not in self._asked:
            self.unclaimed.emit(event)
            return
        command, handler = self._asked[event.request]
        if isinstance(event, FINAL_EVENTS) or (
            isinstance(event, PrefillPlanned) and isinstance(command, PlanPrefill)
        ):
            del self._asked[event.request]
        handler(event)


def _ignore(_event: Event) -> None:
    """For requests whose outcome changes nothing any more."""
