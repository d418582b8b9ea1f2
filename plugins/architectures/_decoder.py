"""A decoder-only model from its plan: embedding, layers, output, and the checks that all families share.

Floor: plugins. Uses the core's graphs and the block builder beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from slipstick.core.errors import UserError
from slipstick.core.model.axes import EXPERTS, HIDDEN, LAYERS, POSITIONS, VOCAB, Axis, Tensor, Weight, axis
from slipstick.core.model.graph import Block, ModelGraph, runs_of
from slipstick.core.model.ops import Lookup, Loss, Sampling
from slipstick.core.records.configuration import Configuration

from ._blocks import STREAM, B, BlockBuilder, H, Q
from ._fields import dtype, quantization
from ._plans import Layer

V = axis(VOCAB)
TABLE = "embedding.table"
HEAD = "output.weight"


@frozen
class Decoder:
    """Everything a family says about a model; ``layers`` holds one plan a layer, in order.

    ``sizes`` has an extent for every size its plans use. ``positions``: rows of a learned position table (0: none).
    ``embedding_norm`` and ``final_norm``: kind of norm, empty for none. ``embedding_width``: width of the table where
    it differs from the stream (OPT-350M). ``mtp``: layers that predict further tokens in training.
    """

    layers: Sequence[Layer]
    sizes: Mapping[str, int]
    tied: bool
    max_positions: int
    positions: int = 0
    embedding_norm: str = ""
    embedding_dropout: bool = False
    embedding_scaled: bool = False
    embedding_width: int = 0
    token_types: str = ""
    final_norm: str = "gain"
    head_bias: bool = False
    logits_scaled: bool = False
    logits_capped: bool = False
    mtp: int = 0
    facts: Mapping[str, str] = field(factory=dict)


def build(config: Configuration, architecture: str, plan: Decoder, *, outer: Configuration | None = None) -> ModelGraph:
    """The graph of ``plan``; ``outer``: the configuration around ``config`` where a multimodal file nests it.

    Errors: UserError for a field nobody asked for, and for sizes that do not fit together.
    """
    sizes = {name: size for name, size in plan.sizes.items() if size}
    if plan.positions:
        sizes[POSITIONS] = plan.positions
    if plan.embedding_width:
        sizes[f"{HIDDEN}@embedding"] = plan.embedding_width
    top = outer or config
    stored = quantization(top) or quantization(config)
    number = dtype(config) or dtype(top) or "bf16"
    config.finish()
    top.finish()
    if "top_k" in sizes and sizes["top_k"] > sizes.get(EXPERTS, 0):
        raise UserError(
            f"{config.origin}: {sizes['top_k']} experts per token are chosen among {sizes.get(EXPERTS, 0)}; "
            "the first must not exceed the second"
        )
    blocks: dict[Layer, Block] = {}
    for layer in plan.layers:
        if layer not in blocks:
            builder = BlockBuilder(layer.name)
            builder.layer(layer)
            blocks[layer] = builder.block()
    runs, counts = runs_of([blocks[layer] for layer in plan.layers])
    extras: dict[str, Block] = {}
    if plan.mtp:
        extras["mtp"] = _mtp(plan)
        counts[f"{LAYERS}@mtp"] = plan.mtp
        counts[f"{HIDDEN}@mtp"] = 2 * sizes[HIDDEN]
    graph = ModelGraph(
        name=top.origin,
        architecture=architecture,
        embedding=_embedding(plan),
        runs=runs,
        output=_output(plan),
        sizes=sizes | counts,
        extras=extras,
        quantization=stored,
        dtype=number,
        max_positions=plan.max_positions,
        facts=dict(plan.facts),
    )
    _check(graph)
    return graph


def _embedding(plan: Decoder) -> Block:
    """Token table, then what a family adds to it: positions, projection, scale, norm, dropout; writes stream ``y``."""
    width = Axis(HIDDEN, f"{HIDDEN}@embedding") if plan.embedding_width else H
    steps = {
        "embedding": True,
        "embedding.project": plan.embedding_width > 0,
        "embedding.scale": plan.embedding_scaled,
        "embedding.sum": plan.positions > 0,
        "embedding.norm": plan.embedding_norm != "",
        "embedding.dropout": plan.embedding_dropout,
    }
    wanted = [step for step, on in steps.items() if on]
    out = dict.fromkeys(wanted, "") | {wanted[-1]: "y"}
    builder = BlockBuilder("embedding", "tokens")
    stream = Tensor(out["embedding"] or "embedding", (B, Q, width))
    builder.ops.append(Lookup("embedding", Weight(TABLE, (V, width), "high"), stream))
    for step in wanted[1:]:
        name = out[step] or step
        if step == "embedding.project":
            stream = builder.linear(step, stream, (width,), (H,), format="high", out=name)
        elif step == "embedding.scale":
            stream = builder.pointwise(step, (stream,), Tensor(name, STREAM))
        elif step == "embedding.sum":
            rows = Tensor("embedding.position", STREAM)
            table = Weight("embedding.position.table", (axis(POSITIONS), H), "high")
            builder.ops.append(Lookup("embedding.position", table, rows))
            stream = builder.add(step, (stream, rows), name)
        elif step == "embedding.norm":
            stream = builder.norm(step, stream, plan.embedding_norm, out=name)
        else:
            stream = builder.dropout(step, stream, name)
    return builder.block()


def _output(plan: Decoder) -> Block:
    """Final norm, logits, and what follows them: the loss in training, the draw of a token in serving."""
    builder = BlockBuilder("output")
    _head(builder, builder.x, plan, tied=TABLE if plan.tied else "", draw=True)
    return builder.block("output")


def _head(builder: BlockBuilder, stream: Tensor, plan: Decoder, *, tied: str, draw: bool) -> None:
    width = H
    if plan.final_norm:
        stream = builder.norm("output.norm", stream, plan.final_norm)
    if plan.embedding_width:
        width = Axis(HIDDEN, f"{HIDDEN}@embedding")
        stream = builder.linear("output.project", stream, (H,), (width,), format="high")
    logits = builder.linear("output", stream, (width,), (V,), bias=plan.head_bias, format="high", tied=tied)
    if plan.logits_scaled:
        logits = builder.pointwise("output.scale", (logits,), Tensor("output.scale", logits.axes))
    if plan.logits_capped:
        capped = Tensor("output.cap", logits.axes)
        logits = builder.pointwise("output.cap", (logits,), capped, flops=8, saved=(capped,))
    builder.ops.append(Loss("loss", logits, Tensor("loss.probabilities", logits.axes, "wide")))
    if draw:
        builder.ops.append(Sampling("sampling", logits))


def _mtp(plan: Decoder) -> Block:
    """One multi-token-prediction module: the stream and the next token's embedding, joined, through one more layer.

    The table and the output matrix are the main model's. Source: DeepSeek-V3, arXiv:2412.19437, section 2.2.
    """
    builder = BlockBuilder("mtp")
    rows = Tensor("mtp.embedding", STREAM)
    builder.ops.append(Lookup("mtp.embedding", Weight("mtp.table", (V, H), "high", tied=TABLE), rows))
    left = builder.norm("mtp.hidden_norm", builder.x, plan.final_norm)
    right = builder.norm("mtp.embedding_norm", rows, plan.final_norm)
    wide = Axis(HIDDEN, f"{HIDDEN}@mtp")
    joined = builder.pointwise("mtp.joined", (left, right), Tensor("mtp.joined", (B, Q, wide)), flops=0)
    stream = builder.layer(plan.layers[-1], builder.linear("mtp.project", joined, (wide,), (H,)))
    _head(builder, stream, plan, tied=HEAD, draw=False)
    return builder.block()


def _check(graph: ModelGraph) -> None:
    """Every trained tensor has known extents (a family that forgot a size is a bug, found here)."""
    for block in (*(b for b, _ in graph.parts()), *graph.extras.values()):
        for weight in block.weights():
            for part in weight.axes:
                if part.size not in graph.sizes:
                    raise KeyError(f"{graph.architecture}: {block.name}.{weight.name} has no size {part.size!r}")
