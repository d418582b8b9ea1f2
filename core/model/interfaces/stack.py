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

from ...records.provenance import Quantity, Source

COEFFICIENTS: dict[str, tuple[str, str]] = {
    "reserve": ("B", "device memory that driver, communicators and runtime keep for themselves"),
    "memory_utilisation": ("1", "fraction of device memory that a server may use"),
    "time_factor": ("1", "time of a kernel in the running software over its time measured alone"),
    "kernel_overhead": ("s", "time between one kernel and the next that nothing hides"),
    "collective_factor": ("1", "time of a collective that stays exposed over its time measured alone"),
    "step_overhead": ("s", "time on the host for each step that no device work hides"),
    "sequence_overhead": ("s", "time on the host for each sequence of a serving step"),
    "prefill_factor": ("1", "share of the prefills beside a decode step that its tokens wait for"),
    "prefill_tokens": ("1", "most tokens of a prompt computed at once"),
    "attention_factor": ("1", "time of the attention kernel that the software ships over the one measured"),
    "launch_time": ("s", "time on the host to launch the kernels of one operation of a training pass"),
    "launch_exposed": ("1", "share of launches beside kernels that shows nevertheless: small ones hide nothing"),
    "exposed_share": ("1", "share of transfers beside computation that shows nevertheless"),
    "routed_unfused": ("1", "part of what routed experts add to their products that runs as kernels of its own"),
}
"""The coefficients a stack may give: symbol → unit and meaning."""

NEUTRAL: dict[str, float] = {
    "reserve": 0.0,
    "memory_utilisation": 1.0,
    "time_factor": 1.0,
    "kernel_overhead": 0.0,
    "collective_factor": 1.0,
    "step_overhead": 0.0,
    "sequence_overhead": 0.0,
    "prefill_factor": 0.0,
    "prefill_tokens": 8192.0,
    "attention_factor": 1.0,
    "launch_time": 0.0,
    "launch_exposed": 0.0,
    "exposed_share": 0.0,
    "routed_unfused": 0.0,
}
"""What a coefficient is where a stack does not give it: no cost."""

NO_COST = Source("default", "no cost, where a stack states none", "docs/stacks.md", "2026-11-30", "default")


def no_cost() -> dict[str, Quantity]:
    """Every coefficient as it is where a stack does not give it."""
    return {name: Quantity(value, COEFFICIENTS[name][0], NO_COST, f"{value:g}") for name, value in NEUTRAL.items()}


class Stack(ABC):
    """Values for the coefficients of ``COEFFICIENTS``, and for parameters of the kernel family that it changes."""

    name: ClassVar[str]
    calibrated: ClassVar[bool] = False

    @abstractmethod
    def coefficients(self, task: str, accelerator: str) -> Mapping[str, Quantity]:
        """Symbol → value with its source, for ``task`` ("train" or "serve") on an accelerator."""

    def calibrated_for(self, task: str, accelerator: str) -> bool:
        """Whether the coefficients were fitted to runs on this accelerator."""
        return self.calibrated

    def kernel_sources(self, task: str) -> tuple[str, ...]:
        """Whose kernels the software runs: names of engines or libraries of fitted records, the preferred ones first.

        Where none of them was measured on an accelerator another one stands in, and the answer says so.
        """
        return ()

    def spread(self, task: str, accelerator: str, figure: str) -> float | None:
        """Standard deviation of ln(measured/predicted) of a figure over runs that the coefficients were not fitted to.

        None where nobody has compared. It holds everything that kernels do not explain.
        """
        return None

    def kernel_share(self, task: str, accelerator: str) -> float:
        """Share of the kernels' spread left beside ``spread``: a fitted stack takes up what all have in common."""
        return 1.0

    def standing(self, task: str, accelerator: str) -> str:
        """Why the coefficients are a stand-in for this accelerator, in words; "" where they were fitted for it."""
        return ""
