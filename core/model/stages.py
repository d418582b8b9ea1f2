"""Layers on pipeline stages: how many of each kind a stage holds, symbolically, whatever the number of layers.

Floor: model. Layers are dealt out in blocks with remainder: of L layers on p stages the first L mod p stages hold one
more. A model is a few runs of layers, so a stage's content is a closed form in its number, and the fullest or slowest
stage is one of a few candidates: the first, the last, and for each run the stage where it begins and the one after it.
Where a schedule gives its first or last stage a number of layers of their own, the others share what is left in the
same way, and the first of those is a candidate too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy
from attrs import evolve, frozen

from ..algebra.functions import functions
from ..algebra.symbols import symbol
from .graph import Block, ModelGraph

if TYPE_CHECKING:
    from sympy import Expr

    from .interfaces.strategy import Schedule


@frozen
class Stage:
    """What a device of the pipeline holds for a micro-batch: its number, whether it has the embedding or the output
    (1 or 0), and layers of each block kind. ``copies``: stages on the device, of which a micro-batch goes through one;
    what is said is then their mean."""

    label: str
    index: Expr
    embedding: Expr
    output: Expr
    layers: tuple[tuple[Block, Expr], ...]
    copies: Expr = sympy.S.One


def layer_total(graph: ModelGraph) -> Expr:
    """All layers of the model."""
    return sympy.Add(*(symbol(run.layers) for run in graph.runs))


def whole_model(graph: ModelGraph) -> list[tuple[Block, Expr]]:
    """Each block kind with its number of layers in the model (embedding and output blocks left out)."""
    return [(block, symbol(run.layers) * count / len(run.cycle)) for run in graph.runs for block, count in run.kinds()]


def candidate_stages(graph: ModelGraph, stages: Expr, schedule: Schedule | None = None) -> list[Stage]:
    """Stages of which one is the slowest and one the fullest.

    Sizes never grow along the stages, so within a run the first stage wholly inside it is its fullest.
    """
    f = functions()
    if schedule is not None and any(schedule.ends):
        return _with_ends(graph, stages, *schedule.ends)
    found = _even(graph, stages)
    if schedule is not None and schedule.returns:
        return [evolve(stage, output=f.eq(stage.index, 0)) for stage in found]
    if schedule is not None and schedule.opposite:
        return [_with_opposite(graph, stage, stages) for stage in found]
    return found


def _even(graph: ModelGraph, stages: Expr) -> list[Stage]:
    f = functions()
    total = layer_total(graph)
    quotient = f.fdiv(total, stages)
    larger = total - stages * quotient  # stages that hold one layer more
    found = [
        _stage(graph, "first stage", sympy.Integer(0), stages, sympy.Integer(0), f.cdiv(total, stages)),
        _stage(graph, "last stage", stages - 1, stages, total - quotient, total),
    ]
    begin: Expr = sympy.Integer(0)
    for run in graph.runs[:-1]:
        begin = begin + symbol(run.layers)
        index = _dealt(begin, quotient, larger)
        for label, at in ((f"stage where {run.layers} end", index), (f"stage after {run.layers} end", index + 1)):
            at = f.fmin(at, stages - 1)
            start, stop = (_before(n, quotient, larger) for n in (at, at + 1))
            found.append(_stage(graph, label, at, stages, start, stop))
    return found


def _with_opposite(graph: ModelGraph, stage: Stage, stages: Expr) -> Stage:
    """A device that holds the stage opposite to its own as well: the mean of both."""
    f = functions()
    total = layer_total(graph)
    quotient = f.fdiv(total, stages)
    at = stages - 1 - stage.index
    start, stop = (_before(n, quotient, total - stages * quotient) for n in (at, at + 1))
    other = _stage(graph, "", at, stages, start, stop)
    layers = tuple((block, (n + m) / 2) for (block, n), (_, m) in zip(stage.layers, other.layers, strict=True))
    return Stage(
        f"{stage.label} and its opposite", stage.index, (stage.embedding + other.embedding) / 2,
        (stage.output + other.output) / 2, layers, f.where(stages - 1, 2, 1),
    )  # fmt: skip


def _with_ends(graph: ModelGraph, stages: Expr, first: int, last: int) -> list[Stage]:
    """Stages of which the first or the last (or both) hold a given number of layers."""
    f = functions()
    total = layer_total(graph)
    before = 1 if first else 0
    inner = stages - before - (1 if last else 0)
    quotient = f.fdiv(total - first - last, f.fmax(inner, 1))
    larger = total - first - last - inner * quotient

    # Of two stages the last has what the first one leaves.
    tail = f.where(stages - 2, total - last, first) if first else total - last

    def start(at: Expr) -> Expr:
        inside = first + _before(at - before, quotient, larger)
        return f.where(at, f.where(stages - 1 - at, inside, tail) if last else inside, 0)

    def stage(label: str, at: Expr) -> Stage:
        stop = f.where(stages - 1 - at, start(at + 1), total)
        return _stage(graph, label, at, stages, start(at), stop)

    found = [stage("first stage", sympy.Integer(0)), stage("last stage", stages - 1)]
    found.append(stage("first stage between", f.fmin(before, stages - 1)))
    begin: Expr = sympy.Integer(0)
    for run in graph.runs[:-1]:
        begin = begin + symbol(run.layers)
        at = f.fmin(_dealt(begin - first, quotient, larger) + before, stages - 1)
        for label, index in ((f"stage where {run.layers} end", at), (f"stage after {run.layers} end", at + 1)):
            found.append(stage(label, f.fmax(0, f.fmin(index, stages - 1))))
    return found


def _before(stage: Expr, quotient: Expr, larger: Expr) -> Expr:
    """Layers on the stages before one, which hold ``quotient`` each, the first ``larger`` of them one more."""
    return stage * quotient + functions().fmin(stage, larger)


def _dealt(layer: Expr, quotient: Expr, larger: Expr) -> Expr:
    """The stage on which a layer lies, of stages that hold ``quotient``, the first ``larger`` of them one more."""
    f = functions()
    split = larger * (quotient + 1)
    after = larger + f.fdiv(layer - split, f.fmax(quotient, 1))
    return f.where(split - layer, f.fdiv(layer, quotient + 1), after)


def _stage(graph: ModelGraph, label: str, index: Expr, stages: Expr, start: Expr, stop: Expr) -> Stage:
    f = functions()
    layers: list[tuple[Block, Expr]] = []
    begin: Expr = sympy.Integer(0)
    for run in graph.runs:
        end = begin + symbol(run.layers)
        inside: Expr = stop - start if len(graph.runs) == 1 else f.fmax(0, f.fmin(end, stop) - f.fmax(begin, start))
        # Within a run kinds come in cycles; a stage holds its share of each (exact where whole cycles fit).
        layers.extend((block, inside * count / len(run.cycle)) for block, count in run.kinds())
        begin = end
    return Stage(label, index, f.eq(index, 0), f.eq(index, stages - 1), tuple(layers))


def kinds(stages: Sequence[Stage]) -> list[Block]:
    """Every block kind that some stage holds, once."""
    return list(dict.fromkeys(block for stage in stages for block, _ in stage.layers))
