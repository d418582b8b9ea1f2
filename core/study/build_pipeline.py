"""Micro-batches through the stages of a pipeline: the part of a training step that is not once a step.

Floor: study. Imports sympy; only imported when a program is built.

A step takes the period of the slowest stage for each micro-batch, and beyond that what its schedule makes a pipeline
wait. A schedule whose backward passes are whole waits for one micro-batch to go through all stages (or so much of it
as the parts of a device are of all it holds); one that makes weight gradients in passes of their own states its bubble
as a formula of what an even stage takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy

from ..algebra.cost import Exposed, Node, Pipelined, Repeat, Sequence, Waiting
from ..algebra.symbols import symbol
from ..model.axes import BATCH, HIDDEN, QUERY, Tensor, axis
from ..model.blocks import BlockCost, Setting
from ..model.collectives import collective_node
from ..model.graph import Block
from ..model.phase import Phase, elements, stored_layout
from ..model.pricing import EXPOSED
from ..model.stages import Stage, whole_model
from ..model.work import Collective
from .build import stage_atoms, stage_degree, stage_node
from .plan import Plan

if TYPE_CHECKING:
    from sympy import Expr


def boundary(plan: Plan, setting: Setting, phase: Phase) -> Collective:
    """What one stage hands to the next: the residual stream as it is stored."""
    stream = Tensor("stream", (axis(BATCH), axis(QUERY), axis(HIDDEN)))
    layout = stored_layout(stream, setting.rules, setting.mesh)
    return Collective(
        "send", "stream", "stage boundary", "forward", stage_atoms(plan, setting.mesh),
        elements(stream, layout, setting.mesh, phase),
    )  # fmt: skip


def pipeline(
    plan: Plan, setting: Setting, phase: Phase, embedding: BlockCost, output: BlockCost,
    costs: dict[Block, BlockCost], stages: tuple[Stage, ...],
) -> Node:  # fmt: skip
    """All micro-batches of a step, forward and backward."""
    mesh, schedule = setting.mesh, plan.schedule
    degree, chunks = stage_degree(plan, mesh), sympy.Integer(schedule.chunks if schedule else 1)
    send = collective_node(boundary(plan, setting, phase), mesh, setting.network, setting.family, phase.name)
    hop = Repeat("to and from the next stage", sympy.Integer(2), send)
    passes = {id(cost): _pass(cost) for cost in (embedding, output, *costs.values())}
    # Two parts that lie on the same device one after the other have no boundary between them.
    crossed = degree * chunks - (2 if schedule is not None and schedule.returns else 1)

    def pick(cost: BlockCost) -> Node:
        return passes[id(cost)]

    def through(name: str, part: Callable[[BlockCost], Node | None], over: Node | None) -> Node:
        """One micro-batch through all stages."""
        blocks: list[tuple[Expr | None, BlockCost]] = [(None, embedding)]
        blocks += [(count, costs[block]) for block, count in whole_model(plan.graph)]
        nodes: list[Node] = []
        for count, cost in (*blocks, (None, output)):
            node = part(cost)
            if node is not None:
                nodes.append(node if count is None else Repeat(f"{cost.block.name} layers", count, node))
        if over is not None:
            nodes.append(Repeat("stage boundaries", crossed, over))
        return Sequence(name, tuple(nodes))

    hops = (hop if chunks == 1 else Repeat("boundaries of its chunks", chunks, hop),)
    periods = tuple(_period(stage_node(stage, costs, embedding, output, pick), hops) for stage in stages)
    count = symbol("micro_batches")
    if schedule is not None and schedule.bubble is not None:
        halves = {
            "forward": through("forward passes", lambda c: c.forward, send),
            "input": through("gradients of activations", lambda c: c.inputs, send),
            "weight": through("gradients of weights", lambda c: c.gradients, None),
        }
        mean: dict[str, Node] = {way: Repeat(f"{n.name}, mean stage", 1 / degree, n) for way, n in halves.items()}
        filling: Node = Waiting("the pipeline waits", schedule.bubble, mean, {"stages": degree})
        return Pipelined("micro-batches through the pipeline", count + 1, filling, periods)
    fill = through("one micro-batch through all stages", pick, hop)
    # With v chunks a device the last one starts after 1/v of a micro-batch: so much of the fill is waited for, and
    # the rest of the first micro-batch is work like any other.
    filling = fill if chunks == 1 else Repeat("filling the pipeline", 1 / chunks, fill)
    return Pipelined("micro-batches through the pipeline", count + 1 - 1 / chunks, filling, periods)


def _pass(cost: BlockCost) -> Node:
    """Forward and backward of one block for one micro-batch."""
    parts = (cost.forward,) if cost.backward is None else (cost.forward, cost.backward)
    return Sequence(cost.block.name, parts)


def _period(busy: Sequence, hops: tuple[Node, ...]) -> Node:
    """A micro-batch on one stage; what it hands on travels beside the next one's computation, as it can."""
    return Sequence(busy.name, (*busy.parts, *(Exposed("boundaries, not hidden", hop, busy, EXPOSED) for hop in hops)))
