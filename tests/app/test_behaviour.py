"""How the window behaves around the main job: drafts, keys, scrolling, names."""

import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QObject, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QAccessible, QAccessibleInterface, QColor, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.conversation import Turn, title_of
from app.chat.transcript import Transcript
from app.colours import DARK, LIGHT, Colours
from app.sample import read_sample
from app.theme import Appearance
from tests.app.driving import Driver
from tests.app.texts import filler

# --- drafts ---


def test_drafts_survive_switching(bare: Driver, tmp_path: Path):
    chat = bare.services.chat
    bare.type("first draft")
    bare.drop(bare.document(tmp_path))
    first = chat.current
    chat.new_conversation()
    assert bare.draft == ""
    assert bare.chips() == []
    bare.type("second draft")
    second = chat.current
    chat.show(first)
    assert bare.draft == "first draft"
    assert len(bare.chips()) == 1
    chat.show(second)
    assert bare.draft == "second draft"
    assert bare.chips() == []


def test_an_untouched_chat_is_not_doubled(bare: Driver):
    bare.services.chat.new_conversation()
    bare.services.chat.new_conversation()
    assert len(bare.services.chat.conversations) == 1


def test_the_title_is_the_first_line_of_the_first_question():
    assert title_of("  What did\tthey object to?\nIn detail, please.") == "What did they object to?"
    assert len(title_of("word " * 40)) <= 60
    assert title_of("word " * 40).endswith("word…")


# --- keys ---


def test_return_sends_and_shift_return_breaks_the_line(bare: Driver):
    bare.type("one")
    bare.press(Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    bare.type("two")
    assert bare.draft == "one\ntwo"
    bare.press(Qt.Key.Key_Return)
    assert bare.turns[0].question == "one\ntwo"
    assert bare.draft == ""


def test_return_while_an_answer_is_under_way_keeps_what_was_typed(bare: Driver):
    bare.ask("Hello")
    bare.type("and then?")
    bare.press(Qt.Key.Key_Return)
    assert bare.draft == "and then?"
    assert len(bare.turns) == 1
    assert "still being answered" in bare.notices()[0]


def test_the_field_grows_with_its_text_and_then_scrolls(bare: Driver):
    editor = bare.window.composer.editor
    one = editor.height()
    editor.setPlainText("a\nb\nc")
    three = editor.height()
    editor.setPlainText("\n".join("abcdefghijklmnopqrstuvwxyz"))
    assert one < three < editor.height() < 12 * one


def test_a_draft_survives_a_window_that_becomes_narrow_at_once(bare: Driver):
    """The field is a few pixels wide for a moment; its scroll bar must not come and go for ever."""
    bare.window.resize(QSize(1200, 780))
    bare.window.composer.editor.setPlainText("And who repaired it?")
    QApplication.processEvents()
    for width in (420, 900, 400, 1200, 420):
        bare.window.resize(QSize(width, 780))
        QApplication.processEvents()
    assert bare.draft == "And who repaired it?"
    assert bare.window.composer.editor.height() < 60


def test_the_sample_is_one_click(bare: Driver):
    welcome = bare.window.page.welcome
    sample = read_sample()
    assert welcome is not None
    assert sample is not None
    welcome.sample.click()
    assert bare.draft == sample.question
    assert bare.chips()[0].startswith(sample.document.name)


# --- dropping ---


@pytest.mark.parametrize("where", ["page", "composer", "sidebar", "header"])
def test_files_can_be_dropped_anywhere(bare: Driver, tmp_path: Path, where: str):
    window = bare.window
    targets: dict[str, QWidget] = {
        "page": window.page.viewport(),
        "composer": window.composer.editor.viewport(),
        "sidebar": window.sidebar.list.viewport(),
        "header": window.header,
    }
    path = bare.document(tmp_path)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    args = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    enter = QDragEnterEvent(QPoint(5, 5), *args)
    QApplication.sendEvent(targets[where], enter)
    assert enter.isAccepted()
    QApplication.sendEvent(targets[where], QDropEvent(QPointF(5, 5), *args))
    assert len(bare.chips()) == 1


def test_dropped_text_goes_into_the_question(bare: Driver):
    data = QMimeData()
    data.setText("a passage")
    args = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(bare.window.page.viewport(), QDragEnterEvent(QPoint(5, 5), *args))
    QApplication.sendEvent(bare.window.page.viewport(), QDropEvent(QPointF(5, 5), *args))
    assert bare.draft == "a passage"


# --- reading along ---


class ResizeCounter(QObject):
    """Counts how often what it is installed on is laid out anew."""

    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest)
        return False


@pytest.fixture
def page(qtbot) -> Transcript:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(700, 400)
    transcript.show()
    return transcript


def test_the_page_follows_the_tail_until_the_reader_scrolls_up(page: Transcript, qtbot):
    turn = Turn("question", state="writing")
    page.add_turn(turn)
    bar = page.verticalScrollBar()
    for _ in range(10):
        page.append_text(turn, filler(600))
    qtbot.waitUntil(lambda: bar.maximum() > 1000 and bar.value() == bar.maximum())
    bar.setValue(200)
    page.append_text(turn, filler(600))
    qtbot.wait(30)
    assert bar.value() == 200
    assert page.to_end.isVisible()
    page.to_end.click()
    assert bar.value() == bar.maximum()
    assert not page.to_end.isVisible()
    page.append_text(turn, filler(600))
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())


def test_text_is_shown_as_it_is(page: Transcript):
    turn = Turn("<b>question</b>", state="writing")
    page.add_turn(turn)
    text = "<img src='http://example.invalid/x.png'><script>1</script> & **stars**\n\n  two  spaces\t|"
    page.append_text(turn, text)
    view = page.view_of(turn)
    assert view.answer.text is not None
    assert view.answer.text.toPlainText() == text
    assert view.question.text.toPlainText() == "<b>question</b>"


def test_a_token_costs_the_same_at_the_end_of_a_long_answer(page: Transcript, qtbot):
    """Only what is new is laid out: nothing of the text before it, and no other turn."""
    for number in range(20):
        page.add_turn(Turn(f"question {number}", state="done", text="an answer"))
    turn = Turn("question", state="writing")
    page.add_turn(turn)
    page.append_text(turn, filler(14_000) * 2)
    qtbot.wait(50)
    view = page.view_of(turn).answer.text
    assert view is not None
    length = len(view.toPlainText())
    changes: list[tuple[int, int, int]] = []
    view.document().contentsChange.connect(lambda *change: changes.append(change))
    watch = ResizeCounter()
    for other, widget in page._views.items():
        if other is not turn:
            widget.installEventFilter(watch)
    for _ in range(30):
        page.append_text(turn, "\nword")
        QApplication.processEvents()
    assert changes == [(length + 5 * n, 0, 5) for n in range(30)]
    assert watch.count == 0


def test_a_wider_window_wraps_nothing_anew_where_the_column_stays(page: Transcript, qtbot):
    views = []
    for number in range(5):
        turn = Turn(f"question {number}", state="done", text="an answer")
        page.add_turn(turn)
        views.append(page.view_of(turn))
    page.resize(1000, 600)
    qtbot.wait(20)
    watch = ResizeCounter()
    for view in views:
        view.installEventFilter(watch)
    widths = [view.width() for view in views]
    for width in (1040, 1100, 900, 1300):
        page.resize(width, 600)
        QApplication.processEvents()
    assert [view.width() for view in views] == widths
    assert watch.count == 0


def test_what_the_model_thinks_is_folded_beside_the_answer(page: Transcript):
    turn = Turn("question", state="writing")
    page.add_turn(turn)
    page.append_reasoning(turn, "let me see")
    page.append_text(turn, "answer")
    answer = page.view_of(turn).answer
    assert answer.reasoning is not None
    assert answer.text is not None
    assert answer.reasoning.text.isHidden()
    answer.reasoning.line.click()
    assert answer.reasoning.text.toPlainText() == "let me see"
    assert not answer.reasoning.text.isHidden()
    assert answer.text.toPlainText() == "answer"


# --- names and colours ---


def unnamed(interface: QAccessibleInterface) -> list[str]:
    """Controls below `interface` that a screen reader could not name."""
    found: list[str] = []
    wanted = (
        QAccessible.Role.Button,
        QAccessible.Role.ButtonMenu,
        QAccessible.Role.CheckBox,
        QAccessible.Role.RadioButton,
        QAccessible.Role.EditableText,
        QAccessible.Role.SpinBox,
        QAccessible.Role.List,
    )
    hidden = interface.state().invisible
    if interface.role() in wanted and not hidden and not interface.text(QAccessible.Text.Name):
        found.append(f"{interface.role()} {interface.object()!r}")
    for index in range(interface.childCount()):
        child = interface.child(index)
        if child is not None:
            found += unnamed(child)
    return found


def test_every_control_has_a_name(driver: Driver, tmp_path: Path):
    turn = driver.ask_about_document(tmp_path, 1000)
    driver.finish(turn)
    driver.drop(driver.document(tmp_path, name="other.txt"))
    driver.window.show_settings()
    driver.window.show_receipt(turn)
    driver.services.notices.error("message", detail="detail")
    for widget in [driver.window, *driver.window.findChildren(QWidget)]:
        if widget.isWindow() and widget.isVisible():
            interface = QAccessible.queryAccessibleInterface(widget)
            assert interface is not None
            assert unnamed(interface) == []


def luminance(colour: str) -> float:
    def linear(part: float) -> float:
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue, _ = QColor(colour).getRgbF()  # type: ignore[misc]
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast_on_every_surface(colours: Colours):
    for text in (colours.text, colours.secondary, colours.error, colours.warning, colours.good):
        for surface in (colours.page, colours.sidebar, colours.card, colours.own):
            assert contrast(text, surface) >= 4.5, (text, surface)
    for text in (colours.on_accent, colours.page):
        assert contrast(text, colours.accent) >= 4.5
    for surface in (colours.page, colours.sidebar, colours.card, colours.own):
        assert contrast(colours.accent, surface) >= 4.5, surface  # links
    for mark in (colours.secondary, colours.good, colours.accent):
        assert contrast(mark, colours.card) >= 3


def test_light_and_dark_are_drawn(bare: Driver):
    for appearance, colours in ((Appearance.LIGHT, LIGHT), (Appearance.DARK, DARK)):
        bare.services.theme.apply(appearance)
        image = bare.window.grab().toImage()
        middle = image.pixelColor(image.width() * 2 // 3, image.height() // 3)
        assert middle.name().upper() == colours.page


# --- the process ---


def test_the_window_is_usable_within_two_seconds_and_before_mlx(tmp_path: Path):
    """Counted in a process of its own, from its first line to a window on the screen."""
    code = """
import time; started = time.perf_counter()
import sys
from PySide6.QtWidgets import QApplication
from app.services import Services
from app.window import MainWindow
application = QApplication([])
window = MainWindow(Services(application))
window.show()
application.processEvents()
print(time.perf_counter() - started, any(name.partition(".")[0] == "mlx" for name in sys.modules))
"""
    times = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds, with_mlx = done.stdout.split()
        assert with_mlx == "False"
        times.append(float(seconds))
    assert min(times) < 2.0
