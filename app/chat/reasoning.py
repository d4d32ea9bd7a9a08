"""What a model thinks before it answers: one quiet line that unfolds."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.text_view import TextView
from app.widgets import LineButton


class ReasoningFold(QWidget):
    """Folded by default; the text is there to be read and copied, and is no part of the answer."""

    def __init__(self) -> None:
        super().__init__()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(4)
        self.line = LineButton()
        self.text = TextView(self.tr("What the model thought"))
        self.text.setProperty("role", "secondary")
        self.text.hide()
        self.line.clicked.connect(self._fold)
        rows.addWidget(self.line)
        rows.addWidget(self.text)
        self._thinking = True
        self._name()

    def append_text(self, text: str) -> None:
        """Show more of it."""
        self.text.append_text(text)

    def end(self) -> None:
        """The thinking is over."""
        self._thinking = False
        self._name()

    def _fold(self) -> None:
        self.text.setVisible(self.text.isHidden())
        self._name()

    def _name(self) -> None:
        if not self.text.isHidden():
            self.line.show_text(self.tr("Hide what the model thought"))
        elif self._thinking:
            self.line.show_text(self.tr("Thinking… Show it"))
        else:
            self.line.show_text(self.tr("Show what the model thought"))
