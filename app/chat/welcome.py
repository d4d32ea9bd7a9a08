"""The page before the first question."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.brand import Mark
from app.resources import SAMPLE
from app.widgets import button, label


class Welcome(QWidget):
    """A few words and one way to begin.

    Signals:
        sample_asked: "Try the sample" was pressed.
    """

    sample_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(8)
        rows.addStretch(3)
        title = label(self.tr("Drop a long document here and ask about it"), "title", wrap=True)
        text = label(
            self.tr(
                "It is read on this machine, from the first word to the last. Under every answer a receipt "
                "shows how much of your prompt was read."
            ),
            wrap=True,
        )
        text.setMaximumWidth(520)
        for line in (title, text):
            line.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        rows.addWidget(Mark(48), 0, Qt.AlignmentFlag.AlignHCenter)
        rows.addSpacing(12)
        rows.addWidget(title)
        centred = QHBoxLayout()
        centred.addStretch(1)
        centred.addWidget(text, 20)
        centred.addStretch(1)
        rows.addLayout(centred)
        rows.addSpacing(16)
        self.sample = button(self.tr("Try the sample"))
        self.sample.clicked.connect(self.sample_asked)
        self.sample.setVisible((SAMPLE / "sample.json").is_file())
        rows.addWidget(self.sample, 0, Qt.AlignmentFlag.AlignHCenter)
        rows.addStretch(4)
