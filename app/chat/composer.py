"""Where a question is written: text, attachments, length, send."""

from PySide6.QtCore import QMimeData, QRectF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app import wording
from app.chat.conversation import Conversation
from app.chat.meter import Reading
from app.colours import colours, tinted
from app.documents.attachments import Attachment
from app.documents.chips import Chip
from app.documents.drops import local_files
from app.layouts import FlowLayout
from app.theme import scaled, side_margin
from app.widgets import IconButton, fix_size, label, set_property

MOST_LINES = 10
LONG_PASTE = 16_000
"""Characters; a longer paste becomes an attachment, so that the field stays a field."""


class Editor(QPlainTextEdit):
    """Grows with its text. Return sends, Shift-Return breaks the line.

    Signals:
        send_asked: Return was pressed.
        files_pasted: a list of `Path`s.
        long_text_pasted: a text too long for the field.
    """

    send_asked = Signal()
    files_pasted = Signal(object)
    long_text_pasted = Signal(str)
    focus_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._fitting = False
        self.setAccessibleName(self.tr("Question"))
        self.setPlaceholderText(self.tr("Ask about a document, or just ask"))
        self.setAcceptDrops(False)  # the window takes drops, so that they land anywhere
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Return alone sends."""
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if enter and held == Qt.KeyboardModifier.NoModifier:
            self.send_asked.emit()
            return
        super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """Files can be pasted as well as text."""
        return bool(local_files(source)) or source.hasText()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste: files and very long texts become attachments."""
        if files := local_files(source):
            self.files_pasted.emit(files)
        elif len(source.text()) > LONG_PASTE:
            self.long_text_pasted.emit(source.text())
        else:
            self.insertPlainText(source.text())

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Let the frame around the field know."""
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Let the frame around the field know."""
        super().focusOutEvent(event)
        self.focus_changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other widths wrap otherwise."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        if self._fitting:  # a scroll bar that comes or goes wraps the text anew, which may undo its cause
            return
        self._fitting = True
        line = self.fontMetrics().lineSpacing()
        lines = int(self.document().size().height())
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAsNeeded
            if lines > MOST_LINES
            else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        self.setFixedHeight(max(1, min(MOST_LINES, lines)) * line + 8)
        self._fitting = False


class MeterRing(QWidget):
    """How full the model's window will be, as a small ring."""

    def __init__(self) -> None:
        super().__init__()
        self._share = 0.0
        self._bad = False
        fix_size(self, 14, 14)

    def show_share(self, share: float, bad: bool) -> None:
        """Show `share` (0 to 1) of the window."""
        self._share, self._bad = min(1.0, share), bad
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the ring."""
        now = colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(1.5, 1.5, -1.5, -1.5)
        painter.setPen(QPen(now.faint(0.14), 2))
        painter.drawEllipse(box)
        painter.setPen(QPen(tinted(now.error if self._bad else now.accent, 1.0), 2))
        painter.drawArc(box, 90 * 16, -round(self._share * 360 * 16))
        painter.end()


class Composer(QWidget):
    """The rounded field at the foot of the window.

    Signals:
        text_changed: the draft's text.
        send_asked, stop_asked, files_asked: what was pressed.
        files_pasted: a list of `Path`s. long_text_pasted: a text.
        removed: an `Attachment` whose × was pressed.
    """

    text_changed = Signal(str)
    send_asked = Signal()
    stop_asked = Signal()
    files_asked = Signal()
    files_pasted = Signal(object)
    long_text_pasted = Signal(str)
    removed = Signal(object)

    def __init__(self, attach_shortcut: QKeySequence) -> None:
        super().__init__()
        self._busy = False
        self._reading: Reading | None = None
        self._outer = QVBoxLayout(self)
        field = self._field = _Field()
        self._outer.addWidget(field)
        rows = QVBoxLayout(field)
        rows.setContentsMargins(12, 12, 12, 10)
        rows.setSpacing(8)
        self._shelf = QWidget()
        self._flow = FlowLayout()
        self._shelf.setLayout(self._flow)
        self._shelf.hide()
        rows.addWidget(self._shelf)
        self.editor = Editor()
        rows.addWidget(self.editor)
        rows.addLayout(self._buttons(attach_shortcut))
        self.editor.textChanged.connect(self._on_text)
        self.editor.send_asked.connect(self.send_asked)
        self.editor.files_pasted.connect(self.files_pasted)
        self.editor.long_text_pasted.connect(self.long_text_pasted)
        self.editor.focus_changed.connect(field.update)
        field.editor = self.editor
        self._refresh_button()

    def _buttons(self, attach_shortcut: QKeySequence) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        row.setContentsMargins(-4, 0, 0, 0)  # the icon, not its button, stands under the text
        self.attach = IconButton("paperclip", self.tr("Attach files"), attach_shortcut)
        self.attach.clicked.connect(self.files_asked)
        self._ring = MeterRing()
        self.meter = label("", "secondary")
        self.send = IconButton("arrow-up", self.tr("Send"), tint=lambda c: c.on_accent, box=32)
        self.send.setProperty("kind", "round")
        self.send.clicked.connect(self._on_button)
        row.addWidget(self.attach)
        row.addStretch(1)
        row.addWidget(self._ring)
        row.addWidget(self.meter)
        row.addSpacing(4)
        row.addWidget(self.send)
        self.show_meter(None)
        return row

    def show_draft(self, conversation: Conversation) -> None:
        """Show the draft of `conversation`."""
        if self.editor.toPlainText() != conversation.draft:
            self.editor.setPlainText(conversation.draft)
            cursor = self.editor.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            self.editor.setTextCursor(cursor)
        self._refresh_button()

    def show_attachments(self, attachments: list[Attachment]) -> None:
        """Show these chips, keeping the ones that are there."""
        for chip in self.chips():
            if chip.attachment not in attachments:
                self._flow.removeWidget(chip)
                chip.hide()
                chip.deleteLater()
        there = {chip.attachment for chip in self.chips()}
        for attachment in attachments:
            if attachment not in there:
                chip = Chip(attachment, removable=True)
                chip.removed.connect(self.removed)
                self._flow.addWidget(chip)
        self._shelf.setVisible(bool(attachments))
        self._shelf.updateGeometry()

    def refresh_attachment(self, attachment: Attachment) -> None:
        """Show an attachment as it is now."""
        for chip in self.chips():
            if chip.attachment is attachment:
                chip.refresh()
        self._flow.invalidate()

    def chips(self) -> list[Chip]:
        """The attachments now shown."""
        items = (self._flow.itemAt(index) for index in range(self._flow.count()))
        widgets = (item.widget() for item in items if item is not None)
        return [widget for widget in widgets if isinstance(widget, Chip)]

    def show_meter(self, reading: Reading | None) -> None:
        """Show how long the prompt will be; nothing while that is not known."""
        self._reading = reading
        known = reading is not None and reading.total is not None and reading.total > 0
        self._ring.setVisible(known)
        self.meter.setVisible(known or (reading is not None and reading.total is None))
        if reading is None:
            return
        if reading.total is None:
            self.meter.setText(self.tr("counting…"))
            return
        total, window = wording.number(reading.total), wording.number(reading.window)
        set_property(self.meter, "role", "error" if reading.too_long else "secondary")
        self._ring.show_share(reading.total / reading.window, reading.too_long)
        if reading.too_long:
            sentence = self.tr("{n} tokens; the model's window is {m}").format(n=total, m=window)
            short = self.tr("{n} of {m}").format(n=total, m=window)
            room = self.width() - scaled(160)
            self.meter.setText(
                sentence if self.meter.fontMetrics().horizontalAdvance(sentence) <= room else short
            )
            self.meter.setToolTip(self.tr("Leave out a part, or open a model with a longer window."))
        else:
            self.meter.setText(self.tr("{n} of {m}").format(n=total, m=window))
            self.meter.setToolTip(self.tr("Tokens of the next prompt, of the model's window"))

    def show_busy(self, busy: bool) -> None:
        """Turn Send into Stop, or back."""
        self._busy = busy
        self._refresh_button()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Stay as wide as the reading column."""
        super().resizeEvent(event)
        side = side_margin(self.width())
        self._outer.setContentsMargins(side - 8, 4, side - 8, 16)
        self.show_meter(self._reading)

    def _on_button(self) -> None:
        (self.stop_asked if self._busy else self.send_asked).emit()

    def _on_text(self) -> None:
        self._refresh_button()
        self.text_changed.emit(self.editor.toPlainText())

    def _refresh_button(self) -> None:
        if self._busy:
            self.send.show_icon("square-filled")
            self.send.describe(self.tr("Stop"), QKeySequence(Qt.Key.Key_Escape))
        else:
            self.send.show_icon("arrow-up")
            self.send.describe(self.tr("Send"), QKeySequence(Qt.Key.Key_Return))
        self.send.setEnabled(self._busy or bool(self.editor.toPlainText().strip()))


class _Field(QWidget):
    """The composer's card, with the one shadow of the window."""

    editor: Editor | None = None

    def paintEvent(self, event: QPaintEvent) -> None:
        """A soft shadow, the card, and an accent hairline while the field has the focus."""
        now = colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        card = QRectF(self.rect()).adjusted(3.5, 2.5, -3.5, -5.5)
        painter.setPen(Qt.PenStyle.NoPen)
        for spread in (3.0, 2.0, 1.0):
            painter.setBrush(tinted("#000000", 0.022))
            halo = card.adjusted(-spread, -spread + 1, spread, spread + 1)
            painter.drawRoundedRect(halo, 12 + spread, 12 + spread)
        focused = self.editor is not None and self.editor.hasFocus()
        painter.setPen(QPen(tinted(now.accent, 0.55) if focused else now.faint(0.12), 1))
        painter.setBrush(tinted(now.card, 1.0))
        painter.drawRoundedRect(card, 12, 12)
        painter.end()
