"""What a trace reader is: a measured file becomes rows, one after the other, in SI units.

A minimal plugin, for lines such as ``gemm,4096,4096,8192,bf16,h100-sxm,412.5`` with microseconds at the end::

    from slipstick.core.errors import UserError
    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow

    FIRST = "kernel,m,n,k,format,device,us"

    class PlainGemms(TraceReader):
        name = "plain-gemms"

        def sniff(self, path, head):
            return head.startswith(FIRST.encode())

        def rows(self, path):
            with path.open(encoding="utf-8") as lines:
                next(lines)
                for number, line in enumerate(lines, start=2):
                    try:
                        kernel, m, n, k, number_format, device, us = line.strip().split(",")
                        shape = {"m": float(m), "n": float(n), "k": float(k)}
                        seconds = float(us) / 1e6
                    except ValueError:
                        raise UserError(f"{path}, line {number}: write {FIRST}") from None
                    yield TraceRow(kernel, shape, number_format, device, seconds, "as the file says", line=number)

    @hookimpl
    def slipstick_trace_readers():
        return [PlainGemms()]

A reader translates and judges nothing: which rows are fitted, and what stands out, is for calibration to decide. What a
file says is data; nothing of it is executed.

Floor: model. Pure data and abstract classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen

from ...errors import PluginError, UserError, shown
from ...records.measured import MeasuredPoint

HEAD = 4096
"""Bytes at the beginning of a file that a reader sees before it says whether the file is its own."""

SHAPES: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "grouped_gemm": ("tokens", "hidden", "ffn", "experts", "top_k", "tp", "ep", "skew", "matrices"),
    "attention": ("batch", "query", "context", "heads", "kv_heads", "head_dim", "window", "causal"),
    "attention_backward": ("batch", "query", "context", "heads", "kv_heads", "head_dim", "window", "causal"),
    "latent_attention": ("batch", "query", "context", "heads", "latent", "rope"),
    "pointwise": ("bytes", "elements", "flops", "rounds", "unfused"),
    "memory_copy": ("bytes",),
    "host_to_device": ("bytes",),
    "device_to_host": ("bytes",),
    "lookup": ("bytes", "elements"),
    "optimizer": ("elements",),
    "all_reduce": ("bytes",),
    "all_gather": ("bytes",),
    "reduce_scatter": ("bytes",),
    "all_to_all": ("bytes",),
    "send": ("bytes",),
}
"""Kinds of kernel that slipstick knows, and the names of their shape.

gemm: y[m, n] = x[m, k] · w[k, n]. grouped_gemm: the whole routed feed-forward of one rank, ``tokens`` of all ranks
together, ``matrices`` 3 for a gated one, else 2. attention: ``query`` new tokens of each of ``batch`` sequences
against ``context`` tokens in all (query 1: decoding); ``window`` 0 for none; ``causal`` 0 or 1. memory_copy: ``bytes``
read plus written. pointwise: ``bytes`` read plus written where it is one kernel; ``flops`` in all (default: one an
element), ``rounds``: kernels that it is where nothing is fused, ``unfused``: the bytes that those move (default: one,
which moves ``bytes``). Collectives: ``bytes`` of the whole tensor as one rank sees it (all-gather: the gathered
result; reduce-scatter: the input; all-reduce: the tensor; all-to-all: what one rank holds; send: what is sent), with
``ranks`` in the row. optimizer: one Adam step. A kernel of another kind keeps the file's own name and any shape.
"""


@frozen
class TraceRow:
    """One measurement.

    ``kernel``: the kind of work (gemm, grouped_gemm, attention, pointwise, lookup, optimizer) or of a collective
    (all_reduce, reduce_scatter, all_gather, all_to_all, send), or the file's own name of a kernel that is neither;
    ``shape``: named extents and amounts, as formulas call them (m, n, k, batch, query, context, heads, bytes [B]);
    ``format``: the number format (bf16, fp8); ``device``: the accelerator by its name in slipstick where that is
    known, else as the file says; ``seconds`` [s]: one execution; ``measured``: how, in words ("CUDA events, median").

    ``ranks``: devices that took part; ``source``: whose kernel it is (cuBLAS, FlashAttention); ``samples``: executions
    that ``seconds`` stands for; ``spread`` [s]: their standard deviation; ``line``: where in the file, 0 for unknown.

    Errors: UserError for what no measurement can be.
    """

    kernel: str
    shape: Mapping[str, float]
    format: str
    device: str
    seconds: float
    measured: str
    ranks: int = 1
    source: str = ""
    samples: int = 1
    spread: float | None = None
    line: int = 0
    facts: Mapping[str, str] = field(factory=dict)
    """What else the file says of the row (driver, clock, version), for people."""

    def __attrs_post_init__(self) -> None:
        where = f"line {self.line}: " if self.line else ""
        for what, text in (("kernel", self.kernel), ("device", self.device), ("way of measuring", self.measured)):
            if not text:
                raise UserError(f"{where}a measurement without a {what}")
        if not _is_amount(self.seconds) or self.seconds <= 0:
            raise UserError(f"{where}{shown(self.kernel)} took {shown(self.seconds)} s; a positive time is expected")
        for name, extent in self.shape.items():
            if not _is_amount(extent) or extent < 0:
                raise UserError(f"{where}{shown(name)} of {shown(self.kernel)} is {shown(extent)}; not below 0, please")
        if self.ranks < 1 or self.samples < 1:
            raise UserError(f"{where}{shown(self.kernel)} has {self.ranks} ranks and {self.samples} samples")
        if self.spread is not None and (not _is_amount(self.spread) or self.spread < 0):
            raise UserError(f"{where}{shown(self.kernel)} is spread by {shown(self.spread)} s; not below 0, please")


@frozen
class Unread:
    """Something in a measured file that makes no row: what it is called there, why it was passed over, where.

    ``count``: how many alike. Readers yield these in place of dropping anything: what was not used is counted and
    named in every report.
    """

    what: str
    why: str
    count: int = 1
    line: int = 0


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class TraceReader(ABC):
    """A reader of one kind of file."""

    name: ClassVar[str]

    @abstractmethod
    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this reader's kind, judged by its name and its first ``HEAD`` bytes alone.

        No file is opened and no error raised for it; a heavy package is not imported for it either.
        """

    @abstractmethod
    def rows(self, path: Path) -> Iterator[TraceRow | MeasuredPoint | Unread]:
        """The rows of the file, in its order, each made when it is asked for: a file may be larger than the memory.

        A kernel's time is a TraceRow, a figure of a whole deployment (latency, throughput, memory) a MeasuredPoint,
        and what is neither an Unread.

        Errors: UserError that names the file and the line for the first one that can't be read.
        """


def reader_for(path: Path, readers: Iterable[TraceReader]) -> TraceReader:
    """The one reader of ``readers`` that knows the file.

    Errors: UserError where the file can't be opened, no reader knows it, or several do, naming them; PluginError
    where a reader fails on it, naming the reader.
    """
    readers = tuple(readers)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise UserError(f"{shown(path, limit=200)} can't be read: {error.strerror or error}") from None
    found = []
    for reader in readers:
        try:
            if reader.sniff(path, head):
                found.append(reader)
        except Exception as error:
            raise PluginError(f"trace reader {reader.name!r} fails on {path.name}: {type(error).__name__}") from error
    if len(found) > 1:
        told = " and ".join(reader.name for reader in found)
        raise UserError(f"{path.name} is taken for their own by the trace readers {told}; say which one is meant")
    if not found:
        told = ", ".join(reader.name for reader in readers) or "none is installed"
        raise UserError(f"no trace reader knows {shown(path.name)}; there are: {told}")
    return found[0]
