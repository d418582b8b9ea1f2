"""Where fitted records lie: one file for an accelerator and an engine, beside a person's own hardware records.

Floor: calibration. Uses the TOML of the records. ``FOLDER/fitted/<accelerator>.<engine>.toml``, and for a new
accelerator ``FOLDER/<accelerator>.toml``; FOLDER is by default the one that the host reads a person's records from.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slipstick.core.errors import SlipstickError, UserError
from slipstick.core.files import replace_file
from slipstick.core.records.fitted import FittedRecord
from slipstick.core.records.fitted_toml import read_records, write_records
from slipstick.core.records.toml_walk import place

FITTED = "fitted"
NO_ENGINE = "trace"


def user_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of a person's own hardware records: ``SLIPSTICK_HARDWARE_DIR``, or in the user's configuration."""
    folder = (os.environ if environ is None else environ).get("SLIPSTICK_HARDWARE_DIR")
    if folder:
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_config_dir("slipstick", appauthor=False)) / "hardware"


def file_of(folder: Path, accelerator: str, engine: str) -> Path:
    """The file of an accelerator's records from one engine.

    >>> file_of(Path("mine"), "h100-sxm", "TRT LLM").as_posix()
    'mine/fitted/h100-sxm.trt_llm.toml'
    """
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in engine.casefold())
    plain = "_".join(part for part in letters.split("_") if part)
    return folder / FITTED / f"{accelerator}.{plain or NO_ENGINE}.toml"


def save(
    folder: Path, records: Iterable[FittedRecord], accelerators: Mapping[str, str] | None = None, *, fresh: bool = False
) -> tuple[Path, ...]:
    """Write ``records`` and the files of new ``accelerators`` (name → text) under ``folder``; the paths written.

    A record takes the place of the one of the same kernel, format, source and engine version; the others of a file
    stay, unless ``fresh``. Everything or nothing: where one file can't be written those before it are taken back.
    Errors: UserError for a file there that is not sound, and where one cannot be written.
    """
    by_file: dict[Path, list[FittedRecord]] = {}
    for record in records:
        by_file.setdefault(file_of(folder, record.accelerator, record.engine), []).append(record)
    for path, own in by_file.items():
        own[:] = _once(own)
        if path.exists() and not fresh:
            taken = {_identity(record) for record in own}
            own += [record for record in read_records(path) if _identity(record) not in taken]
    before: dict[Path, bytes | None] = {}
    try:
        for path, own in by_file.items():
            before[path] = path.read_bytes() if path.exists() else None
            write_records(path, own)
        for name, text in (accelerators or {}).items():
            path = folder / f"{name}.toml"
            before[path] = path.read_bytes() if path.exists() else None
            replace_file(path, text)
    except (SlipstickError, OSError) as error:
        for path, content in before.items():
            _restore(path, content)
        if isinstance(error, OSError):
            raise UserError(f"{place(folder)}: cannot be written ({error.strerror or error})") from None
        raise
    return tuple(sorted(before))


def _identity(record: FittedRecord) -> tuple[Any, ...]:
    return (
        record.slot, record.format, record.kernel_source, record.engine_version, tuple(sorted(record.where.items())),
    )  # fmt: skip


def _once(records: Iterable[FittedRecord]) -> list[FittedRecord]:
    """Of records of the same kernel the one with the most rows, the first of equals."""
    best: dict[tuple[Any, ...], FittedRecord] = {}
    for record in records:
        key = _identity(record)
        if key not in best or record.rows > best[key].rows:
            best[key] = record
    return list(best.values())


def _restore(path: Path, content: bytes | None) -> None:
    with contextlib.suppress(OSError):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)
