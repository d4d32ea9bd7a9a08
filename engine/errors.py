"""Everything that can go wrong and that a user can cause or mend.

Each class carries a message that says what happened and what to do. `kind` is a stable name that
the app and the JSON output use; the message is for people.
"""


class PerigeeError(Exception):
    """Base of every error with a message meant for the user."""

    kind = "error"


class CheckpointError(PerigeeError):
    """The model folder is missing, incomplete, damaged or does not fit its config."""

    kind = "checkpoint"


class UnsupportedModelError(CheckpointError):
    """The config asks for something this version cannot compute faithfully."""

    kind = "unsupported_model"


class TokenizerError(PerigeeError):
    """The folder has no tokenizer, or one that cannot be used."""

    kind = "tokenizer"


class ChatTemplateError(PerigeeError):
    """The checkpoint has no chat template, or the template fails or loses a message."""

    kind = "chat_template"


class DocumentError(PerigeeError):
    """A file cannot be read as a document."""

    kind = "document"


class PromptError(PerigeeError):
    """The prompt is empty or otherwise cannot be sent."""

    kind = "prompt"


class PromptTooLongError(PromptError):
    """The prompt does not fit the model's window."""

    kind = "prompt_too_long"


class SettingError(PerigeeError):
    """A setting is outside its range."""

    kind = "setting"


class NoModelError(PerigeeError):
    """The command needs a loaded model and there is none."""

    kind = "no_model"


class CancelledError(PerigeeError):
    """The user stopped a command that has no partial result to show."""

    kind = "cancelled"


class NumericsError(PerigeeError):
    """The model computed something that is not a number: never answer from it."""

    kind = "numerics"


class LedgerError(PerigeeError):
    """The layers of a state do not agree on what they have read: never answer from it."""

    kind = "ledger"


class ReceiptError(PerigeeError):
    """The account of the prompt does not close: the answer is withheld."""

    kind = "receipt"
