"""Layers on pipeline stages: how many of each kind a stage holds, symbolically, whatever the number of layers.

Floor: model. Layers are dealt out in blocks with remainder: of L layers on p stages the first L mod p stages hold one
more. A model is a few runs of layers, so a stage's content is a closed form in its number, and the fullest or slowest
stage is one of a few candidates: the first, the last, and for each run the stage where it begins and the one after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy
from attrs import frozen

from ..algebra.functions import functions
from ..algebra.symbols import symbol
from .graph import Block, ModelGraph

if TYPE_CHECKING:
    from sympy import Expr


@frozen
class Stage:
    """One stage: its number, whether it holds the embedding or the output (1 or 0), and layers of each block kind."""

    label: str
    index: Expr
    embedding: Expr
    output: Expr
    layers: tuple[tuple[Block, Expr], ...]


def layer_total(graph: ModelGraph) -> Expr:
    """All layers of the model."""
    return sympy.Add(*(symbol(run.layers) for run in graph.runs))


def whole_model(graph: ModelGraph) -> list[tuple[Block, Expr]]:
    """Each block kind with its number of layers in the model (embedding and output blocks left out)."""
    return [(block, symbol(run.layers) * count / len(run.cycle)) for run in graph.runs for block, count in run.kinds()]


def candidate_stages(graph: ModelGraph, stages: Expr) -> list[Stage]:
    """Stages of which one is the slowest and one the fullest.

    Sizes never grow along the stages, so within a run the first stage wholly inside it is its fullest.
    """
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
        split = larger * (quotient + 1)
        index = f.where(split - begin, f.fdiv(begin, quotient + 1), larger + f.fdiv(begin - split, f.fmax(quotient, 1)))
        for label, at in ((f"stage where {run.layers} end", index), (f"stage after {run.layers} end", index + 1)):
            at = f.fmin(at, stages - 1)
            start = at * quotient + f.fmin(at, larger)
            stop = (at + 1) * quotient + f.fmin(at + 1, larger)
            found.append(_stage(graph, label, at, stages, start, stop))
    return found


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
