"""One question and its answer, as widgets."""

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QEnterEvent,
    QGuiApplication,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app import wording
from app.chat.conversation import Turn
from app.chat.reading_card import ReadingCard
from app.chat.reasoning import ReasoningFold
from app.chat.ruler import SliceBar
from app.chat.text_view import TextView
from app.documents.chips import Chip
from app.layouts import FlowLayout
from app.notices import Details, error_tint
from app.theme import scaled
from app.widgets import IconLabel, LineButton, QuietButton, button, label

OWN_SHARE = 0.75
OWN_PADDING = 14


class QuestionCard(QWidget):
    """What the user asked: a tinted card on the right, at most three quarters of the column."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addStretch(1)
        card = QFrame()
        card.setObjectName("own")
        rows = QVBoxLayout(card)
        rows.setContentsMargins(OWN_PADDING, 10, OWN_PADDING, 10)
        rows.setSpacing(8)
        self.chips = [Chip(attachment, removable=False) for attachment in turn.attachments]
        for chip in self.chips:
            rows.addWidget(chip, 0, Qt.AlignmentFlag.AlignLeft)
        self.text = TextView(self.tr("Your question"), shrink=True)
        self.text.append_text(turn.question)
        rows.addWidget(self.text)
        row.addWidget(card, 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Bound the card's width by the column's."""
        super().resizeEvent(event)
        self.fit()

    def fit(self) -> None:
        """As wide as the text or the widest attachment wants, within the bound."""
        limit = round(self.width() * OWN_SHARE) - 2 * OWN_PADDING
        self.text.set_width_limit(limit)
        for chip in self.chips:
            chip.setMinimumWidth(max(0, min(chip.sizeHint().width(), limit)))


class ReceiptFooter(QWidget):
    """The line and the thin ruler under an answer; both open the receipt.

    Signals:
        opened: the receipt is wanted.
    """

    opened = Signal()

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 4, 0, 0)
        rows.setSpacing(5)
        row = QHBoxLayout()
        row.setSpacing(2)
        self.line = LineButton()
        self.line.setToolTip(self.tr("Open the receipt"))
        self.line.clicked.connect(self.opened)
        row.addWidget(self.line, 1)
        self.copy = QuietButton("copy", self.tr("Copy the answer"), size=15)
        self.again = QuietButton("rotate-ccw", self.tr("Ask again"), size=15)
        self._hovered = False
        for action in (self.copy, self.again):
            action.focus_changed.connect(self._show_actions)
            row.addWidget(action)
        rows.addLayout(row)
        self.ruler = SliceBar(self.tr("The prompt and its slices"), 3)
        self.ruler.setCursor(Qt.CursorShape.PointingHandCursor)
        self.ruler.setToolTip(self.tr("Open the receipt"))
        self.ruler.installEventFilter(self)
        rows.addWidget(self.ruler)
        self.show_turn(turn)

    def show_turn(self, turn: Turn) -> None:
        """Fill in the numbers."""
        receipt, stats = turn.receipt, turn.stats
        if receipt is None or stats is None:
            return
        text = wording.receipt_line(receipt, stats)
        if turn.state == "stopped":
            text = self.tr("stopped · {line}").format(line=text)
        elif turn.finish_reason == "length":
            text = self.tr("cut off at its longest · {line}").format(line=text)
        self.line.show_text(text)
        self.line.setAccessibleName(self.tr("Receipt: {line}").format(line=text))
        self.ruler.show_receipt(
            receipt.prompt_tokens, receipt.read, receipt.plan.reused, receipt.executed, receipt.closed
        )

    def show_hovered(self, hovered: bool) -> None:
        """Draw the actions while the pointer is on the answer."""
        self._hovered = hovered
        self._show_actions()

    def _show_actions(self) -> None:
        near = self._hovered or self.copy.hasFocus() or self.again.hasFocus()
        self.copy.show_near(near)
        self.again.show_near(near)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The ruler is a button too."""
        if event.type() == QEvent.Type.MouseButtonRelease:
            self.opened.emit()
            return True
        return False


class Outcome(QWidget):
    """What is said where there is no answer: stopped or failed, and the ways on.

    Signals:
        again_asked, edit_asked, receipt_asked: what was pressed.
    """

    again_asked = Signal()
    edit_asked = Signal()
    receipt_asked = Signal()

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(10)
        row = QHBoxLayout()
        row.setSpacing(10)
        failed = turn.state == "failed"
        if failed:
            row.addWidget(IconLabel("circle-alert", error_tint), 0, Qt.AlignmentFlag.AlignTop)
        self.sentence = label(self._sentence(turn), "" if failed else "secondary", wrap=True, select=True)
        row.addWidget(self.sentence, 1)
        rows.addLayout(row)
        ways = FlowLayout()
        again = button(self.tr("Ask again"), "small")
        again.clicked.connect(self.again_asked)
        edit = button(self.tr("Edit question"), "small")
        edit.setToolTip(self.tr("Put the question and its documents back into the field below"))
        edit.clicked.connect(self.edit_asked)
        ways.addWidget(again)
        ways.addWidget(edit)
        if turn.receipt is not None and not turn.receipt.closed:
            receipt = button(self.tr("Receipt"), "small")
            receipt.clicked.connect(self.receipt_asked)
            ways.addWidget(receipt)
        detail = turn.error.detail if turn.error else ""
        if detail:
            self._details = Details(detail, self.tr("Details of what went wrong"))
            self._details.hide()
            fold = button(self.tr("Details"), "small")
            fold.clicked.connect(lambda: self._details.setVisible(not self._details.isVisible()))
            copy = button(self.tr("Copy details"), "small")
            copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(detail))
            ways.addWidget(fold)
            ways.addWidget(copy)
        under = QHBoxLayout()
        if failed:
            under.addSpacing(scaled(16) + row.spacing())  # under the sentence, beside the icon
        under.addLayout(ways, 1)
        rows.addLayout(under)
        if detail:
            rows.addWidget(self._details)

    def _sentence(self, turn: Turn) -> str:
        if turn.state == "failed" and turn.error is not None:
            return turn.error.message
        if turn.receipt is not None:
            return wording.stopped_while_reading(turn.receipt.read, turn.receipt.prompt_tokens)
        read = turn.progress.done if turn.progress else 0
        total = turn.progress.total if turn.progress else turn.plan.tokens if turn.plan else 0
        return wording.stopped_while_reading(read, total)


class AnswerView(QWidget):
    """The place of an answer, through all its states.

    Signals:
        stop_asked, again_asked, edit_asked, receipt_asked: what the user wants of this turn.
    """

    stop_asked = Signal()
    again_asked = Signal()
    edit_asked = Signal()
    receipt_asked = Signal()

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(8)
        self.card: ReadingCard | None = None
        self.reasoning: ReasoningFold | None = None
        self.text: TextView | None = None
        self.footer: ReceiptFooter | None = None
        self.outcome: Outcome | None = None
        if turn.text:
            self.append_text(turn.text)
        self.refresh()

    def enterEvent(self, event: QEnterEvent) -> None:
        """Actions appear under the pointer."""
        super().enterEvent(event)
        if self.footer is not None:
            self.footer.show_hovered(True)

    def leaveEvent(self, event: QEvent) -> None:
        """Actions leave with the pointer."""
        super().leaveEvent(event)
        if self.footer is not None:
            self.footer.show_hovered(False)

    def append_text(self, text: str) -> None:
        """Show more of the answer."""
        if self.text is None:
            self.text = TextView(self.tr("Answer"))
            self._rows.insertWidget(0 if self.reasoning is None else 1, self.text)
            if self.reasoning is not None:
                self.reasoning.end()
        self.text.append_text(text)

    def append_reasoning(self, text: str) -> None:
        """Show more of what the model thinks."""
        if self.reasoning is None:
            self.reasoning = ReasoningFold()
            self._rows.insertWidget(0, self.reasoning)
        self.reasoning.append_text(text)

    def refresh(self) -> None:
        """Show the turn in its present state."""
        state = self._turn.state
        if state in ("waiting", "reading"):
            self._show_card()
            return
        if self.card is not None:
            self._rows.removeWidget(self.card)
            self.card.hide()
            self.card.deleteLater()
            self.card = None
        if state == "writing":
            return
        if self.reasoning is not None:
            self.reasoning.end()
        if state == "failed" or not self._turn.answered:
            self._show_outcome()
        if self._turn.receipt is not None and self._turn.receipt.closed:
            self._show_footer()

    def _show_card(self) -> None:
        if self.card is None:
            self.card = ReadingCard(self._turn)
            self.card.stop_asked.connect(self.stop_asked)
            self._rows.addWidget(self.card)
        else:
            self.card.refresh()

    def _show_outcome(self) -> None:
        if self.outcome is not None:
            return
        if self._turn.state == "done":
            if self.footer is None:
                sentence = self.tr("The model ended its turn without writing anything.")
                self._rows.addWidget(label(sentence, "secondary"))
            return
        self.outcome = Outcome(self._turn)
        self.outcome.again_asked.connect(self.again_asked)
        self.outcome.edit_asked.connect(self.edit_asked)
        self.outcome.receipt_asked.connect(self.receipt_asked)
        self._rows.addWidget(self.outcome)
        self._announce(self.outcome.sentence.text())

    def _show_footer(self) -> None:
        if self.footer is not None:
            return
        self.footer = ReceiptFooter(self._turn)
        self.footer.opened.connect(self.receipt_asked)
        self.footer.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._turn.text))
        self.footer.again.clicked.connect(self.again_asked)
        self.footer.show_hovered(self.underMouse())
        self._rows.addWidget(self.footer)
        self._announce(self._turn.text)

    def _announce(self, text: str) -> None:
        """Read out once, when it is complete; never token by token."""
        if text:
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))
