"""The stack that costs nothing: no host time, and only the memory that a driver's context takes."""

from __future__ import annotations

from collections.abc import Mapping

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.stack import COEFFICIENTS, NEUTRAL, Stack
from slipstick.core.records.provenance import Quantity, Source

STATED = Source("default", "stated default of the ideal stack", "docs/efficiency.md", "2026-11-30", "default")

VALUES: dict[str, dict[str, float]] = {
    "train": {**NEUTRAL, "reserve": 1.0e9},
    "serve": {**NEUTRAL, "reserve": 1.0e9, "memory_utilisation": 0.9},
}


class Ideal(Stack):
    """No software cost; serving may use 0.9 of the memory (vLLM's default ``gpu_memory_utilization``)."""

    name = "ideal"

    def coefficients(self, task: str, accelerator: str) -> Mapping[str, Quantity]:
        return {
            name: Quantity(value, COEFFICIENTS[name][0], STATED, f"{value:g}") for name, value in VALUES[task].items()
        }


@hookimpl
def slipstick_stacks() -> list[Stack]:
    """The ideal stack."""
    return [Ideal()]
