"""Settings: one declared table, refused values, a file that survives."""

import json
import threading
from pathlib import Path

import pytest

from app.settings.preferences import (
    APPEARANCE,
    MAX_TOKENS,
    PREFILL,
    SETTINGS,
    SIDEBAR,
    TEMPERATURE,
    TEXT_SIZE,
    Preferences,
    Setting,
)
from app.theme import Appearance
from engine.errors import SettingError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deeper" / "settings.json"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_default_is_legal_and_explained(setting: Setting):
    assert setting.check(setting.default) == setting.default
    assert setting.title
    assert setting.sentence.endswith(".")


def test_keys_are_used_once():
    assert len({setting.key for setting in SETTINGS}) == len(SETTINGS)


def test_values_are_stored_across_starts(file: Path):
    first = Preferences(file)
    first.set(PREFILL, "512")
    first.set(TEMPERATURE, 0.6)
    first.set(APPEARANCE, Appearance.DARK)
    first.set(SIDEBAR, False)
    again = Preferences(file)
    assert again.get(PREFILL) == 512
    assert again.get(TEMPERATURE) == 0.6
    assert again.get(APPEARANCE) is Appearance.DARK
    assert again.get(SIDEBAR) is False
    assert again.get(MAX_TOKENS) == MAX_TOKENS.default
    assert again.problems == []
    assert [p.name for p in file.parent.iterdir()] == ["settings.json"]  # no temporary file stays


@pytest.mark.parametrize("value", [-1, 1, 63, 32769, 10**9, "abc", "", "12.5", None, True])
def test_a_prefill_chunk_outside_the_range_is_refused_with_the_range(file: Path, value: object):
    preferences = Preferences(file)
    preferences.set(PREFILL, 128)
    with pytest.raises(SettingError, match=r"between 64 and 32768"):
        preferences.set(PREFILL, value)
    assert preferences.get(PREFILL) == 128
    assert Preferences(file).get(PREFILL) == 128


@pytest.mark.parametrize("value", [0, 64, 65, 2048, 32768, "0", "4096"])
def test_a_prefill_chunk_within_the_range_is_kept_exactly(file: Path, value: object):
    assert Preferences(file).set(PREFILL, value) == int(str(value))


@pytest.mark.parametrize(
    ("setting", "value"),
    [(TEMPERATURE, 2.1), (TEMPERATURE, -0.1), (TEMPERATURE, "warm"), (MAX_TOKENS, 15), (MAX_TOKENS, 1.0e9),
     (TEXT_SIZE, 79), (TEXT_SIZE, 161), (APPEARANCE, "sepia"), (SIDEBAR, "yes")],
)  # fmt: skip
def test_other_illegal_values_are_refused(file: Path, setting: Setting, value: object):
    preferences = Preferences(file)
    with pytest.raises(SettingError):
        preferences.set(setting, value)
    assert preferences.get(setting) == setting.default


def test_a_damaged_file_is_kept_aside_and_said(file: Path):
    file.parent.mkdir()
    file.write_text("{ this is no json", encoding="utf-8")
    preferences = Preferences(file)
    assert preferences.get(PREFILL) == PREFILL.default
    assert "damaged" in preferences.problems[0]
    assert (file.parent / "settings.damaged.json").read_text(encoding="utf-8") == "{ this is no json"


def test_an_illegal_stored_value_is_ignored_and_said_and_the_rest_holds(file: Path):
    file.parent.mkdir()
    file.write_text(json.dumps({"prefill_chunk": 7, "max_tokens": 99, "of_a_later_version": [1]}))
    preferences = Preferences(file)
    assert preferences.get(PREFILL) == PREFILL.default
    assert preferences.get(MAX_TOKENS) == 99
    assert "7" in preferences.problems[0]
    preferences.set(MAX_TOKENS, 100)
    assert json.loads(file.read_text())["of_a_later_version"] == [1]  # what a later version stored stays


def test_a_change_is_told_once_per_value(file: Path):
    preferences = Preferences(file)
    told: list[str] = []
    preferences.changed.connect(told.append)
    preferences.set(PREFILL, 256)
    preferences.set(PREFILL, 256)
    assert told == ["prefill_chunk"]


def test_a_file_that_cannot_be_written_is_an_error_and_the_value_holds(file: Path):
    file.parent.write_text("a file where the folder should be")
    preferences = Preferences(file)
    with pytest.raises(OSError, match=r"exists|directory"):
        preferences.set(PREFILL, 256)
    assert preferences.get(PREFILL) == 256


def test_no_reader_ever_sees_half_a_file(file: Path):
    preferences = Preferences(file)
    preferences.set(PREFILL, 64)
    seen: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.append(json.loads(file.read_text())["prefill_chunk"])

    reader = threading.Thread(target=read)
    reader.start()
    for value in range(65, 165):
        preferences.set(PREFILL, value)
    over.set()
    reader.join()
    assert set(seen) <= set(range(64, 165))
