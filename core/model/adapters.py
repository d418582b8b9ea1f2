"""Low-rank adapters beside frozen weights: a model's graph rewritten for parameter-efficient fine-tuning.

Floor: model. Pure data. A layer y = x·W becomes y = x·W + (x·A)·B, with W and every other weight of the model frozen
and A and B, of rank r, trained. What follows is the law's: a frozen weight has no gradient, no optimizer state and no
update, and its input is not kept for its sake; where tensor parallelism splits W by its outputs it splits B, where it
splits W by its inputs it splits A and leaves a partial sum of width r.

Dropout on the adapter's input is not modelled. Gradients are computed down to the embedding's output, though nothing
below the first adapter needs them: one norm, and the input gradients of the first layer's first products, too much.

Source: Hu et al., arXiv:2106.09685 (LoRA), section 4.1; Dettmers et al., arXiv:2305.14314 (QLoRA), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from attrs import evolve, fields

from ..errors import UserError, unknown
from .axes import EXPERTS, FFN, HEAD_DIM, HEADS, KV_HEADS, LATENT, Tensor, Weight, axis
from .graph import Block, ModelGraph
from .ops import Contraction, Op, Pointwise

RANK = axis(LATENT, "lora")
"""The axis between the two matrices of an adapter: no strategy splits it."""

PARTS = ("attention", "mlp", "experts")
"""Kinds of linear layers, by what their weights have axes of; embeddings, routers and the output layer are none."""

ALL = "all"
"""Every layer of one of the ``PARTS``."""

_T = TypeVar("_T", bound=Op)


def part_of(op: Contraction) -> str:
    """Which of the ``PARTS`` a linear layer belongs to; empty for none.

    Up-projections that latent attention does within itself are no linear layers of the graph: they have no adapters.
    """
    roles = set(op.weight.roles)
    if EXPERTS in roles:
        return "experts"
    if FFN in roles:
        return "mlp"
    return "attention" if roles & {HEADS, KV_HEADS, HEAD_DIM, LATENT} else ""


def is_target(op: Op, targets: tuple[str, ...]) -> bool:
    """Whether ``targets`` name a layer: by its part, its name (``attention.q``), or the last word of that (``q``)."""
    if not isinstance(op, Contraction):
        return False
    part = part_of(op)
    names = {part, op.name, op.name.rpartition(".")[2]} | ({ALL} if part else set())
    return bool(names & set(targets))


def with_adapters(graph: ModelGraph, rank: int, targets: tuple[str, ...] = (ALL,)) -> ModelGraph:
    """The model with every weight frozen and a trained adapter of ``rank`` beside each layer that ``targets`` name.

    The rank is a size of the graph like any other (``latent@lora``): models that differ in it alone share a formula.
    Adapters are kept in the format of weights that quantisation leaves alone.
    Errors: UserError for a rank below 1 or above the hidden size, and for a target that no layer is called.
    """
    hidden = graph.sizes["hidden"]
    if not 1 <= rank <= hidden:
        raise UserError(
            f"the rank of an adapter is between 1 and the hidden size ({hidden} in {graph.name}), not {rank}"
        )
    ops = [op for block in _blocks(graph) for op in block.ops]
    for target in targets:
        if not any(is_target(op, (target,)) for op in ops):
            layers = dict.fromkeys(op.name for op in ops if isinstance(op, Contraction))
            parts = dict.fromkeys(part_of(op) for op in ops if isinstance(op, Contraction) and part_of(op))
            raise unknown(f"layer of {graph.name} for adapters", target, (ALL, *parts, *layers))

    def adapted(block: Block) -> Block:
        found: list[Op] = []
        for op in block.ops:
            still = with_weights(op, lambda weight: evolve(weight, frozen=True))
            if isinstance(still, Contraction) and is_target(op, targets):
                found += _adapter(still)
            else:
                found.append(still)
        return evolve(block, ops=tuple(found))

    return evolve(with_blocks(graph, adapted), sizes={**graph.sizes, RANK.size: rank})


def stored_apart(graph: ModelGraph, expanded: bool) -> ModelGraph:
    """The graph whose frozen linear layers are kept in a format of their own (role ``frozen``).

    ``expanded``: products can't read it, so that each needs a pass that writes the weight in the format they read.
    Norms, embeddings, routers and the output layer stay as they are.
    """

    def stored(weight: Weight) -> Weight:
        if not weight.frozen or weight.format not in ("weight", "expert"):
            return weight
        return evolve(weight, stored="frozen") if expanded else evolve(weight, format="frozen")

    def of(block: Block) -> Block:
        return evolve(block, ops=tuple(with_weights(op, stored) for op in block.ops))

    return with_blocks(graph, of)


def with_blocks(graph: ModelGraph, change: Callable[[Block], Block]) -> ModelGraph:
    """The graph with ``change`` made to every block."""
    return evolve(
        graph,
        embedding=change(graph.embedding),
        runs=tuple(evolve(run, cycle=tuple(change(block) for block in run.cycle)) for run in graph.runs),
        output=change(graph.output),
        extras={name: change(block) for name, block in graph.extras.items()},
    )


def with_weights(op: _T, change: Callable[[Weight], Weight]) -> _T:
    """The operation with ``change`` made to every weight among its fields."""

    def of(value: Any) -> Any:
        if isinstance(value, Weight):
            return change(value)
        return tuple(of(part) for part in value) if isinstance(value, tuple) else value

    changed = {a.name: of(getattr(op, a.name)) for a in fields(type(op))}
    return evolve(op, **{name: value for name, value in changed.items() if value != getattr(op, name)})


def _blocks(graph: ModelGraph) -> Iterator[Block]:
    yield from (block for block, _ in graph.parts())
    yield from graph.extras.values()


def _adapter(op: Contraction) -> list[Op]:
    """A layer with its adapter: its own product, the two narrow ones, and their scaled sum, called as before."""
    shared = tuple(a for a in op.weight.axes if a in op.x.axes)
    summed = [a for a in shared if a not in op.out.axes]
    both = tuple(a for a in shared if a in op.out.axes)  # experts: each has an adapter of its own
    new = tuple(a for a in op.weight.axes if a not in shared)
    down, up, total = (f"{op.name}.{name}" for name in ("lora_a", "lora_b", "lora_sum"))
    narrow = Tensor(down, (*(a for a in op.x.axes if a not in summed), RANK))
    own, added = Tensor(f"{op.name}.frozen", op.out.axes, op.out.format), Tensor(up, op.out.axes, op.out.format)
    kind = type(op)
    return [
        evolve(op, out=own),
        kind(down, op.x, Weight(f"{down}.weight", (*shared, RANK), "high"), narrow),
        kind(up, narrow, Weight(f"{up}.weight", (*both, RANK, *new), "high"), added),
        Pointwise(total, (own, added), (op.out,), 2, rounds=2),  # scaled by alpha / r, and added
    ]
