"""Brings questions to the engine one after the other, and their events back to their turns."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.bridge import EngineBridge
from app.chat.conversation import Conversation, Turn, TurnState, Waiting
from app.documents.attachments import Attachments
from app.model import ModelKeeper
from app.settings.preferences import MAX_TOKENS, PREFILL, SINGLE_PASS, TEMPERATURE, Preferences
from engine.api import (
    ErrorInfo,
    Event,
    Failed,
    Finished,
    Generate,
    PrefillPlanned,
    PrefillProgress,
    ReasoningDelta,
    Sampling,
    TextDelta,
    next_request,
)


class Runner(QObject):
    """The queue of questions. One is answered at a time, in the order in which they became ready.

    Signals:
        turn_changed: a `Turn` has another state or progress.
        text_arrived, reasoning_arrived: a `Turn` and the text that was appended to it.
    """

    turn_changed = Signal(object)
    text_arrived = Signal(object, str)
    reasoning_arrived = Signal(object, str)

    def __init__(
        self,
        bridge: EngineBridge,
        model: ModelKeeper,
        attachments: Attachments,
        preferences: Preferences,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._model = model
        self._preferences = preferences
        self._queue: list[tuple[Conversation, Turn]] = []
        self._running: Turn | None = None
        model.changed.connect(self._pump)
        attachments.changed.connect(self._pump)

    def enqueue(self, conversation: Conversation, turn: Turn) -> None:
        """Answer `turn` as soon as its documents, the model and the engine are ready."""
        self._queue.append((conversation, turn))
        self._pump()

    def stop(self, turn: Turn) -> None:
        """Stop `turn`: at once if it still waits, else within one chunk or one token."""
        if turn is self._running:
            turn.stopping = True
            self.turn_changed.emit(turn)
            self._bridge.cancel(turn.request)
            return
        self._queue = [entry for entry in self._queue if entry[1] is not turn]
        if turn.open:
            self._end(turn, "stopped")

    def _pump(self) -> None:
        """Start the first question that waits for nothing; tell the others what they wait for."""
        for conversation, turn in list(self._queue):
            if any(attachment.state == "failed" for attachment in turn.attachments):
                self._refuse(conversation, turn)
                continue
            waiting = self._waits_for(turn)
            if not waiting:
                self._start(conversation, turn)
            elif (waiting, self._model.status.share) != (turn.waiting, turn.loaded):
                turn.waiting, turn.loaded = waiting, self._model.status.share
                self.turn_changed.emit(turn)

    def _waits_for(self, turn: Turn) -> Waiting:
        if any(attachment.state == "reading" for attachment in turn.attachments):
            return "document"
        if self._model.status.kind != "ready":
            return "model" if self._model.status.kind == "loading" else "no_model"
        return "turn" if self._running is not None else ""

    def _refuse(self, conversation: Conversation, turn: Turn) -> None:
        self._queue.remove((conversation, turn))
        lost = next(a for a in turn.attachments if a.state == "failed")
        turn.error = ErrorInfo(
            "document",
            self.tr("“{name}” could not be read, so the question was not sent.").format(name=lost.name),
            lost.error.message if lost.error else "",
        )
        self._end(turn, "failed")

    def _start(self, conversation: Conversation, turn: Turn) -> None:
        self._queue.remove((conversation, turn))
        self._running = turn
        turn.request = next_request()
        turn.state, turn.waiting = "reading", ""
        turn.generation = self._model.status.generation
        command = Generate(
            turn.request,
            (*conversation.history(), *turn.messages()),
            sampling=self._sampling(),
            max_tokens=self._preferences.get(MAX_TOKENS),
            prefill_chunk=self._preferences.get(PREFILL),
            single_pass=self._in_one_pass(),
        )
        self._bridge.ask(command, lambda event: self._on_event(turn, event))
        self.turn_changed.emit(turn)

    def _in_one_pass(self) -> bool:
        """Whether the user switched chunks off for the loaded model."""
        info = self._model.info
        return info is not None and str(info.folder) in self._preferences.get(SINGLE_PASS)

    def _sampling(self) -> Sampling:
        recommended = self._model.info.sampling if self._model.info else Sampling()
        chosen = self._preferences.get(TEMPERATURE)
        return recommended if chosen is None else replace(recommended, temperature=chosen)

    def _on_event(self, turn: Turn, event: Event) -> None:
        match event:
            case PrefillPlanned(plan=plan):
                turn.plan = plan
                self.turn_changed.emit(turn)
            case PrefillProgress():
                turn.progress = event
                self.turn_changed.emit(turn)
            case TextDelta(text=text):
                turn.text += text
                self._now_writing(turn)
                self.text_arrived.emit(turn, text)
            case ReasoningDelta(text=text):
                turn.reasoning += text
                self._now_writing(turn)
                self.reasoning_arrived.emit(turn, text)
            case Finished():
                turn.stats, turn.receipt = event.stats, event.receipt
                turn.finish_reason = event.finish_reason
                self._finish(turn, "stopped" if event.finish_reason == "cancelled" else "done")
            case Failed(error=error):
                turn.error = error
                self._finish(turn, "stopped" if error.kind == "cancelled" else "failed")
            case _:
                pass

    def _now_writing(self, turn: Turn) -> None:
        if turn.state != "writing":
            turn.state = "writing"
            self.turn_changed.emit(turn)

    def _finish(self, turn: Turn, state: TurnState) -> None:
        self._running = None
        self._end(turn, state)
        self._pump()

    def _end(self, turn: Turn, state: TurnState) -> None:
        turn.stopping = False
        turn.state = state
        self.turn_changed.emit(turn)
