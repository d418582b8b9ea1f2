"""Adapters beside frozen weights: counts that others publish, and what the law makes of what is not trained."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.cost import Leaf, walk
from slipstick.core.errors import UserError
from slipstick.core.host.host import default_host
from slipstick.core.model.adapters import stored_apart, with_adapters, with_blocks, with_weights
from slipstick.core.model.counting import forward_matmul_flops, op_flops
from slipstick.core.model.graph import Block, ModelGraph
from slipstick.core.model.interfaces.strategy import Strategy
from slipstick.core.model.layout import Rules
from slipstick.core.model.ops import Attention, Contraction, LatentAttention
from slipstick.core.model.work import Work
from slipstick.core.study.models import load_model
from slipstick.core.testkit import laws
from slipstick.core.testkit.derivation import Derived, derive
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.pipeline import PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel

ALL = (TensorParallel(), DataParallel(), PipelineParallel(), ExpertParallel())
FAMILIES = ("gpt2", "llama", "mixtral", "deepseek", "falcon", "olmo2")
RANK = 4


@pytest.fixture(scope="module")
def tuned(graphs: dict[str, ModelGraph]) -> dict[str, ModelGraph]:
    """The small models with an adapter beside every layer that may have one."""
    return {name: with_adapters(graph, RANK) for name, graph in graphs.items()}


# --- counts that others publish -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "rank", "targets", "trained"),
    [
        # PEFT's print_trainable_parameters: 4,194,304 of 6,742,609,920 and 39,976,960 of 6,778,392,576.
        ("llama-2-7b", 8, ("q", "v"), 4_194_304),
        ("llama-2-7b", 16, ("all",), 39_976_960),
        # LoRA, arXiv:2106.09685, table 4 (4.7M and 37.7M) and section 4.2 (r = 4: 35 MB in 16 bits): 2·d·r for each of
        # two matrices in 96 layers.
        ("gpt3-175b", 1, ("q", "v"), 96 * 2 * 2 * 12288),
        ("gpt3-175b", 4, ("attention.q", "attention.v"), 4 * 96 * 2 * 2 * 12288),
        ("gpt3-175b", 8, ("q", "v"), 8 * 96 * 2 * 2 * 12288),
    ],
)
def test_trained_parameters_are_those_that_others_count(
    model: str, rank: int, targets: tuple[str, ...], trained: int
) -> None:
    graph = load_model(model, default_host())
    made = with_adapters(graph, rank, targets)
    assert made.trained_parameters == trained
    assert made.parameters == graph.parameters + trained


def test_the_parts_are_the_layers_of_all(graphs: dict[str, ModelGraph]) -> None:
    for name, parts in (("llama", ("attention", "mlp")), ("deepseek", ("attention", "mlp", "experts"))):
        counts = [with_adapters(graphs[name], RANK, (part,)).trained_parameters for part in parts]
        assert all(counts)
        assert sum(counts) == with_adapters(graphs[name], RANK).trained_parameters
        assert with_adapters(graphs[name], RANK, parts) == with_adapters(graphs[name], RANK)


def test_what_no_model_can_have_is_refused_in_one_line(graphs: dict[str, ModelGraph]) -> None:
    for rank in (0, 129):
        with pytest.raises(UserError, match=r"between 1 and the hidden size \(128 in llama\)"):
            with_adapters(graphs["llama"], rank)
    with pytest.raises(UserError, match=r"did you mean attention\.q"):
        with_adapters(graphs["llama"], RANK, ("attention.qq",))
    with pytest.raises(UserError, match="experts"):
        with_adapters(graphs["llama"], RANK, ("experts",))


# --- the law ------------------------------------------------------------------------------------------------------


def thawed(graph: ModelGraph) -> ModelGraph:
    """The same operations with every weight trained."""

    def of(block: Block) -> Block:
        ops = (with_weights(op, lambda weight: evolve(weight, frozen=False)) for op in block.ops)
        return evolve(block, ops=tuple(ops))

    return with_blocks(graph, of)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_product_with_a_frozen_weight_has_two_thirds_of_the_work(
    graphs: dict[str, ModelGraph], tuned: dict[str, ModelGraph], family: str
) -> None:
    """Counted apart from the law: forward once, input gradients once, weight gradients of adapters alone."""
    graph, batch, tokens = graphs[family], 3, 64
    top_k = graph.sizes.get("top_k", 0)
    own = forward_matmul_flops(graph, batch, tokens, tokens)
    narrow = forward_matmul_flops(tuned[family], batch, tokens, tokens) - own
    core = 0  # the products of attention: both factors have a gradient
    for block, count in graph.parts():
        for op in block.ops:
            if isinstance(op, (Attention, LatentAttention)):
                flops = op_flops(op, graph.sizes, batch, tokens, tokens, top_k=top_k)
                if isinstance(op, LatentAttention):  # but for the up-projections within
                    flops -= sum(2 * batch * tokens * graph.elements(weight) for weight in op.weights)
                core += count * flops
    found = Scene.of(tuned[family], ()).at(micro_batch=batch, sequence=tokens)["model_flops"]
    assert found == pytest.approx(2 * (own - core) + 3 * core + 3 * narrow, rel=1e-12)
    assert Scene.of(thawed(tuned[family]), ()).at(micro_batch=batch, sequence=tokens)["model_flops"] == pytest.approx(
        3 * (own + narrow), rel=1e-12
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_only_adapters_have_gradients_and_a_state(tuned: dict[str, ModelGraph], family: str) -> None:
    scene = Scene.of(tuned[family], ())
    rows, graph = scene.rows(scene.at()), tuned[family]
    assert rows["weights"] == 2 * graph.parameters
    assert rows["gradients"] == 4 * graph.trained_parameters
    assert rows["optimizer"] == 12 * graph.trained_parameters
    trained = {w.name for block, _ in graph.parts() for w in block.weights() if not w.frozen}
    made = {name for work in _works(scene) if work.direction == "weight gradient" for name in work.writes}
    assert made == {f"d({name})" for name in trained}


def _works(scene: Scene) -> list[Work]:
    rules, dimensions = scene.plan.rules, scene.plan.dimensions
    graph = scene.graph
    blocks = (graph.embedding, *(block for run in graph.runs for block in run.cycle), graph.output)
    return [work for block in blocks for work in derive(block, rules, dimensions, scene.model.phase).works()]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_its_adapters_and_thawed_is_the_model(
    graphs: dict[str, ModelGraph], tuned: dict[str, ModelGraph], family: str
) -> None:
    def bare(block: Block) -> Block:
        ops = []
        for op in block.ops:
            if isinstance(op, Contraction) and op.out.name == f"{op.name}.frozen":
                op = evolve(op, out=evolve(op.out, name=op.name))
            if ".lora_" not in op.name:
                ops.append(op)
        return evolve(block, ops=tuple(ops))

    assert with_blocks(thawed(tuned[family]), bare).structure() == graphs[family].structure()
    assert with_blocks(tuned[family], bare).structure() != graphs[family].structure()


def test_models_that_differ_in_the_rank_share_a_formula(graphs: dict[str, ModelGraph]) -> None:
    assert with_adapters(graphs["llama"], 4).structure() == with_adapters(graphs["llama"], 64).structure()


def test_the_input_of_a_frozen_layer_is_not_kept_for_its_sake(graphs: dict[str, ModelGraph]) -> None:
    """With q and v alone, neither the feed-forward block's inputs nor the output projection's input are kept; the
    attention core keeps its output for itself, the norms and the activation what they read."""
    layers, tokens, hidden, ffn = 8, 64, 128, 256
    kept = []
    for targets in (("q", "v"), ("q", "v", "down"), ("q", "v", "gate", "down")):
        scene = Scene.of(with_adapters(graphs["llama"], RANK, targets), ())
        kept.append(scene.rows(scene.at(sequence=tokens))["activations"])
    first, second, third = kept
    assert second - first == layers * 2 * tokens * (ffn + RANK)
    assert third - second == layers * 2 * tokens * (hidden + RANK)


def test_sharded_storage_shards_frozen_weights_too(tuned: dict[str, ModelGraph]) -> None:
    """ZeRO-3 (FSDP): a frozen weight is stored split and gathered for both passes; nothing of it is scattered."""
    scene = Scene.of(tuned["llama"], (DataParallel(),), {"zero": 3})
    one, eight = scene.rows(scene.at(dp=1)), scene.rows(scene.at(dp=8))
    for row in ("weights", "gradients", "optimizer"):
        assert eight[row] == pytest.approx(one[row] / 8)
    whole = Scene.of(tuned["llama"], (DataParallel(),), {"zero": 1})
    assert whole.rows(whole.at(dp=8))["weights"] == one["weights"]
    moved = {"all_gather": 0.0, "reduce_scatter": 0.0}
    for cost in scene.model.costs.values():
        for share in cost.weights:
            elements = scene.number(share.elements, dp=8)
            moved["all_gather"] += elements if share.flat_weight else 0
            moved["reduce_scatter"] += elements if share.flat_gradient else 0
    layer = tuned["llama"].runs[0].cycle[0]
    assert moved["all_gather"] == tuned["llama"].block_parameters(layer)
    assert moved["reduce_scatter"] == sum(tuned["llama"].elements(w) for w in layer.weights() if not w.frozen)


def _tensor_parallel(graph: ModelGraph, sequence_parallel: bool) -> Derived:
    rules: Rules = TensorParallel().rules({"sequence_parallel": sequence_parallel})
    return derive(graph.runs[0].cycle[0], rules, TensorParallel().dimensions)


def test_tensor_parallelism_splits_adapters_as_megatron_does(tuned: dict[str, ModelGraph]) -> None:
    """Beside a layer split by its outputs B is split, beside one split by its inputs A, which leaves a partial sum of
    the rank's width; A's gradient in the first and B's input in the second are what is added up."""
    found = _tensor_parallel(tuned["llama"], False)
    split = {u.op.name: {t.name: bool(u.layouts[t.name].atoms()) for t in u.op.weights} for u in found.placed.uses}
    for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up"):
        assert split[f"{name}.lora_a"] == {f"{name}.lora_a.weight": False}
        assert split[f"{name}.lora_b"] == {f"{name}.lora_b.weight": True}
    for name in ("attention.o", "mlp.down"):
        assert split[f"{name}.lora_a"] == {f"{name}.lora_a.weight": True}
        assert split[f"{name}.lora_b"] == {f"{name}.lora_b.weight": False}
    forward = {(c.kind, c.tensor) for c in found.collectives(directions=["forward"])}
    assert forward == {
        ("all_reduce", f"{name}.{which}") for name in ("attention.o", "mlp.down") for which in ("frozen", "lora_a")
    }
    narrow = [c for c in found.collectives(directions=["forward"]) if c.tensor.endswith("lora_a")]
    assert [{"latent@lora", "hidden"} & set(map(str, c.elements.free_symbols)) for c in narrow] == [{"latent@lora"}] * 2
    # With the stream stored split, each device works on its own tokens between the narrow products.
    scattered = _tensor_parallel(tuned["llama"], True)
    kinds = {(c.kind, c.tensor) for c in scattered.collectives(directions=["forward"])}
    assert {("reduce_scatter", "attention.o.lora_a"), ("all_gather", "attention.q.lora_a")} <= kinds
    assert not any(kind == "all_reduce" for kind, _ in kinds)


def test_products_with_frozen_experts_are_split_like_trained_ones(tuned: dict[str, ModelGraph]) -> None:
    grouped = [
        op for op in tuned["mixtral"].runs[0].cycle[0].ops if isinstance(op, Contraction) and ".lora_" in op.name
    ]
    own = {op.name: op.weight.roles for op in grouped if op.name.startswith("moe.")}
    assert own["moe.up.lora_a"] == ("experts", "hidden", "latent")
    assert own["moe.up.lora_b"] == ("experts", "latent", "ffn")


CHOICES: tuple[dict[str, Any], ...] = ({"zero": 1}, {"zero": 3, "sequence_parallel": False})
degrees = st.fixed_dictionaries({
    "tp": st.sampled_from([1, 2, 4]), "dp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2, 4]),
    "cp": st.sampled_from([1, 2]),
})  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "mixtral", "deepseek"])
@pytest.mark.parametrize("choice", CHOICES, ids=("state", "weights"))
def test_the_laws_hold_with_adapters(
    tuned: dict[str, ModelGraph], context_parallel: Strategy, family: str, choice: dict[str, Any]
) -> None:
    scene = Scene.of(tuned[family], (*ALL, context_parallel), choice)
    without = Scene.of(tuned[family], ())
    laws.units_agree(scene)

    @settings(max_examples=8, deadline=None)
    @given(split=degrees, tokens=st.integers(16, 2000), factor=st.floats(1.0, 50.0))
    def check(split: dict[str, int], tokens: int, factor: float) -> None:
        laws.degree_one_changes_nothing(without, scene, sequence=tokens)
        laws.more_is_never_slower(scene, factor, sequence=tokens, **split)
        laws.splitting_conserves_weights(scene, **split)
        one = without.at(sequence=tokens, micro_batch=split["dp"])["model_flops"]
        assert scene.at(sequence=tokens, **split)["model_flops"] == pytest.approx(one, rel=1e-12)

    check()
    if family != "deepseek":  # as in test_laws: context is expanded on each device that has some of the queries
        laws.splitting_conserves_flops(scene, tp=2, dp=2, cp=2)


# --- frozen weights in a format of their own ----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "mixtral", "deepseek"])
def test_a_packed_weight_is_expanded_for_every_product(tuned: dict[str, ModelGraph], family: str) -> None:
    graph = stored_apart(tuned[family], expanded=True)
    scene, plain = Scene.of(graph, ()), Scene.of(tuned[family], ())
    rows, before = scene.rows(scene.at(frozen_width=0.5)), plain.rows(plain.at())
    packed = sum(
        count * graph.elements(w) for block, count in graph.parts() for w in block.weights() if w.kept == "frozen"
    )
    assert packed > graph.parameters / 2
    assert before["weights"] - rows["weights"] == 1.5 * packed
    assert all(rows[name] == before[name] for name in ("gradients", "optimizer", "activations"))
    expansions = [w for w in _works(scene) if w.name.endswith("expansion")]
    for direction in ("forward", "input gradient"):
        read = sum(scene.number(w.bytes, frozen_width=0.5) for w in expansions if w.direction == direction)
        once = sum(
            graph.elements(w) * 2.5
            for block in {b: None for b, _ in graph.parts()}
            for w in block.weights()
            if w.kept == "frozen"
        )
        assert read == once  # half a byte in, two bytes out
    assert scene.at(frozen_width=0.5)["step_time"] > plain.at()["step_time"]
    assert scene.at(frozen_width=0.5)["model_flops"] == plain.at()["model_flops"]


def test_what_products_read_directly_needs_no_expansion(tuned: dict[str, ModelGraph]) -> None:
    scene, plain = Scene.of(stored_apart(tuned["llama"], expanded=False), ()), Scene.of(tuned["llama"], ())
    assert not [w for w in _works(scene) if w.name.endswith("expansion")]
    narrow, same = scene.at(frozen_width=1.0), scene.at(frozen_width=2.0)
    assert same["step_time"] == pytest.approx(plain.at()["step_time"], rel=1e-12)
    assert narrow["step_time"] < same["step_time"]


def test_packed_weights_are_gathered_packed(tuned: dict[str, ModelGraph]) -> None:
    scene = Scene.of(stored_apart(tuned["llama"], expanded=True), (DataParallel(),), {"zero": 3})
    (cost,) = scene.model.costs.values()
    layer = scene.graph.runs[0].cycle[0]
    volume = sum(
        scene.number(leaf.inputs["volume"], dp=8, frozen_width=0.5)
        for leaf in walk(cost.forward)
        if isinstance(leaf, Leaf) and leaf.tags.get("kind") == "all_gather"
    )
    held = sum(scene.graph.elements(w) * (0.5 if w.kept == "frozen" else 2) for w in layer.weights())
    assert volume == pytest.approx(held * 7 / 8)
