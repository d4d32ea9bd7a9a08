"""A dropped file is read whole, or refused with the reason and a way out."""

import os
import socket
import stat
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents import files, read_document
from engine.errors import DocumentError


def written(folder: Path, content: bytes, name: str = "notes.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(path)
    return str(caught.value)


# --- what is read ---


@pytest.mark.parametrize(
    "name",
    ["a.txt", "a.md", "a.rst", "a.csv", "a.json", "a.yaml", "a.log", "a.py", "Makefile", ".env", "a.PDF"],
)
def test_text_is_read_whatever_the_file_is_called(tmp_path: Path, name: str):
    document = read_document(written(tmp_path, b"one, two\n", name))
    assert (document.name, document.text, document.path) == (name, "one, two\n", tmp_path / name)
    assert (document.encoding, document.replaced) == ("utf-8", 0)


def test_line_ends_become_line_feeds(tmp_path: Path):
    assert read_document(written(tmp_path, b"a\r\nb\rc\n\r\nd\r")).text == "a\nb\nc\n\nd\n"


@given(text=st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co")), min_size=1))
def test_any_text_is_read_unchanged(tmp_path_factory: pytest.TempPathFactory, text: str):
    if text.strip() and not text.startswith("\ufeff"):
        path = written(tmp_path_factory.getbasetemp(), text.encode())
        assert read_document(path).text == text


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines.txt",
        "tab\there.txt",
        unicodedata.normalize("NFD", "Büchereiführer.txt"),
        unicodedata.normalize("NFC", "Büchereiführer.txt"),
        "👩‍🚀 log 語.txt",
        " leading and trailing ",
        "-n",
        "a'b\"c;$(d)%20.txt",
        os.fsdecode(b"latin-\xfc.txt"),
    ],
)
def test_odd_names_open_byte_exactly(tmp_path: Path, name: str):
    try:
        path = written(tmp_path, b"content", name)
    except OSError:
        pytest.skip("this file system does not take such a name")
    document = read_document(path)
    assert document.text == "content"
    assert document.path == path
    document.name.encode("utf-8")
    assert not [character for character in document.name if unicodedata.category(character) == "Cc"]


def test_normalisation_forms_of_a_name_are_two_files(tmp_path: Path):
    forms = [unicodedata.normalize(form, "é.txt") for form in ("NFC", "NFD")]
    for form in forms:
        written(tmp_path, form.encode(), form)
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system takes both forms for one name")
    assert [read_document(tmp_path / form).text for form in forms] == forms


def test_a_link_is_followed(tmp_path: Path):
    written(tmp_path, b"content", "real.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    assert read_document(tmp_path / "link.txt").text == "content"


# --- what is refused ---


def test_a_missing_file(tmp_path: Path):
    assert "not there any more" in refusal(tmp_path / "gone.txt")
    assert "not there any more" in refusal(written(tmp_path, b"a") / "below a file.txt")


@pytest.mark.parametrize("name", ["with\0nul.txt", "surrogate\ud800.txt"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str):
    message = refusal(tmp_path / name)
    assert "not there any more" in message
    message.encode("utf-8")


def test_a_folder(tmp_path: Path):
    assert "is a folder. Add the files inside" in refusal(tmp_path)


def test_a_dangling_link(tmp_path: Path):
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone.txt")
    assert "link to a file that is no longer there" in refusal(tmp_path / "link.txt")


def test_a_link_to_itself(tmp_path: Path):
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    assert "leads in a circle" in refusal(tmp_path / "loop.txt")


def test_a_name_that_is_too_long(tmp_path: Path):
    assert "too long" in refusal(tmp_path / ("n" * 300))


def test_a_file_of_0_bytes(tmp_path: Path):
    message = refusal(written(tmp_path, b""))
    assert "is empty: it has 0 bytes" in message
    assert "large" not in message


@pytest.mark.parametrize("content", [b" \n\t\r\n", b"\xef\xbb\xbf", b"\xff\xfe", "\u3000\u2003".encode()])
def test_a_file_of_white_space_only(tmp_path: Path, content: bytes):
    assert "is empty" in refusal(written(tmp_path, content))


def test_a_pipe_without_a_writer_does_not_make_it_wait(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in refusal(tmp_path / "pipe")


def test_a_pipe_that_takes_the_place_of_a_file_does_not_make_it_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, b"content")
    real_open = os.open

    def swap(target: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return real_open(target, flags)

    monkeypatch.setattr(files.os, "open", swap)
    assert "is a pipe" in refusal(path)


def test_a_device_does_not_make_it_read_for_ever():
    assert "is a device" in refusal(Path("/dev/zero"))


def test_a_socket(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as listener:
        name = os.path.relpath(tmp_path / "s") if len(str(tmp_path)) > 90 else str(tmp_path / "s")
        listener.bind(name)
        assert "is a socket" in refusal(tmp_path / "s")


@pytest.mark.skipif(sys.platform != "linux", reason="a file whose reading fails is at hand on Linux only")
def test_a_file_whose_reading_fails():
    assert "cannot be read (Input/output error)" in refusal(Path("/proc/self/mem"))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path, b"secret")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything

        def refuse(target: Path, flags: int) -> int:
            raise PermissionError(13, "Permission denied", str(target))

        monkeypatch.setattr(files.os, "open", refuse)
    message = refusal(path)
    assert "may not be read. Change its permissions" in message
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_a_file_over_the_limit_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "big.txt"
    with path.open("wb") as file:
        file.truncate(files.LIMIT_BYTES + 1_000_000)

    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(files.os, "open", never)
    message = refusal(path)
    assert "201 MB" in message
    assert "at most 200 MB" in message


def test_a_file_that_grows_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LIMIT_BYTES", 10)
    assert read_document(written(tmp_path, b"0123456789")).text == "0123456789"
    assert "too large" in refusal(written(tmp_path, b"0123456789a"))


# --- other formats ---

FORMATS: dict[str, tuple[bytes, str]] = {
    "report.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF file. This is not supported in this version yet"),
    "letter.docx": (b"PK\x03\x04\x14\0\6\0", "a Word document. This is not supported in this version yet"),
    "table.xlsx": (b"PK\x03\x04\x14\0\6\0", "an Excel workbook"),
    "text.odt": (b"PK\x03\x04\x14\0\0\x08", "an OpenDocument text"),
    "book.epub": (b"PK\x03\x04\n\0\0\0", "an EPUB book"),
    "old.docx": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older Office document"),
    "rich.rtf": (b"{\\rtf1\\ansi hello}", "a rich text (RTF) file"),
    "photo.png": (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        "an image, and images are not supported in this version yet",
    ),
    "photo.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
    "photo.txt": (b"GIF89a\1\0\1\0", "an image"),
    "photo.webp": (b"RIFF\x24\0\0\0WEBPVP8 ", "an image"),
    "photo.heic": (b"\0\0\0\x18ftypheic", "an image"),
    "film.mp4": (b"\0\0\0\x18ftypisom", "a sound or video file"),
    "sound.wav": (b"RIFF\x24\0\0\0WAVEfmt ", "a sound or video file"),
    "files.zip": (b"PK\x03\x04\x14\0\0\0", "an archive. Unpack it"),
    "files.tar.gz": (b"\x1f\x8b\x08\0", "an archive. Unpack it"),
    "tool": (b"\x7fELF\2\1\1\0", "a program"),
    "data.sqlite": (b"SQLite format 3\0", "a database"),
    "unknown.bin": (b"hello\0\1\2\3world", "a binary file"),
    "compressed": (bytes(range(1, 256)) * 4, "a binary file"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_are_named_and_a_way_out_is_given(tmp_path: Path, name: str):
    content, said = FORMATS[name]
    message = refusal(written(tmp_path, content, name))
    assert message.startswith(f"“{name}” is {said}")
    assert message.count(". ") >= 1


def test_every_refusal_is_its_own(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    cases: list[Callable[[], Path]] = [
        lambda: tmp_path / "x",
        lambda: tmp_path,
        lambda: tmp_path / "pipe",
        lambda: written(tmp_path, b"", "x0"),
        lambda: written(tmp_path, b" ", "x1"),
        lambda: written(tmp_path, b"a\0b", "x2"),
        lambda: written(tmp_path, b"%PDF-", "x3"),
    ]
    messages = [refusal(case()).split("”", 1)[1] for case in cases]
    assert len(set(messages)) == len(messages)
