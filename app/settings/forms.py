"""Which faster forms of the model's parts this device uses, with both times: seen, not set."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from app import wording
from app.model import ModelKeeper
from app.widgets import label
from engine.api import FormInfo, ModelInfo


class FormsSection(QWidget):
    """A line for each form that was compared with its plain twin when the model was loaded."""

    def __init__(self, model: ModelKeeper) -> None:
        super().__init__()
        self._model = model
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(6)
        self.summary = label("", wrap=True)
        rows.addWidget(self.summary)
        self.explanation = label(
            self.tr(
                "When a model is loaded, each faster form of its parts is compared with the plain form "
                "on this device and timed. It is used only if it gives the same result and is faster."
            ),
            "secondary",
            wrap=True,
        )
        rows.addWidget(self.explanation)
        self._table = QWidget()
        self._lines = QGridLayout(self._table)
        self._lines.setContentsMargins(0, 6, 0, 0)
        self._lines.setHorizontalSpacing(16)
        self._lines.setVerticalSpacing(10)
        self._lines.setColumnStretch(0, 1)
        rows.addWidget(self._table)
        model.changed.connect(self.show_model)
        self.show_model()

    def show_model(self) -> None:
        """Show what holds for the loaded model."""
        info = self._model.info
        while (item := self._lines.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        forms = info.forms if info is not None else ()
        self._table.setVisible(bool(forms))
        self.summary.setText(self._summary(info))
        for row, form in enumerate(forms):
            self._add(row, form)

    def _summary(self, info: ModelInfo | None) -> str:
        if info is None:
            return self.tr("No model is loaded.")
        name = wording.model_name(info.folder)
        if not info.forms:
            return self.tr("{model} runs in its plain forms on this device.").format(model=name)
        used = sum(form.used for form in info.forms)
        return self.tr("{model}: {n} of {all} faster forms are used on this device.").format(
            model=name, n=used, all=len(info.forms)
        )

    def _add(self, row: int, form: FormInfo) -> None:
        """The name over the reason; at the right the times, if it was timed."""
        words = QWidget()
        rows = QVBoxLayout(words)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(1)
        rows.addWidget(label(form.name, wrap=True))
        state = self.tr("Used: {reason}") if form.used else self.tr("Not used: {reason}")
        rows.addWidget(label(state.format(reason=form.reason), "secondary", wrap=True))
        self._lines.addWidget(words, row, 0)
        if form.plain_seconds:
            times = self.tr("{fast} · plain {plain}").format(
                fast=wording.brief_time(form.seconds), plain=wording.brief_time(form.plain_seconds)
            )
            shown = label(times, "secondary")
            self._lines.addWidget(shown, row, 1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
