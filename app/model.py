"""Which model is loaded, and what became of loading it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.bridge import EngineBridge
from engine.api import ErrorInfo, Event, Failed, LoadModel, ModelInfo, ModelLoading, ModelReady, next_request


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """State of the one model slot.

    Attributes:
        folder: the checkpoint folder asked for last.
        share: loaded part of the weights, 0 to 1, while `kind` is "loading".
        generation: counts loads; token counts of one generation are not those of another.
    """

    kind: Literal["none", "loading", "ready", "failed"] = "none"
    folder: Path | None = None
    share: float = 0.0
    info: ModelInfo | None = None
    error: ErrorInfo | None = None
    generation: int = 0


class ModelKeeper(QObject):
    """Loads checkpoint folders through the bridge and says how it goes.

    Signals:
        changed: `status` is another one.
        ready: a model has just become usable.
        failed: a load failed; carries the `ErrorInfo`.
    """

    changed = Signal()
    ready = Signal()
    failed = Signal(object)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._request = 0
        self._loads = 0
        self.status = ModelStatus()

    @property
    def info(self) -> ModelInfo | None:
        """The loaded model, if there is one."""
        return self.status.info

    def load(self, folder: Path) -> None:
        """Load `folder`; a load still under way is given up for it."""
        if self.status.kind == "loading":
            self._bridge.forget(self._request)
        self._loads += 1
        self._set(ModelStatus("loading", folder, generation=self._loads))
        self._request = next_request()
        self._bridge.ask(LoadModel(self._request, folder), self._on_event)

    def _on_event(self, event: Event) -> None:
        folder = self.status.folder
        match event:
            case ModelLoading(done=done, total=total):
                loaded = done / total if total else 0.0
                self._set(ModelStatus("loading", folder, loaded, generation=self._loads))
            case ModelReady(info=info):
                self._set(ModelStatus("ready", folder, 1.0, info, generation=self._loads))
                self.ready.emit()
            case Failed(error=error):
                self._set(ModelStatus("failed", folder, error=error, generation=self._loads))
                self.failed.emit(error)
            case _:
                pass

    def _set(self, status: ModelStatus) -> None:
        self.status = status
        self.changed.emit()
