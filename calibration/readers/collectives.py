"""Rows of collectives from what NCCL's users record of them: PyTorch's names, and the sizes that each of them counts.

Calibration; used by the readers of profiler traces and of nccl-tests.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstick.core.model.interfaces.trace_reader import TraceRow

from .kernel_names import number_format

KINDS: dict[str, tuple[str, str]] = {
    "allreduce": ("all_reduce", "In msg nelems"),
    "all_reduce": ("all_reduce", "In msg nelems"),
    "allreduce_coalesced": ("all_reduce", "In msg nelems"),
    "_allgather_base": ("all_gather", "Out msg nelems"),
    "allgather": ("all_gather", "Out msg nelems"),
    "all_gather": ("all_gather", "Out msg nelems"),
    "all_gather_into_tensor": ("all_gather", "Out msg nelems"),
    "allgather_into_tensor_coalesced": ("all_gather", "Out msg nelems"),
    "_reduce_scatter_base": ("reduce_scatter", "In msg nelems"),
    "reduce_scatter": ("reduce_scatter", "In msg nelems"),
    "reduce_scatter_tensor": ("reduce_scatter", "In msg nelems"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "In msg nelems"),
    "all_to_all": ("all_to_all", "In msg nelems"),
    "all_to_allv": ("all_to_all", "In msg nelems"),
    "alltoall": ("all_to_all", "In msg nelems"),
    "alltoall_base": ("all_to_all", "In msg nelems"),
    "send": ("send", "In msg nelems"),
}
"""Collective as PyTorch records it → slipstick's kind, and which count of elements is that of the whole tensor."""

WAITS = "PyTorch profiler, time of NCCL's kernel, waiting for the other ranks included"


def collective_row(
    extra: Mapping[str, str | int | float], kernel: str, seconds: float, device: str, line: int
) -> TraceRow | str:
    """The row of one NCCL kernel with what PyTorch recorded of its collective, or why there is none."""
    name = str(extra.get("Collective name", ""))
    if name in ("recv", "irecv"):
        return "a receive waits for its sender; the send is read"
    if name not in KINDS:
        return "no collective of a model's step that slipstick knows"
    kind, counted = KINDS[name]
    elements, ranks = extra.get(counted), extra.get("Group size")
    known = number_format(str(extra.get("dtype", "")))
    if known is None or not isinstance(elements, int) or elements <= 0:
        return "its size isn't recorded"
    if not isinstance(ranks, int) or not 0 < ranks < 2**31:
        return "the size of its group isn't recorded"
    amount = elements * known[1]
    facts = {"collective": name, "kernel": kernel[:200]}
    return TraceRow(
        kind, {"bytes": amount}, known[0], device, seconds, WAITS, ranks=ranks, source="NCCL", line=line, facts=facts
    )
