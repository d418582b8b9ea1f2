"""Laws that hold for the graph of every family, and what a block keeps for its backward pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstick.core.model.axes import EXPERTS, HEADS, KV_HEADS, ROUTED, Tensor
from slipstick.core.model.graph import Block, ModelGraph
from slipstick.core.model.ops import Attention, Contraction, GroupedContraction, LatentAttention, Loss, Sampling

GraphOf = Callable[[dict[str, Any]], ModelGraph]
SCENARIO = {"batch", "query", "context", "routed"}


def blocks(graph: ModelGraph) -> list[Block]:
    return [block for block, _ in graph.parts()] + list(graph.extras.values())


def test_every_block_is_well_formed(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    for name, row in golden["cases"].items():
        graph = graph_of(row["fields"])
        kinds = {block for block, _ in graph.parts()}
        assert len({block.name for block in kinds}) == len(kinds), f"{name}: two kinds of block have one name"
        for block in blocks(graph):
            check_block(f"{name}, {block.name}", block, graph)


def check_block(where: str, block: Block, graph: ModelGraph) -> None:
    known: dict[str, Tensor] = {}
    assert len({op.name for op in block.ops}) == len(block.ops), where
    for op in block.ops:
        for tensor in op.reads:
            if tensor.name == block.input:
                assert tensor.is_stream, where
                known.setdefault(tensor.name, tensor)
            assert known.get(tensor.name) == tensor, f"{where}: {op.name} reads {tensor.name} before it is written"
        for tensor in op.writes:
            assert tensor.name not in known, f"{where}: {tensor.name} is written twice"
            known[tensor.name] = tensor
        for saved in op.saves:
            assert saved in op.reads or saved in op.writes or isinstance(op, Loss), f"{where}: {op.name}"
        if isinstance(op, Contraction):
            check_contraction(f"{where}, {op.name}", op)
        for part in [a for t in (*op.reads, *op.writes, *op.weights) for a in t.axes]:
            assert part.size in graph.sizes or part.size in SCENARIO, f"{where}: {op.name} has no size {part.size}"
    assert block.output in known, where
    if block.name != "output":
        assert known[block.output].is_stream, where


def check_contraction(where: str, op: Contraction) -> None:
    """Summed axes are those that x and weight share; the experts of a grouped one are shared and stay."""
    x, w, out = set(op.x.axes), set(op.weight.axes), set(op.out.axes)
    shared = x & w
    kept = {a for a in shared if a.role == EXPERTS} if isinstance(op, GroupedContraction) else set()
    assert shared - kept, where
    assert out == (x | w) - (shared - kept), where
    if isinstance(op, GroupedContraction):
        assert {a.role for a in op.x.axes} >= {EXPERTS, ROUTED}, where
        assert op.weight.format == "expert", where
    if op.bias is not None:
        assert set(op.bias.axes) == (w - shared) | kept, where


def test_every_model_ends_in_a_loss_and_a_sampling(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    for row in golden["cases"].values():
        output = graph_of(row["fields"]).output
        assert [type(op) for op in output.ops[-2:]] == [Loss, Sampling]


def test_projections_are_never_fused(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    """Query, key and value weights keep heads and head width as axes of their own: strategies speak of heads."""
    for row in golden["cases"].values():
        for block in blocks(graph_of(row["fields"])):
            weights = {w.name: w.roles for w in block.weights()}
            for op in block.ops:
                if isinstance(op, Attention):
                    assert weights["attention.q.weight"] == ("hidden", HEADS, "head_dim")
                    assert weights["attention.k.weight"] == ("hidden", KV_HEADS, "head_dim")
                    assert weights["attention.o.weight"] == (HEADS, "head_dim", "hidden")
                if isinstance(op, LatentAttention):
                    assert weights["attention.up_key"] == ("latent", HEADS, "head_dim")


def kept_bytes(block: Block, graph: ModelGraph, batch: int, sequence: int) -> int:
    """Bytes that a layer keeps for its backward pass in 16-bit training: each distinct saved tensor once."""
    extents = graph.sizes | {"batch": batch, "query": sequence}
    saved: dict[str, int] = {}
    scores = 0
    for op in block.ops:
        for tensor in op.saves:
            size = 1 if tensor.format == "mask" else 2
            for part in tensor.axes:
                size *= extents[part.size]
            saved[tensor.name] = size
        if isinstance(op, Attention):
            # Unfused attention keeps its softmax; with dropout also the result of it and a mask.
            per_pair = 2 + (2 + 1) * op.dropout
            scores += per_pair * batch * extents["heads"] * sequence * sequence
    return sum(saved.values()) + scores


def test_gpt_layer_keeps_34_plus_5as_over_h(graph_of: GraphOf) -> None:
    """sbh(34 + 5as/h). Source: Korthikanti et al., arXiv:2205.05198, equation 1."""
    s, b, h, a = 64, 3, 96, 8
    shapes: dict[str, dict[str, Any]] = {
        "gpt2": {"n_layer": 2, "n_embd": h, "n_head": a, "n_positions": s, "vocab_size": 100},
        "opt": {"num_hidden_layers": 2, "hidden_size": h, "num_attention_heads": a, "ffn_dim": 4 * h, "vocab_size": 100,
                "max_position_embeddings": s, "dropout": 0.1, "attention_dropout": 0.1},
        "bloom": {"n_layer": 2, "hidden_size": h, "n_head": a, "vocab_size": 100, "hidden_dropout": 0.1,
                  "attention_dropout": 0.1},
    }  # fmt: skip
    for model_type, fields in shapes.items():
        graph = graph_of({"model_type": model_type, **fields})
        layer = graph.runs[0].cycle[0]
        assert kept_bytes(layer, graph, b, s) * h == s * b * h * (34 * h + 5 * a * s)


def test_a_layer_without_dropout_keeps_no_mask(graph_of: GraphOf) -> None:
    h, a, s = 96, 8, 64
    silent = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    fields = {"n_layer": 2, "n_embd": h, "n_head": a, "n_positions": s, "vocab_size": 100, **silent}
    graph = graph_of({"model_type": "gpt2", **fields})
    # Two masks of one byte less, and of the scores only the softmax is left.
    assert kept_bytes(graph.runs[0].cycle[0], graph, 1, s) == s * h * 32 + 2 * a * s * s


def test_interleaved_layers_become_one_cycle(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    fields = golden["cases"]["gemma3_text"]["fields"] | {"num_hidden_layers": 12, "layer_types": None}
    graph = graph_of(fields)
    assert [block.name for block in graph.runs[0].cycle] == ["sliding"] * 5 + ["full"]
    assert graph.layers == 12


def test_leading_dense_layers_become_a_run_of_their_own(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    graph = graph_of(golden["cases"]["deepseek_v3"]["fields"])
    assert [[block.name for block in run.cycle] for run in graph.runs] == [["dense"], ["moe"]]
    assert (graph.sizes["layers@0"], graph.sizes["layers@1"]) == (2, 2)


def test_mtp_of_deepseek_v3_makes_the_published_checkpoint_whole(graph_of: GraphOf, root: Path) -> None:
    """The DeepSeek-R1 checkpoint holds 684,489,845,504 values (its Hugging Face page; with FP8 scales 684,531,386,000).

    That is the model, the prediction module with its own copies of table and output matrix, and an offset of the choice
    for each expert of 59 routed layers, which the model class keeps as a buffer.
    """
    fields = json.loads((root / "plugins/architectures/presets/deepseek-v3.json").read_text(encoding="utf-8"))
    graph = graph_of(fields)
    module = graph.extras["mtp"]
    copies = sum(graph.elements(w) for w in module.weights() if w.tied)
    offsets = 59 * 256
    assert graph.parameters + graph.block_parameters(module) + copies + offsets == 684_489_845_504
    assert "mtp" not in {block.name for block, _ in graph.parts()}


def test_tied_output_is_counted_once_and_multiplied_still(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    tied = graph_of(golden["cases"]["llama-biases"]["fields"])
    free = graph_of(golden["cases"]["llama-biases"]["fields"] | {"tie_word_embeddings": False})
    assert free.parameters - tied.parameters == tied.sizes["vocab"] * tied.sizes["hidden"]
