"""Bytes of a file that a person dropped, whatever that file turns out to be."""

import errno
import os
import stat
import unicodedata
from pathlib import Path
from typing import NoReturn

from engine.errors import DocumentError

LIMIT_BYTES = 200_000_000
"""Largest file that is read, in bytes: some fifty million tokens, far beyond any model's window."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def shown(name: str) -> str:
    """A name in one line that can be shown and stored; opening a file takes the path as it is."""
    instead = {"Cc": " ", "Cs": "\ufffd"}
    return "".join(instead.get(unicodedata.category(character), character) for character in name)


def read_bytes(path: Path, name: str) -> bytes:
    """The whole content of a regular file of at most `LIMIT_BYTES`; `name` is for messages.

    Raises:
        DocumentError: anything else is there, nothing is there, or it cannot be read.
    """
    try:
        status = path.stat()
        _require_regular(status, name)
        _require_size(status.st_size, name)
        # Should a pipe have taken the file's place meanwhile, opening it must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            _require_regular(os.fstat(descriptor), name)
            data = file.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        _explain(error, path, name)
    _require_size(len(data), name)
    if not data:
        raise DocumentError(f"“{name}” is empty: it has 0 bytes. Choose another file.")
    return data


def _require_regular(status: os.stat_result, name: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise DocumentError(f"“{name}” is a folder. Add the files inside it instead.")
    kind = next((kind for matches, kind in _KINDS if matches(status.st_mode)), "no ordinary file")
    raise DocumentError(f"“{name}” is {kind}, which has no end to read to. Save its content as a file first.")


def _require_size(size: int, name: str) -> None:
    if size > LIMIT_BYTES:
        raise DocumentError(
            f"“{name}” is too large: it has {size / 1e6:,.0f} MB or more, and at most "
            f"{LIMIT_BYTES / 1e6:,.0f} MB are read. Split it and add the part you need."
        )


def _explain(error: OSError | ValueError, path: Path, name: str) -> NoReturn:
    """Turn what the system said into what a person can do."""
    if isinstance(error, FileNotFoundError | NotADirectoryError) and path.is_symlink():
        message = f"“{name}” is a link to a file that is no longer there. Add the file itself."
    elif isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        message = (
            f"“{name}” is not there any more: {shown(str(path))}. Check whether it was moved or renamed."
        )
    elif isinstance(error, PermissionError):
        message = f"“{name}” may not be read. Change its permissions, or copy it to a folder of your own."
    elif error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        message = f"“{name}” cannot be reached: its path is too long or leads in a circle. Move the file."
    else:
        message = (
            f"“{name}” cannot be read ({error.strerror or error}). If it lies on a network or an external "
            "drive, check the connection, or copy it to this computer first."
        )
    raise DocumentError(message) from error
