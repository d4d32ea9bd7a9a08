"""The main job, in the real window with the real engine and the demo model."""

import subprocess
import sys
import time
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from app.chat.receipt import ReceiptDialog
from tests.app.driving import Driver
from tests.app.texts import ANSWER, QUESTION


def test_drop_ask_progress_answer_receipt(driver: Driver, tmp_path: Path):
    driver.chunk(256)
    assert driver.drop(driver.document(tmp_path))
    driver.wait(lambda: "tokens" in driver.chips()[0])
    count = driver.services.chat.current.attachments[0].tokens
    assert count is not None
    assert driver.chips() == [f"report.txt, {count:,} tokens"]

    turn = driver.ask(QUESTION)
    assert driver.window.composer.chips() == []
    driver.wait_reading(turn)
    card = driver.view(turn).card
    assert card is not None
    assert " of " in card.line.text()
    assert " % · " in card.line.text()
    assert "tok/s" in card.line.text()

    driver.finish(turn)
    assert turn.error is None
    assert ANSWER in turn.text
    assert driver.view(turn).card is None
    shown = driver.view(turn).text
    assert shown is not None
    assert shown.toPlainText() == turn.text
    receipt = turn.receipt
    assert receipt is not None
    assert receipt.closed
    assert receipt.read == receipt.prompt_tokens > count
    footer = driver.view(turn).footer
    assert footer is not None
    total = f"{receipt.prompt_tokens:,}"
    assert footer.line.text().startswith(
        f"read {total} of {total} tokens in {len(receipt.executed)} chunks · "
    )
    assert len(receipt.executed) > 1


def test_the_line_under_an_answer_opens_the_receipt(driver: Driver):
    turn = driver.ask("Who are you?")
    driver.finish(turn)
    footer = driver.view(turn).footer
    assert footer is not None
    assert "in one pass" in footer.line.text()
    footer.line.click()
    dialog = driver.window.findChild(ReceiptDialog)
    assert dialog is not None
    dialog.copy()
    text = QGuiApplication.clipboard().text()
    assert "Receipt closed" in text
    assert "All 8 layer states" in text
    dialog.close()


def test_stop_while_reading_within_one_chunk_then_ask_again(driver: Driver, tmp_path: Path):
    driver.chunk(64)
    turn = driver.ask_about_document(tmp_path, 8000)
    driver.wait_reading(turn)
    assert turn.progress is not None
    read = turn.progress.done
    driver.press(Qt.Key.Key_Escape)
    driver.finish(turn)
    assert turn.state == "stopped"
    assert turn.text == ""
    assert turn.receipt is not None
    assert not turn.receipt.closed
    assert turn.receipt.read <= read + 2 * 64  # the chunk under way, and one whose event was on its way
    outcome = driver.view(turn).outcome
    assert outcome is not None
    assert outcome.sentence.text().startswith(f"Stopped after {turn.receipt.read:,} of ")
    assert outcome.sentence.text().endswith("nothing was answered")
    outcome.receipt_asked.emit()
    dialog = driver.window.findChild(ReceiptDialog)
    assert dialog is not None
    dialog.copy()
    assert "Receipt not closed" in QGuiApplication.clipboard().text()
    dialog.close()

    driver.chunk(2048)
    outcome.again_asked.emit()
    again = driver.turns[-1]
    assert again is not turn
    assert driver.turns == [again]
    driver.finish(again)
    assert ANSWER in again.text


def test_a_stopped_question_can_be_taken_back(driver: Driver, tmp_path: Path):
    driver.chunk(64)
    turn = driver.ask_about_document(tmp_path, 8000)
    driver.wait_reading(turn)
    driver.services.chat.stop()
    driver.finish(turn)
    driver.type("And the harbour?")
    outcome = driver.view(turn).outcome
    assert outcome is not None
    outcome.edit_asked.emit()
    assert driver.draft == f"{QUESTION}\n\nAnd the harbour?"
    assert len(driver.chips()) == 1
    assert driver.turns == []


def test_two_questions_in_a_row(driver: Driver, tmp_path: Path):
    first = driver.ask_about_document(tmp_path)
    driver.finish(first)
    second = driver.ask("Who are you?")
    driver.finish(second)
    assert ANSWER in first.text
    assert second.text
    assert ANSWER not in second.text
    assert second.receipt is not None
    assert second.receipt.closed
    assert [part.label for part in second.receipt.parts if part.kind == "document"] == ["report.txt"]


def test_stop_while_writing_keeps_what_was_written(driver: Driver):
    turn = driver.ask("What can you do?")
    driver.wait(lambda: turn.state == "writing")
    driver.services.chat.stop()
    driver.finish(turn)
    view = driver.view(turn)
    assert view.text is not None
    assert view.text.toPlainText() == turn.text != ""
    assert view.footer is not None
    if turn.state == "stopped":  # else the last word was written before the stop arrived
        assert view.footer.line.text().startswith("stopped · ")


def test_another_conversation_goes_on_being_answered(driver: Driver, tmp_path: Path):
    driver.chunk(64)
    turn = driver.ask_about_document(tmp_path)
    driver.wait_reading(turn)
    driver.services.chat.new_conversation()
    assert driver.turns == []
    assert not driver.services.chat.current.open_turn
    second = driver.ask("Hello")
    assert second.waiting == "turn"
    driver.finish(turn)
    driver.finish(second)
    assert ANSWER in turn.text
    assert second.text
    assert second.receipt is not None
    assert all(part.kind != "document" for part in second.receipt.parts)


def test_a_question_asked_while_the_model_loads_waits_for_it(bare: Driver, demo_model: Path):
    bare.services.model.load(demo_model)
    turn = bare.ask("Hello")
    assert turn.waiting == "model"
    card = bare.view(turn).card
    assert card is not None
    bare.finish(turn)
    assert turn.state == "done"


def test_a_waiting_question_can_be_stopped(bare: Driver):
    turn = bare.ask("Hello")
    assert turn.waiting == "no_model"
    bare.press(Qt.Key.Key_Escape)
    assert turn.state == "stopped"
    outcome = bare.view(turn).outcome
    assert outcome is not None
    assert outcome.sentence.text() == "Stopped before reading began; nothing was answered"


def test_closing_while_reading_ends_within_two_seconds(driver: Driver, tmp_path: Path):
    driver.chunk(64)
    turn = driver.ask_about_document(tmp_path, 14_000)
    driver.wait_reading(turn)
    started = time.monotonic()
    driver.window.close()
    assert time.monotonic() - started < 2.0
    assert driver.services.close()  # the engine's threads have ended


def test_the_process_ends_within_two_seconds_even_inside_one_long_pass(tmp_path: Path):
    """A pass that cannot be interrupted must not keep a closed window's process alive."""
    code = """
import sys, time
from pathlib import Path
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app.resources import DEMO_MODEL, SAMPLE
from app.services import Services
from app.settings.preferences import PREFILL
from app.window import MainWindow
application = QApplication([])
services = Services(application)
window = MainWindow(services)
window.show()
services.preferences.set(PREFILL, 0)
services.bridge.start()
services.model.load(DEMO_MODEL)
services.chat.attach(sorted(SAMPLE.glob("*.txt")))
services.chat.set_draft("What is it about?")
services.chat.send()
turn = services.chat.current.turns[0]
timer = QTimer(interval=5)
def close():
    if turn.plan is not None:
        timer.stop()
        print(time.time(), flush=True)
        window.close()
timer.timeout.connect(close)
timer.start()
application.exec()
"""
    seconds: list[float] = []
    for _ in range(3):  # a busy machine may be late once
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        seconds.append(time.time() - float(done.stdout))
        assert "Traceback" not in done.stderr
        if seconds[-1] < 2.0:
            return
    raise AssertionError(f"the process lived on for {seconds} s")


def test_closing_while_writing_ends_within_two_seconds(driver: Driver):
    turn = driver.ask("What can you do?")
    driver.wait(lambda: turn.state == "writing")
    started = time.monotonic()
    assert driver.services.close()
    assert time.monotonic() - started < 2.0


def test_the_state_of_the_model_is_shown(bare: Driver, demo_model: Path):
    header, sidebar = bare.window.header, bare.window.sidebar
    assert header.model.text() == "No model"
    states: list[str] = []
    bare.services.model.changed.connect(lambda: states.append(header.model.text()))
    bare.load(demo_model)
    assert states[0].startswith("Loading Kimi Linear demo · 0 %")
    assert any("100 %" in state for state in states)
    info = bare.services.model.info
    assert info is not None
    assert header.model.text() == f"Kimi Linear demo · {info.quantization}"
    assert sidebar.model_name.text() == "Kimi Linear demo"
    assert sidebar.model_state.text() == "ready"


def test_the_window_is_there_before_the_model(closed_driver: Driver):
    assert closed_driver.window.isVisible()
    assert closed_driver.services.model.info is None
    closed_driver.type("typed before the model is there")
    assert closed_driver.services.chat.current.draft == "typed before the model is there"
