"""What somebody measured end to end: one figure of a deployment or training run, with its setting.

Floor: records. Plain data. A kernel's time is a ``TraceRow`` (core/model/interfaces/trace_reader.py), not this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import field, frozen

from ..errors import UserError, shown

METRICS: dict[str, str] = {
    "iteration": "s",
    "step": "s",
    "tflops": "FLOP/s",
    "mfu": "1",
    "tokens_per_s": "1/s",
    "tokens_per_s_per_device": "1/s",
    "memory": "B",
    "oom": "1",
    "ttft": "s",
    "tpot": "s",
    "latency": "s",
    "throughput": "1/s",
    "request_rate": "1/s",
    "kv_capacity": "1",
    "kv_bytes": "B",
    "max_concurrency": "1",
}
"""Metric → unit of its value. iteration: one training step; step: the optimizer's part of it; tflops and
tokens_per_s_per_device: per device; tokens_per_s and throughput: of all devices, throughput counts output tokens;
latency: a whole request or batch; kv_capacity: tokens; oom: 1 for out of memory, 0 for not; memory, kv_bytes: per
device."""


@frozen
class MeasuredPoint:
    """One measured figure: ``metric`` (a key of ``METRICS``) and its ``value`` in that metric's unit.

    ``setting``: whatever is known of the run under slipstick's names (task, devices, tp, pp, dp, ep, concurrency,
    input_tokens, output_tokens, global_batch, micro_batch, sequence, precision, stack, ...), numbers or text; what is
    not known is absent. ``model`` and ``device`` as the source writes them; ``source``: file or publication;
    ``line``: where in the file, 0 for unknown.

    Errors: UserError for an unknown metric or a value that no measurement can have.

    >>> MeasuredPoint("tpot", 0.0121, {"concurrency": 64}, model="Llama-3.1-8B").value
    0.0121
    """

    metric: str
    value: float
    setting: Mapping[str, float | str]
    model: str = ""
    device: str = ""
    source: str = ""
    line: int = 0
    note: str = ""
    facts: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        where = f"line {self.line}: " if self.line else ""
        if self.metric not in METRICS:
            raise UserError(f"{where}unknown metric {shown(self.metric)}; there are {', '.join(METRICS)}")
        number = self.value
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise UserError(f"{where}{self.metric} is {shown(number)}; a finite number is expected")
        if number < 0 or (number == 0 and self.metric != "oom"):
            raise UserError(f"{where}{self.metric} is {number:g}; a positive number is expected")

    @property
    def name(self) -> str:
        """The id that its source gives it, or where it stands there."""
        return self.facts.get("id", "") or f"{self.source}:{self.line}"
