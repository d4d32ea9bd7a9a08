"""The line above a conversation: its title, and the model that answers."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QToolButton, QWidget

from app import wording
from app.colours import colours, tinted
from app.icons import icon
from app.model import ModelStatus
from app.theme import scaled
from app.widgets import ElidedLabel, IconButton

HEIGHT = 52


class LoadBar(QWidget):
    """Two pixels along the foot of the header: how much of the weights is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._share = 0.0
        self.setFixedHeight(2)
        self.setAccessibleName(self.tr("Loading the model"))

    def show_share(self, share: float) -> None:
        """Show `share` (0 to 1)."""
        self._share = share
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the loaded part; nothing when there is nothing to load."""
        if 0 < self._share < 1:
            painter = QPainter(self)
            width = round(self.width() * self._share)
            painter.fillRect(0, 0, width, self.height(), tinted(colours().accent, 1.0))
            painter.end()


class Header(QFrame):
    """Title on the left, model on the right.

    Signals:
        sidebar_asked: show or hide the sidebar.
    """

    sidebar_asked = Signal()

    def __init__(self, sidebar_shortcut: QKeySequence) -> None:
        super().__init__()
        self.setObjectName("header")
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 0, 16, 0)
        row.setSpacing(8)
        self.toggle = IconButton("panel-left", self.tr("Show or hide the sidebar"), sidebar_shortcut)
        self.toggle.clicked.connect(self.sidebar_asked)
        self.title = ElidedLabel("", "strong")
        self.model = QToolButton()
        self.model.setProperty("kind", "quiet")
        self.model.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.model.setCursor(Qt.CursorShape.PointingHandCursor)
        self._status = ModelStatus()
        self.model.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # the chevron stands behind the name
        self.model.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._menu = QMenu(self.model)
        self.model.setMenu(self._menu)
        row.addWidget(self.toggle)
        row.addWidget(self.title, 1)
        row.addWidget(self.model)
        self._bar = LoadBar()
        self._bar.setParent(self)
        self.refresh_icons()

    def refresh_icons(self) -> None:
        """Tint again after a change of appearance."""
        size = scaled(12)
        self.model.setIconSize(QSize(size, size))
        self.model.setIcon(icon("chevron-down", colours().secondary, size))
        self.setFixedHeight(max(HEIGHT, scaled(HEIGHT)))

    def add_model_actions(self, *actions: QAction) -> None:
        """What the model's menu offers."""
        self._menu.addActions(list(actions))

    def show_model(self, status: ModelStatus) -> None:
        """Show which model is there and what becomes of it."""
        self._status = status
        self._bar.show_share(max(status.share, 0.02) if status.kind == "loading" else 0.0)
        self._show_text()
        if status.info is not None:
            info = status.info
            self.model.setToolTip(
                self.tr("{folder}\n{device} · window of {n} tokens").format(
                    folder=info.folder, device=info.device, n=f"{info.context_window:,}"
                )
            )
        else:
            self.model.setToolTip(status.error.message if status.error else "")

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A narrow header shows less of the model."""
        super().resizeEvent(event)
        self._bar.setGeometry(0, self.height() - 2, self.width(), 2)
        self._show_text()

    def _show_text(self) -> None:
        status = self._status
        wide = self.width() >= 520
        match status.kind:
            case "ready" if status.info is not None:
                name, quantization = wording.model_name(status.folder), status.info.quantization
                text = f"{name} · {quantization}" if wide else name
            case "loading":
                name = wording.model_name(status.folder)
                text = self.tr("Loading {name} · {n} %") if wide else self.tr("Loading · {n} %")
                text = text.format(name=name, n=round(status.share * 100))
            case "failed":
                text = self.tr("The model could not be loaded") if wide else self.tr("No model")
            case _:
                text = self.tr("No model")
        shown = self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, max(120, self.width() // 2))
        self.model.setText(shown)
        self.model.setAccessibleName(self.tr("Model: {text}").format(text=text))
