"""Files replaced as a whole: a reader sees the old content or the new one, never a part.

Floor: the lowest, beside errors. Standard library.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .errors import UserError, shown


def replace_file(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path``, in UTF-8 where it is text; folders on the way are made.

    Raises ``UserError`` where it can't be written, and leaves the file as it was.
    """
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, data)
    except (OSError, ValueError) as error:
        raise UserError(f"{shown(str(path), limit=200)} can't be written: {reason_of(error)}") from None


def put(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, for callers that word their errors themselves.

    The content goes to a draft beside the file first, and is on the disk before it takes the file's name. Raises
    OSError, and ValueError for a path that can be none; the file is then as it was and the draft gone.
    """
    draft = path.with_name(f".{path.name[:40]}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with contextlib.suppress(OSError, ValueError):
            draft.unlink()


def reason_of(error: OSError | ValueError) -> str:
    """Why a file can't be written, in the system's words.

    >>> reason_of(OSError(28, "No space left on device"))
    'No space left on device'
    """
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
