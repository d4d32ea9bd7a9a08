"""The page of one conversation: questions and answers in a reading column, following the tail."""

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.chat.conversation import Turn
from app.chat.message import AnswerView, QuestionCard
from app.chat.welcome import Welcome
from app.documents.attachments import Attachment
from app.theme import side_margin
from app.widgets import IconButton

NEAR_THE_END = 24
"""Pixels from the bottom that still count as being there."""


class TurnView(QWidget):
    """A question above its answer."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(20)
        self.question = QuestionCard(turn)
        self.answer = AnswerView(turn)
        rows.addWidget(self.question)
        rows.addWidget(self.answer)


class Transcript(QScrollArea):
    """Shows turns; stays at the end while the reader is there, and nowhere else.

    Signals:
        stop_asked, again_asked, edit_asked, receipt_asked: what is wanted of a `Turn`.
        sample_asked: the welcome's sample is wanted.
    """

    stop_asked = Signal(object)
    again_asked = Signal(object)
    edit_asked = Signal(object)
    receipt_asked = Signal(object)
    sample_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._following = True
        self._views: dict[Turn, TurnView] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Conversation"))
        page = QWidget()
        page.setObjectName("page")
        self._column = QVBoxLayout(page)
        self._column.setSpacing(32)
        self.welcome: Welcome | None = Welcome()
        self.welcome.sample_asked.connect(self.sample_asked)
        self._column.addWidget(self.welcome, 1)
        self._column.addStretch(0)
        self.setWidget(page)
        bar = self.verticalScrollBar()
        bar.rangeChanged.connect(self._on_range)
        bar.valueChanged.connect(self._on_scrolled)
        self.to_end = IconButton("arrow-down", self.tr("Jump to the end"))
        self.to_end.setParent(self)
        self.to_end.setProperty("kind", "float")
        self.to_end.clicked.connect(self.follow)
        self.to_end.hide()

    def add_turn(self, turn: Turn) -> None:
        """Show a new turn at the end and go there."""
        if self.welcome is not None:
            self._column.removeWidget(self.welcome)
            self.welcome.hide()
            self.welcome.deleteLater()
            self.welcome = None
            self._column.setStretch(self._column.count() - 1, 1)
        view = TurnView(turn)
        self._views[turn] = view
        view.answer.stop_asked.connect(lambda: self.stop_asked.emit(turn))
        view.answer.again_asked.connect(lambda: self.again_asked.emit(turn))
        view.answer.edit_asked.connect(lambda: self.edit_asked.emit(turn))
        view.answer.receipt_asked.connect(lambda: self.receipt_asked.emit(turn))
        self._column.insertWidget(self._column.count() - 1, view)
        self.follow()

    def remove_turn(self, turn: Turn) -> None:
        """Take a turn off the page."""
        view = self._views.pop(turn)
        self._column.removeWidget(view)
        view.hide()
        view.deleteLater()

    def refresh_turn(self, turn: Turn) -> None:
        """Show a turn of this page as it is now; turns of other pages are none of ours."""
        if turn in self._views:
            self._views[turn].answer.refresh()

    def append_text(self, turn: Turn, text: str) -> None:
        """Show more of an answer."""
        if turn in self._views:
            self._views[turn].answer.append_text(text)

    def append_reasoning(self, turn: Turn, text: str) -> None:
        """Show more of what the model thinks."""
        if turn in self._views:
            self._views[turn].answer.append_reasoning(text)

    def refresh_attachment(self, attachment: Attachment) -> None:
        """Show an attachment of a question as it is now."""
        for view in self._views.values():
            for chip in view.question.chips:
                if chip.attachment is attachment:
                    chip.refresh()
                    view.question.fit()

    def view_of(self, turn: Turn) -> TurnView:
        """The widgets of `turn`."""
        return self._views[turn]

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        self.to_end.hide()
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    @property
    def following(self) -> bool:
        """Whether the page stays at its end as it grows."""
        return self._following

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the column centred."""
        self._place()  # first, so that a column that stays as wide as it is wraps nothing anew
        super().resizeEvent(event)

    def event(self, event: QEvent, /) -> bool:
        """Place the floating button when the layout has settled."""
        if event.type() == QEvent.Type.Show:
            self._place()
        return super().event(event)

    def _place(self) -> None:
        # Measured without the scroll bar, so that the column does not move when it appears.
        side = side_margin(self.width())
        bar = self.width() - self.viewport().width()
        self._column.setContentsMargins(side, 28, max(0, side - bar), 28)
        size = self.to_end.sizeHint()
        self.to_end.resize(size)
        self.to_end.move((self.width() - size.width()) // 2, self.height() - size.height() - 12)
        self.to_end.raise_()

    def _on_range(self, _low: int, high: int) -> None:
        if self._following:
            self.verticalScrollBar().setValue(high)
        else:
            self._show_way_down()

    def _on_scrolled(self, value: int) -> None:
        self._following = value >= self.verticalScrollBar().maximum() - NEAR_THE_END
        self._show_way_down()

    def _show_way_down(self) -> None:
        self.to_end.setVisible(not self._following)
