"""Profiles of Nsight Systems: the SQLite export, and the CSV that ``nsys stats`` prints.

``nsys export --type sqlite``; or ``nsys stats --format csv --report cuda_gpu_trace`` (or cuda_gpu_kern_sum; older
names gputrace, gpukernsum), several reports in one file as well. Kernels have no shapes there, so rows keep the
kernel's own name; where the run was under ``torch.autograd.profiler.emit_nvtx(record_shapes=True)`` the SQLite export
tells the operators, and rows have their shapes.

Calibration. The two forms are read by ``nsys_csv`` and ``nsys_sqlite``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread

from .nsys_csv import csv_rows
from .nsys_sqlite import MAGIC, sqlite_rows

_CSV = re.compile(
    rb"^\"?(Time ?\(%\)\"?,\"?Total (Time|Size)? ?\(\w+\)|Total Time ?\(\w+\)|Start ?\(\w+\)\"?,\"?Duration ?\(\w+\))",
    re.MULTILINE,
)


class Nsys(TraceReader):
    """Reads what Nsight Systems exports."""

    name = "nsight-systems"

    def sniff(self, path: Path, head: bytes) -> bool:
        if head.startswith(MAGIC):
            return True
        return bool(_CSV.search(head)) or (b"Processing [" in head and b"] with [" in head)

    def rows(self, path: Path) -> Iterator[TraceRow | Unread]:
        try:
            with path.open("rb") as file:
                is_database = file.read(len(MAGIC)) == MAGIC
        except OSError as error:
            raise UserError(f"{path.name} can't be read: {error.strerror or error}") from None
        yield from sqlite_rows(path) if is_database else csv_rows(path)


@hookimpl
def slipstick_trace_readers() -> Sequence[TraceReader]:
    """The reader of Nsight Systems' profiles."""
    return [Nsys()]
