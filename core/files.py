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

    The content goes to a draft beside the file first. Raises ``UserError`` where it can't be written, and leaves the
    file as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"{shown(str(path), limit=200)} can't be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
