"""What an exception says to a person."""

import traceback

from engine.api import ErrorInfo
from engine.errors import PerigeeError


def explain(error: Exception) -> ErrorInfo:
    """An error as a value with a message a person can act on; the rest goes into the detail."""
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, PerigeeError):
        return ErrorInfo(error.kind, str(error), detail)
    text = str(error)
    if isinstance(error, MemoryError) or "memory" in text.lower() or "allocate" in text.lower():
        return ErrorInfo(
            "memory",
            "There was not enough memory for this. Close other applications, shorten the prompt, or set a "
            "smaller prefill chunk. Nothing you wrote is lost.",
            detail,
        )
    return ErrorInfo(
        "internal",
        "Something went wrong inside the engine, and no answer was given. Nothing you wrote is lost; "
        "try again, and report the details if it happens twice.",
        detail,
    )
