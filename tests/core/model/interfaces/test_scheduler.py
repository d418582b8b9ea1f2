"""Schedulers: the steady state of the minimal one against its own decisions, played out; Little's law; conservation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.errors import PluginError
from slipstick.core.model.interfaces.scheduler import (
    Batch,
    Load,
    Part,
    Request,
    Scheduler,
    State,
    Steady,
    StepKind,
)


def played(scheduler: Scheduler, load: Any, prefill: Fraction, decode: Fraction, finish: int) -> tuple[Any, Any, Any]:
    """A closed loop played out step by step: mean times to first token and per output token, and the rate.

    A step of one token takes ``decode`` seconds, any other ``prefill``. The first round of requests is not counted.
    """
    now, made = Fraction(0), 0
    waiting: list[Request] = []
    running: list[Request] = []
    arrived: dict[str, Fraction] = {}
    first: dict[str, Fraction] = {}
    last: dict[str, Fraction] = {}

    def arrive() -> None:
        nonlocal made
        waiting.append(Request(f"r{made}", load.input_tokens))
        arrived[f"r{made}"] = now
        made += 1

    for _ in range(int(load.concurrency)):
        arrive()
    done: list[str] = []
    while len(done) < finish:
        batch = scheduler.batch(State(tuple(waiting), tuple(running), load.capacity, load.capacity), {})
        assert batch.tokens
        now += decode if set(batch.tokens.values()) == {1} else prefill
        running += [request for request in waiting if request.name in batch.tokens]
        waiting = [request for request in waiting if request.name not in batch.tokens]
        for request in list(running):
            if request.name not in batch.tokens:
                continue
            computed = request.computed + batch.tokens[request.name]
            produced = request.produced + (computed >= request.input_tokens)
            running[running.index(request)] = evolve(request, computed=computed, produced=produced)
            if produced == 1:
                first.setdefault(request.name, now)
            if produced == load.output_tokens:
                last[request.name] = now
                done.append(request.name)
                running = [other for other in running if other.name != request.name]
                arrive()
    warm = int(load.concurrency)
    counted, start = done[warm:], last[done[warm - 1]]
    return (
        sum(first[name] - arrived[name] for name in counted) / len(counted),
        sum((last[name] - first[name]) / (load.output_tokens - 1) for name in counted) / len(counted),
        len(counted) / (now - start),
    )


@pytest.mark.parametrize(("concurrency", "output_tokens"), [(1, 2), (1, 7), (3, 2), (4, 5)])
def test_the_closed_form_of_the_minimal_plugin_is_what_its_decisions_come_to(
    concurrency: int, output_tokens: int, minimal: Callable[[str], Any]
) -> None:
    scheduler = minimal("scheduler")
    load = Load(Fraction(concurrency), 5, output_tokens, capacity=1000)  # a fraction, so that nothing is rounded
    times = {"prefill": Fraction(7, 10), "decode": Fraction(1, 10)}
    steady = scheduler.steady(load, {})
    expected = played(scheduler, load, times["prefill"], times["decode"], finish=4 * concurrency)
    assert steady.time_to_first_token(times) == expected[0]
    assert steady.time_per_output_token(times) == expected[1]
    assert steady.request_rate(load, times) == expected[2]


@given(
    concurrency=st.integers(1, 1000), prompt=st.integers(1, 10**6), output=st.integers(1, 10**5),
    prefill=st.fractions(min_value="1/1000", max_value=10), decode=st.fractions(min_value="1/1000", max_value=10),
)  # fmt: skip
def test_little_and_conservation(
    concurrency: int, prompt: int, output: int, prefill: Fraction, decode: Fraction
) -> None:
    # Continuous batching whose prompts go first: all decode together, and each prompt holds up the others once.
    load = Load(Fraction(concurrency), prompt, output, capacity=10**9)  # a fraction, so that nothing is rounded
    more = output - 1
    between = {"decode": Fraction(1), "prefill": Fraction(concurrency - 1, more)} if more else {}
    steady = Steady(
        running=concurrency,
        kinds=(
            StepKind("prefill", (Part("prefill", 1, prompt, prompt),)),
            StepKind("decode", (Part("decode", concurrency, 1, prompt, emitted=1),)),
        ),
        first={"prefill": Fraction(1 if more else concurrency)},
        between=between,
    )
    times = {"prefill": prefill, "decode": decode}
    stay = steady.time_to_first_token(times) + more * steady.time_per_output_token(times)
    assert steady.request_rate(load, times) * stay == concurrency
    steps = steady.steps_per_request(load)
    parts = [(steps[kind.name], part) for kind in steady.kinds for part in kind.parts]
    assert sum(count * p.sequences * p.query for count, p in parts if p.phase == "prefill") == prompt
    assert sum(count * p.sequences * p.emitted for count, p in parts) == more


def test_the_minimal_plugin_conserves_tokens_in_symbols(minimal: Callable[[str], Any]) -> None:
    import sympy

    names = sympy.symbols("C I O K", positive=True)
    load = Load(*names)
    steady = minimal("scheduler").steady(load, {})
    steps = steady.steps_per_request(load)
    computed = sum(steps[k.name] * p.sequences * p.query for k in steady.kinds for p in k.parts if p.phase == "prefill")
    emitted = sum(steps[k.name] * p.sequences * p.emitted for k in steady.kinds for p in k.parts)
    assert sympy.simplify(computed - load.input_tokens) == 0
    assert sympy.simplify(emitted - (load.output_tokens - 1)) == 0


def test_a_busy_request_is_left_to_its_stage(minimal: Callable[[str], Any]) -> None:
    state = State((), (Request("a", 5, 5, 1),), 100, 95, stages=2, busy=frozenset({"a"}))
    assert minimal("scheduler").batch(state, {}) == Batch({})


KIND = StepKind("decode", (Part("decode", 1, 1, 1, emitted=1),))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Batch({"a": 0}), "leave it out"),
        (lambda: Batch({"a": 1}, preempted=("a",)), "both computes and preempts"),
        (lambda: StepKind("empty", ()), "has no part"),
        (lambda: Steady(1, (KIND, KIND), {}, {}), "two kinds"),
        (lambda: Steady(1, (KIND,), {"prefill": 1}, {}), "kind 'prefill' are counted; the kinds are decode"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(PluginError, match=told):
        make()
