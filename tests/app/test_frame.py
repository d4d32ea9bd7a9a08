"""Room, places and requests from outside: the sidebar, the window's place, files that the system opens."""

import ast
import subprocess
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

from app.application import Application
from app.placement import Placement, placed
from app.settings.preferences import SETTINGS, SIDEBAR, TEXT_SIZE, WINDOW, Preferences
from app.widgets import IconButton
from tests.app.driving import Driver

# --- the sidebar ---


def test_a_narrow_window_is_all_conversation(bare: Driver):
    assert bare.window.sidebar.isVisible()
    bare.window.resize(QSize(420, 780))
    assert not bare.window.sidebar.isVisible()
    assert bare.window.width() == 420
    bare.window.resize(QSize(1000, 780))
    assert bare.window.sidebar.isVisible()
    bare.window.actions_by_key["sidebar"].trigger()
    assert not bare.window.sidebar.isVisible()
    assert Preferences().get(SIDEBAR) is False


def test_in_a_narrow_window_the_sidebar_lies_over_the_conversation(bare: Driver, qtbot):
    window, frame = bare.window, bare.window.frame
    window.resize(QSize(420, 780))
    width = window.composer.width()
    window.header.toggle.click()
    assert frame.over
    assert window.sidebar.isVisible()
    assert window.composer.width() == width == 420
    assert Preferences().get(SIDEBAR) is True  # nothing to remember
    beside = frame.childAt(QPoint(400, 300))  # what dims the conversation
    qtbot.mouseClick(beside, Qt.MouseButton.LeftButton)
    assert not window.sidebar.isVisible()


def test_escape_puts_the_sidebar_away_before_it_stops_an_answer(bare: Driver, qtbot):
    window = bare.window
    turn = bare.ask("Hello")
    window.resize(QSize(420, 780))
    window.header.toggle.click()
    qtbot.keyClick(window.sidebar.list, Qt.Key.Key_Escape)
    assert not window.sidebar.isVisible()
    assert turn.open
    qtbot.keyClick(window.composer.editor, Qt.Key.Key_Escape)
    assert turn.state == "stopped"


def test_choosing_a_chat_puts_the_sidebar_away(bare: Driver):
    bare.ask("Hello")
    bare.window.resize(QSize(420, 780))
    bare.window.header.toggle.click()
    bare.window.sidebar.new.click()
    assert not bare.window.sidebar.isVisible()
    assert bare.turns == []


# --- the window's place ---

MAIN, SECOND = QRect(0, 25, 1440, 875), QRect(1440, 0, 1920, 1080)
LEAST = (380, 420)


@pytest.mark.parametrize(
    ("wanted", "screens", "expected"),
    [
        (QRect(100, 80, 1200, 780), [MAIN], QRect(100, 80, 1200, 780)),
        (QRect(1600, 50, 1200, 780), [MAIN, SECOND], QRect(1600, 50, 1200, 780)),
        (QRect(1600, 50, 1200, 780), [MAIN], QRect(120, 73, 1200, 780)),  # that screen is gone
        (QRect(100, -600, 1200, 780), [MAIN], QRect(120, 73, 1200, 780)),  # its title bar is out of reach
        (QRect(0, 25, 3000, 2000), [MAIN], QRect(0, 25, 1440, 875)),
        (QRect(50, 50, 10, 10), [MAIN], QRect(530, 253, 380, 420)),
    ],
)
def test_a_window_is_put_where_it_can_be_used(wanted: QRect, screens: list[QRect], expected: QRect):
    assert placed(wanted, screens, LEAST) == expected


def test_size_and_place_are_remembered(closed_driver: Driver):
    window, services = closed_driver.window, closed_driver.services
    Placement(window, services)
    window.resize(QSize(610, 540))
    window.move(QPoint(40, 60))
    window.close()
    assert Preferences().get(WINDOW) == (40, 60, 610, 540, 0)
    window.resize(QSize(700, 700))
    Placement(window, services)
    assert (window.pos(), window.size()) == (QPoint(40, 60), QSize(610, 540))


# --- files that the system opens ---


def test_files_opened_by_the_system_are_attached_even_before_there_is_a_window(
    bare: Driver, tmp_path: Path, qapp: Application
):
    first, second = bare.document(tmp_path, name="one.txt"), bare.document(tmp_path, name="two.txt")
    QApplication.sendEvent(qapp, QFileOpenEvent(str(first)))
    assert bare.chips() == []
    qapp.deliver_to(bare.window.open_files)
    assert len(bare.chips()) == 1
    QApplication.sendEvent(qapp, QFileOpenEvent(str(second)))
    assert [chip.partition(",")[0] for chip in bare.chips()] == ["one.txt", "two.txt"]
    qapp.deliver_to(None)


# --- text size and words ---


def test_icons_grow_with_the_text(bare: Driver):
    buttons = [b for b in bare.window.findChildren(IconButton) if b.isVisible()]
    before = [button.iconSize().width() for button in buttons]
    bare.services.preferences.set(TEXT_SIZE, 150)
    bare.services.apply_theme()
    after = [button.iconSize().width() for button in buttons]
    assert buttons
    assert after == [round(size * 1.5) for size in before]
    assert bare.window.composer.send.width() == 48


def test_every_text_to_translate_is_a_literal(root: Path):
    """What is passed in a variable is never found by the tool that collects the texts."""
    loose = []
    for path in sorted((root / "app").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute | ast.Name):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
                texts = {"tr": call.args[:1], "translate": call.args[:2], "QT_TRANSLATE_NOOP": call.args}
                if any(not isinstance(arg, ast.Constant) for arg in texts.get(name, [])):
                    loose.append(f"{path.name}:{call.lineno}")
    tables = [place for place in loose if place.partition(":")[0] in ("actions.py", "preferences.py")]
    assert loose == tables
    assert len(tables) == 2  # the two functions that translate what a table declares


def test_the_settings_are_found_for_translation(root: Path, tmp_path: Path):
    out = tmp_path / "texts.ts"
    tool = root / ".venv" / "bin" / "pyside6-lupdate"
    if not tool.exists():
        pytest.skip("the collecting tool is not installed here")
    source = root / "app" / "settings" / "preferences.py"
    subprocess.run([tool, source, "-ts", out], check=True, capture_output=True, timeout=60)
    found = out.read_text(encoding="utf-8")
    assert [s.key for s in SETTINGS if f"<source>{s.title}</source>" not in found] == []
