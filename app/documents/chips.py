"""An attachment as it is shown: name, length, a way to take it off."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy

from app import wording
from app.documents.attachments import Attachment
from app.widgets import ElidedLabel, IconButton, IconLabel, label, set_property

NAME_WIDTH = 280


class Chip(QFrame):
    """One attachment. `removable` chips have a × button.

    Signals:
        removed: × was pressed; carries the `Attachment`.
    """

    removed = Signal(object)

    def __init__(self, attachment: Attachment, *, removable: bool) -> None:
        super().__init__()
        self.attachment = attachment
        self.setObjectName("chip")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        row = QHBoxLayout(self)
        row.setContentsMargins(9, 4, 4 if removable else 10, 4)
        row.setSpacing(7)
        row.addWidget(IconLabel("file-text", lambda c: c.secondary, 14))
        self._name = ElidedLabel(attachment.name)
        self._name.setMaximumWidth(NAME_WIDTH)
        row.addWidget(self._name)
        self.count = label("", "secondary")
        row.addWidget(self.count)
        if removable:
            remove = IconButton("x", self.tr("Remove {name}").format(name=attachment.name), size=12, box=22)
            remove.clicked.connect(lambda: self.removed.emit(self.attachment))
            row.addWidget(remove)
        self.setMinimumHeight(30)
        self.refresh()

    def refresh(self) -> None:
        """Show the attachment as it is now."""
        attachment = self.attachment
        failed = attachment.state == "failed"
        set_property(self, "failed", "true" if failed else "false")
        set_property(self.count, "role", "error" if failed else "secondary")
        self.count.setText(self._state())
        self.setAccessibleName(f"{attachment.name}, {self.count.text()}")
        message = attachment.error.message if attachment.error else ""
        self.setToolTip(message or (str(attachment.path) if attachment.path else attachment.name))

    def _state(self) -> str:
        attachment = self.attachment
        if attachment.state == "failed":
            return self.tr("could not be read")
        if attachment.state == "reading":
            return self.tr("reading…")
        if attachment.tokens is None:
            return self.tr("counting…")
        return wording.tokens(attachment.tokens)
