"""The main window: assembles sidebar, conversation and composer, and connects them. No logic."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QCloseEvent, QGuiApplication, QKeySequence
from PySide6.QtWidgets import (
    QFileDialog,
    QMainWindow,
    QMenuBar,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.actions import COMMANDS, make_actions, translated
from app.chat.composer import Composer
from app.chat.conversation import Conversation, Turn
from app.chat.receipt import ReceiptDialog
from app.chat.transcript import Transcript
from app.documents.attachments import Attachment
from app.documents.drops import DropArea
from app.frame import Frame
from app.header import Header
from app.notices import Choice, Notice, NoticeBar
from app.resources import DEMO_MODEL
from app.sample import read_sample
from app.services import Services
from app.settings.pane import SettingsPane
from app.settings.preferences import APPEARANCE, SIDEBAR, TEXT_SIZE
from app.sidebar import Sidebar
from engine.api import ErrorInfo


class MainWindow(QMainWindow):
    """Everything the user sees. Owns no state but which widgets show what."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._pages: dict[Conversation, Transcript] = {}
        self._load_problem: Notice | None = None
        self.setWindowTitle(self.tr("Perigee"))
        self.setMinimumSize(QSize(380, 420))
        self.resize(1200, 780)
        self.actions_by_key = make_actions(self, self._handlers())
        self._build()
        self._build_menu()
        self.drops = DropArea(self)
        self._connect_chat()
        self._connect_model()
        for problem in services.preferences.problems:
            services.notices.warning(problem)
        services.chat.new_conversation()
        self.composer.editor.setFocus()

    # --- assembling ---

    def _handlers(self) -> dict[str, Callable[[], object]]:
        chat = self._services.chat
        return {
            "new": chat.new_conversation,
            "attach": self.choose_files,
            "open_model": self.choose_model,
            "demo_model": lambda: self._services.model.load(DEMO_MODEL),
            "stop": chat.stop,
            "write": lambda: self.composer.editor.setFocus(),
            "copy_answer": self.copy_last_answer,
            "receipt": self.show_last_receipt,
            "sidebar": lambda: self.frame.toggle(),
            "settings": self.show_settings,
            "quit": self.close,
        }

    def _keys(self, key: str) -> QKeySequence:
        return self.actions_by_key[key].shortcut()

    def _build(self) -> None:
        self.sidebar = Sidebar(self._keys("new"), self._keys("settings"))
        self.header = Header(self._keys("sidebar"))
        self.header.add_model_actions(self.actions_by_key["open_model"], self.actions_by_key["demo_model"])
        self.notice_bar = NoticeBar(self._services.notices)
        self.pages = QStackedWidget()
        self.composer = Composer(self._keys("attach"))
        main = QWidget()
        column = QVBoxLayout(main)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.notice_bar)
        column.addWidget(self.pages, 1)
        column.addWidget(self.composer)
        self.frame = Frame(self.sidebar, main, self._services.preferences.get(SIDEBAR))
        self.setCentralWidget(self.frame)

    def _build_menu(self) -> None:
        """A menu bar where the system has one; elsewhere every command has its button or key."""
        bar = QMenuBar(self)
        for title in dict.fromkeys(command.menu for command in COMMANDS):
            menu = bar.addMenu(translated(title))
            menu.addActions([self.actions_by_key[c.key] for c in COMMANDS if c.menu == title])
        self.setMenuBar(bar)
        bar.setVisible(bar.isNativeMenuBar())

    def _connect_chat(self) -> None:
        services, chat, composer = self._services, self._services.chat, self.composer
        chat.conversation_added.connect(self._on_conversation_added)
        chat.conversation_changed.connect(self._on_conversation_changed)
        chat.current_changed.connect(self._on_current_changed)
        chat.turn_added.connect(self._on_turn_added)
        chat.turn_removed.connect(self._on_turn_removed)
        chat.draft_replaced.connect(self._on_draft_replaced)
        chat.attachments_changed.connect(self._on_attachments_changed)
        chat.runner.turn_changed.connect(self._on_turn_changed)
        chat.runner.text_arrived.connect(self._on_text)
        chat.runner.reasoning_arrived.connect(self._on_reasoning)
        services.attachments.changed.connect(self._on_attachment)
        services.meter.changed.connect(composer.show_meter)
        composer.text_changed.connect(self._on_typed)
        composer.send_asked.connect(chat.send)
        composer.stop_asked.connect(chat.stop)
        composer.files_asked.connect(self.choose_files)
        composer.files_pasted.connect(self._on_files)
        composer.long_text_pasted.connect(chat.attach_text)
        composer.removed.connect(chat.detach)
        self.sidebar.new_asked.connect(chat.new_conversation)
        self.sidebar.picked.connect(chat.show)
        self.sidebar.settings_asked.connect(self.show_settings)
        self.sidebar.picked.connect(self.frame.close_over)
        self.sidebar.new_asked.connect(self.frame.close_over)
        self.sidebar.settings_asked.connect(self.frame.close_over)
        self.header.sidebar_asked.connect(self.frame.toggle)
        self.frame.opened.connect(self.sidebar.list.setFocus)
        self.frame.wanted_changed.connect(partial(services.store, SIDEBAR))
        self.drops.files_dropped.connect(self._on_files)
        self.drops.text_dropped.connect(composer.editor.insertPlainText)

    def _connect_model(self) -> None:
        services = self._services
        services.model.changed.connect(self._on_model)
        services.model.failed.connect(self._on_model_failed)
        services.preferences.changed.connect(self._on_preference)
        services.theme.changed.connect(self.sidebar.refresh_icons)
        services.theme.changed.connect(self.header.refresh_icons)
        services.theme.changed.connect(self.frame.arrange)
        self._on_model()

    # --- commands ---

    def choose_files(self) -> None:
        """Attach files picked in a file dialog."""
        names, _ = QFileDialog.getOpenFileNames(self, self.tr("Attach files"))
        if names:
            self._services.chat.attach([Path(name) for name in names])

    def choose_model(self) -> None:
        """Load a model folder picked in a file dialog."""
        name = QFileDialog.getExistingDirectory(self, self.tr("Open model folder"))
        if name:
            self._services.model.load(Path(name))

    def show_settings(self) -> None:
        """Open the settings pane, once."""
        services = self._services
        pane = self.findChild(SettingsPane)
        if pane is None:
            pane = SettingsPane(services.preferences, services.bridge, services.model, self)
            pane.save_failed.connect(services.say_unsaved)
        pane.show()
        pane.activateWindow()

    def show_receipt(self, turn: Turn) -> None:
        """Open the receipt of an answer."""
        if turn.receipt is not None:
            ReceiptDialog(turn.receipt, turn.stats, self).show()

    def show_last_receipt(self) -> None:
        """Open the receipt of the last answer of this conversation."""
        turn = self._services.chat.current.last_answered()
        if turn is not None:
            self.show_receipt(turn)

    def copy_last_answer(self) -> None:
        """Copy the last answer of this conversation."""
        turn = self._services.chat.current.last_answered()
        if turn is not None:
            QGuiApplication.clipboard().setText(turn.text)

    def open_files(self, paths: list[Path]) -> None:
        """Open files as if they had been dropped, and come to the front."""
        self._on_files(paths)
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.activateWindow()

    @property
    def page(self) -> Transcript:
        """The page of the current conversation."""
        return self._pages[self._services.chat.current]

    def try_sample(self) -> None:
        """Attach the sample document and fill in its question."""
        sample = read_sample()
        if sample is None:
            self._services.notices.error(
                self.tr("The sample is not there; Perigee may not be installed in full.")
            )
            return
        self._services.chat.attach([sample.document])
        self.composer.editor.setPlainText(sample.question)
        self.composer.editor.setFocus()

    # --- events of Qt ---

    def closeEvent(self, event: QCloseEvent) -> None:
        """End the engine; whatever it does is stopped."""
        self._services.close()
        super().closeEvent(event)

    # --- events of the parts ---

    def _on_conversation_added(self, conversation: Conversation) -> None:
        page = Transcript()
        chat = self._services.chat
        page.stop_asked.connect(chat.runner.stop)
        page.again_asked.connect(partial(chat.ask_again, conversation))
        page.edit_asked.connect(partial(chat.take_back, conversation))
        page.receipt_asked.connect(self.show_receipt)
        page.sample_asked.connect(self.try_sample)
        self._pages[conversation] = page
        self.pages.addWidget(page)
        self.sidebar.add(conversation)

    def _on_conversation_changed(self, conversation: Conversation) -> None:
        self.sidebar.refresh(conversation)
        if conversation is self._services.chat.current:
            self._show_state(conversation)

    def _on_current_changed(self, conversation: Conversation) -> None:
        self.pages.setCurrentWidget(self._pages[conversation])
        self.sidebar.select(conversation)
        self.composer.show_draft(conversation)
        self.composer.show_attachments(conversation.attachments)
        self._services.meter.watch(conversation)
        self._show_state(conversation)
        self.composer.editor.setFocus()

    def _show_state(self, conversation: Conversation) -> None:
        busy = conversation.open_turn is not None
        self.header.title.setText(conversation.title or self.tr("New chat"))
        self.composer.show_busy(busy)
        self.actions_by_key["stop"].setEnabled(busy)

    def _on_draft_replaced(self, conversation: Conversation) -> None:
        if conversation is self._services.chat.current:
            self.composer.show_draft(conversation)
            self._services.meter.refresh()

    def _on_attachments_changed(self, conversation: Conversation) -> None:
        if conversation is self._services.chat.current:
            self.composer.show_attachments(conversation.attachments)
            self._services.meter.refresh()

    def _on_typed(self, text: str) -> None:
        self._services.chat.set_draft(text)
        self._services.meter.refresh()

    def _on_turn_added(self, conversation: Conversation, turn: Turn) -> None:
        self._pages[conversation].add_turn(turn)

    def _on_turn_removed(self, conversation: Conversation, turn: Turn) -> None:
        self._pages[conversation].remove_turn(turn)

    def _on_turn_changed(self, turn: Turn) -> None:
        for page in self._pages.values():
            page.refresh_turn(turn)
        if not turn.open:
            self._services.meter.refresh()

    def _on_text(self, turn: Turn, text: str) -> None:
        for page in self._pages.values():
            page.append_text(turn, text)

    def _on_reasoning(self, turn: Turn, text: str) -> None:
        for page in self._pages.values():
            page.append_reasoning(turn, text)

    def _on_attachment(self, attachment: Attachment) -> None:
        self.composer.refresh_attachment(attachment)
        for page in self._pages.values():
            page.refresh_attachment(attachment)
        self._services.meter.refresh()

    def _on_files(self, paths: list[Path]) -> None:
        """Files become attachments, a model folder is loaded, another folder is refused."""
        folders = [path for path in paths if path.is_dir()]
        self._services.chat.attach([path for path in paths if path not in folders])
        for folder in folders:
            if (folder / "config.json").is_file():
                self._services.model.load(folder)
            else:
                self._services.notices.error(
                    self.tr(
                        "“{name}” is a folder. Drop the files themselves, or a model folder with a "
                        "config.json in it."
                    ).format(name=folder.name)
                )

    def _on_model(self) -> None:
        status = self._services.model.status
        self.header.show_model(status)
        self.sidebar.show_model(status)
        if self._load_problem is not None and status.kind != "failed":
            self._services.notices.withdraw(self._load_problem)
            self._load_problem = None

    def _on_model_failed(self, error: ErrorInfo) -> None:
        self._load_problem = self._services.notices.error(
            error.message,
            Choice(self.tr("Open model folder…"), self.choose_model),
            detail=error.detail,
        )

    def _on_preference(self, key: str) -> None:
        if key in (APPEARANCE.key, TEXT_SIZE.key):
            # After the control that was used has finished with its own event.
            QTimer.singleShot(0, self._services.apply_theme)
