"""Arrangements that Qt does not have: a page that only scrolls up and down, and rows that wrap."""

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QScrollArea, QWidget


class PageArea(QScrollArea):
    """A page that scrolls up and down only: never narrower than what stands on it."""

    def __init__(self, page: QWidget) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        page.setObjectName("page")
        self.setWidget(page)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the page when its contents ask for more room, as they do with larger text."""
        if event.type() == QEvent.Type.LayoutRequest and isinstance(watched, QWidget):
            bar = self.verticalScrollBar().sizeHint().width()
            self.setMinimumWidth(watched.minimumSizeHint().width() + bar)
        return super().eventFilter(watched, event)


class FlowLayout(QLayout):
    """Lays its items out in rows, each as wide as it wants, wrapping where the width ends."""

    def __init__(self, spacing: int = 8) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self.setSpacing(spacing)
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem, /) -> None:
        """Add an item at the end."""
        self._items.append(item)

    def count(self) -> int:
        """How many items there are."""
        return len(self._items)

    def itemAt(self, index: int, /) -> QLayoutItem | None:
        """The item at `index`, None outside."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int, /) -> QLayoutItem | None:
        """Remove and return the item at `index`."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def hasHeightForWidth(self) -> bool:
        """Narrower is taller."""
        return True

    def heightForWidth(self, width: int, /) -> int:
        """Height of all rows at `width`."""
        return self._arrange(QRect(0, 0, width, 0), move=False)

    def sizeHint(self) -> QSize:
        """As small as may be."""
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        """The widest item."""
        result = QSize()
        for item in self._items:
            result = result.expandedTo(item.minimumSize())
        return result

    def setGeometry(self, rect: QRect, /) -> None:
        """Put the items into `rect`."""
        super().setGeometry(rect)
        self._arrange(rect, move=True)

    def _arrange(self, rect: QRect, move: bool) -> int:
        x, y, row = rect.x(), rect.y(), 0
        for item in self._items:
            if item.isEmpty():
                continue
            wanted = item.sizeHint()
            wanted.setWidth(min(wanted.width(), max(rect.width(), item.minimumSize().width())))
            if row and x + wanted.width() > rect.right() + 1:
                x, y, row = rect.x(), y + row + self.spacing(), 0
            if move:
                item.setGeometry(QRect(QPoint(x, y), wanted))
            x += wanted.width() + self.spacing()
            row = max(row, wanted.height())
        return y + row - rect.y()
