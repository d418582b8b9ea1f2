"""Which plugins are installed, which hooks they have and which commands they bring, remembered between runs.

Floor: host. Uses nothing of the project and imports only what starts fast, since ``slipstick --help`` reads a
manifest and nothing else of the host.

Scanning the installed distributions and importing every plugin takes longer than most answers. A manifest keeps
the result, and is fresh while the interpreter, slipstick's version, the folders of ``sys.path`` and the plugins'
own files are as they were: installing or removing a distribution changes the folder it lies in. What is found
damaged or stale is not used. ``slipstick plugins`` always looks anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

GROUP = "slipstick.plugins"
FORMAT = 2


class Row(NamedTuple):
    """One declared plugin: an entry point and, once the plugin was loaded, what it has.

    ``value``: the entry point's "module" or "module:attribute"; ``hooks``: None as long as nobody loaded it (or it
    is broken), so that it has to be loaded to know; ``commands``: (name, one line of help); ``file`` and ``stamp``:
    the module's file and its state when the hooks were read; ``brings``: the model types that its architectures
    answer for, and "presets" where they bring some, so that one model does not load every architecture.
    """

    name: str
    value: str
    distribution: str
    version: str
    hooks: tuple[str, ...] | None = None
    commands: tuple[tuple[str, str], ...] = ()
    file: str = ""
    stamp: tuple[int, int] | None = None
    brings: tuple[str, ...] = ()


def stamp_of(file: str) -> tuple[int, int] | None:
    """The time of change [ns] and size [B] of a file or folder; None where there is none."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def environment(version: str) -> dict[str, Any]:
    """What a manifest depends on: take it before the scan, so that a change during the scan makes it stale."""
    folders = [[folder, stamp_of(folder or os.curdir)] for folder in sys.path]
    return {"format": FORMAT, "slipstick": version, "python": sys.version, "prefix": sys.prefix, "path": folders}


def scan() -> list[Row]:
    """The plugins that installed distributions declare: slipstick's own first, then by distribution and name."""
    from importlib import metadata

    try:
        points = list(metadata.entry_points(group=GROUP))
    except Exception:
        # One distribution with unreadable metadata must not hide the plugins of all others.
        points = []
        for distribution in metadata.distributions():
            with contextlib.suppress(Exception):
                points.extend(point for point in distribution.entry_points if point.group == GROUP)
    rows = []
    for point in points:
        name, version = "unknown distribution", ""
        with contextlib.suppress(Exception):
            if point.dist is not None:
                name, version = point.dist.name, point.dist.version
        rows.append(Row(point.name, point.value, name, version))
    return sorted(set(rows), key=lambda row: (row.distribution != "slipstick", row.distribution, row.name, row.value))


# --- on disk ------------------------------------------------------------------------------------------------------


def cache_file(environ: Mapping[str, str]) -> Path | None:
    """The manifest's file in slipstick's cache folder, one for each Python environment; None: keep none.

    Programs of one environment that look for modules in different folders would overwrite each other's manifest in
    turn, so two digits of what ``sys.path`` holds are part of the name: few files, and rarely a shared one.
    """
    if environ.get("SLIPSTICK_NO_CACHE"):
        return None
    folder = environ.get("SLIPSTICK_CACHE_DIR")
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("slipstick", appauthor=False)
    prefix, path = (
        hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() for text in (sys.prefix, "\n".join(sys.path))
    )
    return Path(folder) / f"plugins-{prefix[:12]}-{path[:2]}.json"


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read(environ: Mapping[str, str], version: str) -> list[Row] | None:
    """The rows of the manifest on disk; None where there is none, or it is damaged or stale."""
    file = cache_file(environ)
    if file is None:
        return None
    try:
        content = json.loads(file.read_bytes())
        body = content["body"]
        if content["digest"] != _digest(body) or body["environment"] != _plain(environment(version)):
            return None
        rows = [_row(item) for item in body["rows"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if any(row.hooks is not None and stamp_of(row.file) != row.stamp for row in rows) else rows


def write(environ: Mapping[str, str], taken: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Keep ``rows`` for the environment ``taken`` before the scan; a folder that can't be written to is no error."""
    file = cache_file(environ)
    if file is None:
        return
    import tempfile

    body = _plain({"environment": taken, "rows": [list(row) for row in rows]})
    text = json.dumps({"digest": _digest(body), "body": body})
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and moved: a reader, or a second writer, never sees half a file.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix="plugins-", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(temporary, file)
        except OSError:
            os.unlink(temporary)


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` as JSON gives it back: tuples become lists."""
    plain: dict[str, Any] = json.loads(json.dumps(body))
    return plain


def _row(item: list[Any]) -> Row:
    name, value, distribution, version, hooks, commands, file, stamp, brings = item
    if not all(isinstance(text, str) for text in (name, value, distribution, version, file)):
        raise TypeError("a manifest row has a field that is no text")
    return Row(
        name,
        value,
        distribution,
        version,
        None if hooks is None else tuple(str(hook) for hook in hooks),
        tuple((str(command), str(help_line)) for command, help_line in commands),
        file,
        None if stamp is None else (int(stamp[0]), int(stamp[1])),
        tuple(str(wanted) for wanted in brings),
    )


# --- what a person switched off -----------------------------------------------------------------------------------


def disabled_by(environ: Mapping[str, str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """The patterns of plugin names that are switched off: ``SLIPSTICK_DISABLE_PLUGINS`` (commas), and ``more``.

    >>> disabled_by({"SLIPSTICK_DISABLE_PLUGINS": "nvidia, acme-*,"})
    ('nvidia', 'acme-*')
    """
    listed = environ.get("SLIPSTICK_DISABLE_PLUGINS", "").split(",")
    return tuple(pattern for pattern in (text.strip() for text in (*listed, *more)) if pattern)


def is_disabled(name: str, patterns: Iterable[str]) -> bool:
    """Whether the plugin ``name`` matches one of the ``patterns`` (``*``, ``?``, ``[...]``).

    >>> is_disabled("acme-chips", ("nvidia", "acme-*"))
    True
    """
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns)
