"""The prefill chunk in the settings pane: the value, its limits, and what it comes to."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app import wording
from app.bridge import EngineBridge
from app.controls import Switch
from app.model import ModelKeeper
from app.settings.preferences import PREFILL, SINGLE_PASS, Preferences, translated
from app.widgets import fix_size, label, rule, set_property
from engine.api import (
    PREFILL_CHUNK,
    Event,
    Failed,
    ModelInfo,
    PlanPrefill,
    PrefillPlanInfo,
    PrefillPlanned,
    next_request,
)
from engine.errors import SettingError

EXAMPLE_TOKENS = 10_000
PAUSE_MS = 400


class PrefillSection(QWidget):
    """Edits the prefill chunk. A value outside the range is refused, never rounded into it."""

    def __init__(self, preferences: Preferences, bridge: EngineBridge, model: ModelKeeper) -> None:
        super().__init__()
        self._preferences = preferences
        self._bridge = bridge
        self._model = model
        self._request = 0
        self._ended = False
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(6)
        row = QHBoxLayout()
        row.setSpacing(8)
        title = label(translated(PREFILL.title))
        self.field = QLineEdit(str(preferences.get(PREFILL)))
        self.field.setAccessibleName(translated(PREFILL.title))
        fix_size(self.field, 88, 32)
        title.setBuddy(self.field)
        row.addWidget(title)
        row.addStretch(1)
        row.addWidget(label(self.tr("tokens"), "secondary"))
        row.addWidget(self.field)
        rows.addLayout(row)
        self.problem = label("", "error", wrap=True)
        self.problem.hide()
        rows.addWidget(self.problem)
        rows.addWidget(label(translated(PREFILL.sentence), "secondary", wrap=True))
        limits = self.tr("0, or {low} to {high} tokens; {default} unless you change it.").format(
            low=PREFILL_CHUNK.low,
            high=wording.number(PREFILL_CHUNK.high),
            default=wording.number(PREFILL_CHUNK.default),
        )
        rows.addWidget(label(limits, "secondary", wrap=True))
        self.environment = label("", "warning", wrap=True, select=True)
        self.environment.hide()
        rows.addWidget(self.environment)
        rows.addWidget(self._for_this_model())
        rows.addWidget(self._outlook())
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self.commit)
        self.field.textEdited.connect(self._pause.start)
        self.field.editingFinished.connect(self.commit)
        model.changed.connect(self.ask)
        self.ask()

    def _for_this_model(self) -> QWidget:
        """The switch that holds for the loaded model alone; shown while there is one that can be chunked."""
        self.this_model = QWidget()
        rows = QVBoxLayout(self.this_model)
        rows.setContentsMargins(0, 4, 0, 0)
        rows.setSpacing(4)
        row = QHBoxLayout()
        self.this_model_title = label("")
        self.single_pass = Switch(translated(SINGLE_PASS.title))
        row.addWidget(self.this_model_title, 1)
        row.addWidget(self.single_pass)
        rows.addLayout(row)
        rows.addWidget(label(translated(SINGLE_PASS.sentence), "secondary", wrap=True))
        self.this_model.hide()
        self.single_pass.toggled.connect(self._set_single_pass)
        self._model.changed.connect(self._show_this_model)
        self._show_this_model()
        return self.this_model

    def _show_this_model(self) -> None:
        info = self._model.info
        self.this_model.setVisible(info is not None and info.supports_chunked_prefill)
        if info is None:
            return
        self.this_model_title.setText(
            self.tr("{model} always in one pass").format(model=wording.model_name(info.folder))
        )
        self.single_pass.blockSignals(True)
        self.single_pass.setChecked(str(info.folder) in self._preferences.get(SINGLE_PASS))
        self.single_pass.blockSignals(False)

    def _set_single_pass(self, on: bool) -> None:
        info = self._model.info
        if info is None:
            return
        others = tuple(name for name in self._preferences.get(SINGLE_PASS) if name != str(info.folder))
        try:
            self._preferences.set(SINGLE_PASS, (*others, str(info.folder)) if on else others)
        except OSError as error:
            self._show_problem(self.tr("This holds until Perigee is closed: {error}").format(error=error))
        self.ask()

    def _outlook(self) -> QWidget:
        """What the value comes to, below a hairline."""
        self.outlook = QWidget()
        rows = QVBoxLayout(self.outlook)
        rows.setContentsMargins(0, 4, 0, 0)
        rows.setSpacing(4)
        rows.addWidget(rule())
        rows.addSpacing(4)
        self.example = label("", "secondary", wrap=True)
        rows.addWidget(self.example)
        self.plan = label("", wrap=True, select=True)
        rows.addWidget(self.plan)
        self.outlook.hide()
        return self.outlook

    def commit(self) -> bool:
        """Store what is typed; False if it is refused, and the stored value stays."""
        self._pause.stop()
        if self._ended:  # the field says once more that it was edited when it loses the focus for good
            return True
        try:
            self._preferences.set(PREFILL, self.field.text().strip())
        except SettingError as error:
            self._show_problem(str(error))
            return False
        except OSError as error:
            self._show_problem(self.tr("This holds until Perigee is closed: {error}").format(error=error))
            self.ask()
            return True
        self._show_problem("")
        self.ask()
        return True

    def ask(self) -> None:
        """Ask the engine what the stored value comes to for the loaded model."""
        if self._request:
            self._bridge.forget(self._request)
        self._request = next_request()
        info = self._model.info
        command = PlanPrefill(
            self._request,
            self._preferences.get(PREFILL),
            EXAMPLE_TOKENS,
            single_pass=info is not None and str(info.folder) in self._preferences.get(SINGLE_PASS),
        )
        self._bridge.ask(command, self._on_event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, (PrefillPlanned, Failed)):
            self._request = 0
        if isinstance(event, PrefillPlanned):
            self.show_plan(event.plan, self._model.info)
        elif isinstance(event, Failed):
            self.plan.setText("")
            self.example.setText("")
            self.outlook.hide()
            advice = self.tr("Start Perigee without it, or with a number that is allowed.")
            self._show_environment(f"{event.error.message} {advice}")

    def show_plan(self, plan: PrefillPlanInfo, info: ModelInfo | None) -> None:
        """Show what the plan would be, for the model of `info` if one is loaded."""
        example = self.tr("a prompt of {n} tokens").format(n=wording.number(plan.tokens))
        self.example.setText(
            f"{wording.model_name(info.folder)}, {example}" if info else example.capitalize()
        )
        text = plan.explanation
        if info is not None and not info.supports_chunked_prefill and info.single_pass_reason not in text:
            text = f"{text} {info.single_pass_reason}"
        self.plan.setText(text)
        self.outlook.show()
        overridden = plan.source == "environment"
        self._show_environment(
            self.tr(
                "The environment variable {variable} is set to {value} and overrides this setting until "
                "Perigee is started without it."
            ).format(variable=PREFILL_CHUNK.environment_variable, value=plan.chunk)
            if overridden
            else ""
        )

    def _show_problem(self, text: str) -> None:
        set_property(self.field, "failed", "true" if text else "false")
        self.problem.setText(text)
        self.problem.setVisible(bool(text))

    def _show_environment(self, text: str) -> None:
        self.environment.setText(text)
        self.environment.setVisible(bool(text))

    def end(self) -> None:
        """Nothing that is still under way may reach this widget any more."""
        self._ended = True
        self._pause.stop()
        self._model.changed.disconnect(self.ask)
        self._model.changed.disconnect(self._show_this_model)
        if self._request:
            self._bridge.forget(self._request)
            self._request = 0
