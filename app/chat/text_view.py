"""Selectable plain text that is as tall as what it says."""

from math import ceil

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent, QTextBlockFormat, QTextCursor, QTextOption, QWheelEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextEdit

LINE_HEIGHT = 150.0
"""Percent of the font's own line spacing."""


class TextView(QTextEdit):
    """Shows text exactly as it is: nothing in it is ever taken as markup.

    With `shrink` the view is only as wide as its longest line; `set_width_limit` bounds it.
    """

    def __init__(self, name: str, *, shrink: bool = False) -> None:
        super().__init__()
        self._shrink = shrink
        self._limit = 10_000
        self._height = 0
        self._fitting = False
        self.setAccessibleName(name)
        self.setReadOnly(True)
        self.setAcceptRichText(False)
        self.setAcceptDrops(False)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        width_policy = QSizePolicy.Policy.Fixed if shrink else QSizePolicy.Policy.Expanding
        self.setSizePolicy(width_policy, QSizePolicy.Policy.Fixed)
        self._set_line_height()
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def append_text(self, text: str) -> None:
        """Put `text` at the end; a selection of the reader stays."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)
        cursor.endEditBlock()
        self._fit()

    def set_width_limit(self, width: int) -> None:
        """Be at most `width` pixels wide."""
        if self._shrink and width != self._limit:
            self._limit = width
            self._fit()

    def sizeHint(self) -> QSize:
        """The text's own size."""
        return QSize(self.width() if self._shrink else 200, max(self._height, 1))

    def minimumSizeHint(self) -> QSize:
        """Any width will do."""
        return QSize(20, max(self._height, 1))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Wrap at the new width."""
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        """Wrap again in another font."""
        super().changeEvent(event)
        if event.type() in (
            QEvent.Type.FontChange,
            QEvent.Type.ApplicationFontChange,
            QEvent.Type.StyleChange,
        ):
            self._fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave scrolling to the page."""
        event.ignore()

    def _set_line_height(self) -> None:
        block = QTextBlockFormat()
        block.setLineHeight(LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        QTextCursor(self.document()).setBlockFormat(block)

    def _fit(self) -> None:
        if self._fitting:  # measuring the text makes the document report its size again
            return
        self._fitting = True
        document = self.document()
        if self._shrink:
            document.setTextWidth(self._limit)
            width = min(self._limit, ceil(document.idealWidth()) + 2)
            document.setTextWidth(width)
            if width != self.width():
                self.setFixedWidth(width)
        # Half of the last line's leading goes: it would look like a margin that is too large.
        trailing = self.fontMetrics().lineSpacing() * (LINE_HEIGHT - 100) / 200
        height = ceil(document.size().height() - trailing)
        if height != self._height:
            self._height = height
            self.setFixedHeight(max(height, 1))
        self._fitting = False
