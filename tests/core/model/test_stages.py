"""Candidate stages against every stage written out; layers read as runs, and back."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.algebra.symbols import symbol
from slipstick.core.model.graph import Block, ModelGraph, Run, runs_of
from slipstick.core.model.interfaces.strategy import Schedule
from slipstick.core.model.stages import Stage, candidate_stages, kinds, whole_model
from slipstick.plugins.strategies.pipeline import SCHEDULES

EMBEDDING, OUTPUT = Block("embedding", ()), Block("output", ())


def graph_of(runs: int) -> ModelGraph:
    """A model of so many runs, one block kind each."""
    named = ["layers"] if runs == 1 else [f"layers@{i}" for i in range(runs)]
    return ModelGraph(
        "m", "a", EMBEDDING, tuple(Run((Block(f"kind{i}", ()),), name) for i, name in enumerate(named)), OUTPUT, {}
    )


GRAPHS = {runs: graph_of(runs) for runs in (1, 2, 3)}


def outputs(stage: Stage, number: int) -> dict[str, Any]:
    """What one candidate holds, as expressions."""
    found = {f"{number}.index": stage.index, f"{number}.embedding": stage.embedding, f"{number}.output": stage.output}
    return found | {f"{number}.{block.name}": count for block, count in stage.layers}


TAPES = {
    runs: compile_expressions({
        name: expr
        for number, stage in enumerate(candidate_stages(graph, symbol("pp")))
        for name, expr in outputs(stage, number).items()
    })
    for runs, graph in GRAPHS.items()
}  # fmt: skip

Held = dict[str, float]


def candidates(layers: list[int], stages: int) -> list[Held]:
    """The candidates with their contents as numbers."""
    graph = GRAPHS[len(layers)]
    values = {run.layers: count for run, count in zip(graph.runs, layers, strict=True)}
    found = TAPES[len(layers)].evaluate({**values, "pp": stages})
    split: dict[str, Held] = {}
    for name, value in found.items():
        number, what = name.split(".")
        split.setdefault(number, {})[what] = value
    return list(split.values())


def every_stage(layers: list[int], stages: int) -> list[Held]:
    """All stages: layers in order, dealt out in blocks, the first ones one larger where there is a remainder."""
    order = [f"kind{i}" for i, count in enumerate(layers) for _ in range(count)]
    quotient, larger = divmod(len(order), stages)
    found: list[Held] = []
    start = 0
    for index in range(stages):
        stop = start + quotient + (index < larger)
        held: Held = {"index": index, "embedding": index == 0, "output": index == stages - 1}
        for name in (f"kind{i}" for i in range(len(layers))):
            held[name] = order[start:stop].count(name)
        found.append(held)
        start = stop
    return found


cases = st.lists(st.integers(1, 24), min_size=1, max_size=3).flatmap(
    lambda layers: st.tuples(st.just(layers), st.integers(1, min(sum(layers), 24)))
)
prices = st.lists(st.sampled_from([0.0, 1.0, 2.0, 7.0, 30.0]), min_size=5, max_size=5)


@settings(max_examples=200, deadline=None)
@given(cases, prices, st.booleans())
def test_some_candidate_is_as_slow_and_as_full_as_any_stage(
    case: tuple[list[int], int], price: list[float], held: bool
) -> None:
    """For every price of a kind of layer, the embedding and the output; also with p − i micro-batches held."""
    layers, stages = case

    def cost(stage: Held) -> float:
        weight = stages - stage["index"] if held else 1
        per_kind = sum(price[i] * stage[f"kind{i}"] for i in range(len(layers)))
        return weight * (per_kind + price[3] * stage["embedding"] + price[4] * stage["output"])

    assert max(map(cost, candidates(layers, stages))) == max(map(cost, every_stage(layers, stages)))


@settings(max_examples=100, deadline=None)
@given(cases)
def test_every_candidate_is_a_stage(case: tuple[list[int], int]) -> None:
    layers, stages = case
    real = every_stage(layers, stages)
    for candidate in candidates(layers, stages):
        assert candidate == {name: float(value) for name, value in real[int(candidate["index"])].items()}


@settings(max_examples=100, deadline=None)
@given(cases)
def test_stages_share_out_the_whole_model(case: tuple[list[int], int]) -> None:
    layers, stages = case
    graph = GRAPHS[len(layers)]
    total = compile_expressions({block.name: count for block, count in whole_model(graph)})
    counted = total.evaluate({run.layers: n for run, n in zip(graph.runs, layers, strict=True)})
    for block in kinds(candidate_stages(graph, symbol("pp"))):
        assert sum(stage[block.name] for stage in every_stage(layers, stages)) == counted[block.name]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_runs_spell_out_the_layers_they_were_read_from(names: list[str]) -> None:
    layers = [Block(name, ()) for name in names]
    runs, sizes = runs_of(layers)
    spelt: list[str] = []
    for run in runs:
        assert sizes[run.layers] % len(run.cycle) == 0
        spelt += [block.name for block in run.cycle] * (sizes[run.layers] // len(run.cycle))
    assert spelt == names
    assert set(sizes) == {run.layers for run in runs}


def held(graph: ModelGraph, schedule: Schedule, layers: list[int], stages: int) -> list[dict[str, float]]:
    """The candidates under a schedule, with their contents as numbers."""
    values = {run.layers: count for run, count in zip(graph.runs, layers, strict=True)} | {"pp": stages}
    found = []
    for stage in candidate_stages(graph, symbol("pp"), schedule):
        parts = compile_expressions({"0.copies": stage.copies, **outputs(stage, 0)}).evaluate(values)
        found.append({name.partition(".")[2]: float(value) for name, value in parts.items()})
    return found


@settings(max_examples=60, deadline=None)
@given(
    layers=st.lists(st.integers(1, 24), min_size=1, max_size=2), stages=st.integers(1, 8),
    first=st.integers(0, 9), last=st.integers(0, 9),
)  # fmt: skip
def test_stages_with_layers_of_their_own(layers: list[int], stages: int, first: int, last: int) -> None:
    """The first and the last hold what they are given, the others share the rest; every candidate is such a stage."""
    total, given_ends = sum(layers), [n for n in (first, last) if n]
    assume(given_ends)
    assume(stages - len(given_ends) <= total - sum(given_ends))
    assume(stages > 2 or total > sum(given_ends))
    sizes = [total]
    if stages > 1:
        inner = stages - len(given_ends)
        each, more = divmod(total - sum(given_ends), max(inner, 1))
        sizes = [*([first] if first else []), *(each + (i < more) for i in range(inner)), *([last] if last else [])]
        if stages == 2 and first:
            sizes = [first, total - first]
    order = [f"kind{i}" for i, count in enumerate(layers) for _ in range(count)]
    real, begin = [], 0
    for index, size in enumerate(sizes):
        part = order[begin : begin + size]
        begin += size
        real.append({f"kind{i}": float(part.count(f"kind{i}")) for i in range(len(layers))} | {"index": float(index)})
    graph = GRAPHS[len(layers)]
    schedule = SCHEDULES["1f1b"].with_ends(first, last)
    candidates_ = held(graph, schedule, layers, stages)
    for candidate in candidates_:
        expected = real[int(candidate["index"])]
        assert {name: candidate[name] for name in expected} == expected, (candidate, real)
    for name in (f"kind{i}" for i in range(len(layers))):
        assert max(c[name] for c in candidates_) == max(one[name] for one in real)


def test_a_device_that_holds_the_opposite_stage_too() -> None:
    """DualPipe keeps two copies of the model: every device's weights double, a micro-batch goes through the mean."""
    (first, last) = held(GRAPHS[1], SCHEDULES["dualpipe"], [30], 4)
    assert first == {"copies": 2, "index": 0, "embedding": 0.5, "output": 0.5, "kind0": 7.5}  # 8, 8, 7, 7
    assert last == {"copies": 2, "index": 3, "embedding": 0.5, "output": 0.5, "kind0": 7.5}
    assert held(GRAPHS[1], SCHEDULES["dualpipe"], [30], 1)[0]["copies"] == 1
    (first, last) = held(GRAPHS[1], SCHEDULES["zb-v"], [32], 4)
    assert (first["output"], last["output"], first["embedding"]) == (1, 0, 1)


def test_a_repeated_pattern_is_one_run() -> None:
    a, b = Block("a", ()), Block("b", ())
    runs, sizes = runs_of([a, a, b] * 6)
    assert [[block.name for block in run.cycle] for run in runs] == [["a", "a", "b"]]
    assert sizes == {"layers": 18}
    assert runs[0].kinds() == [(a, 2), (b, 1)]
