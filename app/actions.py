"""Every command of the window once: its text, shortcut and what it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.translation import QT_TRANSLATE_NOOP

FILE = QT_TRANSLATE_NOOP("actions", "File")
CHAT = QT_TRANSLATE_NOOP("actions", "Chat")
VIEW = QT_TRANSLATE_NOOP("actions", "View")


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table. On macOS, "Ctrl" in a shortcut is the command key."""

    key: str
    text: str
    shortcuts: tuple[str, ...] = ()
    menu: str = FILE
    role: QAction.MenuRole = QAction.MenuRole.NoRole


COMMANDS = (
    Command("new", QT_TRANSLATE_NOOP("actions", "New chat"), ("Ctrl+N",)),
    Command("attach", QT_TRANSLATE_NOOP("actions", "Attach files…"), ("Ctrl+O",)),
    Command("open_model", QT_TRANSLATE_NOOP("actions", "Open model folder…"), ("Ctrl+Shift+O",)),
    Command("demo_model", QT_TRANSLATE_NOOP("actions", "Load the demo model")),
    Command("stop", QT_TRANSLATE_NOOP("actions", "Stop"), ("Esc", "Ctrl+."), CHAT),
    Command("write", QT_TRANSLATE_NOOP("actions", "Go to the question"), ("Ctrl+L",), CHAT),
    Command("copy_answer", QT_TRANSLATE_NOOP("actions", "Copy last answer"), ("Ctrl+Shift+C",), CHAT),
    Command("receipt", QT_TRANSLATE_NOOP("actions", "Show last receipt"), ("Ctrl+Shift+R",), CHAT),
    Command("sidebar", QT_TRANSLATE_NOOP("actions", "Show or hide the sidebar"), ("Ctrl+Shift+S",), VIEW),
    Command(
        "settings",
        QT_TRANSLATE_NOOP("actions", "Settings…"),
        ("Ctrl+,",),
        role=QAction.MenuRole.PreferencesRole,
    ),
    Command(
        "quit", QT_TRANSLATE_NOOP("actions", "Quit Perigee"), ("Ctrl+Q",), role=QAction.MenuRole.QuitRole
    ),
)


def translated(text: str) -> str:
    """A text of this table in the user's language."""
    return QCoreApplication.translate("actions", text)


def make_actions(owner: QWidget, handlers: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """Actions of the whole table, by key, with their shortcuts live in `owner`'s window."""
    actions: dict[str, QAction] = {}
    for command in COMMANDS:
        action = QAction(translated(command.text), owner)
        action.setShortcuts([QKeySequence(keys) for keys in command.shortcuts])
        action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        action.setMenuRole(command.role)
        action.triggered.connect(handlers[command.key])
        owner.addAction(action)
        actions[command.key] = action
    return actions
