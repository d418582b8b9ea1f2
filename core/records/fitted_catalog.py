"""A folder of fitted records: one file for an accelerator and an engine, found by its name.

Floor: records. Uses the reader of ``fitted_toml`` and the cache of the algebra. A file of fifty records takes 60 ms to
parse as TOML and 2 ms from the cache, and a repeated answer has 400 ms in all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict

from ..algebra.cache import ProgramCache, key
from .fitted import ErrorSummary, FittedRecord
from .fitted_toml import SCHEMA, read_records_of
from .provenance import Source
from .toml_walk import is_name

FORMAT = 1


class FittedCatalog:
    """The files ``<accelerator>.<engine>.toml`` of ``folder``; ``name`` says who brings them.

    A folder that does not exist is an empty catalog.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name

    def __repr__(self) -> str:
        return f"FittedCatalog({str(self.folder)!r}, {self._name!r})"

    @property
    def name(self) -> str:
        """Who brings the records."""
        return self._name

    def files(self, accelerator: str = "") -> tuple[Path, ...]:
        """The files of ``accelerator``, or all, in the order of their names; none is opened."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:  # a folder that is missing or unreadable offers nothing
            return ()
        found = []
        for entry in names:
            stem, _, suffix = entry.rpartition(".")
            if suffix == "toml" and is_name(stem) and "." in stem and accelerator in ("", stem.rpartition(".")[0]):
                found.append(self.folder / entry)
        return tuple(found)

    def accelerators(self) -> tuple[str, ...]:
        """The accelerators that files are named after."""
        return tuple(sorted({path.name.rpartition(".")[0].rpartition(".")[0] for path in self.files()}))

    def records(self, accelerator: str) -> tuple[FittedRecord, ...]:
        """The records of ``accelerator``; empty where there is none. Raises ``UserError`` for a file not sound."""
        return tuple(record for path in self.files(accelerator) for record in _cached(path, accelerator))


def _cached(path: Path, accelerator: str) -> tuple[FittedRecord, ...]:
    """The records of one file, from the cache where the file is as it was."""
    try:
        status = path.stat()
        stamp = (str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except OSError:
        return read_records_of(path, accelerator)  # says what is wrong
    name = key("fitted", FORMAT, SCHEMA, accelerator, *stamp)
    if name not in _LOADED:
        _LOADED[name] = _stored(path, accelerator, name)
    return _LOADED[name]


_LOADED: dict[str, tuple[FittedRecord, ...]] = {}
"""Files that this process has read, by name, size and times: a sweep asks for the same ones again and again."""


def _stored(path: Path, accelerator: str, name: str) -> tuple[FittedRecord, ...]:
    store = ProgramCache(ProgramCache().folder.parent / "records")
    payload = store.get(name)
    if payload is not None:
        try:
            return tuple(map(_from_plain, payload["records"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # an entry of another form is no entry
    records = read_records_of(path, accelerator)
    store.put(name, {"records": [asdict(record) for record in records]})
    return records


def _from_plain(plain: Mapping[str, Any]) -> FittedRecord:
    return FittedRecord(
        **{
            **plain,
            "where": {name: (low, high) for name, (low, high) in plain["where"].items()},
            "ranges": {name: (low, high) for name, (low, high) in plain["ranges"].items()},
            "errors": {name: ErrorSummary(**error) for name, error in plain["errors"].items()},
            "unidentified": tuple(plain["unidentified"]),
            "source": Source(**plain["source"]),
        }
    )
