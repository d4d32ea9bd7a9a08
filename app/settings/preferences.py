"""The one declared table of settings, and the file that keeps them across starts."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from platformdirs import user_config_dir
from PySide6.QtCore import QCoreApplication, QObject, Signal

from app.theme import Appearance
from app.translation import QT_TRANSLATE_NOOP
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


translate = QCoreApplication.translate


def _within(title: str, low: float, high: float, whole: bool) -> Callable[[object], float]:
    def check(value: object) -> float:
        kind = translate("preferences", "a whole number") if whole else translate("preferences", "a number")
        problem = translate(
            "preferences", "{title} must be {kind} between {low} and {high}; “{value}” is not."
        ).format(title=translated(title), kind=kind, low=low, high=high, value=value)
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
            translate(
                "preferences", "The appearance must be system, light or dark; “{value}” is not."
            ).format(value=value)
        ) from None


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise SettingError(
        translate("preferences", "This setting is on or off; “{value}” is neither.").format(value=value)
    )


def _place(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    numbers = list(cast("Sequence[object]", value)) if isinstance(value, (list, tuple)) else []
    whole = tuple(number for number in numbers if isinstance(number, int))
    if len(whole) != 5 or len(numbers) != 5:
        raise SettingError(
            translate("preferences", "The window's place is five whole numbers; “{value}” is not.").format(
                value=numbers or "?"
            )
        )
    return whole


def _folders(value: object) -> tuple[str, ...]:
    names = list(cast("Sequence[object]", value)) if isinstance(value, (list, tuple)) else [value]
    found = tuple(name for name in names if isinstance(name, str))
    if len(found) != len(names):
        raise SettingError(
            translate("preferences", "This is a list of model folders; “{value}” is not.").format(value=names)
        )
    return found


PREFILL = Setting(
    "prefill_chunk",
    PREFILL_CHUNK.default,
    PREFILL_CHUNK.check,
    QT_TRANSLATE_NOOP("preferences", "Prefill chunk"),
    QT_TRANSLATE_NOOP(
        "preferences",
        "How many tokens of a prompt are read in one step. Smaller steps need less memory and stop sooner; "
        "larger ones can be faster. 0 reads every prompt in one pass. The answer is the same either way.",
    ),
    PREFILL_CHUNK.low,
    PREFILL_CHUNK.high,
)
SINGLE_PASS: Setting[tuple[str, ...]] = Setting(
    "single_pass_models",
    (),
    _folders,
    QT_TRANSLATE_NOOP("preferences", "Always in one pass"),
    QT_TRANSLATE_NOOP(
        "preferences", "Switches chunks off for this model only. Long prompts then need more memory at once."
    ),
)
TEMPERATURE: Setting[float | None] = Setting(
    "temperature",
    None,
    _optional(_within(QT_TRANSLATE_NOOP("preferences", "The temperature"), 0.0, 2.0, whole=False)),
    QT_TRANSLATE_NOOP("preferences", "Temperature"),
    QT_TRANSLATE_NOOP("preferences", "How freely the next word is chosen. 0 always takes the likeliest."),
    0.0,
    2.0,
)
MAX_TOKENS = Setting(
    "max_tokens",
    1024,
    _whole(QT_TRANSLATE_NOOP("preferences", "The longest answer"), 16, 32768),
    QT_TRANSLATE_NOOP("preferences", "Longest answer"),
    QT_TRANSLATE_NOOP("preferences", "An answer ends here at the latest, and says so."),
    16,
    32768,
)
APPEARANCE = Setting(
    "appearance",
    Appearance.SYSTEM,
    _appearance,
    QT_TRANSLATE_NOOP("preferences", "Appearance"),
    QT_TRANSLATE_NOOP("preferences", "Follow the system, or always one of the two."),
)
TEXT_SIZE = Setting(
    "text_size",
    100,
    _whole(QT_TRANSLATE_NOOP("preferences", "The text size"), 80, 160),
    QT_TRANSLATE_NOOP("preferences", "Text size"),
    QT_TRANSLATE_NOOP("preferences", "In percent of the usual size."),
    80,
    160,
)
SIDEBAR = Setting(
    "sidebar",
    True,
    _switch,
    QT_TRANSLATE_NOOP("preferences", "Sidebar"),
    QT_TRANSLATE_NOOP("preferences", "Whether the list of chats is shown."),
)
WINDOW: Setting[tuple[int, ...] | None] = Setting(
    "window",
    None,
    _place,
    QT_TRANSLATE_NOOP("preferences", "Window"),
    QT_TRANSLATE_NOOP(
        "preferences", "Where the window was: left, top, width, height, and 1 if it was maximized."
    ),
)

SETTINGS: tuple[Setting[Any], ...] = (
    PREFILL,
    SINGLE_PASS,
    TEMPERATURE,
    MAX_TOKENS,
    APPEARANCE,
    TEXT_SIZE,
    SIDEBAR,
    WINDOW,
)


def translated(text: str) -> str:
    """A title or sentence of `SETTINGS` in the user's language."""
    return translate("preferences", text)


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
            self.problems.append(
                translate("preferences", "The settings could not be read: {error}").format(error=error)
            )
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
                translate(
                    "preferences", "{error} The stored value is ignored; {title} is at its default."
                ).format(error=error, title=translated(setting.title).lower())
            )

    def _set_aside(self) -> None:
        kept = self._file.with_suffix(".damaged.json")
        self._file.replace(kept)
        self.problems.append(
            translate(
                "preferences",
                "The settings file was damaged and is kept as “{name}”; all settings are at their defaults.",
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
