"""Every bundled stack keeps the laws of the conformance kit."""

from __future__ import annotations

import pytest

from slipstick.core.host.host import Host
from slipstick.core.model.recorded_stack import RecordedStack
from slipstick.core.testkit.stack import StackContract
from slipstick.hwdb import FOLDER
from slipstick.plugins.stacks.ideal import Ideal


def recorded(name: str) -> RecordedStack:
    """The stack of a bundled record."""
    return RecordedStack(name, FOLDER / "stacks" / f"{name}.toml")


def fitted(name: str) -> tuple[str, ...]:
    """The accelerators that a record has runs of, and one that nobody has run it on."""
    return ("any", *sorted({fit.accelerator for fit in recorded(name).record.fits if fit.accelerator}))


class TestIdeal(StackContract):
    stack = Ideal()
    accelerators = ("h100-sxm", "mi300x")


class TestVllm(StackContract):
    stack = recorded("vllm")
    accelerators = fitted("vllm")


class TestSglang(StackContract):
    stack = recorded("sglang")
    accelerators = fitted("sglang")


class TestTensorrtLlm(StackContract):
    stack = recorded("tensorrt-llm")
    accelerators = fitted("tensorrt-llm")


class TestMegatronLm(StackContract):
    stack = recorded("megatron-lm")
    accelerators = fitted("megatron-lm")


class TestMegatronLm2021(StackContract):
    stack = recorded("megatron-lm-2021")
    accelerators = fitted("megatron-lm-2021")


class TestMegatronLm2022(StackContract):
    stack = recorded("megatron-lm-2022")
    accelerators = fitted("megatron-lm-2022")


class TestMegatronBridge(StackContract):
    stack = recorded("megatron-bridge")
    accelerators = fitted("megatron-bridge")


class TestMegatronBridge25(StackContract):
    stack = recorded("megatron-bridge-25")
    accelerators = fitted("megatron-bridge-25")


class TestMegatronDeepspeed(StackContract):
    stack = recorded("megatron-deepspeed")
    accelerators = fitted("megatron-deepspeed")


class TestBigscience(StackContract):
    stack = recorded("bigscience")
    accelerators = fitted("bigscience")


class TestDeepspeed(StackContract):
    stack = recorded("deepspeed")
    accelerators = fitted("deepspeed")


class TestFsdp(StackContract):
    stack = recorded("fsdp")
    accelerators = fitted("fsdp")


class TestLlmFoundry(StackContract):
    stack = recorded("llm-foundry")
    accelerators = fitted("llm-foundry")


class TestTorchtitan(StackContract):
    stack = recorded("torchtitan")
    accelerators = fitted("torchtitan")


class TestLlama3(StackContract):
    stack = recorded("llama3")
    accelerators = fitted("llama3")


class TestNemoAutomodel(StackContract):
    stack = recorded("nemo-automodel")
    accelerators = fitted("nemo-automodel")


class TestMaxtext(StackContract):
    stack = recorded("maxtext")
    accelerators = fitted("maxtext")


RECORDED = [
    TestVllm, TestSglang, TestTensorrtLlm, TestMegatronLm, TestMegatronLm2021, TestMegatronLm2022, TestMegatronBridge,
    TestMegatronBridge25, TestMegatronDeepspeed, TestBigscience, TestDeepspeed, TestFsdp, TestLlmFoundry,
    TestTorchtitan, TestLlama3, TestNemoAutomodel, TestMaxtext,
]  # fmt: skip


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load()


def test_every_record_is_tested_and_is_a_stack_that_the_host_finds(host: Host) -> None:
    tested = {str(case.stack.name) for case in RECORDED}
    assert tested == {path.stem for path in (FOLDER / "stacks").glob("*.toml")}
    for name in tested:
        stack = host.stack(name)
        assert isinstance(stack, RecordedStack)
        assert stack.record.name == stack.name == name


def test_every_accelerator_of_a_record_is_one(host: Host) -> None:
    for case in RECORDED:
        for accelerator in case.accelerators[1:]:
            assert host.record("accelerator", accelerator).name == accelerator


def test_the_ideal_stack_takes_no_time() -> None:
    for task in ("train", "serve"):
        given = Ideal().coefficients(task, "h100-sxm")
        assert [given[name].value for name in ("step_overhead", "sequence_overhead")] == [0, 0]
