"""Transforms: the minimal one, composition in the stated order, and what a transform may not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve

from slipstick.core.errors import PluginError, UserError
from slipstick.core.model.interfaces.transform import (
    CONTEXT,
    DECODING,
    MODEL,
    WORKLOAD,
    Pass,
    Transform,
    in_order,
    transformed,
)
from slipstick.core.records.scenario import Scenario

ASKED = Scenario("serve", "llama-3.1-8b", "h100-sxm", {"input_tokens": 1000, "output_tokens": 1000})


def made(name: str, order: int, change: Callable[[int], Any], **attributes: Any) -> Transform:
    """A transform that changes the number of output tokens."""

    def apply(self: Transform, scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
        tokens = change(scenario.settings["output_tokens"])
        return evolve(scenario, settings={**scenario.settings, "output_tokens": tokens})

    found: Transform = type("Made", (Transform,), {"name": name, "order": order, "apply": apply, **attributes})()
    return found


def test_the_minimal_plugin_works(minimal: Callable[[str], Any]) -> None:
    transform = minimal("transform")
    # 2503.23077: a method that keeps a quarter of the tokens writes a quarter of them.
    found = transformed(ASKED, [(transform, {"kept_percent": 25})])
    assert found.settings == {"input_tokens": 1000, "output_tokens": 250}
    assert ASKED.settings["output_tokens"] == 1000
    assert [(o.name, o.unit) for o in transform.options] == [("kept_percent", "%")]
    with pytest.raises(UserError, match="at most 100"):
        transformed(ASKED, [(transform, {"kept_percent": 101})])


def test_what_a_transform_does_not_speak_of_stays(minimal: Callable[[str], Any]) -> None:
    transform, graph = minimal("transform"), object()
    passes = (Pass("decode", count=999, query=1, context=1500, emitted=1),)
    assert transform.graph(graph, {}) is graph
    assert transform.passes(passes, {}) is passes


def test_the_stated_order_decides_and_not_the_order_of_naming() -> None:
    chosen: list[tuple[Transform, dict[str, Any]]] = [
        (made("halve", WORKLOAD, lambda n: n // 2), {}),
        (made("add", CONTEXT, lambda n: n + 100), {}),
        (made("b-double", MODEL, lambda n: n * 2), {}),
        (made("a-subtract", MODEL, lambda n: n - 1), {}),
        (made("square", DECODING, lambda n: n**2), {}),
    ]
    for several in permutations(chosen):
        assert transformed(ASKED, several).settings["output_tokens"] == ((1000 // 2 + 100 - 1) * 2) ** 2
        names = [transform.name for transform in in_order(transform for transform, _ in several)]
        assert names == ["halve", "add", "a-subtract", "b-double", "square"]


def test_none_chosen_leaves_the_scenario() -> None:
    assert transformed(ASKED, []) is ASKED


def test_what_a_transform_may_not_do() -> None:
    twice = made("halve", WORKLOAD, lambda n: n // 2)
    with pytest.raises(UserError, match="'halve' is chosen twice"):
        transformed(ASKED, [(twice, {}), (twice, {})])
    training = made("train-only", WORKLOAD, lambda n: n, tasks=("train",))
    with pytest.raises(UserError, match="is for train, not for serve"):
        transformed(ASKED, [(training, {})])
    nothing = made("nothing", WORKLOAD, lambda n: n, apply=lambda self, scenario, options: None)
    with pytest.raises(PluginError, match="'nothing' returned a NoneType, not a scenario"):
        transformed(ASKED, [(nothing, {})])
    turned = made("turned", WORKLOAD, lambda n: n, apply=lambda self, scenario, o: evolve(scenario, task="train"))
    with pytest.raises(PluginError, match="'turned' made a train scenario of a serve one"):
        transformed(ASKED, [(turned, {})])
