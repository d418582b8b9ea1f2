"""A model configuration (Hugging Face ``config.json``) read with care: every field asked for by name and type.

Floor: records. Uses errors only. Nothing in a configuration is executed; a missing, mistyped, out-of-range or unknown
field is one UserError that names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest, shown

MAX_BYTES = 4_000_000
"""A configuration is a few kilobytes; anything above this is refused before it is read."""

_MISSING = object()


class Configuration:
    """Typed access to the fields of one configuration; remembers what was asked, so that leftovers can be named.

    ``origin`` is how error lines call it (a path or a preset's name).
    """

    def __init__(self, fields: Mapping[str, Any], origin: str) -> None:
        self._fields = dict(fields)
        self._asked: set[str] = set()
        self.origin = origin

    @classmethod
    def load(cls, path: Path) -> Configuration:
        """The configuration in the file (or ``config.json`` in the folder) at ``path``."""
        try:
            if path.is_dir():
                path = path / "config.json"
                if not path.is_file():
                    raise UserError(f"{_told(path.parent)}: is a folder without a config.json")
            if not path.exists():
                raise UserError(f"{_told(path)}: no such file")
            if not path.is_file():
                raise UserError(f"{_told(path)}: not a regular file")
            size = path.stat().st_size
            if size > MAX_BYTES:
                raise UserError(f"{_told(path)}: {size:,} bytes; a model configuration has less than {MAX_BYTES:,}")
            text = path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
            raise UserError(f"{_told(path)}: cannot be read ({reason})") from None
        return cls.parse(text, _told(path))

    @classmethod
    def parse(cls, text: str, origin: str) -> Configuration:
        """The configuration in JSON ``text``."""
        try:
            fields = json.loads(text, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            raise UserError(f"{origin}: not valid JSON{where}") from None
        except _Twice as error:
            raise UserError(f"{origin}: field {shown(error)} stands twice") from None
        if not isinstance(fields, dict):
            raise UserError(f"{origin}: a model configuration is a JSON object, this is {_kind(fields)}")
        return cls(fields, origin)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        """The field as JSON gave it (marks it as asked)."""
        self._asked.add(name)
        value = self._fields.get(name)
        return default if value is None else value

    def _get(self, name: str, default: Any, also: tuple[str, ...]) -> Any:
        for key in (name, *also):
            self._asked.add(key)
        for key in (name, *also):
            if self._fields.get(key) is not None:
                return self._fields[key]
        if default is not _MISSING:
            return default
        near = nearest(name, [n for n in self._fields if n not in self._asked])  # what is known means what it says
        hint = f"; is {near[0]!r} meant?" if near else ""
        raise UserError(f"{self.origin}: field {name!r} is missing{hint}")

    def integer(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        also: tuple[str, ...] = (),
        minimum: int = 1,
        maximum: int = 10**9,
    ) -> int:
        """A whole number within [minimum, maximum]; ``also``: other names of the same field."""
        value = self._get(name, default, also)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{self.origin}: field {name!r} must be a whole number, not {_kind(value)}")
        if not minimum <= value <= maximum:
            raise UserError(
                f"{self.origin}: field {name!r} must be between {minimum} and {maximum:,}, not {shown(value)}"
            )
        return value

    def number(self, name: str, default: Any = _MISSING, *, minimum: float = 0.0, maximum: float = 1e12) -> float:
        """A finite number within [minimum, maximum]."""
        value = self._get(name, default, ())
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == math.inf:
            raise UserError(f"{self.origin}: field {name!r} must be a finite number, not {_kind(value)}")
        if not minimum <= value <= maximum:
            raise UserError(
                f"{self.origin}: field {name!r} must be between {minimum:g} and {maximum:g}, not {shown(value)}"
            )
        return float(value)

    def boolean(self, name: str, default: Any = _MISSING) -> bool:
        """True or false."""
        value = self._get(name, default, ())
        if not isinstance(value, bool):
            raise UserError(f"{self.origin}: field {name!r} must be true or false, not {_kind(value)}")
        return value

    def text(self, name: str, default: Any = _MISSING, *, among: Collection[str] | None = None) -> str:
        """A string, one of ``among`` where that is given."""
        value = self._get(name, default, ())
        if not isinstance(value, str):
            raise UserError(f"{self.origin}: field {name!r} must be a string, not {_kind(value)}")
        if among is not None and value not in among:
            raise UserError(
                f"{self.origin}: field {name!r} is {shown(value)}; known values: {', '.join(sorted(among))}"
            )
        return value

    def texts(self, name: str, default: Any = _MISSING, *, among: Collection[str] | None = None) -> list[str]:
        """A list of strings."""
        value = self._get(name, default, ())
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UserError(f"{self.origin}: field {name!r} must be a list of strings, not {_kind(value)}")
        if among is not None:
            for item in value:
                if item not in among:
                    raise UserError(
                        f"{self.origin}: field {name!r} holds {shown(item)}; known: {', '.join(sorted(among))}"
                    )
        return list(value)

    def integers(self, name: str, default: Any = _MISSING, *, minimum: int = 0, maximum: int = 10**9) -> list[int]:
        """A list of whole numbers."""
        value = self._get(name, default, ())
        if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
            raise UserError(f"{self.origin}: field {name!r} must be a list of whole numbers, not {_kind(value)}")
        for item in value:
            if not minimum <= item <= maximum:
                raise UserError(f"{self.origin}: field {name!r} holds {shown(item)}, outside {minimum}..{maximum:,}")
        return list(value)

    def section(self, name: str) -> Configuration:
        """The object in field ``name`` as a configuration of its own (multimodal configs keep ``text_config``)."""
        value = self._get(name, _MISSING, ())
        if not isinstance(value, dict):
            raise UserError(f"{self.origin}: field {name!r} must be an object, not {_kind(value)}")
        return Configuration(value, f"{self.origin}: {name}")

    def ignore(self, names: Iterable[str]) -> None:
        """Fields that do not shape the graph (tokens, initialisation, generation): known, and not read."""
        self._asked.update(names)

    def finish(self) -> None:
        """Raise for the first field that nobody asked for; names that start with an underscore are free."""
        for name in self._fields:
            if name not in self._asked and not name.startswith("_"):
                near = nearest(name, self._asked)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise UserError(f"{self.origin}: unknown field {shown(name)}{hint}")


class _Twice(Exception):
    """A name that stands twice in one object; JSON leaves it open which one counts."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Twice(name)
            seen.add(name)
    return found


def _told(path: Path) -> str:
    """A path as it may stand in an error line."""
    text = str(path)
    return text if text.isprintable() and len(text) <= 200 else shown(text, 200)


def _kind(value: Any) -> str:
    """How an error line calls a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, str)):
        return shown(value)
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else type(value).__name__
