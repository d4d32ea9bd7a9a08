"""The engine's threads: one owns MLX, one serves what needs no MLX.

Commands come in through queues, events go out through one callback; both are plain values. MLX is
imported, used and left on the engine thread alone, so no array and no MLX call ever crosses. Every
command gets exactly one final event, whatever happens, and an exception never ends a thread.
"""

import logging
import queue
import threading
from collections.abc import Callable

from engine.api import (
    Cancel,
    CancelAccepted,
    Command,
    CountTokens,
    ErrorInfo,
    Event,
    Failed,
    PlanPrefill,
    ReadDocument,
    ShutDown,
    Shutdown,
    next_request,
)
from engine.desk import Desk
from engine.errors import CancelledError
from engine.explain import explain
from engine.work import Cancelled, DeskCommand, ModelCommand

log = logging.getLogger(__name__)

_DESK_PATIENCE = 1.0
"""Seconds the end waits for a text that is being counted; the thread is a daemon."""

_DESK_COMMANDS = (ReadDocument, CountTokens, PlanPrefill)


class Engine:
    """Runs models for an application. All methods may be called from any thread.

    Events arrive on engine threads (`CancelAccepted` on the caller's); the callback must be quick
    and must not raise.
    """

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._desk = Desk()
        self._model_queue: queue.SimpleQueue[ModelCommand | Shutdown] = queue.SimpleQueue()
        self._desk_queue: queue.SimpleQueue[DeskCommand | None] = queue.SimpleQueue()
        self._open: dict[int, threading.Event] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._started = False
        self._ended = False
        self._model_thread = threading.Thread(target=self._run_models, name="perigee-engine", daemon=True)
        self._desk_thread = threading.Thread(target=self._run_desk, name="perigee-desk", daemon=True)

    def start(self) -> None:
        """Start the threads, once; further calls do nothing. Returns at once."""
        with self._lock:
            if self._started:
                return
            self._started = True
            self._desk_thread.start()
            self._model_thread.start()

    def submit(self, command: Command) -> None:
        """Queue a command. `Cancel` takes effect at once."""
        if isinstance(command, Cancel):
            self._cancel(command)
            return
        with self._lock:
            refused = self._refusal(command)
            if refused is None:
                self._open[command.request] = threading.Event()
                if isinstance(command, Shutdown):
                    self._closing = True
                    for flag in self._open.values():
                        flag.set()
                if isinstance(command, _DESK_COMMANDS):
                    self._desk_queue.put(command)
                else:
                    self._model_queue.put(command)
        if refused is not None:
            self._emit(Failed(command.request, refused))

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel everything and end the threads; True if they ended within `timeout` seconds.

        Commands that are still queued get their final event too, also on an engine never started.
        Called from the event callback it does not wait, since it would wait for itself.
        """
        with self._lock:
            number = next_request()
            while number in self._open:
                number = next_request()
        self.submit(Shutdown(number))
        self.start()
        if threading.current_thread() not in (self._model_thread, self._desk_thread):
            self._model_thread.join(timeout)
        return not self._model_thread.is_alive()

    def _refusal(self, command: Command) -> ErrorInfo | None:
        """Why a command cannot be queued; called under the lock."""
        if self._closing:
            return ErrorInfo("closed", "Perigee is closing.")
        if command.request in self._open:
            return ErrorInfo("request", f"Request {command.request} is still being served; use a new number.")
        return None

    def _cancel(self, command: Cancel) -> None:
        with self._lock:
            flag = self._open.get(command.target)
            if flag is not None:
                flag.set()
        self._emit(CancelAccepted(command.request, command.target, running=flag is not None))

    def _emit(self, event: Event) -> None:
        if self._ended and threading.current_thread() is self._desk_thread:
            return  # a count that outlived the engine: `ShutDown` was the last event
        try:
            self._on_event(event)
        except (Exception, SystemExit):  # a broken listener must not end an engine thread
            log.exception("the event callback raised for %s", type(event).__name__)

    def _finish(self, request: int, event: Event) -> None:
        with self._lock:
            self._open.pop(request, None)
        self._emit(event)

    def _serve(self, command: ModelCommand | DeskCommand, serve: Callable[[Cancelled], Event]) -> None:
        """Serve one command to its final event."""
        flag = self._open[command.request]
        try:
            if flag.is_set():
                raise CancelledError("Stopped before it began.")
            event = serve(flag.is_set)
        except Exception as error:  # every failure becomes the command's final event
            event = Failed(command.request, explain(error))
            if event.error.kind == "internal":
                log.exception("%s failed", type(command).__name__)
        self._finish(command.request, event)

    def _run_desk(self) -> None:
        while (command := self._desk_queue.get()) is not None:
            self._serve(command, lambda cancelled, c=command: self._desk.serve(c, cancelled))

    def _run_models(self) -> None:
        serve, unload = self._open_runtime()
        while not isinstance(command := self._model_queue.get(), Shutdown):
            self._serve(command, lambda cancelled, c=command: serve(c, cancelled))
        try:
            unload()
        except Exception:  # the end must be told, whatever happens on the way
            log.exception("the model could not be freed")
        self._desk_queue.put(None)
        self._desk_thread.join(_DESK_PATIENCE)
        self._ended = True
        self._finish(command.request, ShutDown(command.request))

    def _open_runtime(self) -> tuple[Callable[[ModelCommand, Cancelled], Event], Callable[[], None]]:
        """Import MLX on this thread. If that fails, every command says why instead of waiting."""
        try:
            from engine.runtime import Runtime

            runtime = Runtime(self._desk, self._emit)
        except Exception as error:  # a missing library, or no device it can use
            log.exception("MLX cannot be used")
            reason = f"Perigee's numerical library (MLX) cannot be loaded: {error}. Install Perigee again."

            def refuse(command: ModelCommand, _cancelled: Cancelled) -> Event:
                return Failed(command.request, ErrorInfo("backend", reason))

            return refuse, lambda: None
        return runtime.serve, runtime.unload
