"""Typed fields of a config.json, with an error that names the field."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from engine.errors import CheckpointError, UnsupportedModelError

Default = TypeVar("Default")
_MISSING: Any = object()
_LARGEST = 2**31 - 1
"""Extents are int32 in MLX; nothing in a config is larger."""


class ConfigFields:
    """Reads fields of a config; several names are spellings of one field, the first found wins."""

    def __init__(self, config: Mapping[str, Any], where: str = "config.json") -> None:
        self._config = config
        self._where = where

    def _find(self, names: tuple[str, ...]) -> Any:
        for name in names:
            if self._config.get(name) is not None:
                return self._config[name]
        return _MISSING

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._config.get(name) is not None

    def integer(self, *names: str, default: int | None = None, low: int = 1) -> int:
        """A whole number >= `low`."""
        value = self._find(names)
        if value is _MISSING:
            if default is None:
                raise self._missing(names)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _LARGEST:
            raise CheckpointError(
                f"{self._where}: {names[0]} is {str(value)[:40]}, where a whole number from {low} to "
                f"{_LARGEST} is needed. Download config.json again."
            )
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._find(names)
        if value is _MISSING:
            if default is None:
                raise self._missing(names)
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise CheckpointError(
                f"{self._where}: {names[0]} is {str(value)[:40]}, where a number above 0 is needed. "
                "Download config.json again."
            )
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false; nothing else counts as either."""
        value = self._find(names)
        if value is _MISSING:
            return default
        if not isinstance(value, bool):
            raise CheckpointError(f"{self._where}: {names[0]} is {value!r}, where true or false is needed.")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._find((name,))
        if value is _MISSING:
            raise self._missing((name,))
        if not isinstance(value, list) or not all(type(x) is int for x in cast("list[object]", value)):
            raise CheckpointError(f"{self._where}: {name} is {value!r}, where a list of numbers is needed.")
        return tuple(cast("list[int]", value))

    def table(self, name: str) -> "ConfigFields":
        """A nested object."""
        value = self._find((name,))
        if value is _MISSING:
            raise self._missing((name,))
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{self._where}: {name} is not a table. Download config.json again.")
        return ConfigFields(cast("Mapping[str, Any]", value), f"{self._where}: {name}")

    def must_be(self, name: str, allowed: tuple[object, ...], default: object) -> None:
        """Refuse a value this version does not compute; honoured or refused, never ignored."""
        value = self._config.get(name, default)
        if value not in allowed:
            spelled = " or ".join(repr(x) for x in allowed)
            raise UnsupportedModelError(
                f"{self._where} asks for {name} = {value!r}; this version computes only {spelled}. "
                "Choose another model."
            )

    def _missing(self, names: tuple[str, ...]) -> CheckpointError:
        return CheckpointError(
            f"{self._where} does not say {' or '.join(names)}, without which the model cannot be "
            "built. Download config.json again."
        )
