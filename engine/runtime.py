"""The commands that need MLX. Lives on the engine thread and nowhere else: no array leaves it."""

import gc
import json
import logging
import time
from dataclasses import dataclass, replace

import mlx.core as mx

from engine.api import (
    Event,
    Finished,
    FormInfo,
    Generate,
    LoadModel,
    ModelInfo,
    ModelLoading,
    ModelReady,
    ModelUnloaded,
    PrefillPlanInfo,
    PrefillPlanned,
    PrefillProgress,
    ReasoningDelta,
    Sampling,
    TextDelta,
    ToolCall,
    ToolCallParsed,
    Tune,
    Tuned,
    UnloadModel,
    Verified,
    Verify,
    WorkProgress,
)
from engine.checkpoint.loader import LoadedModel, kernel_choices, prepare_model, read_weights
from engine.desk import Desk, Reader, doubt_of
from engine.errors import CancelledError, NoModelError, SettingError
from engine.generation.generator import Generator, Options
from engine.generation.prefill import PrefillPolicy
from engine.generation.sampling import check_sampling
from engine.planning.steps import Steps
from engine.planning.tuning import tune
from engine.planning.verification import Needle, verify
from engine.text.chat_format import ChatFormat
from engine.text.tokenizer import Tokenizer
from engine.work import Cancelled, Emit, ModelCommand

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.05


@dataclass(frozen=True)
class Served:
    """A loaded model with everything that turns messages into answers."""

    loaded: LoadedModel
    tokenizer: Tokenizer
    chat_format: ChatFormat
    generator: Generator
    info: ModelInfo


class Runtime:
    """Serves `LoadModel`, `UnloadModel`, `Generate`, `Verify` and `Tune`, one at a time."""

    def __init__(self, desk: Desk, emit: Emit) -> None:
        self._desk = desk
        self._emit = emit
        self._served: Served | None = None

    def serve(self, command: ModelCommand, cancelled: Cancelled) -> Event:
        """The final event of a command. Raises `PerigeeError` for what the user can mend."""
        match command:
            case LoadModel():
                return self._load(command, cancelled)
            case UnloadModel(request):
                self.unload()
                return ModelUnloaded(request)
            case Generate():
                return self._generate(command, cancelled)
            case Verify():
                return self._verify(command, cancelled)
            case Tune():
                return self._tune(command, cancelled)

    def unload(self) -> None:
        """Free the model and all state."""
        self._desk.reader = None
        self._served = None
        gc.collect()
        mx.clear_cache()

    def _load(self, command: LoadModel, cancelled: Cancelled) -> ModelReady:
        """Check the new folder first, so that a broken one leaves the loaded model in place."""
        prepared = prepare_model(command.folder)
        tokenizer = Tokenizer.load(command.folder)
        chat_format = ChatFormat.load(command.folder, tokenizer)
        self.unload()
        throttle = _Throttle()

        def progress(done: int, total: int) -> None:
            if throttle.due() or done == total:
                self._emit(ModelLoading(command.request, done, total))

        try:
            read_weights(prepared, progress, cancelled)
        except BaseException:
            del prepared
            self.unload()
            raise
        info = describe(prepared, chat_format)
        generator = Generator(prepared.model, tokenizer)
        self._served = Served(prepared, tokenizer, chat_format, generator, info)
        self._desk.reader = Reader(info, tokenizer)
        return ModelReady(command.request, info)

    def _require_model(self) -> Served:
        if self._served is None:
            raise NoModelError("No model is loaded. Load a model first.")
        return self._served

    def _generate(self, command: Generate, cancelled: Cancelled) -> Finished:
        served = self._require_model()
        policy = PrefillPolicy.from_setting(command.prefill_chunk)
        prompt = served.chat_format.prompt(command.messages)
        reader = self._desk.reader
        doubt = doubt_of(reader is not None and reader.failed_verification, command.single_pass)
        options = Options(command.sampling, command.max_tokens, command.stop, doubt)
        listener = _Relay(command.request, self._emit)
        try:
            outcome = served.generator.generate(prompt, policy, options, listener, cancelled)
        finally:
            mx.clear_cache()
        return Finished(command.request, outcome.text, outcome.finish_reason, outcome.stats, outcome.receipt)

    def _verify(self, command: Verify, cancelled: Cancelled) -> Verified:
        served = self._require_model()
        report = verify(
            served.loaded.model,
            length=command.length,
            chunks=command.chunks,
            needle=Needle(served.tokenizer, served.chat_format) if served.chat_format.available else None,
            progress=self._steps(command.request, cancelled),
        )
        if self._desk.reader is not None:
            self._desk.reader = replace(self._desk.reader, failed_verification=not report.held)
        return Verified(command.request, report)

    def _tune(self, command: Tune, cancelled: Cancelled) -> Tuned:
        served = self._require_model()
        progress = self._steps(command.request, cancelled)
        points = tune(served.loaded.model, command.prompt_tokens, command.chunks, progress)
        return Tuned(command.request, points)

    def _steps(self, request: int, cancelled: Cancelled) -> Steps:
        def report(done: int, total: int, step: str) -> None:
            if cancelled():
                raise CancelledError("Stopped.")
            self._emit(WorkProgress(request, done, total, step))

        return report


class _Throttle:
    """Lets one report through per `_PROGRESS_SECONDS`."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < _PROGRESS_SECONDS:
            return False
        self._last = now
        return True


class _Relay:
    """Turns the generator's calls into events of one request."""

    def __init__(self, request: int, emit: Emit) -> None:
        self._request = request
        self._emit = emit
        self._throttle = _Throttle()

    def planned(self, plan: PrefillPlanInfo) -> None:
        self._emit(PrefillPlanned(self._request, plan))

    def progress(self, done: int, total: int, tokens_per_second: float, seconds_left: float | None) -> None:
        if self._throttle.due() or done == total:
            self._emit(PrefillProgress(self._request, done, total, tokens_per_second, seconds_left))

    def text(self, text: str) -> None:
        self._emit(TextDelta(self._request, text))

    def reasoning(self, text: str) -> None:
        self._emit(ReasoningDelta(self._request, text))

    def tool_call(self, call: ToolCall) -> None:
        self._emit(ToolCallParsed(self._request, call))


def describe(loaded: LoadedModel, chat_format: ChatFormat) -> ModelInfo:
    """What the app shows of a model."""
    model = loaded.model
    return ModelInfo(
        name=loaded.folder.resolve().name,
        family=model.family,
        folder=loaded.folder,
        parameters=loaded.parameters,
        weight_bytes=loaded.weight_bytes,
        context_window=model.context_window,
        quantization=loaded.quantization,
        device="CPU" if mx.default_device().type == mx.cpu else "GPU",
        layers=model.describe_layers(),
        supports_chunked_prefill=model.supports_chunked_prefill,
        single_pass_reason=model.single_pass_reason,
        has_chat_template=chat_format.available,
        sampling=default_sampling(loaded),
        forms=tuple(
            FormInfo(c.name, c.used, c.seconds, c.plain_seconds, c.reason) for c in kernel_choices(model)
        ),
    )


def default_sampling(loaded: LoadedModel) -> Sampling:
    """Sampling from generation_config.json; temperature 0.6 where it is silent or out of range."""
    try:
        text = (loaded.folder / "generation_config.json").read_text(encoding="utf-8")
        config = json.loads(text)
    except (OSError, ValueError):
        return Sampling(temperature=0.6)
    if not isinstance(config, dict):
        return Sampling(temperature=0.6)
    if config.get("do_sample") is False:
        return Sampling(temperature=0.0)
    try:
        wanted = Sampling(
            temperature=float(config.get("temperature", 0.6)),
            top_p=float(config.get("top_p", 1.0)),
            top_k=int(config.get("top_k", 0)),
        )
        check_sampling(wanted)
    except (TypeError, ValueError, OverflowError, SettingError) as error:
        log.info("generation_config.json of %s is not used: %s", loaded.folder.name, error)
        return Sampling(temperature=0.6)
    return wanted
