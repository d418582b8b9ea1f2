"""What a software stack is: coefficients with meaning for the software that drives the devices.

A minimal plugin::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.stack import Stack
    from slipstick.core.records.provenance import Quantity, Source

    BENCH = Source(key="bench", title="our own traces", url="https://example.com", date="2026-03", kind="measured")

    class Mine(Stack):
        name = "mine"

        def coefficients(self, task, accelerator):
            return {"step_overhead": Quantity(2e-3, "s", BENCH, "2 ms"), "reserve": Quantity(2e9, "B", BENCH, "2 GB")}

    @hookimpl
    def slipstick_stacks():
        return [Mine()]

Floor: model. Data only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ...records.provenance import Quantity

COEFFICIENTS: dict[str, tuple[str, str]] = {
    "reserve": ("B", "device memory that driver, communicators and runtime keep for themselves"),
    "memory_utilisation": ("1", "fraction of device memory that a server may use"),
    "step_overhead": ("s", "time on the host for each step that no device work hides"),
    "sequence_overhead": ("s", "time on the host for each sequence of a serving step"),
    "prefill_tokens": ("1", "most tokens of a prompt computed at once"),
}
"""The coefficients a stack may give: symbol → unit and meaning."""


class Stack(ABC):
    """Values for the coefficients of ``COEFFICIENTS``, and for parameters of the kernel family that it changes."""

    name: ClassVar[str]
    calibrated: ClassVar[bool] = False

    @abstractmethod
    def coefficients(self, task: str, accelerator: str) -> Mapping[str, Quantity]:
        """Symbol → value with its source, for ``task`` ("train" or "serve") on an accelerator."""
