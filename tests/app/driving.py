"""Uses the window as a person does: drops, keys, clicks, and patience."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.chat.conversation import Turn
from app.chat.message import AnswerView
from app.services import Services
from app.settings.preferences import PREFILL
from app.tour import drop_files
from app.window import MainWindow
from tests.app.texts import FACT, QUESTION, filler

SECONDS = 1000


class Driver:
    """A window, what is behind it, and hands."""

    def __init__(self, window: MainWindow, services: Services, qtbot: QtBot) -> None:
        self.window = window
        self.services = services
        self.qtbot = qtbot

    # --- hands ---

    def drop(self, *paths: Path) -> bool:
        return drop_files(self.window.page.viewport(), list(paths))

    def type(self, text: str) -> None:
        self.qtbot.keyClicks(self.window.composer.editor, text)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self.qtbot.keyClick(self.window.composer.editor, key, modifier)

    def ask(self, question: str) -> Turn:
        """Type a question, send it with Return."""
        self.type(question)
        before = len(self.turns)
        self.press(Qt.Key.Key_Return)
        assert len(self.turns) == before + 1
        return self.turns[-1]

    def load(self, folder: Path) -> None:
        model = self.services.model
        model.load(folder)
        self.wait(lambda: model.status.kind in ("ready", "failed"), 60)

    def chunk(self, tokens: int) -> None:
        self.services.preferences.set(PREFILL, tokens)

    # --- eyes ---

    @property
    def turns(self) -> list[Turn]:
        return self.services.chat.current.turns

    @property
    def draft(self) -> str:
        return self.window.composer.editor.toPlainText()

    def view(self, turn: Turn) -> AnswerView:
        return self.window.page.view_of(turn).answer

    def chips(self) -> list[str]:
        return [chip.accessibleName() for chip in self.window.composer.chips()]

    def notices(self) -> list[str]:
        return [card.notice.message for card in self.window.notice_bar.cards()]

    # --- patience ---

    def wait(self, over: Callable[[], bool], seconds: float = 60) -> None:
        self.qtbot.waitUntil(over, timeout=round(seconds * SECONDS))

    def finish(self, turn: Turn) -> None:
        self.wait(lambda: not turn.open, 120)

    def wait_reading(self, turn: Turn) -> None:
        """Until some of the prompt, and not all of it, is read."""
        self.wait(lambda: turn.progress is not None and 0 < turn.progress.done < turn.progress.total)

    # --- documents ---

    def document(self, folder: Path, characters: int = 2500, name: str = "report.txt") -> Path:
        """A document with one known fact at its beginning."""
        path = folder / name
        path.write_text(f"{FACT}\n\n{filler(characters)}", encoding="utf-8")
        return path

    def ask_about_document(self, folder: Path, characters: int = 2500) -> Turn:
        """Drop a document and ask for its fact."""
        assert self.drop(self.document(folder, characters))
        return self.ask(QUESTION)
