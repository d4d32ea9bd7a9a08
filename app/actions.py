"""Every command of the window once: its text, shortcut and what it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table. On macOS, "Ctrl" in a shortcut is the command key."""

    key: str
    text: str
    shortcuts: tuple[str, ...] = ()
    menu: str = "File"
    role: QAction.MenuRole = QAction.MenuRole.NoRole


def _mark(text: str) -> str:
    """Marks `text` for translation, which happens where the action is made."""
    return text


COMMANDS = (
    Command("new", _mark("New chat"), ("Ctrl+N",)),
    Command("attach", _mark("Attach files…"), ("Ctrl+O",)),
    Command("open_model", _mark("Open model folder…"), ("Ctrl+Shift+O",)),
    Command("demo_model", _mark("Load the demo model")),
    Command("stop", _mark("Stop"), ("Esc", "Ctrl+."), "Chat"),
    Command("write", _mark("Go to the question"), ("Ctrl+L",), "Chat"),
    Command("copy_answer", _mark("Copy last answer"), ("Ctrl+Shift+C",), "Chat"),
    Command("receipt", _mark("Show last receipt"), ("Ctrl+Shift+R",), "Chat"),
    Command("sidebar", _mark("Show or hide the sidebar"), ("Ctrl+Shift+S",), "View"),
    Command(
        "settings",
        _mark("Settings…"),
        ("Ctrl+,",),
        role=QAction.MenuRole.PreferencesRole,
    ),
    Command("quit", _mark("Quit Perigee"), ("Ctrl+Q",), role=QAction.MenuRole.QuitRole),
)


def make_actions(owner: QWidget, handlers: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """Actions of the whole table, by key, with their shortcuts live in `owner`'s window."""
    actions: dict[str, QAction] = {}
    for command in COMMANDS:
        action = QAction(QCoreApplication.translate("actions", command.text), owner)
        action.setShortcuts([QKeySequence(keys) for keys in command.shortcuts])
        action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        action.setMenuRole(command.role)
        action.triggered.connect(handlers[command.key])
        owner.addAction(action)
        actions[command.key] = action
    return actions
