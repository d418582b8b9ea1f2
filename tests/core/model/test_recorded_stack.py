"""A stack from a record: what stands for which accelerator, and what is said where nothing was fitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.model.recorded_stack import RecordedStack, unit_of
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import SAME_SPREAD, StackFit, StackRecord, write_stack

SOURCE = Source("fit", "a fit", "https://example.org", "2026-11-30", "fitted")


def values(**given: float) -> dict[str, Quantity]:
    return {name: Quantity(value, unit_of(name), SOURCE) for name, value in given.items()}


@pytest.fixture
def stack(tmp_path: Path) -> RecordedStack:
    """Serving: shared coefficients, and some of h100-sxm's own; training: h100-sxm alone."""
    fits = (
        StackFit(task="serve", values=values(time_factor=1.2, step_overhead=1e-3),
                 spread={"kernels": 0.25, "tpot_s": 0.2, "ttft_s": 0.4}),
        StackFit(task="serve", accelerator="h100-sxm", values=values(time_factor=1.1),
                 spread={"kernels": 0.5, "tpot_s": 0.1}),
        StackFit(task="train", accelerator="h100-sxm", values=values(exposed_share=0.3),
                 spread={"step_time_s": 0.07}),
    )  # fmt: skip
    path = tmp_path / "mine.toml"
    record = StackRecord(name="mine", title="Mine", kernels={"serve": ("vllm",)}, fits=fits)
    path.write_text(write_stack(record), encoding="utf-8")
    return RecordedStack("mine", path)


def test_an_accelerators_own_values_come_first_then_shared_ones_then_no_cost(stack: RecordedStack) -> None:
    own = {name: q.value for name, q in stack.coefficients("serve", "h100-sxm").items()}
    shared = {name: q.value for name, q in stack.coefficients("serve", "b200").items()}
    assert own == {**NEUTRAL, "time_factor": 1.1, "step_overhead": pytest.approx(1e-3)}
    assert shared == {**NEUTRAL, "time_factor": 1.2, "step_overhead": pytest.approx(1e-3)}
    assert {n: q.value for n, q in stack.coefficients("train", "b200").items()} == NEUTRAL
    assert stack.coefficients("serve", "b200")["time_factor"].source == SOURCE
    assert stack.coefficients("serve", "b200")["reserve"].source.kind == "default"


def test_what_stands_in_is_said_and_is_not_called_calibrated(stack: RecordedStack) -> None:
    assert (stack.calibrated_for("serve", "h100-sxm"), stack.standing("serve", "h100-sxm")) == (True, "")
    assert not stack.calibrated_for("serve", "b200")
    assert "no runs on b200" in stack.standing("serve", "b200")
    assert "no coefficients for train" in stack.standing("train", "b200")
    assert stack.standing("train", "h100-sxm") == ""


def test_a_spread_is_the_accelerators_own_then_the_shared_one(stack: RecordedStack) -> None:
    assert stack.spread("serve", "h100-sxm", "tpot_s") == 0.1
    assert stack.spread("serve", "h100-sxm", "ttft_s") == 0.4  # only the shared fit states it
    assert stack.spread("serve", "b200", "tpot_s") == 0.2
    assert stack.spread("serve", "h100-sxm", "memory_peak_bytes") is None
    assert stack.spread("train", "b200", "step_time_s") is None


def test_a_rate_has_the_spread_of_the_time_behind_it(stack: RecordedStack) -> None:
    assert stack.spread("serve", "h100-sxm", "tokens_per_s_per_request") == 0.1
    for figure in ("tokens_per_s", "mfu", "run_cost_usd"):
        assert SAME_SPREAD[figure] == "step_time_s"
        assert stack.spread("train", "h100-sxm", figure) == 0.07


def test_the_share_of_the_kernels_spread_is_the_fits(stack: RecordedStack) -> None:
    assert stack.kernel_share("serve", "h100-sxm") == 0.5
    assert stack.kernel_share("serve", "b200") == 0.25
    assert stack.kernel_share("train", "h100-sxm") == 1.0  # the fit states none
    assert stack.kernel_share("train", "b200") == 1.0


def test_a_record_is_read_when_it_is_first_asked(tmp_path: Path) -> None:
    stack = RecordedStack("mine", tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        stack.coefficients("serve", "h100-sxm")


def test_kernels_are_those_that_the_record_names(stack: RecordedStack) -> None:
    assert stack.kernel_sources("serve") == ("vllm",)
    assert stack.kernel_sources("train") == ()


def test_a_stack_may_state_a_parameter_of_the_kernel_family(tmp_path: Path) -> None:
    """Software that fuses nothing says so of a kind of kernel, by the parameter's own name."""
    path = tmp_path / "eager.toml"
    fit = StackFit(task="train", values=values(**{"unfused_share@pointwise": 0.4}))
    path.write_text(write_stack(StackRecord(name="eager", title="Eager", kernels={}, fits=(fit,))), encoding="utf-8")
    assert RecordedStack("eager", path).coefficients("train", "h100-sxm")["unfused_share@pointwise"].value == 0.4
    path.write_text(path.read_text(encoding="utf-8").replace("unfused_share@", "no_such_thing@"), encoding="utf-8")
    with pytest.raises(UserError, match="no_such_thing"):
        RecordedStack("eager", path).coefficients("train", "h100-sxm")
    with pytest.raises(KeyError):
        unit_of("no_such_thing")
