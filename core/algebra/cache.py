"""The cache of compiled programs on disk: a key that says what went in, a payload that is checked before it is used.

Floor: algebra; standard library only. An entry that is corrupt, cut short, of another format or under another key is
no entry: it is built again. A cache that cannot be written is no error, only slower.

``SLIPSTICK_CACHE_DIR`` sets the folder, ``SLIPSTICK_NO_CACHE=1`` switches the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

FORMAT = 1
MOST_ENTRIES = 512
MOST_BYTES = 200 * 10**6
_LARGEST_ENTRY = 50 * 10**6
_STALE_S = 3600.0
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".json"


def key(*parts: object) -> str:
    """The sha256 in hexadecimal of the canonical JSON of ``parts``; equal parts give equal keys.

    >>> key("train", {"a": 1, "b": 2}) == key("train", {"b": 2, "a": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def code_fingerprint(extra: Iterable[str | os.PathLike[str]] = ()) -> str:
    """A hash over name, size and times of every Python file of slipstick and of the ``extra`` files or folders.

    A key that holds it goes stale when the code that built the payload changes. slipstick's own files are looked at
    once a process: code that is imported stays what it was.
    """
    rows = list(_own_rows())
    for root in (os.fspath(path) for path in extra):
        _collect(root, root, rows)
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _own_rows() -> tuple[str, ...]:
    package = os.fspath(Path(__file__).parents[2])
    rows: list[str] = []
    _collect(package, package, rows)
    return tuple(rows)


def _collect(root: str, path: str, rows: list[str]) -> None:
    """One row a file, in an order that does not depend on the file system."""
    try:
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except NotADirectoryError:
        rows.append(_row(path, os.stat(path)))
        return
    except OSError:
        rows.append(f"{path}|absent")
        return
    for entry in found:
        try:
            # the folders of the package are links at its top; deeper links are not followed, they could go in circles
            if entry.is_dir(follow_symlinks=path == root):
                if entry.name != "__pycache__" and not entry.name.startswith("."):
                    _collect(root, entry.path, rows)
            elif entry.name.endswith(".py"):
                rows.append(_row(os.path.relpath(entry.path, root), entry.stat()))
        except OSError:
            rows.append(f"{entry.path}|absent")


def _row(name: str, status: os.stat_result) -> str:
    # ctime too: an installer may give every file of every version the same mtime
    return f"{name}|{status.st_size}|{status.st_mtime_ns}|{status.st_ctime_ns}"


class ProgramCache:
    """Keys to JSON payloads in ``folder`` (by default the user's cache folder), at most 512 of them or 200 MB."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.enabled = os.environ.get("SLIPSTICK_NO_CACHE", "") in ("", "0")
        self._folder = Path(folder) if folder is not None else None

    @property
    def folder(self) -> Path:
        """Where the entries are."""
        if self._folder is None:
            chosen = os.environ.get("SLIPSTICK_CACHE_DIR")
            if not chosen:
                from platformdirs import user_cache_dir  # 30 ms, so only where the folder is not set

                chosen = user_cache_dir("slipstick", appauthor=False)
            self._folder = Path(chosen) / "programs"
        return self._folder

    def get(self, key: str) -> dict[str, Any] | None:
        """The payload under ``key``; None unless it is there whole, of this format and under this very key."""
        if not self.enabled:
            return None
        path = self._path(key)
        try:
            if path.stat().st_size > _LARGEST_ENTRY:
                return None
            head, _, body = path.read_bytes().partition(b"\n")
            if head != _head(key, body):
                return None
            payload = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(payload, dict):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # so that the oldest is the one unused for longest
        return payload

    def put(self, key: str, payload: dict[str, Any]) -> bool:
        """Store ``payload`` under ``key``, whole or not at all; False where the folder cannot be written."""
        if not self.enabled:
            return False
        path = self._path(key)
        body = json.dumps(payload, separators=(",", ":")).encode()
        if len(body) > _LARGEST_ENTRY:
            return False
        draft = path.with_name(f".{key[:16]}-{os.urandom(8).hex()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(draft, "xb") as file:
                file.write(_head(key, body) + b"\n" + body)
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            return False
        self._trim()
        return True

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError("a cache key is 64 hexadecimal digits; make one with key()")
        return self.folder / f"{key}{_SUFFIX}"

    def _trim(self) -> None:
        """Remove the entries unused for longest until the bounds hold, and drafts that a killed process left."""
        entries: list[tuple[int, int, str]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as found:
            for entry in found:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        entries.append((status.st_mtime_ns, status.st_size, entry.path))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE_S:
                        os.unlink(entry.path)
        entries.sort(reverse=True)
        total = 0
        for position, (_, size, name) in enumerate(entries):
            total += size
            if position and (position >= MOST_ENTRIES or total > MOST_BYTES):
                with contextlib.suppress(OSError):
                    os.unlink(name)


def _head(key: str, body: bytes) -> bytes:
    return f"slipstick-program {FORMAT} {key} {hashlib.sha256(body).hexdigest()}".encode()
