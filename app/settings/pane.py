"""The settings pane. Every change holds at once and is stored at once."""

from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QDialog,
    QDoubleSpinBox,
    QFrame,
    QHBoxLayout,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.bridge import EngineBridge
from app.controls import Choices, Switch
from app.layouts import PageArea
from app.model import ModelKeeper
from app.settings.forms import FormsSection
from app.settings.preferences import (
    APPEARANCE,
    MAX_TOKENS,
    TEMPERATURE,
    TEXT_SIZE,
    Preferences,
    Setting,
    translated,
)
from app.settings.prefill import PrefillSection
from app.theme import Appearance, scaled
from app.widgets import fix_size, label


class SettingsPane(QDialog):
    """Reading, answers, appearance.

    Signals:
        save_failed: the settings file could not be written, and why.
    """

    save_failed = Signal(str)

    def __init__(
        self,
        preferences: Preferences,
        bridge: EngineBridge,
        model: ModelKeeper,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._preferences = preferences
        self._model = model
        self.setWindowTitle(self.tr("Settings"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(scaled(540), min(scaled(700), 860))
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        page = QWidget()
        self._rows = QVBoxLayout(page)
        self._rows.setContentsMargins(28, 24, 28, 24)
        self._rows.setSpacing(10)
        outer.addWidget(PageArea(page))
        self.prefill = PrefillSection(preferences, bridge, model)
        self._card(self.tr("Reading"), self.prefill)
        self._card(self.tr("Answers"), self._temperature(), self._max_tokens())
        self._card(self.tr("Appearance"), self._appearance(), self._text_size())
        self.forms = FormsSection(model)
        self._card(self.tr("Speed on this device"), self.forms)
        self._rows.addStretch(1)
        model.changed.connect(self._show_recommended)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)

    def done(self, result: int, /) -> None:
        """Store what is typed, then close."""
        self.prefill.commit()
        self.prefill.end()
        super().done(result)

    def _card(self, title: str, *contents: QWidget) -> None:
        self._rows.addWidget(label(title, "section"))
        card = QFrame()
        card.setObjectName("card")
        rows = QVBoxLayout(card)
        rows.setContentsMargins(16, 14, 16, 14)
        rows.setSpacing(16)
        for content in contents:
            rows.addWidget(content)
        self._rows.addWidget(card)
        self._rows.addSpacing(10)

    def _row(self, setting: Setting[Any], *editors: QWidget) -> QWidget:
        holder = QWidget()
        rows = QVBoxLayout(holder)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(2)
        row = QHBoxLayout()
        row.setSpacing(8)
        title = label(translated(setting.title))
        row.addWidget(title)
        row.addStretch(1)
        for editor in editors:
            row.addWidget(editor)
            editor.setAccessibleName(translated(setting.title))
        title.setBuddy(editors[-1])
        rows.addLayout(row)
        rows.addWidget(label(translated(setting.sentence), "secondary", wrap=True))
        return holder

    def _temperature(self) -> QWidget:
        chosen = self._preferences.get(TEMPERATURE)
        self.recommended = Switch("")
        self.recommended.setChecked(chosen is None)
        self.temperature = QDoubleSpinBox()
        self.temperature.setRange(0.0, 2.0)
        self.temperature.setSingleStep(0.1)
        self.temperature.setDecimals(2)
        _pad(self.temperature)
        self.temperature.setValue(chosen or 0.0)
        self.temperature.setEnabled(chosen is not None)
        self.recommended.toggled.connect(self._on_temperature)
        self.temperature.valueChanged.connect(self._on_temperature)
        self.recommendation = label("", "secondary")
        row = self._row(TEMPERATURE, self.recommendation, self.recommended, self.temperature)
        self._show_recommended()
        return row

    def _on_temperature(self) -> None:
        recommended = self.recommended.isChecked()
        self.temperature.setEnabled(not recommended)
        self._store(TEMPERATURE, None if recommended else round(self.temperature.value(), 2))

    def _store(self, setting: Setting[Any], value: object) -> None:
        try:
            self._preferences.set(setting, value)
        except OSError as error:
            self.save_failed.emit(str(error))

    def _show_recommended(self) -> None:
        info = self._model.info
        if info is None:
            text = self.tr("As the model recommends")
        else:
            text = self.tr("As the model recommends ({n})").format(n=f"{info.sampling.temperature:g}")
        self.recommendation.setText(text)
        self.recommended.setAccessibleName(text)

    def _max_tokens(self) -> QWidget:
        self.max_tokens = QSpinBox()
        self.max_tokens.setRange(int(MAX_TOKENS.low or 0), int(MAX_TOKENS.high or 0))
        self.max_tokens.setSingleStep(256)
        self.max_tokens.setGroupSeparatorShown(True)
        _pad(self.max_tokens)
        self.max_tokens.setValue(self._preferences.get(MAX_TOKENS))
        self.max_tokens.valueChanged.connect(partial(self._store, MAX_TOKENS))
        return self._row(MAX_TOKENS, label(self.tr("tokens"), "secondary"), self.max_tokens)

    def _appearance(self) -> QWidget:
        choices = (
            (Appearance.SYSTEM, self.tr("System")),
            (Appearance.LIGHT, self.tr("Light")),
            (Appearance.DARK, self.tr("Dark")),
        )
        self.appearance = Choices(self.tr("Appearance"), choices, self._preferences.get(APPEARANCE))
        self.appearance.picked.connect(lambda: self._store(APPEARANCE, self.appearance.value))
        return self._row(APPEARANCE, self.appearance)

    def _text_size(self) -> QWidget:
        self.text_size = QSpinBox()
        self.text_size.setRange(80, 160)
        self.text_size.setSingleStep(10)
        self.text_size.setSuffix(" %")
        _pad(self.text_size)
        self.text_size.setValue(self._preferences.get(TEXT_SIZE))
        self.text_size.valueChanged.connect(partial(self._store, TEXT_SIZE))
        return self._row(TEXT_SIZE, self.text_size)


def _pad(spin: QAbstractSpinBox) -> None:
    """The size of the other fields; a style sheet's padding does not reach into a spin box."""
    fix_size(spin, 88, 32)
    spin.lineEdit().setTextMargins(7, 0, 4, 0)
