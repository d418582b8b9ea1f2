"""A stack whose coefficients stand in a record: the bundled ones, and what a person calibrates.

Floor: model. The record is read when the stack is first asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..algebra.symbols import TABLE
from ..records.provenance import Quantity
from ..records.stack import KERNELS, SAME_SPREAD, StackRecord, read_stack
from . import symbols as _registered  # noqa: F401  # registers what a pass that fuses nothing is known by
from .interfaces.stack import COEFFICIENTS, Stack, no_cost


def unit_of(name: str) -> str:
    """The unit of a coefficient, or of a kernel family's parameter for a slot (``unfused_share@pointwise``).

    Errors: KeyError for a name that is neither.
    """
    if name in COEFFICIENTS:
        return COEFFICIENTS[name][0]
    known = TABLE.get(name) if "@" in name else None
    if known is None:
        raise KeyError(name)
    return known.unit


class _Units(dict[str, str]):
    """Coefficient → unit, parameters of kernel families among them."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or ("@" in str(name) and TABLE.get(str(name)) is not None)

    def __missing__(self, name: str) -> str:
        return unit_of(name)


UNITS: Mapping[str, str] = _Units({name: unit for name, (unit, _) in COEFFICIENTS.items()})
"""The unit of whatever a record of a stack may state."""


class RecordedStack(Stack):
    """The coefficients in the TOML file at ``path``.

    What was fitted for an accelerator comes first; for one without runs the shared coefficients stand in, and for
    what a record does not state there is no cost.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name  # type: ignore[misc]  # one class, many stacks
        self.path = path
        self._record: StackRecord | None = None

    @property
    def record(self) -> StackRecord:
        """The record. Errors: UserError for a file that is not sound."""
        if self._record is None:
            self._record = read_stack(self.path, UNITS)
        return self._record

    def coefficients(self, task: str, accelerator: str) -> Mapping[str, Quantity]:
        found = no_cost()
        for part in ("", accelerator):
            fit = self.record.fit(task, part)
            if fit is not None:
                found.update(fit.values)
        return found

    def kernel_sources(self, task: str) -> tuple[str, ...]:
        return self.record.kernels.get(task, ())

    def calibrated_for(self, task: str, accelerator: str) -> bool:
        return self.record.fit(task, accelerator) is not None

    def spread(self, task: str, accelerator: str, figure: str) -> float | None:
        name = SAME_SPREAD.get(figure, figure)
        for part in (accelerator, ""):
            fit = self.record.fit(task, part)
            if fit is not None and name in fit.spread:
                return fit.spread[name]
        return None

    def kernel_share(self, task: str, accelerator: str) -> float:
        fit = self.record.fit(task, accelerator) or self.record.fit(task, "")
        return 1.0 if fit is None else fit.spread.get(KERNELS, 1.0)

    def standing(self, task: str, accelerator: str) -> str:
        if self.record.fit(task, accelerator) is not None:
            return ""
        if self.record.fit(task, "") is not None:
            return f"no runs on {accelerator} were fitted; coefficients shared by other devices stand in"
        return f"no coefficients for {task}"
