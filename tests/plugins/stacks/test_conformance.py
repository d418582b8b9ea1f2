"""Every bundled stack keeps the laws of the conformance kit."""

from __future__ import annotations

from slipstick.core.testkit.stack import StackContract
from slipstick.plugins.stacks.ideal import Ideal


class TestIdeal(StackContract):
    stack = Ideal()
    accelerators = ("h100-sxm", "mi300x")


def test_the_ideal_stack_takes_no_time() -> None:
    for task in ("train", "serve"):
        given = Ideal().coefficients(task, "h100-sxm")
        assert [given[name].value for name in ("step_overhead", "sequence_overhead")] == [0, 0]
