"""Whatever is wrong has its own message, nothing typed is lost, and the app lives on."""

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QGuiApplication

from app.chat.composer import LONG_PASTE
from tests.app.driving import Driver


@pytest.fixture
def broken_model(tmp_path: Path, demo_model: Path) -> Path:
    """A model folder whose weights end too early."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in demo_model.iterdir():
        data = file.read_bytes()
        (folder / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    return folder


def test_a_broken_model_folder_gives_a_message_and_the_app_lives_on(
    driver: Driver, broken_model: Path, demo_model: Path
):
    driver.type("a question in the making")
    assert driver.drop(broken_model)
    driver.wait(lambda: driver.services.model.status.kind == "failed")
    error = driver.services.model.status.error
    assert error is not None
    assert driver.notices() == [error.message]
    assert "model.safetensors" in error.message
    assert driver.draft == "a question in the making"
    assert "could not be loaded" in driver.window.header.model.text()

    driver.load(demo_model)
    assert driver.notices() == []
    driver.press(Qt.Key.Key_Return)
    turn = driver.turns[-1]
    driver.finish(turn)
    assert turn.state == "done"


def test_a_missing_folder_is_said_to_be_missing(bare: Driver, tmp_path: Path):
    bare.load(tmp_path / "nowhere")
    assert bare.services.model.status.kind == "failed"
    assert "nowhere" in bare.notices()[0]


def test_a_folder_that_is_no_model_is_refused(bare: Driver, tmp_path: Path):
    folder = tmp_path / "papers"
    folder.mkdir()
    assert bare.drop(folder)
    assert "papers" in bare.notices()[0]
    assert bare.services.model.status.kind == "none"


def test_bad_files_get_their_notice_and_the_others_are_attached(driver: Driver, tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    binary = tmp_path / "picture.bin"
    binary.write_bytes(bytes(range(256)) * 8)
    gone = tmp_path / "gone.txt"
    driver.type("What is the password?")
    assert driver.drop(empty, binary, gone, driver.document(tmp_path))
    driver.wait(lambda: len(driver.notices()) == 3 and "tokens" in driver.chips()[-1])
    for name in ("empty.txt", "picture.bin", "gone.txt"):
        assert sum(name in notice for notice in driver.notices()) == 1
    assert driver.draft == "What is the password?"

    driver.press(Qt.Key.Key_Return)  # nothing is left out silently
    assert driver.turns == []
    assert driver.draft == "What is the password?"
    send_without = driver.window.notice_bar.cards()[-1].notice.choices[0]
    send_without.run()
    assert [a.name for a in driver.turns[0].attachments] == ["report.txt"]
    assert driver.draft == ""


def test_removing_a_bad_file_takes_its_notice_away(bare: Driver, tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    bare.drop(empty)
    bare.wait(lambda: bool(bare.notices()))
    bare.window.composer.chips()[0].removed.emit(bare.services.chat.current.attachments[0])
    assert bare.notices() == []
    assert bare.chips() == []


def test_a_document_dropped_before_the_model_is_counted_once_it_is_there(
    bare: Driver, demo_model: Path, tmp_path: Path
):
    bare.drop(bare.document(tmp_path))
    bare.wait(lambda: bare.services.chat.current.attachments[0].state == "read")
    assert bare.chips() == ["report.txt, counting…"]
    bare.load(demo_model)
    bare.wait(lambda: "tokens" in bare.chips()[0])
    bare.wait(lambda: " of 32,768" in bare.window.composer.meter.text())


def test_a_prompt_longer_than_the_window_is_refused_and_can_be_taken_back(driver: Driver, tmp_path: Path):
    path = tmp_path / "long.txt"
    path.write_text("one two three four five six seven\n" * 6000, encoding="utf-8")
    driver.drop(path)
    driver.wait(lambda: "window is 32,768" in driver.window.composer.meter.text())
    turn = driver.ask("What is it about?")
    driver.finish(turn)
    assert turn.state == "failed"
    assert turn.error is not None
    assert turn.error.kind == "prompt_too_long"
    assert "32,768" in turn.error.message
    outcome = driver.view(turn).outcome
    assert outcome is not None
    assert outcome.sentence.text() == turn.error.message
    outcome.edit_asked.emit()
    assert driver.draft == "What is it about?"
    assert len(driver.chips()) == 1


def test_an_empty_question_is_not_sent(driver: Driver, tmp_path: Path):
    driver.type("   ")
    driver.press(Qt.Key.Key_Return)
    assert driver.turns == []
    assert not driver.window.composer.send.isEnabled()
    driver.drop(driver.document(tmp_path))
    driver.press(Qt.Key.Key_Return)
    assert driver.turns == []
    assert driver.notices() == ["Write what you want to know about the document, then send."]


def test_a_file_is_not_attached_twice(bare: Driver, tmp_path: Path):
    path = bare.document(tmp_path)
    bare.drop(path)
    bare.drop(path)
    assert len(bare.chips()) == 1
    assert bare.notices() == ["“report.txt” is attached already."]


def test_a_very_long_paste_becomes_an_attachment(bare: Driver):
    data = QMimeData()
    data.setText("word " * LONG_PASTE)
    QGuiApplication.clipboard().setMimeData(data)
    bare.window.composer.editor.paste()
    assert bare.draft == ""
    assert bare.chips() == ["Pasted text 1, counting…"]


def test_an_unexpected_exception_becomes_a_notice(bare: Driver, capsys: pytest.CaptureFixture[str]):
    import sys
    import threading

    from app.crash import CrashReporter

    reporter = CrashReporter(bare.services.notices)
    try:
        raise ZeroDivisionError("of all things")
    except ZeroDivisionError as error:
        reporter._on_exception(type(error), error, error.__traceback__)
    bare.wait(lambda: bool(bare.notices()))
    assert "ZeroDivisionError: of all things" in capsys.readouterr().err
    assert "ZeroDivisionError" in bare.window.notice_bar.cards()[0].notice.detail
    assert sys.excepthook is not reporter._on_exception
    assert threading.excepthook is not reporter._on_thread_exception
