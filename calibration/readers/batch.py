"""Batches: the rows of a trace as columns, grouped by whatever one fit may not mix.

Calibration. Uses the core's rows; numpy is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from attrs import field, frozen

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceRow

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]
    Counts: TypeAlias = npt.NDArray[np.int64]

SPLITTING = ("kv_format", "engine", "engine_version", "distribution")
"""Facts of a row in which rows of one batch agree: the format of the cache, the software it was measured in, and the
distribution of tokens over experts."""


@frozen(eq=False)
class Batch:
    """Measurements of one kernel in one number format, as columns of one length.

    ``arrays``: name of an extent → its values, one a row; ``seconds`` [s]; ``ranks``: devices that took part;
    ``samples``: executions that a time stands for; ``lines``: where in the file. ``facts``: what all rows have in
    common. The other fields are those of a ``TraceRow``; ``shape`` is another name of ``arrays``, so that what reads
    the shape of a row reads that of a batch.
    """

    kernel: str
    format: str
    source: str
    device: str
    arrays: Mapping[str, Array]
    seconds: Array
    ranks: Counts
    samples: Counts
    lines: Counts
    measured: str = ""
    facts: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, column in (*self.arrays.items(), ("ranks", self.ranks), ("samples", self.samples)):
            if len(column) != len(self.seconds):
                raise UserError(f"{self.kernel}: {len(column)} values of {name} for {len(self.seconds)} times")

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def shape(self) -> Mapping[str, Array]:
        """The extents, under the name that a ``TraceRow`` has for them."""
        return self.arrays

    @property
    def kv_format(self) -> str:
        """The number format of the cache, "" where the rows have none of their own."""
        return self.facts.get("kv_format", "")

    @property
    def engine(self) -> str:
        """The software in which the kernel was measured (trtllm, vllm, sglang), "" for none."""
        return self.facts.get("engine", "")

    @property
    def engine_version(self) -> str:
        """The version of ``engine``, "" where it is not known."""
        return self.facts.get("engine_version", "")

    def rows(self) -> Iterable[TraceRow]:
        """The batch as rows, one after the other."""
        names = tuple(self.arrays)
        columns = [column.tolist() for column in self.arrays.values()]
        shapes = zip(*columns, strict=True) if columns else iter([()] * len(self))
        rest = (self.seconds.tolist(), self.ranks.tolist(), self.samples.tolist(), self.lines.tolist())
        for extents, seconds, ranks, samples, line in zip(shapes, *rest, strict=True):
            yield TraceRow(
                self.kernel,
                dict(zip(names, extents, strict=True)),
                self.format,
                self.device,
                seconds,
                self.measured,
                ranks=ranks,
                source=self.source,
                samples=samples,
                line=line,
                facts=self.facts,
            )


def from_rows(rows: Iterable[TraceRow]) -> list[Batch]:
    """Batches of ``rows``, in the order in which the first row of each comes.

    Rows of one batch have the kernel, the format, the source, the device, the names of their extents and the facts of
    ``SPLITTING`` in common; of their other facts those are kept in which all agree.

    >>> batches = from_rows([TraceRow("gemm", {"m": m, "n": 64, "k": 64}, "bf16", "h100-sxm", 1e-6, "by hand")
    ...                      for m in (1, 2)])
    >>> [(batch.kernel, batch.arrays["m"].tolist()) for batch in batches]
    [('gemm', [1.0, 2.0])]
    """
    import numpy as np

    groups: dict[tuple[object, ...], list[TraceRow]] = {}
    for row in rows:
        split = tuple(row.facts.get(name, "") for name in SPLITTING)
        key = (row.kernel, row.format, row.source, row.device, tuple(sorted(row.shape)), *split)
        groups.setdefault(key, []).append(row)
    batches = []
    for members in groups.values():
        first = members[0]
        common = dict(first.facts)
        for row in members:
            if row.facts is not first.facts:
                common = {name: text for name, text in common.items() if row.facts.get(name) == text}
        ways = {row.measured for row in members}
        batches.append(
            Batch(
                first.kernel,
                first.format,
                first.source,
                first.device,
                {name: np.array([row.shape[name] for row in members], dtype=np.float64) for name in first.shape},
                np.array([row.seconds for row in members], dtype=np.float64),
                np.array([row.ranks for row in members], dtype=np.int64),
                np.array([row.samples for row in members], dtype=np.int64),
                np.array([row.line for row in members], dtype=np.int64),
                "; ".join(sorted(ways)),
                common,
            )
        )
    return batches
