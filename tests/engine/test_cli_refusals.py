"""What the command line says of bad input, odd encodings and faults of its own: a message and a status."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from tests.support.checkpoints import DEMO_MODEL, PLAIN, SPOKEN, Shop

ROOT = DEMO_MODEL.parents[1]


def perigee(*arguments: object, given: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m engine` to its end; what it reads and writes are bytes."""
    return subprocess.run(
        [sys.executable, "-m", "engine", *map(str, arguments)],
        cwd=ROOT,
        input=given,
        capture_output=True,
        check=False,
        env=os.environ | environment,
        timeout=120,
    )


def refused(done: subprocess.CompletedProcess[bytes], *said: str) -> str:
    """What a process that ended with 1 said: one message with all of `said` in it, and nothing else."""
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert done.stdout == b""
    assert "Traceback" not in message
    assert message.count("perigee: ") == 1
    for piece in said:
        assert piece in message
    return message


Status = tuple[int, str, str]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., Status]:
    """The command in this process: status, standard output, standard error."""

    def run(*arguments: object) -> Status:
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


# --- encodings ---


def test_a_question_that_is_not_utf8_is_refused_and_not_guessed():
    done = perigee("generate", "-m", DEMO_MODEL, "-p", "-", given=b"What is in the caf\xe9?")
    refused(done, "not UTF-8", "byte 18", "-f")


def test_a_question_in_utf8_is_read_as_it_is_whatever_the_terminal_says(shop: Shop):
    """Under an ASCII locale too: the tokens are those of the same question given in UTF-8."""
    asked = "Où est le café ‘bleu’?".encode()
    arguments = ("generate", "-m", shop.folder(SPOKEN), "-p", "-", "-n", 1, "--json")
    in_ascii = json.loads(perigee(*arguments, given=asked, PYTHONIOENCODING="ascii").stdout)
    in_utf8 = json.loads(perigee(*arguments, given=asked, PYTHONIOENCODING="utf-8").stdout)
    assert in_ascii["receipt"]["parts"] == in_utf8["receipt"]["parts"]
    assert in_ascii["text"] == in_utf8["text"]


def test_an_undecodable_byte_in_a_document_is_told_beside_the_answer_and_in_json(shop: Shop, tmp_path: Path):
    damaged, whole = tmp_path / "damaged.txt", tmp_path / "whole.txt"
    damaged.write_bytes("The café is by the quay, the mill behind it.\n".encode() * 40 + b"\xff end of it")
    whole.write_text("The tide turned.", encoding="utf-8")
    arguments = ("generate", "-m", shop.folder(SPOKEN), "-f", damaged, "-f", whole, "-p", "Where?", "-n", 1)
    plain = perigee(*arguments)
    assert plain.returncode == 0
    answer = json.loads(perigee(*arguments, "--json").stdout)
    assert [d["name"] for d in answer["documents"]] == ["damaged.txt", "whole.txt"]
    assert all(set(d) == {"name", "characters", "encoding", "replaced"} for d in answer["documents"])
    first, second = answer["documents"]
    assert (second["encoding"], second["replaced"], second["characters"]) == ("utf-8", 0, 16)
    said = plain.stderr.decode()
    assert f"damaged.txt: read as {first['encoding']}" in said
    assert "whole.txt" not in said
    assert first["encoding"] != "utf-8" or first["replaced"] == 1
    if first["replaced"]:
        assert "1 characters could not be decoded" in said


def test_a_terminal_that_knows_no_typography_gets_the_answer_in_escapes(shop: Shop):
    arguments = (
        "generate",
        "-m",
        shop.folder(SPOKEN),
        "-p",
        "Hello",
        "-n",
        60,
        "--temperature",
        1,
        "--seed",
        5,
    )
    shown = perigee(*arguments, PYTHONIOENCODING="utf-8")
    assert shown.returncode == 0
    text = shown.stdout.decode()
    assert not text.isascii()
    escaped = perigee(*arguments, PYTHONIOENCODING="ascii")
    assert escaped.returncode == 0, escaped.stderr
    assert escaped.stdout == text.encode("ascii", "backslashreplace")


def test_a_message_in_typographic_quotes_reaches_an_ascii_terminal(tmp_path: Path):
    done = perigee(
        "generate", "-m", DEMO_MODEL, "-p", "Hi", "--prefill-chunk=viele", PYTHONIOENCODING="ascii"
    )
    refused(done, "--prefill-chunk", "viele")


# --- prompts and numbers out of range ---


def test_a_prompt_longer_than_the_window_is_refused_with_both_numbers(shop: Shop):
    done = perigee("generate", "-m", shop.folder(SPOKEN), "-p", "-", given=b"word " * 5000)
    message = refused(done, "4,096", "window")
    needed = int(message.split("needs ")[1].split(" tokens")[0].replace(",", ""))
    assert needed > 5000


def test_a_long_prompt_is_refused_before_the_weights_are_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status]
):
    read: list[object] = []
    monkeypatch.setattr("engine.checkpoint.loader.read_weights", lambda *_: read.append(1))
    status, out, err = here("generate", "-m", shop.folder(SPOKEN), "-p", "word " * 5000)
    assert (status, out, read) == (1, "", [])
    assert "4,096" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed", -1), ("seed", "between 0 and 2^64 - 1", "-1")),
        (("--seed", 1 << 64), ("seed", "between 0 and 2^64 - 1")),
        (("--temperature", "nan"), ("temperature", "between 0")),
        (("--temperature", "inf"), ("temperature", "between 0")),
        (("--top-p", 0), ("top-p",)),
        (("--top-k", -1), ("top-k", "between 0")),
        (("-n", 0), ("at least 1 token",)),
    ],
    ids=str,
)
def test_a_number_out_of_range_is_refused_with_the_range(
    shop: Shop, here: Callable[..., Status], arguments: tuple[object, ...], said: tuple[str, ...]
):
    status, out, err = here("generate", "-m", shop.folder(SPOKEN), "-p", "Hello", *arguments)
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert all(piece in err for piece in said)


# --- bench and verify ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--runs", 0), ("at least 1", "runs", "not 0")),
        (("--prompt-tokens", -5), ("at least 1", "prompt tokens", "not -5")),
        (("--generate", 0), ("at least 1", "generated tokens", "not 0")),
        (("--prefill-chunk", "some"), ("--prefill-chunk", "64", "32768", "some")),
    ],
    ids=str,
)
def test_a_benchmark_of_nothing_is_refused(
    shop: Shop, here: Callable[..., Status], arguments: tuple[object, ...], said: tuple[str, ...]
):
    status, out, err = here("bench", "-m", shop.folder(PLAIN), *arguments)
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert all(piece in err for piece in said)


def test_a_benchmark_of_a_folder_that_is_not_there_says_so_in_the_words_of_every_command(tmp_path: Path):
    message = refused(perigee("bench", "-m", tmp_path / "nowhere"), "There is no folder", "Choose")
    assert "run of perigee" not in message


def test_a_bad_chunk_in_the_environment_is_refused_by_the_benchmark_too(shop: Shop):
    done = perigee("bench", "-m", shop.folder(PLAIN), PERIGEE_PREFILL_CHUNK="garbage")
    refused(done, "PERIGEE_PREFILL_CHUNK", "garbage", "64", "32768")


def test_a_chunk_in_the_environment_is_what_the_benchmark_uses(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status]
):
    monkeypatch.setenv("PERIGEE_PREFILL_CHUNK", "128")
    status, out, _ = here(
        *("bench", "-m", shop.folder(SPOKEN), "--prompt-tokens", 130, "--generate", 2, "--runs", 1, "--json")
    )
    assert status == 0
    assert json.loads(out)["prefill_chunk"] == 128


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ("0", ("at least one chunk size", "64")),
        ("64,0", ("0 is what it compares with",)),
        ("1", ("64", "32768", "1 is outside")),
        ("64,32769", ("64", "32768", "32769 is outside")),
        ("4000", ("8,001", "4,096")),
    ],
)
def test_verify_refuses_chunks_that_prove_nothing(
    shop: Shop, here: Callable[..., Status], chunks: str, said: tuple[str, ...]
):
    status, out, err = here("verify", "-m", shop.folder(PLAIN), "--chunks", chunks)
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert all(piece in err for piece in said)


# --- faults of its own ---


def broken(*_: Any) -> None:
    raise ZeroDivisionError("of all things")


@pytest.mark.parametrize("command", [("generate", "-p", "Hello"), ("verify",)])
def test_an_error_nobody_foresaw_is_a_status_and_json_too(
    monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status], command: tuple[str, ...]
):
    monkeypatch.setattr("engine.checkpoint.loader.prepare_model", broken)
    status, out, err = here(*command, "-m", DEMO_MODEL, "--json")
    assert status == 1
    error = json.loads(out)["error"]
    assert error["kind"] == "internal"
    assert error["message"] in err
    assert "ZeroDivisionError: of all things" in err  # somebody may have to report it
    assert "ZeroDivisionError" not in out


def test_an_error_nobody_foresaw_is_no_json_unless_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status]
):
    monkeypatch.setattr("engine.checkpoint.loader.prepare_model", broken)
    status, out, err = here("generate", "-m", DEMO_MODEL, "-p", "Hello")
    assert (status, out) == (1, "")
    assert "perigee: Something went wrong inside the engine" in err


def test_running_out_of_memory_is_said_as_such(monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status]):
    def exhausted(*_: Any) -> None:
        raise RuntimeError("[malloc] Unable to allocate 17179869184 bytes.")

    monkeypatch.setattr("engine.checkpoint.loader.prepare_model", exhausted)
    status, out, _ = here("generate", "-m", DEMO_MODEL, "-p", "Hello", "--json")
    assert status == 1
    assert json.loads(out)["error"]["kind"] == "memory"


def test_a_keyboard_interrupt_has_its_own_status(
    monkeypatch: pytest.MonkeyPatch, here: Callable[..., Status]
):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.checkpoint.loader.prepare_model", stop)
    status, out, err = here("generate", "-m", DEMO_MODEL, "-p", "Hello", "--json")
    assert (status, out) == (130, "")
    assert err == "perigee: stopped\n"
