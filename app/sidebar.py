"""The list of this session's conversations, and the way to models and settings."""

from PySide6.QtCore import QModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeySequence, QPainter, QPaintEvent, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QListView,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app import wording
from app.brand import Mark
from app.chat.conversation import Conversation
from app.colours import colours
from app.icons import icon
from app.model import ModelStatus
from app.theme import scaled
from app.widgets import ElidedLabel, IconButton, label

WIDTH = 248


class StateDot(QWidget):
    """The model's state as a colour, beside the words that say the same."""

    def __init__(self) -> None:
        super().__init__()
        self._kind = "none"
        self.setFixedSize(8, 8)

    def show_kind(self, kind: str) -> None:
        """Show a kind of `ModelStatus`."""
        self._kind = kind
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the dot."""
        now = colours()
        tints = {"ready": now.good, "loading": now.accent, "failed": now.error}
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tints.get(self._kind, now.secondary)))
        painter.drawEllipse(self.rect())
        painter.end()


class Sidebar(QFrame):
    """Wordmark, New chat, conversations, model, settings.

    Signals:
        new_asked, settings_asked: what was pressed.
        picked: the `Conversation` to show.
    """

    new_asked = Signal()
    settings_asked = Signal()
    picked = Signal(object)

    def __init__(self, new_shortcut: QKeySequence, settings_shortcut: QKeySequence) -> None:
        super().__init__()
        self.setObjectName("sidebar")
        rows = QVBoxLayout(self)
        rows.setContentsMargins(12, 14, 12, 12)
        rows.setSpacing(8)
        top = QHBoxLayout()
        top.setContentsMargins(10, 0, 0, 0)
        self.wordmark = label(self.tr("Perigee"), "heading")
        self.new = IconButton("square-pen", self.tr("New chat"), new_shortcut)
        self.new.clicked.connect(self.new_asked)
        top.setSpacing(8)
        top.addWidget(Mark())
        top.addWidget(self.wordmark)
        top.addStretch(1)
        top.addWidget(self.new)
        rows.addLayout(top)
        self.list = QListView()
        self.list.setAccessibleName(self.tr("Chats of this session"))
        self.list.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setSpacing(1)
        self._items = QStandardItemModel(self.list)
        self.list.setModel(self._items)
        self.list.clicked.connect(self._on_picked)
        self.list.activated.connect(self._on_picked)
        rows.addWidget(self.list, 1)
        rows.addWidget(self._model_row())
        self.settings = QToolButton()
        self.settings.setProperty("kind", "row")
        self.settings.setText("  " + self.tr("Settings"))
        self.settings.setAccessibleName(self.tr("Settings"))
        self.settings.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.settings.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        keys = settings_shortcut.toString(QKeySequence.SequenceFormat.NativeText)
        self.settings.setToolTip(f"{self.tr('Settings')}  {keys}")
        self.settings.clicked.connect(self.settings_asked)
        rows.addWidget(self.settings)
        self.refresh_icons()

    def _model_row(self) -> QWidget:
        row = QWidget()
        box = QGridLayout(row)
        box.setContentsMargins(14, 0, 10, 6)
        box.setHorizontalSpacing(12)
        box.setVerticalSpacing(1)
        self._dot = StateDot()
        self.model_name = ElidedLabel()
        self.model_state = ElidedLabel("", "secondary")
        box.addWidget(self._dot, 0, 0)
        box.addWidget(self.model_name, 0, 1)
        box.addWidget(self.model_state, 1, 1)
        box.setColumnStretch(1, 1)
        return row

    def sizeHint(self) -> QSize:
        """As wide as the text size asks for."""
        return QSize(scaled(WIDTH), super().sizeHint().height())

    def refresh_icons(self) -> None:
        """Tint again after a change of appearance."""
        size = scaled(16)
        self.settings.setIconSize(QSize(size, size))
        self.settings.setIcon(icon("settings", colours().secondary, size))

    def show_model(self, status: ModelStatus) -> None:
        """Show which model is there."""
        self.model_name.setText(wording.model_name(status.folder) or self.tr("No model"))
        states = {
            "none": self.tr("none loaded"),
            "loading": self.tr("loading, {n} %").format(n=round(status.share * 100)),
            "ready": self.tr("ready"),
            "failed": self.tr("could not be loaded"),
        }
        self.model_state.setText(states[status.kind])
        self._dot.show_kind(status.kind)

    def add(self, conversation: Conversation) -> None:
        """List a new conversation first."""
        item = QStandardItem()
        item.setData(conversation, Qt.ItemDataRole.UserRole)
        self._items.insertRow(0, item)
        self.refresh(conversation)

    def refresh(self, conversation: Conversation) -> None:
        """Show title and activity of a conversation as they are now."""
        item = self._item(conversation)
        if item is None:
            return
        title = conversation.title or self.tr("New chat")
        turn = conversation.open_turn
        item.setText(f"{title}  •" if turn else title)
        item.setToolTip(title)
        item.setData(
            self.tr("{title}, being answered").format(title=title) if turn else title,
            Qt.ItemDataRole.AccessibleTextRole,
        )

    def select(self, conversation: Conversation) -> None:
        """Mark the conversation on the screen."""
        item = self._item(conversation)
        if item is not None:
            self.list.setCurrentIndex(item.index())

    def _item(self, conversation: Conversation) -> QStandardItem | None:
        for row in range(self._items.rowCount()):
            item = self._items.item(row)
            if item.data(Qt.ItemDataRole.UserRole) is conversation:
                return item
        return None

    def _on_picked(self, index: QModelIndex) -> None:
        self.picked.emit(index.data(Qt.ItemDataRole.UserRole))
