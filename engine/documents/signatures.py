"""Formats that are not text, told by their first bytes, not by their name."""

from pathlib import Path

from engine.errors import DocumentError

_TEXT = "Save or export it as plain text and add that file."
_LATER = f"This is not supported in this version yet. {_TEXT}"
_OFFICE = {
    ".docx": "a Word document",
    ".xlsx": "an Excel workbook",
    ".pptx": "a PowerPoint presentation",
    ".odt": "an OpenDocument text",
    ".ods": "an OpenDocument table",
    ".odp": "an OpenDocument presentation",
    ".epub": "an EPUB book",
    ".pages": "a Pages document",
    ".numbers": "a Numbers table",
    ".key": "a Keynote presentation",
}
_IMAGE = "an image, and images are not supported in this version yet. Write down what matters in it."
_SOUND = "a sound or video file, which this version cannot read. Add a transcript of it."
_ARCHIVE = "an archive. Unpack it and add the files inside."
_PROGRAM = "a program, not a text. Choose another file."

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", f"a PDF file. {_LATER}"),
    (b"{\\rtf", f"a rich text (RTF) file. {_LATER}"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", f"an older Office document (.doc, .xls, .ppt). {_LATER}"),
    (b"\x89PNG\r\n\x1a\n", _IMAGE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"GIF87a", _IMAGE),
    (b"GIF89a", _IMAGE),
    (b"II*\x00", _IMAGE),
    (b"MM\x00*", _IMAGE),
    (b"\x00\x00\x01\x00", _IMAGE),
    (b"\x1f\x8b", _ARCHIVE),
    (b"BZh91AY&SY", _ARCHIVE),
    (b"\xfd7zXZ\x00", _ARCHIVE),
    (b"7z\xbc\xaf\x27\x1c", _ARCHIVE),
    (b"Rar!\x1a\x07", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", _ARCHIVE),
    (b"\x7fELF", _PROGRAM),
    (b"\xcf\xfa\xed\xfe", _PROGRAM),
    (b"\xca\xfe\xba\xbe", _PROGRAM),
    (b"MZ\x90\x00", _PROGRAM),
    (b"ID3", _SOUND),
    (b"OggS\x00", _SOUND),
    (b"fLaC\x00", _SOUND),
    (b"bplist00", "a binary property list. Convert it to XML and add that file."),
    (b"SQLite format 3\x00", "a database. Export what you need as text and add that file."),
)


def require_no_other_format(data: bytes, path: Path, name: str) -> None:
    """Raise a `DocumentError` that names the format, if `data` is of a known one other than text."""
    found = _format_of(data[:64], path)
    if found:
        raise DocumentError(f"“{name}” is {found}")


def _format_of(head: bytes, path: Path) -> str | None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        office = _OFFICE.get(path.suffix.lower())
        return f"{office}. {_LATER}" if office else _ARCHIVE
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE", b"AVI "):
        return _IMAGE if head[8:12] == b"WEBP" else _SOUND
    if head[4:8] == b"ftyp" and head[:3] == b"\x00\x00\x00":
        return _IMAGE if head[8:12] in (b"heic", b"heix", b"mif1", b"avif") else _SOUND
    return next((what for start, what in _STARTS if head.startswith(start)), None)
