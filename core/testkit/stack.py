"""The contract of a software stack: known coefficients in their units, with sources, never negative.

Floor: testkit. Subclass it, give the stack and the accelerators it knows, inherit the laws::

    class TestMine(StackContract):
        stack = Mine()
        accelerators = ("h100-sxm",)
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

import pytest

from ..algebra.symbols import TABLE
from ..model import symbols as _registered  # noqa: F401  # registers the law's symbols
from ..model.interfaces.stack import COEFFICIENTS, Stack


class StackContract:
    """Laws of one ``stack`` for each of ``accelerators``."""

    stack: ClassVar[Stack]
    accelerators: ClassVar[tuple[str, ...]] = ("any",)

    @pytest.mark.parametrize("task", ["train", "serve"])
    def test_coefficients_are_known_and_sound(self, task: str) -> None:
        for accelerator in self.accelerators:
            for name, quantity in self.stack.coefficients(task, accelerator).items():
                where = f"{self.stack.name}, {task} on {accelerator}: {name}"
                entry = TABLE.get(name)
                known = entry.unit if entry is not None else COEFFICIENTS.get(name, ("",))[0]
                assert known, f"{where} is neither a coefficient ({', '.join(COEFFICIENTS)}) nor a symbol of the table"
                assert quantity.unit == known, f"{where} is in {quantity.unit}, the coefficient in {known}"
                assert isfinite(quantity.value), f"{where} is {quantity.value}"
                assert quantity.value >= 0, f"{where} is {quantity.value:g}: software never gives time or memory back"
                assert quantity.source.title, f"{where} has no source"

    def test_every_coefficient_has_a_value(self) -> None:
        for task in ("train", "serve"):
            for accelerator in self.accelerators:
                missing = set(COEFFICIENTS) - set(self.stack.coefficients(task, accelerator))
                assert not missing, (
                    f"{self.stack.name}, {task} on {accelerator}: no value for {', '.join(sorted(missing))}"
                )

    def test_a_server_uses_at_most_its_memory(self) -> None:
        for accelerator in self.accelerators:
            for task in ("train", "serve"):
                used = self.stack.coefficients(task, accelerator).get("memory_utilisation")
                if used is not None:
                    assert 0 < used.value <= 1, f"{self.stack.name} uses {used.value:g} of the memory"
