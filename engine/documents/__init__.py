"""Files in: one reader per kind of file behind `read_document`."""

from pathlib import Path

from engine.api import Document
from engine.documents.files import read_bytes, shown
from engine.documents.signatures import require_no_other_format
from engine.documents.text import decode_text
from engine.errors import DocumentError

__all__ = ["read_document"]


def read_document(path: Path) -> Document:
    """Read a text file whole: any encoding, any line ends, any name.

    Line ends become a single line feed. Characters that could not be decoded stand as U+FFFD and
    are counted in `Document.replaced`; nothing else is changed or left out.

    Raises:
        DocumentError: the file is missing, empty, too large, unreadable or not text; the message
            says which, and what to do.
    """
    name = shown(path.name or str(path))
    data = read_bytes(path, name)
    require_no_other_format(data, path, name)
    decoded = decode_text(data, name)
    text = decoded.text.replace("\r\n", "\n").replace("\r", "\n")
    if not text or text.isspace():
        raise DocumentError(
            f"“{name}” is empty: there is nothing in it but white space. Choose another file."
        )
    return Document(name, text, path, decoded.encoding, decoded.replaced)
