"""What happens on send, stop, ask again, new chat: no widgets."""

from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.chat.conversation import Conversation, Turn, title_of
from app.chat.runner import Runner
from app.documents.attachments import Attachment, Attachments
from app.notices import Choice, Notice, Notices


class ChatController(QObject):
    """The conversations of this session and everything a user can do to them.

    Signals:
        conversation_added, conversation_changed (title or activity), current_changed: a `Conversation`.
        turn_added, turn_removed: the `Conversation` and the `Turn`.
        draft_replaced: a `Conversation` whose draft text was changed from here.
        attachments_changed: a `Conversation` whose draft has other attachments.
    """

    conversation_added = Signal(object)
    conversation_changed = Signal(object)
    current_changed = Signal(object)
    turn_added = Signal(object, object)
    turn_removed = Signal(object, object)
    draft_replaced = Signal(object)
    attachments_changed = Signal(object)

    def __init__(
        self, runner: Runner, attachments: Attachments, notices: Notices, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.runner = runner
        self._attachments = attachments
        self._notices = notices
        self._refusals: dict[Attachment, Notice] = {}
        self.conversations: list[Conversation] = []
        self.current = Conversation()
        attachments.failed.connect(self._on_attachment_failed)
        attachments.lossy.connect(self._on_attachment_lossy)
        runner.turn_changed.connect(self._on_turn_changed)

    # --- conversations ---

    def new_conversation(self) -> None:
        """Show an empty conversation: a new one, unless the current one is still untouched."""
        if self.conversations and self.current.untouched:
            self.current_changed.emit(self.current)
            return
        conversation = Conversation()
        self.conversations.insert(0, conversation)
        self.conversation_added.emit(conversation)
        self.show(conversation)

    def show(self, conversation: Conversation) -> None:
        """Make `conversation` the one on the screen; another one goes on being answered."""
        self.current = conversation
        self.current_changed.emit(conversation)

    # --- the draft ---

    def set_draft(self, text: str) -> None:
        """Remember what is typed, so that it survives a switch."""
        self.current.draft = text

    def attach(self, paths: Iterable[Path]) -> None:
        """Attach files to the draft; one that is there already is not attached twice."""
        conversation = self.current
        there = {attachment.path for attachment in conversation.attachments}
        for path in paths:
            if path in there:
                self._notices.info(self.tr("“{name}” is attached already.").format(name=path.name))
                continue
            there.add(path)
            conversation.attachments.append(self._attachments.add_file(path))
        self.attachments_changed.emit(conversation)

    def attach_text(self, text: str) -> None:
        """Attach a long pasted text."""
        number = sum(1 for a in self.current.attachments if a.path is None) + 1
        name = self.tr("Pasted text {n}").format(n=number)
        self.current.attachments.append(self._attachments.add_text(name, text))
        self.attachments_changed.emit(self.current)

    def detach(self, attachment: Attachment) -> None:
        """Take an attachment off the draft."""
        if attachment not in self.current.attachments:
            return
        self.current.attachments.remove(attachment)
        self._attachments.drop(attachment)
        if refusal := self._refusals.pop(attachment, None):
            self._notices.withdraw(refusal)
        self.attachments_changed.emit(self.current)

    # --- questions ---

    def send(self) -> bool:
        """Ask what is drafted. False if it was not sent; the draft is untouched then."""
        conversation = self.current
        if not conversation.draft.strip():
            if conversation.attachments:
                self._notices.info(self.tr("Write what you want to know about the document, then send."))
            return False
        if self._busy(conversation):
            return False
        failed = [a for a in conversation.attachments if a.state == "failed"]
        if failed:
            self._ask_about_failed(conversation, failed)
            return False
        turn = Turn(conversation.draft, tuple(conversation.attachments))
        conversation.draft = ""
        conversation.attachments.clear()
        self.draft_replaced.emit(conversation)
        self.attachments_changed.emit(conversation)
        self._add(conversation, turn)
        return True

    def stop(self) -> None:
        """Stop what is being answered in the current conversation."""
        turn = self.current.open_turn
        if turn is not None:
            self.runner.stop(turn)

    def ask_again(self, conversation: Conversation, turn: Turn) -> None:
        """Ask the question of `turn` once more, at the end of the conversation."""
        if self._busy(conversation):
            return
        self._remove(conversation, turn)
        self._add(conversation, Turn(turn.question, turn.attachments))

    def take_back(self, conversation: Conversation, turn: Turn) -> None:
        """Put the question of `turn` and its attachments back into the draft, before what is there."""
        self._remove(conversation, turn)
        conversation.draft = "\n\n".join(part for part in (turn.question, conversation.draft) if part.strip())
        rest = [a for a in conversation.attachments if a not in turn.attachments]
        conversation.attachments[:] = [*turn.attachments, *rest]
        self.draft_replaced.emit(conversation)
        self.attachments_changed.emit(conversation)

    # --- inside ---

    def _busy(self, conversation: Conversation) -> bool:
        if conversation.open_turn is None:
            return False
        self._notices.info(
            self.tr("The last question is still being answered. Stop it, or wait for its end.")
        )
        return True

    def _add(self, conversation: Conversation, turn: Turn) -> None:
        conversation.turns.append(turn)
        if not conversation.title:
            conversation.title = title_of(turn.question)
        self.turn_added.emit(conversation, turn)
        self.runner.enqueue(conversation, turn)
        self.conversation_changed.emit(conversation)

    def _remove(self, conversation: Conversation, turn: Turn) -> None:
        conversation.turns.remove(turn)
        self.turn_removed.emit(conversation, turn)

    def _on_turn_changed(self, turn: Turn) -> None:
        for conversation in self.conversations:
            if turn in conversation.turns:
                self.conversation_changed.emit(conversation)

    def _ask_about_failed(self, conversation: Conversation, failed: list[Attachment]) -> None:
        names = ", ".join(f"“{a.name}”" for a in failed)

        def send_without() -> None:
            self.show(conversation)  # the user may have gone to another one meanwhile
            for attachment in failed:
                self.detach(attachment)
            self.send()

        self._notices.warning(
            self.tr("{names} could not be read, so the question has not been sent.").format(names=names),
            Choice(self.tr("Send without"), send_without),
        )

    def _on_attachment_failed(self, attachment: Attachment) -> None:
        error = attachment.error
        if error is not None:
            self._refusals[attachment] = self._notices.error(error.message, detail=error.detail)

    def _on_attachment_lossy(self, attachment: Attachment) -> None:
        document = attachment.document
        if document is None:
            return
        self._notices.warning(
            self.tr(
                "{n} characters of “{name}” could not be decoded as {encoding}; they stand as �.",
                "",
                document.replaced,
            ).format(n=f"{document.replaced:,}", name=document.name, encoding=document.encoding)
        )
