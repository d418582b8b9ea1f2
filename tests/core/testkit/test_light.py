"""The light contracts: each on a sound object, and on broken ones that have to be told why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.evidence import Claim
from slipstick.core.model.interfaces.offload import HOST, Compute, Offload, OffloadPolicy, Placement, Stream
from slipstick.core.model.interfaces.scheduler import Batch, Load, Part, Scheduler, State, Steady, StepKind
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow
from slipstick.core.model.interfaces.transform import WORKLOAD, Transform
from slipstick.core.records.provenance import Source
from slipstick.core.records.scenario import Scenario
from slipstick.core.testkit.light import (
    ClaimsContract,
    OffloadPolicyContract,
    SchedulerContract,
    TraceReaderContract,
    TransformContract,
)

PAPER = Source("paper", "A paper", "https://example.org", "2024-01-01")


def told(contract: type, law: str, *args: Any, **attributes: Any) -> str:
    """What an author reads when a law of a contract is broken."""
    with pytest.raises(AssertionError) as caught:
        getattr(type("Contract", (contract,), attributes)(), law)(*args)
    return str(caught.value)


# --- offload policies ---------------------------------------------------------------------------------------------


class OnHost(OffloadPolicy):
    name = "on-host"

    def __init__(self, offload: Offload) -> None:
        self._offload = offload

    def offload(self, options: Mapping[str, Any]) -> Offload:
        return self._offload


SOUND = Offload(
    (Placement("optimizer", HOST),), (Compute("optimizer", HOST),), (Stream("gradients", "device", HOST, "backward"),)
)


class TestOnHost(OffloadPolicyContract):
    policy = OnHost(SOUND)


def test_offload_policies_that_state_nothing() -> None:
    law = "test_it_keeps_something_off_the_device"
    assert "states nothing" in told(OffloadPolicyContract, law, policy=OnHost(Offload()))
    anyway = Offload((Placement("weights", "device"),))
    assert "where it is anyway" in told(OffloadPolicyContract, law, policy=OnHost(anyway))


def test_streams_to_nowhere() -> None:
    stray = evolve(SOUND, streams=(Stream("gradients", "device", "drive", "backward"),))
    message = told(OffloadPolicyContract, "test_streams_join_places_that_are_used", policy=OnHost(stray))
    assert "touches drive, where nothing is placed or computed" in message


# --- schedulers ---------------------------------------------------------------------------------------------------


class OneAtATime(Scheduler):
    """One request after the other."""

    name = "one-at-a-time"

    def batch(self, state: State, options: Mapping[str, Any]) -> Batch:
        request = (state.running or state.waiting)[0]
        if request.name in state.busy:
            return Batch({})
        return Batch({request.name: 1 if request.produced else request.input_tokens - request.computed})

    def steady(self, load: Load, options: Mapping[str, Any]) -> Steady:
        prompt, more = load.input_tokens, load.output_tokens - 1
        return Steady(
            running=1,
            kinds=(
                StepKind("prefill", (Part("prefill", sequences=1, query=prompt, context=prompt),)),
                StepKind("decode", (Part("decode", 1, query=1, context=prompt + (more + 1) / 2, emitted=1),)),
            ),
            first={"prefill": load.concurrency, "decode": (load.concurrency - 1) * more},
            between={"decode": 1},
        )


class TestOneAtATime(SchedulerContract):
    scheduler = OneAtATime()


class Deciding(OneAtATime):
    """The decision of the test."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def batch(self, state: State, options: Mapping[str, Any]) -> Batch:
        return self._batch


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (Batch({"nobody": 1}), "computes request 'nobody', which does not exist"),
        (Batch({"w0": 65}), "computes 65 tokens of 'w0', which has 64"),
        (Batch({}), "does nothing while requests wait"),
        (Batch({"w0": 1}, preempted=("w1",)), "throws out 'w1', which does not run"),
    ],
)
def test_decisions_that_are_impossible(batch: Batch, why: str) -> None:
    assert why in told(SchedulerContract, "test_decisions_are_possible", scheduler=Deciding(batch))


class Generous(OneAtATime):
    """Emits two tokens a step and still counts one step a token."""

    def steady(self, load: Load, options: Mapping[str, Any]) -> Steady:
        found = super().steady(load, options)
        prefill, decode = found.kinds
        return evolve(found, kinds=(prefill, evolve(decode, parts=(evolve(decode.parts[0], emitted=2),))))


class Forgetful(OneAtATime):
    """Computes half of the prompt."""

    def steady(self, load: Load, options: Mapping[str, Any]) -> Steady:
        found = super().steady(load, options)
        prefill, decode = found.kinds
        part = evolve(prefill.parts[0], query=load.input_tokens / 2)
        return evolve(found, kinds=(evolve(prefill, parts=(part,)), decode))


def test_steady_states_that_lose_or_invent_tokens() -> None:
    law = "test_a_request_gets_its_tokens"
    assert "emit 2 further tokens, not its 1" in told(SchedulerContract, law, scheduler=Generous())
    assert "compute 50 tokens of a prompt of 100" in told(SchedulerContract, law, scheduler=Forgetful())


# --- transforms ---------------------------------------------------------------------------------------------------


class Halved(Transform):
    name = "halved"
    order = WORKLOAD
    tasks = ("serve",)

    def apply(self, scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
        settings = {**scenario.settings, "output_tokens": scenario.settings["output_tokens"] // 2}
        return evolve(scenario, settings=settings)


class TestHalved(TransformContract):
    transform = Halved()


class OtherTask(Halved):
    def apply(self, scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
        return evolve(scenario, task="train")


class Nothing(Halved):
    def apply(self, scenario: Scenario, options: Mapping[str, Any]) -> Any:
        return None


class Restless(Halved):
    """Another answer each time."""

    count = 0

    def apply(self, scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
        self.count += 1
        return evolve(scenario, settings={**scenario.settings, "output_tokens": self.count})


def test_transforms_that_do_something_else() -> None:
    law = "test_it_keeps_the_task_and_the_given_scenario"
    assert "made a train scenario of a serve one" in told(TransformContract, law, transform=OtherTask())
    assert "returned a NoneType, not a scenario" in told(TransformContract, law, transform=Nothing())
    assert "two answers to one question" in told(
        TransformContract, "test_the_same_twice_is_the_same", transform=Restless()
    )


# --- readers ------------------------------------------------------------------------------------------------------

HEADER = b"kernel,m,us\n"


class Plain(TraceReader):
    name = "plain"

    def sniff(self, path: Path, head: bytes) -> bool:
        return head.startswith(HEADER)

    def rows(self, path: Path) -> Iterator[TraceRow]:
        text = path.read_bytes().decode(errors="replace").splitlines()
        for number, line in enumerate(text[1:], start=2):
            try:
                kernel, m, us = line.split(",")
                shape, seconds = {"m": float(m)}, float(us) / 1e6
            except ValueError:
                raise UserError(f"{path.name}, line {number}: write kernel,m,us") from None
            yield TraceRow(kernel, shape, "bf16", "chip", seconds, "as the file says", line=number)


FILE = HEADER + b"gemm,128,4.5\ngemm,256,7\n"


class TestPlain(TraceReaderContract):
    reader = Plain()
    files = {"plain.csv": (FILE, 2)}  # noqa: RUF012  # the base class declares it


class Greedy(Plain):
    def sniff(self, path: Path, head: bytes) -> bool:
        return True


class Careless(Plain):
    def rows(self, path: Path) -> Iterator[TraceRow]:
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            kernel, m, us = line.split(",")
            yield TraceRow(kernel, {"m": float(m)}, "bf16", "chip", float(us), "")


def test_readers_that_take_or_drop_too_much(tmp_path: Path) -> None:
    files = {"plain.csv": (FILE, 2)}
    law = "test_it_knows_its_own_files_and_no_others"
    assert "for its own" in told(TraceReaderContract, law, reader=Greedy(), files=files)
    message = told(TraceReaderContract, "test_every_row_is_read", tmp_path, reader=Plain(), files={"a.csv": (FILE, 3)})
    assert "reads 2 rows of the 3" in message
    law = "test_a_damaged_file_is_a_users_mistake"
    assert "instead of a UserError" in told(TraceReaderContract, law, tmp_path, reader=Careless(), files=files)


# --- claims -------------------------------------------------------------------------------------------------------


def claim(name: str, **changed: Any) -> Claim:
    fields: dict[str, Any] = {
        "expectation": lambda ask: 1.0, "value": 2.0, "unit": "s", "relation": "equal within", "tolerance": 0.1,
        "source": PAPER, "trust": "DATA",
    }  # fmt: skip
    return Claim(name=name, **{**fields, **changed})


class TestClaims(ClaimsContract):
    claims = (
        claim("a step"), claim("a bound", relation="at most"),
        claim("another", relation="at least", value=0.0, tolerance=0),
        claim("an order", relation="ordering", value=(1.0, 2.0, 3.0)),
    )  # fmt: skip


def test_claims_that_share_a_name_or_lack_a_source() -> None:
    pair = (claim("same"), claim("same"))
    assert "two claims share the name same" in told(ClaimsContract, "test_names_are_unique", claims=pair)
    nowhere = (claim("lost", source=evolve(PAPER, url="")),)
    assert "its source has no address" in told(ClaimsContract, "test_sources_can_be_looked_up", claims=nowhere)
