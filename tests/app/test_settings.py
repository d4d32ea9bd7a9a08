"""The settings pane on the real engine."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.layouts import PageArea
from app.settings.forms import FormsSection
from app.settings.pane import SettingsPane
from app.settings.preferences import MAX_TOKENS, PREFILL, SINGLE_PASS, TEMPERATURE, TEXT_SIZE, Preferences
from app.theme import Appearance
from app.wording import brief_time
from engine.api import PREFILL_CHUNK, PrefillPlanInfo
from tests.app.driving import Driver
from tests.support.checkpoints import DEMO_VOCABULARY, Recipe, as_on_a_gpu, write


def open_pane(driver: Driver) -> SettingsPane:
    driver.window.actions_by_key["settings"].trigger()
    pane = driver.window.findChild(SettingsPane)
    assert pane is not None
    return pane


def enter(driver: Driver, pane: SettingsPane, text: str) -> None:
    field = pane.prefill.field
    field.selectAll()
    driver.qtbot.keyClicks(field, text)
    driver.qtbot.keyClick(field, Qt.Key.Key_Return)


def test_the_plan_follows_the_setting(driver: Driver):
    pane = open_pane(driver)
    section = pane.prefill
    driver.wait(lambda: section.plan.text() == "5 chunks of up to 2,048 tokens.")
    assert section.environment.isHidden()
    assert section.example.text() == "Kimi Linear demo, a prompt of 10,000 tokens"
    enter(driver, pane, "0")
    driver.wait(lambda: section.plan.text() == "Single pass, because chunking is off.")
    enter(driver, pane, "16384")
    driver.wait(lambda: "fit in one chunk" in section.plan.text())
    assert driver.services.preferences.get(PREFILL) == 16384
    assert Preferences().get(PREFILL) == 16384
    pane.close()


@pytest.mark.parametrize("typed", ["17", "40000", "many", "-5"])
def test_a_value_outside_is_refused_with_the_range_and_nothing_changes(bare: Driver, typed: str):
    pane = open_pane(bare)
    enter(bare, pane, typed)
    section = pane.prefill
    assert not section.problem.isHidden()
    assert str(PREFILL_CHUNK.low) in section.problem.text()
    assert str(PREFILL_CHUNK.high) in section.problem.text()
    assert section.field.text() == typed  # what was typed is there to be mended
    assert bare.services.preferences.get(PREFILL) == PREFILL.default
    enter(bare, pane, "512")
    assert section.problem.isHidden()
    assert bare.services.preferences.get(PREFILL) == 512
    pane.close()


def test_the_setting_is_obeyed_by_the_next_question(driver: Driver, tmp_path: Path):
    pane = open_pane(driver)
    enter(driver, pane, "128")
    pane.close()
    turn = driver.ask_about_document(tmp_path)
    driver.finish(turn)
    assert turn.receipt is not None
    assert turn.receipt.plan.chunk == 128
    assert max(end - start for start, end in turn.receipt.executed) <= 128


def test_a_model_can_be_kept_to_one_pass_and_the_receipt_says_so(driver: Driver, tmp_path: Path):
    pane = open_pane(driver)
    section = pane.prefill
    driver.wait(lambda: not section.this_model.isHidden())
    enter(driver, pane, "128")
    section.single_pass.click()
    off = "Single pass, because chunking is switched off for this model."
    driver.wait(lambda: section.plan.text() == off)
    folder = str(driver.services.model.info.folder)  # type: ignore[union-attr] - a model is loaded here
    assert Preferences().get(SINGLE_PASS) == (folder,)
    pane.close()
    turn = driver.ask_about_document(tmp_path)
    driver.finish(turn)
    assert turn.receipt is not None
    assert turn.receipt.plan.reason == "switched_off"
    assert len(turn.receipt.executed) == 1
    again = open_pane(driver)
    assert again.prefill.single_pass.isChecked()
    again.prefill.single_pass.click()
    assert Preferences().get(SINGLE_PASS) == ()
    again.close()


def test_the_environment_is_said_to_override(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PREFILL_CHUNK.environment_variable, "512")
    pane = open_pane(driver)
    note = pane.prefill.environment
    driver.wait(lambda: not note.isHidden())
    assert "PERIGEE_PREFILL_CHUNK is set to 512 and overrides this setting" in note.text()
    assert pane.prefill.plan.text() == "20 chunks of up to 512 tokens."
    pane.close()


def test_an_illegal_environment_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PREFILL_CHUNK.environment_variable, "17")
    pane = open_pane(driver)
    note = pane.prefill.environment
    driver.wait(lambda: not note.isHidden())
    assert "PERIGEE_PREFILL_CHUNK" in note.text()
    assert "between 64 and 32768" in note.text()
    pane.close()


def test_a_model_that_opted_out_shows_its_reason(driver: Driver):
    pane = open_pane(driver)
    section = pane.prefill
    driver.wait(lambda: bool(section.plan.text()))
    why = "its convolution cannot be continued"
    info = driver.services.model.info
    assert info is not None
    info = replace(info, supports_chunked_prefill=False, single_pass_reason=why)
    plan = PrefillPlanInfo(
        10_000,
        0,
        ((0, 10_000),),
        "single_pass_model",
        "This model reads the prompt in one pass, so the chunk size has no effect here.",
        2048,
    )
    section.show_plan(plan, info)
    assert "one pass" in section.plan.text()
    assert why in section.plan.text()
    pane.close()


def test_what_is_typed_is_stored_when_the_pane_is_closed(bare: Driver):
    pane = open_pane(bare)
    pane.prefill.field.selectAll()
    bare.qtbot.keyClicks(pane.prefill.field, "640")
    pane.close()
    assert bare.services.preferences.get(PREFILL) == 640


def test_answers_and_appearance_hold_at_once(bare: Driver):
    pane = open_pane(bare)
    assert not pane.temperature.isEnabled()
    pane.recommended.click()
    pane.temperature.setValue(0.7)
    pane.max_tokens.setValue(333)
    pane.appearance.pick(Appearance.DARK)
    bare.wait(lambda: bare.services.theme.dark)
    stored = Preferences()
    assert stored.get(TEMPERATURE) == 0.7
    assert stored.get(MAX_TOKENS) == 333
    pane.recommended.click()
    assert Preferences().get(TEMPERATURE) is None
    pane.text_size.setValue(150)
    bare.wait(lambda: bare.window.font().pixelSize() == 21)
    pane.close()


def test_the_longest_answer_is_obeyed_and_said(driver: Driver):
    driver.services.preferences.set(MAX_TOKENS, 16)
    turn = driver.ask("What can you do?")
    driver.finish(turn)
    if turn.finish_reason == "length":
        footer = driver.view(turn).footer
        assert footer is not None
        assert footer.line.text().startswith("cut off at its longest · ")
    assert turn.stats is not None
    assert turn.stats.generated_tokens <= 16


def test_there_is_one_pane(bare: Driver):
    pane = open_pane(bare)
    assert open_pane(bare) is pane
    pane.close()


def test_leaving_the_pane_asks_nothing_more_of_the_engine(driver: Driver):
    """A field that loses the focus for good says once more that it was edited."""
    driver.window.show_settings()
    pane = driver.window.findChild(SettingsPane)
    assert pane is not None
    pane.prefill.field.setText("512")
    pane.close()
    asked = len(driver.services.bridge._asked)
    pane.prefill.field.editingFinished.emit()
    assert len(driver.services.bridge._asked) == asked
    assert pane.prefill._request == 0
    assert driver.services.preferences.get(PREFILL) == 512


def test_the_pane_is_never_narrower_than_what_stands_in_it(bare: Driver):
    bare.window.show_settings()
    pane = bare.window.findChild(SettingsPane)
    assert pane is not None
    area = pane.findChild(PageArea)
    assert area is not None
    page = area.widget()
    assert page is not None
    for size in (100, 160):
        bare.services.preferences.set(TEXT_SIZE, size)
        bare.services.apply_theme()
        bare.qtbot.waitUntil(lambda: page.minimumSizeHint().width() <= area.viewport().width())
    pane.close()


def test_a_variable_that_is_refused_is_said_with_what_to_do(bare: Driver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PREFILL_CHUNK.environment_variable, "7")
    bare.window.show_settings()
    pane = bare.window.findChild(SettingsPane)
    assert pane is not None
    section = pane.prefill
    bare.wait(lambda: not section.environment.isHidden())
    assert "64 and 32768" in section.environment.text()
    assert "Start Perigee without it" in section.environment.text()
    assert section.outlook.isHidden()
    pane.close()


def shown_in(section: FormsSection) -> list[str]:
    return [text.text() for text in section.findChildren(QLabel) if text.isVisibleTo(section) and text.text()]


def test_the_pane_shows_each_faster_form_with_both_times(
    bare: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    as_on_a_gpu(monkeypatch)
    pane = open_pane(bare)
    assert shown_in(pane.forms)[0] == "No model is loaded."
    packed = Recipe(bits=4, group=32, tokenizer=True, vocabulary=DEMO_VOCABULARY)
    bare.load(write(packed, tmp_path / "packed"))
    info = bare.services.model.info
    assert info is not None
    assert len(info.forms) == 3
    bare.wait(lambda: info.forms[-1].name in shown_in(pane.forms))  # Qt shows new rows a moment later
    lines = shown_in(pane.forms)
    used = sum(form.used for form in info.forms)
    assert lines[0] == f"packed: {used} of 3 faster forms are used on this device."
    for form in info.forms:
        at = lines.index(form.name)
        state = "Used" if form.used else "Not used"
        assert lines[at + 1] == f"{state}: {form.reason}"
        times = lines[at + 2]
        assert times == f"{brief_time(form.seconds)} · plain {brief_time(form.plain_seconds)}"
    pane.close()


def test_a_model_without_faster_forms_says_so(driver: Driver):
    pane = open_pane(driver)
    assert shown_in(pane.forms)[0] == "Kimi Linear demo runs in its plain forms on this device."
    pane.close()
