"""The receipt's window: everything that was read for one answer."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QVBoxLayout,
    QWidget,
)

from app import wording
from app.chat import receipt_text
from app.chat.ruler import SliceBar
from app.layouts import PageArea
from app.theme import scaled
from app.widgets import IconLabel, button, label, rule
from engine.api import GenerationStats, Receipt

COLUMNS = 4
MOST_SLICES = 64
"""Slices listed one by one; a prompt of more is summed up, and copied in full."""


class ReceiptDialog(QDialog):
    """Parts, plan, slices, layer positions and measures of one answer."""

    def __init__(
        self, receipt: Receipt, stats: GenerationStats | None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._receipt, self._stats = receipt, stats
        self.setWindowTitle(self.tr("Receipt"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(scaled(560), min(scaled(700), 860))
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        page = QWidget()
        self._rows = QVBoxLayout(page)
        self._rows.setContentsMargins(28, 24, 28, 20)
        self._rows.setSpacing(8)
        self._head()
        self._parts()
        self._plan()
        self._layers()
        self._measures()
        self._rows.addStretch(1)
        outer.addWidget(PageArea(page), 1)
        outer.addWidget(rule())
        outer.addLayout(self._foot())
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)

    def _head(self) -> None:
        receipt = self._receipt
        row = QHBoxLayout()
        row.setSpacing(10)
        icon = ("circle-check", 20) if receipt.closed else ("triangle-alert", 20)
        row.addWidget(
            IconLabel(icon[0], (lambda c: c.good) if receipt.closed else (lambda c: c.warning), icon[1])
        )
        row.addWidget(label(receipt_text.headline(receipt), "heading", wrap=True), 1)
        self._rows.addLayout(row)
        self._rows.addWidget(label(wording.account(receipt), "secondary", wrap=True))
        if receipt.problem:
            self._rows.addWidget(label(receipt.problem, "warning", wrap=True, select=True))
        bar = SliceBar(self.tr("The prompt and its slices"), 8)
        bar.show_receipt(
            receipt.prompt_tokens, receipt.read, receipt.plan.reused, receipt.executed, receipt.closed
        )
        self._rows.addSpacing(4)
        self._rows.addWidget(bar)

    def _parts(self) -> None:
        self._section(self.tr("What the prompt was made of"))
        parts = receipt_text.parts(self._receipt)
        grid = self._grid()
        for row, part in enumerate(parts):
            _pair(grid, row, receipt_text.part_label(part), wording.tokens(part.tokens))
        total = len(parts)
        grid.addWidget(rule(), total, 0, 1, 2)
        _pair(grid, total + 1, self.tr("Prompt"), wording.tokens(self._receipt.prompt_tokens), role="strong")

    def _plan(self) -> None:
        receipt = self._receipt
        self._section(self.tr("How it was read"))
        self._rows.addWidget(label(receipt.plan.explanation, wrap=True, select=True))
        grid = self._grid()
        row = 0
        if receipt.plan.reused:
            _pair(grid, row, self.tr("Reused from a snapshot"), wording.tokens(receipt.plan.reused))
            row += 1
        for start, end in receipt.executed[:MOST_SLICES]:
            _pair(grid, row, receipt_text.slice_label(start, end), wording.tokens(end - start))
            row += 1
        rest = receipt.executed[MOST_SLICES:]
        if rest:
            count = sum(end - start for start, end in rest)
            _pair(
                grid,
                row,
                self.tr("{n} more slices").format(n=wording.number(len(rest))),
                wording.tokens(count),
            )

    def _layers(self) -> None:
        self._section(self.tr("Where every layer stands"))
        self._rows.addWidget(label(receipt_text.layers_sentence(self._receipt), wrap=True))
        grid = self._grid()
        grid.setHorizontalSpacing(24)
        for index, layer in enumerate(self._receipt.layers):
            row, column = divmod(index, COLUMNS)
            cell = QHBoxLayout()
            cell.addWidget(label(receipt_text.layer_name(layer), "secondary"))
            cell.addStretch(1)
            cell.addWidget(label(wording.number(layer.position), "secondary"))
            grid.addLayout(cell, row, column)
        for column in range(COLUMNS):
            grid.setColumnStretch(column, 1)

    def _measures(self) -> None:
        if self._stats is None:
            return
        self._section(self.tr("Measured"))
        grid = self._grid()
        for row, (name, value) in enumerate(receipt_text.measures(self._stats)):
            _pair(grid, row, name, value)

    def _foot(self) -> QHBoxLayout:
        foot = QHBoxLayout()
        foot.setContentsMargins(28, 12, 28, 12)
        foot.setSpacing(10)
        self._copied = label("", "good")
        copy = button(self.tr("Copy"))
        copy.clicked.connect(self.copy)
        close = button(self.tr("Close"), "primary")
        close.clicked.connect(self.close)
        foot.addWidget(self._copied)
        foot.addStretch(1)
        foot.addWidget(copy)
        foot.addWidget(close)
        return foot

    def copy(self) -> None:
        """Put the receipt on the clipboard as text."""
        QGuiApplication.clipboard().setText(receipt_text.as_text(self._receipt, self._stats))
        self._copied.setText(self.tr("Copied"))

    def _section(self, title: str) -> None:
        self._rows.addSpacing(14)
        self._rows.addWidget(label(title, "section"))

    def _grid(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(0, 1)
        self._rows.addLayout(grid)
        return grid


def _pair(grid: QGridLayout, row: int, name: str, value: str, role: str = "") -> None:
    left: QLabel = label(name, role, wrap=True)
    right: QLabel = label(value, role or "", select=True)
    right.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
    grid.addWidget(left, row, 0)
    grid.addWidget(right, row, 1)
