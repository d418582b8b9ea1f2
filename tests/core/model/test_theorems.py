"""Published closed forms, proved as equalities of symbols from what the law derives for a GPT block.

Hypotheses, put in by ``exact`` and ``GPT``: degrees divide what they split; head_dim = h/a, feed-forward width 4h, as
many positions as tokens. Sources: Korthikanti et al., arXiv:2205.05198 (activations, FLOPs); Narayanan et al.,
arXiv:2104.04473 (parameters, FLOPs, bubble); Rajbhandari et al., arXiv:1910.02054 (ZeRO); Shoeybi et al.,
arXiv:1909.08053 (tensor parallel communication); DeepSeek-V2, arXiv:2405.04434 (latent cache).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sympy
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.cost import Choice, Exposed, Leaf, Node, Overlap, Pipelined, Repeat, Sequence
from slipstick.core.algebra.symbols import symbol
from slipstick.core.model.blocks import Recomputation, Recompute, Setting, block_cost
from slipstick.core.model.collectives import Network, volume
from slipstick.core.model.graph import Block, ModelGraph, cached
from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.model.layout import Rules
from slipstick.core.model.mesh import Dimension, Mesh
from slipstick.core.model.stages import whole_model
from slipstick.core.model.work import Collective
from slipstick.core.testkit.derivation import MESH, derive, exact, training_phase
from slipstick.core.testkit.scene import BareRoofline, Scene
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.pipeline import PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel

h, a, s, V, L, t = (symbol(name) for name in ("hidden", "heads", "sequence", "vocab", "layers", "tp"))
b, B = symbol("micro_batch"), symbol("global_batch")
GPT = {"head_dim": h / a, "kv_heads": a, "ffn": 4 * h, "positions": s, "FLOP": 1, "activation_width": 2,
       "mask_width": 1, "weight_width": 1, "high_width": 1, "gradient_width": 1, "gradient_copy_width": 0,
       **{name: sympy.nsimplify(value) for name, value in NEUTRAL.items()}}  # fmt: skip
"""A GPT block in terms of h, a, s, V and L; activations of two bytes, the rest counted in elements."""


def equal(found: Any, wanted: Any, more: Mapping[str, Any] | None = None) -> None:
    """``found`` is ``wanted`` for every value of their symbols."""
    difference = sympy.expand(sympy.simplify(exact(found, {**GPT, **(more or {})}) - wanted))
    assert difference == 0, f"differs by {difference}"


def parameters(graph: ModelGraph) -> sympy.Expr:
    """Trained elements of the whole model, symbolic."""

    def of(block: Block) -> sympy.Expr:
        return sympy.Add(*(
            sympy.Mul(*(symbol(axis.size) for axis in weight.axes)) for weight in block.weights() if not weight.tied
        ))  # fmt: skip

    blocks = [(graph.embedding, sympy.Integer(1)), (graph.output, sympy.Integer(1)), *whole_model(graph)]
    return sympy.Add(*(count * of(block) for block, count in blocks))


PSI = 12 * L * h**2 * (1 + sympy.Rational(13, 12) / h + (V + s) / (12 * L * h)) + 2 * h
"""Parameters of GPT. Source: Narayanan et al., equation 2, and 2h for the last normalisation."""


def test_parameters(graphs: dict[str, ModelGraph]) -> None:
    equal(parameters(graphs["gpt2"]), PSI)


def test_parameters_of_gpt3_175b() -> None:
    """The form above at L = 96, h = 12288, V = 51200, s = 2048: 174.6 billion (Narayanan et al., table 1)."""
    assert round(float(PSI.subs({L: 96, h: 12288, V: 51200, s: 2048})) / 1e9, 1) == 174.6


# --- floating-point operations ------------------------------------------------------------------------------------

MODEL_FLOPS = 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))
HARDWARE_FLOPS = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))


@pytest.mark.parametrize(
    "strategies", [(), (TensorParallel(), DataParallel(), PipelineParallel())], ids=["one", "split"]
)
def test_model_flops(graphs: dict[str, ModelGraph], strategies: tuple[Any, ...]) -> None:
    """Of the whole global batch, whatever splits it. Source: Korthikanti et al., appendix A; MFU divides this."""
    whole = {"micro_batches": B / (b * symbol("dp"))}
    equal(Scene.of(graphs["gpt2"], strategies).model.model_flops, MODEL_FLOPS, whole)


def test_hardware_flops(graphs: dict[str, ModelGraph]) -> None:
    """With every layer recomputed one third more, and the logits not. Source: Narayanan et al., equation 3."""
    whole = {"micro_batches": B / (b * symbol("dp"))}
    model = Scene.of(graphs["gpt2"], (), recompute="full").model
    equal(model.hardware_flops, HARDWARE_FLOPS, whole)
    equal(model.model_flops, MODEL_FLOPS, whole)


def test_hardware_flops_of_selective_recomputation(graphs: dict[str, ModelGraph]) -> None:
    """The attention core's two products once more: 4Bs²h a layer (each 2Bs²h, Narayanan et al., appendix)."""
    whole = {"micro_batches": B / (b * symbol("dp"))}
    model = Scene.of(graphs["gpt2"], (), recompute="selective").model
    equal(model.hardware_flops, MODEL_FLOPS + 4 * B * s**2 * h * L, whole)


# --- activations --------------------------------------------------------------------------------------------------


def kept(
    block: Block, *, tensor: bool, sequence: bool = False, recompute: Recompute = "none", fused: bool = False
) -> sympy.Expr:
    """Bytes that one layer keeps for its backward pass."""
    rules = TensorParallel().rules({"sequence_parallel": sequence}) if tensor else Rules()
    setting = Setting(rules, Mesh.of(MESH), BareRoofline(), Network(0), Recomputation(recompute))
    phase = training_phase(fused_attention=fused)
    phase = evolve(phase, extents={**phase.extents, "batch": b})
    return block_cost(block, phase, setting).saved


@pytest.mark.parametrize(
    ("how", "per_sbh"),
    [
        ({"tensor": False}, 34 + 5 * a * s / h),
        ({"tensor": True}, 10 + 24 / t + 5 * a * s / (h * t)),
        ({"tensor": True, "sequence": True}, (34 + 5 * a * s / h) / t),
        ({"tensor": True, "recompute": "selective"}, 10 + 24 / t),
        ({"tensor": True, "sequence": True, "recompute": "selective"}, 34 / t),
        ({"tensor": False, "recompute": "full"}, 2),
        ({"tensor": True, "recompute": "full"}, 2),
        ({"tensor": True, "sequence": True, "recompute": "full"}, 2 / t),
        ({"tensor": False, "fused": True}, 34),
        ({"tensor": True, "sequence": True, "fused": True}, 34 / t),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_activation_bytes_of_a_layer(layer: Callable[[str], Block], how: dict[str, Any], per_sbh: sympy.Expr) -> None:
    """Korthikanti et al., equations 1, 2 and 4, and table 2."""
    equal(kept(layer("gpt2"), **how), s * b * h * per_sbh)


# --- the cache ----------------------------------------------------------------------------------------------------


def cache_elements(graph: ModelGraph) -> sympy.Expr:
    """Elements that one token leaves in the cache, over all layers."""
    return sympy.Add(*(
        count * sympy.Mul(*(symbol(axis.size) for axis in tensor.axes[2:]))
        for block, count in whole_model(graph) for op in block.ops for tensor in cached(op)
    ))  # fmt: skip


def test_cache_of_grouped_query_attention(graphs: dict[str, ModelGraph]) -> None:
    assert sympy.expand(cache_elements(graphs["llama"]) - 2 * L * symbol("kv_heads") * symbol("head_dim")) == 0


def test_cache_of_latent_attention(graphs: dict[str, ModelGraph]) -> None:
    """(d_c + d_r)·L. Source: DeepSeek-V2, section 2.1.4, table 1."""
    layers = symbol("layers@0") + symbol("layers@1")
    wanted = (symbol("latent@kv") + symbol("head_dim@rope")) * layers
    assert sympy.expand(cache_elements(graphs["deepseek"]) - wanted) == 0


# --- communication ------------------------------------------------------------------------------------------------


def tensor_parallel(block: Block, sequence: bool) -> list[Collective]:
    """The collectives of one layer under tensor parallelism."""
    found = derive(block, TensorParallel().rules({"sequence_parallel": sequence}))
    return [step for step in found.steps() if isinstance(step, Collective)]


def moved(collectives: list[Collective]) -> sympy.Expr:
    """Elements that one rank sends for all of them, for one data parallel rank."""
    return sympy.Add(*(volume(c, Mesh.of(MESH)) for c in collectives)) / symbol("dp")


ALL_REDUCE = 2 * b * s * h * (t - 1) / t


def test_tensor_parallel_volume_of_a_layer(layer: Callable[[str], Block]) -> None:
    """Two all-reduces of b·s·h forward, two backward. Source: Shoeybi et al., section 3, figure 4."""
    found = tensor_parallel(layer("gpt2"), False)
    for forward in (True, False):
        half = [c for c in found if (c.direction == "forward") == forward]
        assert [c.kind for c in half] == ["all_reduce"] * 2
        equal(moved(half), 2 * ALL_REDUCE, {"activation_width": 1})


def test_sequence_parallelism_moves_the_same_volume(layer: Callable[[str], Block]) -> None:
    """Four all-gathers and four reduce-scatters for four all-reduces, and the input of each column-parallel layer a
    second time for the weight gradient. Source: Korthikanti et al., section 4.2.2."""
    found = tensor_parallel(layer("gpt2"), True)
    passes = [c for c in found if c.direction != "weight gradient"]
    again = [c for c in found if c.direction == "weight gradient"]
    kinds = [c.kind for c in passes]
    assert (kinds.count("all_gather"), kinds.count("reduce_scatter"), len(kinds)) == (4, 4, 8)
    equal(moved(passes), 4 * ALL_REDUCE, {"activation_width": 1})
    assert [c.kind for c in again] == ["all_gather"] * 2
    equal(moved(again), ALL_REDUCE, {"activation_width": 1})


def sent(node: Node) -> sympy.Expr:
    """Elements that one rank sends below a node of a step with one micro-batch; all-reduces as rings."""
    if isinstance(node, Leaf):
        return node.inputs.get("volume", sympy.Integer(0))
    if isinstance(node, Choice):
        return sent(node.variants.get("ring", next(iter(node.variants.values()))))
    if isinstance(node, Repeat):
        return node.count * sent(node.body)
    if isinstance(node, Pipelined):
        return sent(node.body)
    if isinstance(node, Exposed):  # what is hidden is sent too
        return sent(node.part)
    assert isinstance(node, (Sequence, Overlap))
    return sympy.Add(*(sent(part) for part in node.children))


@pytest.mark.parametrize(("zero", "times"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_data_parallel_and_zero_volumes(graphs: dict[str, ModelGraph], zero: int, times: int) -> None:
    """2Ψ(n−1)/n, and 3Ψ(n−1)/n where weights are sharded. Source: Rajbhandari et al., section 7."""
    n = symbol("dp")
    graph = evolve(graphs["gpt2"], output=untied(graphs["gpt2"].output))
    model = Scene.of(graph, (DataParallel(),), {"zero": zero}).model
    psi = PSI + V * h  # an output matrix of its own: each weight is gathered where it is used
    equal(sent(model.step), times * psi * (n - 1) / n)


def untied(block: Block) -> Block:
    """The block with weights of its own."""
    return evolve(
        block,
        ops=tuple(evolve(op, weight=evolve(op.weight, tied="")) if hasattr(op, "weight") else op for op in block.ops),
    )


# --- the pipeline -------------------------------------------------------------------------------------------------


def bare_pipeline(graphs: dict[str, ModelGraph], chunks: int) -> Scene:
    """Layers only, of which a device holds so many parts."""
    bare = evolve(graphs["gpt2"], embedding=Block("embedding", (), "a", "b"), output=Block("output", (), "a", "b"))
    return Scene.of(bare, (PipelineParallel(),), {"interleave": chunks})


@pytest.fixture(scope="module")
def pipeline(graphs: dict[str, ModelGraph]) -> Scene:
    """Layers only: stages are even where their number divides the layers."""
    bare = evolve(graphs["gpt2"], embedding=Block("embedding", (), "a", "b"), output=Block("output", (), "a", "b"))
    return Scene.of(bare, (PipelineParallel(),))


@settings(max_examples=25, deadline=None)
@given(stages=st.integers(1, 16), each=st.integers(1, 8), micro_batches=st.integers(1, 64))
def test_bubble(pipeline: Scene, stages: int, each: int, micro_batches: int) -> None:
    """Idle over ideal time is (p − 1)/m. Source: Narayanan et al., section 2.2.1."""
    free = {f"tier_{what}_{i}": value for i in range(3) for what, value in (("bandwidth", 1e300), ("latency", 0.0))}
    found = pipeline.at(pp=stages, layers=stages * each, micro_batches=micro_batches, **free)
    number = next(node["id"] for node in pipeline.program.nodes if node["kind"] == "pipelined")
    one = pipeline.at(pp=1, layers=each, micro_batches=1, **free)[f"t{number}"]
    ideal = micro_batches * one
    assert (found[f"t{number}"] - ideal) / ideal == pytest.approx((stages - 1) / micro_batches, rel=1e-9)
    assert float(pipeline.plan.schedule.idle(stages, micro_batches)) == pytest.approx((stages - 1) / micro_batches)


@settings(max_examples=25, deadline=None)
@given(
    stages=st.integers(2, 16), each=st.integers(1, 8), rounds=st.integers(1, 8), chunks=st.sampled_from([1, 2, 3, 5])
)
def test_the_bubble_of_an_interleaved_schedule(
    graphs: dict[str, ModelGraph], stages: int, each: int, rounds: int, chunks: int
) -> None:
    """Idle over ideal time is (p − 1)/(m v). Source: Narayanan et al., section 2.2.2."""
    scene = bare_pipeline(graphs, chunks)
    free = {f"tier_{what}_{i}": value for i in range(3) for what, value in (("bandwidth", 1e300), ("latency", 0.0))}
    micro_batches = rounds * stages
    found = scene.at(pp=stages, layers=stages * each * chunks, micro_batches=micro_batches, **free)
    number = next(node["id"] for node in scene.program.nodes if node["kind"] == "pipelined")
    ideal = micro_batches * scene.at(pp=1, layers=each * chunks, micro_batches=1, **free)[f"t{number}"]
    bubble = (stages - 1) / (micro_batches * chunks)
    assert (found[f"t{number}"] - ideal) / ideal == pytest.approx(bubble, rel=1e-9)
    assert scene.plan.schedule is not None
    assert float(scene.plan.schedule.idle(stages, micro_batches)) == pytest.approx(bubble)


def test_every_chunk_has_a_boundary(graphs: dict[str, ModelGraph]) -> None:
    """A micro-batch crosses p v − 1 boundaries, there and back: v times as much traffic. Source: section 2.2.2."""
    apart = {"tier_bandwidth_0": 1.0, "tier_bandwidth_1": 1.0, "tier_bandwidth_2": 1.0}
    busy = []
    for chunks in (1, 4):
        scene = bare_pipeline(graphs, chunks)
        out = scene.at(pp=4, layers=16, micro_batches=400, **apart)
        number = next(node["id"] for node in scene.program.nodes if node["kind"] == "pipelined")
        busy.append(out[f"t{number}"])
    assert busy[1] / busy[0] == pytest.approx(4, rel=0.02)


def test_the_boundary_carries_the_stream_as_it_is_stored(graphs: dict[str, ModelGraph]) -> None:
    """b·s·h between stages, and a t-th of it where the stream is split. Source: Narayanan et al., section 3.2, 4.1."""
    from slipstick.core.study.build_pipeline import boundary

    for sequence, share in ((False, 1), (True, t)):
        scene = Scene.of(graphs["gpt2"], (TensorParallel(), PipelineParallel()), {"sequence_parallel": sequence})
        send = boundary(scene.plan, scene.model.setting, scene.model.phase)
        assert send.kind == "send"
        equal(send.elements, symbol("dp") * b * s * h / share)


def test_mesh_of_the_theorems() -> None:
    """Order of the dimensions: tensor innermost (Narayanan et al., section 3.2, takeaway 1)."""
    mesh = Mesh.of([Dimension("pp", "pipeline", 40), *MESH])
    assert list(mesh.atoms) == ["tp", "cp", "dp", "pp"]
    assert mesh.atoms["pp"].stride == symbol("tp") * symbol("cp") * symbol("dp")
