"""The command line as people run it: real processes, the demo model, exit statuses and JSON."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoints import DEMO_MODEL, PACKABLE, PLAIN, SPOKEN, Shop
from tests.support.prose import FACTS, document

ROOT = DEMO_MODEL.parents[1]
GREENHOUSE, BOATHOUSE = FACTS[:2]


def perigee(*arguments: object, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m engine` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "engine", *map(str, arguments)],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=120,
    )


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON object on standard output."""
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    return json.loads(done.stdout)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A document of about 400 tokens."""
    path = tmp_path / "pages.txt"
    path.write_text(document(400, {0.0: GREENHOUSE}, lambda text: len(text) // 4), encoding="utf-8")
    return path


# --- generate ---


def test_an_answer_goes_to_standard_output_and_its_account_beside_it(pages: Path):
    done = perigee("generate", "-m", DEMO_MODEL, "-f", pages, "-p", GREENHOUSE.question)
    assert done.returncode == 0
    assert GREENHOUSE.answer in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert "read " in done.stderr
    assert "in one pass" in done.stderr


def test_json_holds_exactly_what_is_documented(pages: Path):
    answer = found(
        perigee(
            *("generate", "-m", DEMO_MODEL, "-f", pages, "-p", GREENHOUSE.question),
            *("-n", 40, "--prefill-chunk", 64, "--temperature", 0, "--json"),
        )
    )
    assert set(answer) == {
        "text",
        "finish_reason",
        "prompt_tokens",
        "generated_tokens",
        "prefill",
        "decode",
        "peak_memory_bytes",
        "documents",
        "receipt",
    }
    assert {"reason", "slices", "reused", "seconds", "tokens_per_second"} <= set(answer["prefill"])
    assert set(answer["decode"]) == {"seconds", "tokens_per_second"}
    assert {"closed", "parts", "layers"} <= set(answer["receipt"])
    assert GREENHOUSE.answer in answer["text"]
    assert answer["finish_reason"] == "stop"
    tokens = answer["prompt_tokens"]
    slices = answer["prefill"]["slices"]
    assert answer["prefill"]["reason"] == "chunked"
    assert answer["prefill"]["reused"] == 0
    assert [start for start, _ in slices] == [0, *[end for _, end in slices[:-1]]]
    assert slices[-1][1] == tokens
    assert len(slices) == math.ceil(tokens / 64)
    assert answer["receipt"]["closed"] is True
    assert sum(part["tokens"] for part in answer["receipt"]["parts"]) == tokens
    assert {layer["position"] for layer in answer["receipt"]["layers"]} == {tokens}
    assert [layer["kind"] for layer in answer["receipt"]["layers"]] == ["KDA", "KDA", "KDA", "MLA"] * 2
    assert answer["peak_memory_bytes"] > 0


def test_the_question_can_come_from_standard_input(pages: Path):
    asked = perigee("generate", "-m", DEMO_MODEL, "-f", pages, "-p", "-", given=GREENHOUSE.question)
    assert GREENHOUSE.answer in asked.stdout


def test_several_documents_stand_in_their_order_before_the_question(pages: Path, tmp_path: Path):
    other = tmp_path / "more.md"
    other.write_text(BOATHOUSE.sentence, encoding="utf-8")
    answer = found(
        perigee("generate", "-m", DEMO_MODEL, "-f", pages, "-f", other, "-p", BOATHOUSE.question, "--json")
    )
    assert BOATHOUSE.answer in answer["text"]
    labels = [(p["kind"], p["label"]) for p in answer["receipt"]["parts"] if p["kind"] != "format"]
    assert labels[:2] == [("document", "pages.txt"), ("document", "more.md")]
    assert labels[2][0] == "user"


def test_the_environment_sets_the_chunk_and_an_option_overrides_it(pages: Path):
    arguments = ("generate", "-m", DEMO_MODEL, "-f", pages, "-p", "Hello", "-n", 1, "--json")
    by_environment = found(perigee(*arguments, PERIGEE_PREFILL_CHUNK="64"))["prefill"]
    assert (by_environment["reason"], by_environment["source"]) == ("chunked", "environment")
    assert by_environment["slices"][0] == [0, 64]
    by_option = found(perigee(*arguments, "--prefill-chunk", 0, PERIGEE_PREFILL_CHUNK="64"))["prefill"]
    assert by_option["reason"] == "off"
    assert len(by_option["slices"]) == 1


@pytest.mark.parametrize("chunk", ["63", "32769", "-1", "many", ""])
def test_a_chunk_outside_the_range_is_refused_with_the_range(chunk: str):
    done = perigee("generate", "-m", DEMO_MODEL, "-p", "Hello", f"--prefill-chunk={chunk}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert all(piece in done.stderr for piece in ("perigee: --prefill-chunk", "64", "32768"))
    assert "Traceback" not in done.stderr


def test_a_bad_value_in_the_environment_names_the_variable():
    done = perigee("generate", "-m", DEMO_MODEL, "-p", "Hello", PERIGEE_PREFILL_CHUNK="9")
    assert done.returncode == 1
    assert "PERIGEE_PREFILL_CHUNK" in done.stderr


def test_a_missing_folder_is_said_with_what_to_do(tmp_path: Path):
    done = perigee("generate", "-m", tmp_path / "nowhere", "-p", "Hello")
    assert done.returncode == 1
    assert "There is no folder" in done.stderr
    assert "nowhere" in done.stderr
    assert "Choose" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_json_too_when_json_was_asked_for(tmp_path: Path):
    done = perigee("verify", "-m", tmp_path / "nowhere", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "checkpoint"
    assert error["message"] in done.stderr


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        ("empty question", "prompt is empty"),
        ("no such document", "nothing.txt"),
        ("empty document", "empty"),
        ("no tokenizer", "tokenizer"),
        ("cut weights", "is damaged"),
    ],
)
def test_bad_input_is_one_message_and_no_traceback(prepare: str, said: str, tmp_path: Path):
    folder = shutil.copytree(DEMO_MODEL, tmp_path / "model")
    arguments: list[object] = ["-p", "Hello"]
    if prepare == "empty question":
        arguments = ["-p", "  "]
    elif prepare == "no such document":
        arguments += ["-f", tmp_path / "nothing.txt"]
    elif prepare == "empty document":
        (tmp_path / "empty.txt").write_bytes(b"")
        arguments += ["-f", tmp_path / "empty.txt"]
    elif prepare == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    else:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    done = perigee("generate", "-m", folder, *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_wrong_usage_has_its_own_exit_status():
    for arguments in ((), ("generate",), ("generate", "-m", DEMO_MODEL), ("verify", "--chunks", "a,b")):
        assert perigee(*arguments).returncode == 2


def test_a_seed_repeats_an_answer_and_another_gives_another(shop: Shop):
    def write(seed: int) -> str:
        answer = found(
            perigee(
                *("generate", "-m", shop.folder(SPOKEN), "-p", "Hello", "-n", 12),
                *("--temperature", 1, "--seed", seed, "--json"),
            )
        )
        return answer["text"]

    first = write(3)
    assert first == write(3)
    assert first != write(4)


# --- verify ---


def test_verify_proves_the_demo_model_and_ends_with_0():
    report = found(perigee("verify", "-m", DEMO_MODEL, "--length", 140, "--chunks", "64", "--json"))
    assert set(report) == {"held", "control_caught", "length", "chunks", "witnesses", "note"}
    assert report["held"] is True
    assert report["control_caught"] is True
    assert (report["length"], report["chunks"]) == (140, [64])
    assert all(set(w) == {"name", "held", "detail"} and w["held"] for w in report["witnesses"])
    assert {"ledger", "a fact in the first chunk"} <= {w["name"] for w in report["witnesses"]}


def test_verify_says_in_words_what_held(shop: Shop):
    done = perigee("verify", "-m", shop.folder(PLAIN), "--length", 140, "--chunks", "64,100")
    assert done.returncode == 0
    assert "holds   ledger" in done.stdout
    assert "FAILED" not in done.stdout
    assert "Proved: nothing is lost between chunks." in done.stdout
    assert "No question was asked about a planted fact" in done.stdout


FAULTY = """
import sys
from pathlib import Path
import engine.checkpoint.loader
from engine.cli import main
from tests.support.families import EVERY_TEST_FAMILY, registered
with registered(*EVERY_TEST_FAMILY):
    sys.exit(main(sys.argv[1:]))
"""


def test_verify_of_a_model_that_loses_its_state_ends_with_1(shop: Shop, tmp_path: Path):
    """The real command with a family of the tests registered in its process."""
    folder = shutil.copytree(shop.folder(PACKABLE), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "zeroes_arrays"}), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-c", FAULTY, "verify", "-m", str(folder), "--length", "140", "--chunks", "64"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "FAILED  state arrays, chunks of 64" in done.stdout
    assert "Not proved; see above." in done.stdout


def test_verify_refuses_a_length_that_proves_nothing():
    done = perigee("verify", "-m", DEMO_MODEL, "--length", 5)
    assert done.returncode == 1
    assert "from 130" in done.stderr


# --- bench ---


def test_bench_prints_figures_of_what_really_ran(shop: Shop):
    report = found_in_many_lines(
        perigee(
            *("bench", "-m", shop.folder(SPOKEN), "--prompt-tokens", 130, "--generate", 3),
            *("--prefill-chunk", 64, "--runs", 1, "--json"),
        )
    )
    (length,) = report["lengths"]
    assert (length["prompt_tokens"], report["generated_tokens"], report["runs"]) == (130, 3, 1)
    assert [summary["engine"] for summary in length["summaries"]] == ["perigee"]
    assert length["summaries"][0]["prefill_tokens_per_second"]["median"] > 0


def found_in_many_lines(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bench_of_a_missing_folder_fails_with_a_message(tmp_path: Path):
    done = perigee("bench", "-m", tmp_path / "nowhere", "--prompt-tokens", 100, "--runs", 1)
    assert done.returncode == 1
    assert "perigee:" in done.stderr
    assert "Traceback" not in done.stderr
