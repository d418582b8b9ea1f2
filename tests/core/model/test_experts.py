"""Routed experts and latent attention: collectives, conservation of routed tokens, and which variant is taken.

Sources: Lepikhin et al., arXiv:2006.16668 (dispatch and combine all-to-all); DeepSeek-V2, arXiv:2405.04434, section
2.1.2 (absorption); Singh et al., arXiv:2303.06318 (tensor and expert parallelism on the same devices).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.algebra.cost import Choice, Leaf
from slipstick.core.algebra.symbols import symbol
from slipstick.core.model.axes import ROUTED
from slipstick.core.model.collectives import Network, distinct
from slipstick.core.model.graph import Block, ModelGraph
from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.model.layout import Rules
from slipstick.core.model.mesh import Dimension, Mesh
from slipstick.core.model.ops import Attention, Dispatch, LatentAttention
from slipstick.core.model.placement import routed_copies
from slipstick.core.model.pricing import step_node
from slipstick.core.model.work import Alternatives, Work
from slipstick.core.records.configuration import Configuration
from slipstick.core.testkit.derivation import Derived, cached_phase, derive, training_phase
from slipstick.core.testkit.scene import RATES, BareRoofline, Scene
from slipstick.plugins.architectures import presets
from slipstick.plugins.architectures.deepseek import DeepseekV3
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.tensor import TensorParallel

LayerOf = Callable[[str], Block]
TP, DP, EP = (Dimension("tp", "t", 10), Dimension("dp", "d", 30), Dimension("ep", "e", 25, ("dp", "tp")))
s, h, k, tp, ep, dp = (symbol(name) for name in ("sequence", "hidden", "top_k", "tp", "ep", "dp"))
TOKENS = symbol("micro_batch") * s
"""Tokens of one data parallel rank."""


def placed(block: Block, *, tensor: bool = False, sequence: bool = False, expert: bool = False) -> Derived:
    """A layer under data parallelism and what else is asked."""
    rules, dimensions = DataParallel().rules({"zero": 0}), [DP]
    if tensor:
        rules, dimensions = rules + TensorParallel().rules({"sequence_parallel": sequence}), [*dimensions, TP]
    if expert:
        rules, dimensions = rules + ExpertParallel().rules({}), [*dimensions, EP]
    return derive(block, rules, dimensions)


def of(found: Derived, *ops: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Direction, kind and atoms of the collectives that some operations needed."""
    return [(f.direction, f.kind, f.over) for f in found.collectives() if f.op in ops]


def test_experts_over_data_ranks_exchange_tokens_twice_each_way(layer: LayerOf) -> None:
    found = placed(layer("mixtral"), expert=True)
    assert of(found, "moe.dispatch", "moe.combine") == [
        ("forward", "all_to_all", ("dp.ep",)), ("forward", "all_to_all", ("dp.ep",)),
        ("input gradient", "all_to_all", ("dp.ep",)), ("input gradient", "all_to_all", ("dp.ep",)),
    ]  # fmt: skip
    for each in found.collectives():
        assert sympy.simplify(each.elements - symbol("load_skew") * TOKENS * k * h) == 0
    assert {f.kind for f in found.collectives()} == {"all_to_all"}


@pytest.mark.parametrize(("domains", "copies"), [(1, 8), (2, 1), (2, 2), (4, 8), (8, 4)])
def test_a_token_reaches_as_many_nodes_as_its_copies_do(domains: int, copies: int) -> None:
    """Counted out: every way in which copies can fall on nodes, each as likely as another."""
    ways = list(itertools.product(range(domains), repeat=min(copies, 6)))
    reached = sum(len(set(way)) for way in ways) / len(ways)
    share = distinct(sympy.Integer(domains), sympy.Integer(min(copies, 6)))
    assert float(share) == pytest.approx(reached / min(copies, 6))


def test_tokens_that_cross_once_move_less_between_nodes_and_the_same_within(graphs: dict[str, ModelGraph]) -> None:
    """Two of eight experts a token on eight devices: a token's copies meet on a node now and then."""
    strategies = (ExpertParallel(), DataParallel())
    scenes = {way: Scene.of(graphs["mixtral"], strategies, {"zero": 0, "dispatch": way}) for way in ("copies", "once")}
    for span, fewer in ((8.0, False), (2.0, True)):  # the eight expert ranks on one node, and on four
        times = {
            way: scene.at(dp=8, ep=8, sequence=4096, tier_span_0=span)["step_time"] for way, scene in scenes.items()
        }
        assert (times["once"] < times["copies"]) == fewer
        assert times["once"] <= times["copies"]


def test_expert_weights_are_summed_over_the_ranks_that_share_them(layer: LayerOf) -> None:
    gradients = placed(layer("mixtral"), expert=True).gradients()
    elements, partial = gradients["moe.up.weight"]
    assert partial == {"dp.rest"}
    assert sympy.simplify(elements - symbol("experts") * h * symbol("ffn@expert") / ep) == 0
    assert gradients["moe.router.weight"][1] == {"dp.ep", "dp.rest"}


def test_tensor_parallel_experts_are_one_partial_sum_with_the_shared_expert(layer: LayerOf) -> None:
    """Expert width split, tokens whole: no exchange; routed and shared outputs are added before one all-reduce."""
    found = placed(layer("deepseek"), tensor=True)
    forward = list(found.collectives(directions=("forward",)))
    assert [(f.kind, f.over) for f in forward] == [("all_reduce", ("tp",))] * 2
    assert "all_to_all" not in {f.kind for f in found.collectives()}


def test_split_tokens_are_gathered_for_split_experts(layer: LayerOf) -> None:
    """With the stream split over the same ranks, copies are gathered before and scattered after the experts."""
    found = placed(layer("mixtral"), tensor=True, sequence=True)
    kinds = [
        (f.direction, f.kind, f.tensor) for f in found.collectives(tensors=("moe.dispatch", "moe.down", "d(moe.down)"))
    ]
    assert kinds == [
        ("forward", "all_gather", "moe.dispatch"), ("forward", "reduce_scatter", "moe.down"),
        ("input gradient", "all_gather", "d(moe.down)"), ("weight gradient", "all_gather", "moe.dispatch"),
        ("input gradient", "reduce_scatter", "moe.dispatch"),
    ]  # fmt: skip


def test_experts_borrow_tensor_ranks_where_data_ranks_are_too_few(layer: LayerOf) -> None:
    """Tokens whole over tp: the borrowed tp ranks need no exchange, their outputs are partial sums."""
    found = placed(layer("mixtral"), tensor=True, expert=True)
    assert of(found, "moe.dispatch") == [
        ("forward", "all_to_all", ("dp.ep",)),
        ("input gradient", "all_to_all", ("dp.ep",)),
    ]
    combine = found.collectives(tensors=("moe.combine",))
    assert [(f.kind, f.over) for f in combine] == [("all_to_all", ("dp.ep",)), ("all_reduce", ("tp.rest", "tp.ep"))]
    # Each of the ep/min(ep, dp) borrowed ranks takes its share of the copies.
    values = {"micro_batch": 1, "sequence": 64, "top_k": 2, "hidden": 8, "dp": 2, "ep": 8, "tp": 4, "load_skew": 1}
    assert compile_expressions({"n": combine[0].elements}).evaluate(values)["n"] == 64 * 2 * 8 / 4


def test_experts_and_a_split_stream_on_the_same_ranks(layer: LayerOf) -> None:
    found = placed(layer("mixtral"), tensor=True, sequence=True, expert=True)
    exchanges = [f for f in found.collectives() if f.kind == "all_to_all"]
    assert {f.over for f in exchanges} == {("tp.ep", "dp.ep")}
    assert len(exchanges) == 4
    for each in exchanges:
        assert sympy.simplify(each.elements - symbol("load_skew") * TOKENS * k * h / tp) == 0
    # What is left of tp splits each expert's width.
    inside = found.collectives(directions=("forward",), tensors=("moe.dispatch", "moe.down"))
    assert [(f.kind, f.over) for f in inside] == [("all_gather", ("tp.rest",)), ("reduce_scatter", ("tp.rest",))]
    assert found.gradients()["moe.up.weight"][1] == {"dp.rest"}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_no_routed_token_is_lost(layer: LayerOf, t: int, d: int, e: int, tensor: bool, sequence: bool) -> None:
    """Copies on all devices that share them: tokens times experts per token, whatever splits them."""
    t = t if tensor else 1
    if e > t * d:
        return
    found = placed(layer("mixtral"), tensor=tensor, sequence=sequence, expert=True)
    use = next(u for u in found.placed.uses if isinstance(u.op, Dispatch))
    layout, mesh = use.layouts["moe.dispatch"], found.placed.mesh
    tape = compile_expressions({
        "here": routed_copies(layout, mesh, training_phase()), "ranks": mesh.degree(layout[ROUTED]),
    })  # fmt: skip
    values = {"tp": t, "dp": d, "ep": e, "load_skew": 1, "micro_batch": 2, "sequence": 64, "top_k": 2}
    counted = tape.evaluate(values)
    assert counted["here"] * counted["ranks"] == 2 * d * 64 * 2
    # Ranks that hold the same copies split the experts' width among them.
    assert counted["ranks"] in (t * d, max(d, e)), values


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(1, 8), st.integers(0, 400))
def test_experts_touched(layer: LayerOf, experts: int, top_k: int, tokens: int) -> None:
    """Between the experts of one token and all of them; exactly those of one token for one token."""
    top_k = min(top_k, experts)
    works = derive(layer("mixtral"), Rules(), ()).works()
    groups = next(w for w in works if w.kind == "grouped_gemm").shape["groups"]
    tape = compile_expressions({"n": groups})
    values = {"experts": experts, "top_k": top_k, "dp": 1, "micro_batch": 1}
    touched = tape.evaluate({**values, "sequence": 1 + tokens})["n"]
    assert top_k * (1 - 1e-9) <= touched <= min(experts, top_k * (1 + tokens)) * (1 + 1e-9)
    assert tape.evaluate({**values, "sequence": 1})["n"] == pytest.approx(top_k)


# --- latent attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [False, True])
def test_latents_are_gathered_not_heads(layer: LayerOf, sequence: bool) -> None:
    """With the stream split, latent and rotary key travel, not heads times width of keys and values."""
    found = placed(layer("deepseek"), tensor=True, sequence=sequence)
    gathered = {f.tensor: f.elements for f in found.collectives(directions=("forward",)) if f.op == "attention"}
    assert set(gathered) == ({"attention.kv_norm", "attention.k_rotary"} if sequence else set())
    if sequence:
        assert sympy.simplify(gathered["attention.kv_norm"] - TOKENS * symbol("latent@kv")) == 0
    # Their gradients collect what every rank's heads contribute.
    back = {f.tensor: f.kind for f in found.collectives(directions=("input gradient",))}
    assert back["attention.kv_norm"] == ("reduce_scatter" if sequence else "all_reduce")
    partial = {"dp", "tp"} if sequence else {"dp"}
    assert found.gradients()["attention.kv_a.weight"][1] == partial
    assert found.gradients()["attention.up_key"][1] == {"dp"}


@pytest.fixture(scope="module")
def choice() -> tuple[Choice, dict[str, float]]:
    """Latent attention of DeepSeek-V3 with a cache, priced on the kit's machine, and the values of its sizes."""
    path = Path(presets.__file__).parent / "presets" / "deepseek-v3.json"
    graph = DeepseekV3().graph(Configuration.load(path))
    found = derive(graph.runs[-1].cycle[0], Rules(), (), cached_phase())
    step = next(step for step in found.placed.steps if isinstance(step, Alternatives))
    node = step_node(step, BareRoofline(), Mesh.of(()), Network(0), "decode")
    assert isinstance(node, Choice)
    values: dict[str, float] = {name: float(size) for name, size in graph.sizes.items()}
    values |= {**RATES, **NEUTRAL, "hbm_bandwidth": 3.35e12, "activation_width": 2, "weight_width": 2, "cache_width": 2}
    return node, values


def cheapest(choice: tuple[Choice, dict[str, float]], **given: float) -> str:
    node, values = choice
    tape = compile_expressions({name: variant.expression() for name, variant in node.variants.items()})
    seconds = tape.evaluate({**values, **given})
    return min(seconds, key=lambda name: seconds[name])


def test_decoding_absorbs_and_a_long_prefill_expands(choice: tuple[Choice, dict[str, float]]) -> None:
    """As vLLM's latent attention does (its «data-movement friendly» form for decoding, «compute friendly» for prefill).

    A pair costs 2·512 + 64 absorbed and 192 + 128 expanded; expanding costs a projection of every context token.
    """
    assert cheapest(choice, batch=32, query=1, context=4096) == "absorbed"
    assert cheapest(choice, batch=1, query=1, context=100_000) == "absorbed"
    assert cheapest(choice, batch=1, query=8192, context=8192) == "expanded"
    assert cheapest(choice, batch=1, query=32768, context=32768) == "expanded"


def test_absorption_has_the_work_of_multi_query_attention(choice: tuple[Choice, dict[str, float]]) -> None:
    """One shared head of width 512 + 64 for keys and 512 for values; the projections are per query (section 2.1.2)."""
    node, values = choice
    leaf = node.variants["absorbed"]
    assert isinstance(leaf, Leaf)
    b, q, c = 4, 1, 1000
    found = compile_expressions({"f": leaf.inputs["flops"]}).evaluate({**values, "batch": b, "query": q, "context": c})[
        "f"
    ]
    assert found == 2 * b * 128 * ((512 + 64) + 512) * q * c + 2 * b * q * 128 * 512 * (128 + 128)


def test_a_windowed_layer_reads_its_window_from_the_cache(layer: LayerOf) -> None:
    """The last of q queries looks back w tokens, the first as far before itself: min(c, w + q − 1) keys."""
    from attrs import evolve

    block = layer("llama")
    ops = tuple(evolve(op, window="window") if isinstance(op, Attention) else op for op in block.ops)
    found = derive(evolve(block, ops=ops), Rules(), (), cached_phase())
    work = next(w for w in found.works() if w.kind == "attention")
    tape = compile_expressions({"k": work.reads["attention.k_rotary"]})
    sizes = {"batch": 3, "kv_heads": 4, "head_dim": 16, "cache_width": 1, "window": 100}
    for query, context, keys in ((1, 1000, 100), (1, 50, 50), (10, 1000, 109), (1000, 1000, 1000)):
        assert tape.evaluate({**sizes, "query": query, "context": context})["k"] == 3 * 4 * 16 * keys


def test_latent_attention_is_one_operation_of_the_graph(layer: LayerOf) -> None:
    assert [type(op) for op in layer("deepseek").ops].count(LatentAttention) == 1
    assert isinstance(derive(layer("deepseek"), Rules(), ()).works()[0], Work)
