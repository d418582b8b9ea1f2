"""The laws on serving: prefill, decode and the memory they leave, on bundled families under all bundled strategies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.cost import Leaf, walk
from slipstick.core.algebra.dimension import check
from slipstick.core.model.axes import EXPERTS
from slipstick.core.model.counting import block_flops, forward_matmul_flops
from slipstick.core.model.graph import ModelGraph
from slipstick.core.study.build_serving import build_serving, serving_model
from slipstick.core.study.plan import Plan, all_options, applicable
from slipstick.core.study.program import Program
from slipstick.core.testkit.scene import TIERS, Scene
from slipstick.plugins.hardware.roofline import Roofline
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.pipeline import PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel

FAMILIES = ("gpt2", "llama", "mixtral", "deepseek", "falcon")
ALL = (TensorParallel(), DataParallel(), PipelineParallel(), ExpertParallel())
FAST = settings(max_examples=15, deadline=None)


class Serving:
    """A compiled serving answer of one family, with or without strategies."""

    def __init__(self, graph: ModelGraph, split: bool) -> None:
        strategies = applicable(ALL if split else (), graph.sizes)
        options = {name: option.default for name, option in all_options(strategies, "serve").items()}
        self.graph = graph
        self.plan = Plan("serve", graph, strategies, options, Roofline(), len(TIERS))
        self.program: Program = build_serving(self.plan)
        self.scene = Scene.of(graph, ())

    def values(self, **given: Any) -> dict[str, Any]:
        """The kit's machine and one request of 128 tokens in, 64 out."""
        values = self.scene.values() | {name: float(q) for name, q in Roofline().defaults().items()}
        values |= {"hbm_capacity": 80e9, "memory_utilisation": 0.9, "prefill_tokens": 8192, "step_overhead": 1e-4,
                   "sequence_overhead": 1e-6, "input_tokens": 128, "output_tokens": 64, "concurrency": 1,
                   "tp": 1, "pp": 1, "dp": 1, "ep": 1}  # fmt: skip
        return values | given

    def at(self, **given: Any) -> dict[str, Any]:
        return self.program.evaluate(self.values(**given))


@pytest.fixture(scope="module")
def serving(graphs: dict[str, ModelGraph]) -> dict[tuple[str, bool], Serving]:
    return {(family, split): Serving(graphs[family], split) for family in FAMILIES for split in (False, True)}


Answers = dict[tuple[str, bool], Serving]
families = pytest.mark.parametrize("family", FAMILIES)
requests = st.fixed_dictionaries({
    "input_tokens": st.integers(1, 4000), "output_tokens": st.integers(1, 2000), "concurrency": st.integers(1, 200),
})  # fmt: skip
degrees = st.fixed_dictionaries({
    "tp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2, 4]), "dp": st.sampled_from([1, 2]),
})  # fmt: skip
FIGURES = ("ttft", "tpot")


def figures(outputs: dict[str, Any]) -> dict[str, float]:
    """The times and the memory rows of an answer (not its numbered nodes)."""
    return {name: value for name, value in outputs.items() if not name[1:2].isdigit()}


@families
@FAST
@given(request_=requests)
def test_degree_one_changes_nothing(serving: Answers, family: str, request_: dict[str, int]) -> None:
    before, after = (figures(serving[family, split].at(**request_)) for split in (False, True))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert after[name] == pytest.approx(value, rel=1e-9), f"{name} changed at degree 1"


@families
@FAST
@given(request_=requests, split=degrees, factor=st.floats(1.0, 30.0))
def test_more_is_never_slower(
    serving: Answers, family: str, request_: dict[str, int], split: dict[str, int], factor: float
) -> None:
    answer = serving[family, True]
    values = answer.values(**request_, **split)
    before = answer.program.evaluate(values)
    for name in answer.program.tape.inputs:
        if name.endswith("_rate") or "bandwidth" in name:
            after = answer.program.evaluate({**values, name: values[name] * factor})
            for figure in FIGURES:
                assert after[figure] <= before[figure] * (1 + 1e-9), f"{figure} rose with {name}"
    roomier = answer.program.evaluate({**values, "hbm_capacity": values["hbm_capacity"] * factor})
    for name in ("kv_capacity_tokens", "max_concurrency"):
        assert roomier[name] >= before[name], f"{name} fell with more memory"


@families
@FAST
@given(request_=requests, split=degrees)
def test_nothing_beats_the_floor(
    serving: Answers, family: str, request_: dict[str, int], split: dict[str, int]
) -> None:
    """A prompt takes its causal FLOPs; a token takes every layer's dense weights, and the cache, once from memory."""
    answer = serving[family, True]
    graph = answer.graph
    values = answer.values(**request_, **split)
    out = answer.program.evaluate(values)
    fastest = max(value for name, value in values.items() if name.endswith("_rate"))
    prompt = int(values["input_tokens"])
    flops = forward_matmul_flops(graph, 1, prompt, prompt, causal=True)
    # Only the last token's logits are computed.
    flops -= block_flops(graph, graph.output, 1, prompt, prompt) - block_flops(graph, graph.output, 1, 1, prompt)
    assert out["ttft"] >= flops / split["tp"] / fastest * (1 - 1e-9)
    layers = list(graph.parts())[1:-1]
    dense = sum(
        count * graph.elements(w) for block, count in layers for w in block.weights()
        if w.format == "weight" and EXPERTS not in w.roles
    )  # fmt: skip
    per_rank = values["concurrency"] // (split["dp"] * split["pp"])
    cache = graph.kv_elements() * per_rank * values["input_tokens"]
    moved = (dense * values["weight_width"] + cache * values["cache_width"]) / split["tp"]
    assert out["tpot"] >= moved / values["hbm_bandwidth"] * (1 - 1e-9)


@families
def test_units_and_evaluations_agree(serving: Answers, family: str) -> None:
    import sympy

    answer = serving[family, True]
    model = serving_model(answer.plan)
    for root in (model.ttft, model.tpot):
        for node in walk(root):
            if isinstance(node, Leaf):
                for name, expr in node.inputs.items():
                    check(expr, node.formula.inputs[name])
    for ledger in model.ledgers:
        for row in ledger.rows:
            check(row.bytes, "B")
    values = answer.values(concurrency=7, tp=2, pp=2, dp=2, ep=2)
    out = answer.program.evaluate(values)
    for figure in FIGURES:
        written = getattr(model, figure).expression()
        symbolic = written.xreplace({s: sympy.Float(values.get(s.name, 1.0)) for s in written.free_symbols})
        assert float(symbolic) == pytest.approx(out[figure], rel=1e-8)


@pytest.mark.parametrize(
    ("family", "per_token"),
    [("gpt2", 2 * 8 * 8 * 16), ("llama", 2 * 8 * 4 * 16), ("deepseek", (32 + 8) * 4), ("falcon", 2 * 4 * 8 * 16)],
)
def test_the_cache_of_a_token_is_the_published_one(serving: Answers, family: str, per_token: int) -> None:
    """2·L·kv·d·b, and (d_c + d_r)·L·b for latents (arXiv:2405.04434), in rows and in what fits."""
    out = serving[family, True].at(concurrency=3, input_tokens=100, output_tokens=28)
    assert out["memory.0.kv_cache"] == 3 * 128 * per_token * 2
    free = 80e9 - sum(out[f"memory.0.{row}"] for row in ("weights", "activations", "reserve"))
    assert out["kv_capacity_tokens"] == pytest.approx(free / (per_token * 2), abs=2)
