"""The one declared table of settings, and the file that keeps them across starts."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from platformdirs import user_config_dir
from PySide6.QtCore import QCoreApplication, QObject, Signal

from app.theme import Appearance
from engine.api import PREFILL_CHUNK
from engine.errors import SettingError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting: its key in the file, what it may be, and how it is shown.

    `check` returns the value in its proper type or raises `SettingError` with the range in it.
    """

    key: str
    default: T
    check: Callable[[object], T]
    title: str
    sentence: str
    low: float | None = None
    high: float | None = None


def _tr(text: str) -> str:
    return QCoreApplication.translate("preferences", text)


def _within(title: str, low: float, high: float, whole: bool) -> Callable[[object], float]:
    def check(value: object) -> float:
        kind = _tr("a whole number") if whole else _tr("a number")
        problem = _tr("{title} must be {kind} between {low} and {high}; “{value}” is not.").format(
            title=title, kind=kind, low=low, high=high, value=value
        )
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise SettingError(problem)
        try:
            number = int(value) if whole else float(value)
        except ValueError:
            raise SettingError(problem) from None
        if not low <= number <= high:
            raise SettingError(problem)
        return number

    return check


def _whole(title: str, low: int, high: int) -> Callable[[object], int]:
    check = _within(title, low, high, whole=True)
    return lambda value: int(check(value))


def _optional(check: Callable[[object], float]) -> Callable[[object], float | None]:
    return lambda value: None if value is None else check(value)


def _appearance(value: object) -> Appearance:
    try:
        return Appearance(str(value))
    except ValueError:
        raise SettingError(
            _tr("The appearance must be system, light or dark; “{value}” is not.").format(value=value)
        ) from None


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise SettingError(_tr("This setting is on or off; “{value}” is neither.").format(value=value))


PREFILL = Setting(
    "prefill_chunk",
    PREFILL_CHUNK.default,
    PREFILL_CHUNK.check,
    "Prefill chunk",
    "How many tokens of a prompt are read in one step. Smaller steps need less memory and stop sooner; "
    "larger ones can be faster. 0 reads every prompt in one pass. The answer is the same either way.",
    PREFILL_CHUNK.low,
    PREFILL_CHUNK.high,
)
TEMPERATURE: Setting[float | None] = Setting(
    "temperature",
    None,
    _optional(_within("The temperature", 0.0, 2.0, whole=False)),
    "Temperature",
    "How freely the next word is chosen. 0 always takes the likeliest.",
    0.0,
    2.0,
)
MAX_TOKENS = Setting(
    "max_tokens",
    1024,
    _whole("The longest answer", 16, 32768),
    "Longest answer",
    "An answer ends here at the latest, and says so.",
    16,
    32768,
)
APPEARANCE = Setting(
    "appearance", Appearance.SYSTEM, _appearance, "Appearance", "Follow the system, or always one of the two."
)
TEXT_SIZE = Setting(
    "text_size", 100, _whole("The text size", 80, 160), "Text size", "In percent of the usual size.", 80, 160
)
SIDEBAR = Setting("sidebar", True, _switch, "Sidebar", "Whether the list of chats is shown.")

SETTINGS: tuple[Setting[Any], ...] = (PREFILL, TEMPERATURE, MAX_TOKENS, APPEARANCE, TEXT_SIZE, SIDEBAR)


def config_file() -> Path:
    """Where the settings are kept; `PERIGEE_CONFIG_DIR` moves the folder."""
    folder = os.environ.get("PERIGEE_CONFIG_DIR") or user_config_dir("Perigee", appauthor=False)
    return Path(folder) / "settings.json"


class Preferences(QObject):
    """The settings in force.

    Signals:
        changed: the key of a setting that has another value now.

    Attributes:
        problems: sentences about what could not be used of the file when it was read.
    """

    changed = Signal(str)

    def __init__(self, file: Path | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file or config_file()
        self._stored: dict[str, object] = {}
        self.problems: list[str] = []
        self._read()

    def get(self, setting: Setting[T]) -> T:
        """The value in force: the stored one if there is one, else the default."""
        if setting.key not in self._stored:
            return setting.default
        return setting.check(self._stored[setting.key])

    def set(self, setting: Setting[T], value: object) -> T:
        """Check `value`, store it and write the file.

        Raises:
            SettingError: the value is not legal; nothing has changed then.
            OSError: the file cannot be written; the value holds until the app is closed.
        """
        checked = setting.check(value)
        if self._stored.get(setting.key, setting.default) != checked or setting.key not in self._stored:
            self._stored[setting.key] = checked
            self.changed.emit(setting.key)
            self._write()
        return checked

    def _read(self) -> None:
        try:
            text = self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(_tr("The settings could not be read: {error}").format(error=error))
            return
        try:
            found: object = json.loads(text)
        except json.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            self._set_aside()
            return
        self._stored = cast("dict[str, object]", found)
        for setting in SETTINGS:
            self._drop_if_illegal(setting)

    def _drop_if_illegal(self, setting: Setting[Any]) -> None:
        try:
            self.get(setting)
        except SettingError as error:
            del self._stored[setting.key]
            self.problems.append(
                _tr("{error} The stored value is ignored; {title} is at its default.").format(
                    error=error, title=setting.title.lower()
                )
            )

    def _set_aside(self) -> None:
        kept = self._file.with_suffix(".damaged.json")
        self._file.replace(kept)
        self.problems.append(
            _tr(
                "The settings file was damaged and is kept as “{name}”; all settings are at their defaults."
            ).format(name=kept.name)
        )

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self._stored, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".settings-", suffix=".json")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self._file)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
