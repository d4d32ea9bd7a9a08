"""Smaller promises of the window, each with its own test."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QColor, QEnterEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.bridge import Handler
from app.chat import reading_card
from app.chat.conversation import Turn
from app.chat.message import AnswerView
from app.chat.reading_card import ReadingCard
from app.chat.ruler import SliceBar
from app.colours import LIGHT
from app.documents.attachments import Attachment
from app.settings.preferences import MAX_TOKENS, PREFILL, TEMPERATURE, Preferences
from app.theme import Appearance
from engine.api import (
    Command,
    Document,
    DocumentRead,
    ErrorInfo,
    Failed,
    Generate,
    PrefillPlanInfo,
    PrefillProgress,
    TokensCounted,
)
from tests.app.driving import Driver
from tests.app.receipts import FIVE, STATS, receipt

# --- stop ---


def test_send_turns_into_stop_while_a_question_is_open(bare: Driver):
    send, stop = bare.window.composer.send, bare.window.actions_by_key["stop"]
    assert not stop.isEnabled()
    turn = bare.ask("Hello")
    assert send.accessibleName() == "Stop"
    assert stop.isEnabled()
    send.click()
    assert turn.state == "stopped"
    assert send.accessibleName() == "Send"
    assert not stop.isEnabled()


def test_the_card_has_its_own_stop(bare: Driver, qtbot: QtBot):
    turn = bare.ask("Hello")
    card = bare.view(turn).card
    assert card is not None
    qtbot.mouseClick(card._stop, Qt.MouseButton.LeftButton)
    assert turn.state == "stopped"


# --- the card while reading ---


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(reading_card, "monotonic", lambda: now[0])
    return now


def test_the_card_moves_between_two_slices_but_never_past_the_next(qtbot: QtBot, clock: list[float]):
    turn = Turn("question", state="reading", plan=PrefillPlanInfo(9214, 0, FIVE, "chunked", "", 2048))
    turn.progress = PrefillProgress(1, 2048, 9214, 1000.0, 7.0)
    card = ReadingCard(turn)
    qtbot.addWidget(card)
    assert card.bar._ahead == 2048
    clock[0] += 1.0
    card._tick()
    assert card.bar._ahead == 3048
    assert card.bar._done == 2048
    assert card.line.text() == "2,048 of 9,214 tokens · 22 % · 1,000 tok/s · about 6 s left"
    clock[0] += 60.0
    card._tick()
    assert card.bar._ahead == 4096
    assert "2,048 of 9,214" in card.line.text()
    assert "about 1 s left" in card.line.text()


def test_the_bar_shows_what_is_read(qtbot: QtBot, qapp):
    bar = SliceBar("bar")
    qtbot.addWidget(bar)
    bar.resize(100, 6)

    def colour(x: int) -> str:
        return bar.grab().toImage().pixelColor(x, 3).name()

    bar.show_reading(100, 50, 0, ((0, 50), (50, 100)))
    groove = colour(80)
    assert colour(20) != groove
    bar.show_reading(100, 100, 0, ((0, 50), (50, 100)))
    assert colour(80) == colour(20) != groove
    bar.show_receipt(100, 100, 30, ((30, 100),), closed=True)
    assert colour(10) != colour(80)  # reused is paler than read


# --- answers ---


def test_an_answer_stopped_while_written_says_so(qtbot: QtBot):
    turn = Turn("q", state="stopped", text="half an", receipt=receipt(9214, FIVE), stats=STATS)
    view = AnswerView(turn)
    qtbot.addWidget(view)
    assert view.footer is not None
    assert view.footer.line.text().startswith("stopped · read 9,214 of 9,214 tokens")
    view.footer.copy.click()
    assert QGuiApplication.clipboard().text() == "half an"


def test_actions_are_drawn_under_the_pointer_and_with_the_keyboard(qtbot: QtBot):
    turn = Turn("q", state="done", text="an answer", receipt=receipt(9214, FIVE), stats=STATS)
    view = AnswerView(turn)
    other = QPushButton()
    holder = QWidget()
    rows = QVBoxLayout(holder)
    rows.addWidget(view)
    rows.addWidget(other)
    qtbot.addWidget(holder)
    with qtbot.waitActive(holder):
        holder.show()
        holder.activateWindow()
    footer = view.footer
    assert footer is not None
    actions = (footer.copy, footer.again)

    def drawn() -> list[bool]:
        return [action.drawn for action in actions]

    other.setFocus()
    assert drawn() == [False, False]
    assert all(action.isVisible() and action.accessibleName() for action in actions)
    at = QPointF(5, 5)
    QApplication.sendEvent(view, QEnterEvent(at, at, at))
    assert drawn() == [True, True]
    QApplication.sendEvent(view, QEvent(QEvent.Type.Leave))
    assert drawn() == [False, False]
    footer.copy.setFocus(Qt.FocusReason.TabFocusReason)
    assert drawn() == [True, True]
    other.setFocus()
    assert drawn() == [False, False]


def test_the_card_says_how_much_of_the_model_is_loaded(qtbot: QtBot):
    turn = Turn("q", waiting="model", loaded=0.36)
    card = ReadingCard(turn)
    qtbot.addWidget(card)
    assert card._title.text() == "Loading the model, 36 %; your question comes next"
    assert card.bar._done == 36
    assert not card.bar.isHidden()


def test_the_line_under_an_answer_wraps_where_it_does_not_fit(qtbot: QtBot):
    turn = Turn("q", state="done", text="an answer", receipt=receipt(9214, FIVE), stats=STATS)
    view = AnswerView(turn)
    qtbot.addWidget(view)
    assert view.footer is not None
    line = view.footer.line
    view.resize(700, 200)
    view.show()
    qtbot.waitExposed(view)
    one = line.height()
    view.resize(260, 200)
    qtbot.waitUntil(lambda: line.height() > one)


def test_an_answer_cut_at_its_longest_says_so(qtbot: QtBot):
    turn = Turn("q", state="done", text="half an", receipt=receipt(9214, FIVE), stats=STATS)
    turn.finish_reason = "length"
    view = AnswerView(turn)
    qtbot.addWidget(view)
    assert view.footer is not None
    assert view.footer.line.text().startswith("cut off at its longest · ")


def test_a_failure_folds_its_details_out(qtbot: QtBot):
    turn = Turn("q", state="failed", error=ErrorInfo("checkpoint", "What to do.", "Traceback: details"))
    view = AnswerView(turn)
    qtbot.addWidget(view)
    assert view.outcome is not None
    assert view.outcome.sentence.text() == "What to do."
    assert view.outcome._details.isHidden()
    assert view.outcome._details.toPlainText() == "Traceback: details"


# --- notices and files ---


def test_send_without_sends_the_question_it_was_asked_about(bare: Driver, tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    bare.drop(empty)
    bare.wait(lambda: bool(bare.notices()))
    first = bare.services.chat.current
    bare.type("the first question")
    bare.press(Qt.Key.Key_Return)
    choice = bare.window.notice_bar.cards()[-1].notice.choices[0]
    bare.services.chat.new_conversation()
    bare.type("another one, not to be sent")
    second = bare.services.chat.current
    choice.run()
    assert [turn.question for turn in first.turns] == ["the first question"]
    assert second.turns == []
    assert second.draft == "another one, not to be sent"


def test_a_failure_nobody_waits_for_is_shown(bare: Driver):
    bare.services.bridge._post(Failed(10**9, ErrorInfo("internal", "Something to know.")))
    bare.wait(lambda: bare.notices() == ["Something to know."])


def test_the_same_notice_is_not_shown_twice(bare: Driver):
    bare.services.notices.error("once")
    bare.services.notices.error("once")
    assert bare.notices() == ["once"]


def test_characters_that_could_not_be_decoded_are_counted_and_said(bare: Driver):
    attachment = Attachment("old.txt")
    document = Document("old.txt", "caf\ufffd", encoding="cp1252", replaced=1_234)
    bare.services.attachments._on_read(attachment, DocumentRead(1, document))
    assert "1,234 characters of “old.txt” could not be decoded as cp1252" in bare.notices()[0]


def test_a_count_for_a_model_that_is_gone_is_not_taken(bare: Driver):
    attachment = Attachment("a.txt", state="read", request=5)
    bare.services.attachments._on_counted(attachment, 1, TokensCounted(4, (100,)))
    assert attachment.tokens is None
    bare.services.attachments._on_counted(attachment, 2, TokensCounted(5, (90,)))
    assert (attachment.tokens, attachment.generation) == (90, 2)


def test_another_model_can_be_opened_while_one_is_loading(bare: Driver, demo_model: Path, tmp_path: Path):
    failures: list[ErrorInfo] = []
    bare.services.model.failed.connect(failures.append)
    bare.services.model.load(tmp_path / "nowhere")
    bare.load(demo_model)
    assert bare.services.model.status.kind == "ready"
    assert failures == []


# --- settings and appearance ---


def test_the_settings_are_synced_before_they_take_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "settings.json"
    existed: list[bool] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (existed.append(file.exists()), real(handle)))
    Preferences(file).set(PREFILL, 64)
    assert existed == [False]
    assert file.exists()


def test_the_system_is_followed_only_where_that_was_chosen(bare: Driver, qtbot: QtBot):
    theme, hints = bare.services.theme, QGuiApplication.styleHints()
    theme.apply(Appearance.SYSTEM)
    with qtbot.waitSignal(theme.changed):
        hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    theme.apply(Appearance.LIGHT)
    with qtbot.assertNotEmitted(theme.changed):
        hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert QGuiApplication.palette().window().color() == QColor(LIGHT.page)


def test_the_answers_settings_reach_the_engine(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    sent: list[Command] = []
    ask = driver.services.bridge.ask

    def record(command: Command, handler: Handler) -> int:
        sent.append(command)
        return ask(command, handler)

    monkeypatch.setattr(driver.services.bridge, "ask", record)
    info = driver.services.model.info
    assert info is not None
    driver.finish(driver.ask("Hello"))
    driver.services.preferences.set(TEMPERATURE, 1.5)
    driver.services.preferences.set(MAX_TOKENS, 32)
    driver.finish(driver.ask("Hello again"))
    first, second = [command for command in sent if isinstance(command, Generate)]
    assert first.sampling == info.sampling
    assert first.max_tokens == MAX_TOKENS.default
    assert second.sampling == replace(info.sampling, temperature=1.5)
    assert second.max_tokens == 32
