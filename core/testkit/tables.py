"""The derived tables of the documentation, as text: what follows from which layout.

Floor: testkit. ``docs/law.md`` holds what ``dense_table`` and ``expert_table`` return; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..algebra.symbols import symbol
from ..model.layout import Rules, Split, Store
from ..model.mesh import Dimension
from . import models
from .derivation import MESH, Derived, Found, derive, exact

if TYPE_CHECKING:
    from sympy import Expr

SPLITS = Rules((
    *(Split(role, "tp") for role in ("heads", "kv_heads", "ffn", "vocab")), Split("batch", "dp"), Split("query", "cp"),
))  # fmt: skip
STREAM = Rules((), (Store("stream", "query", "tp"),))
"""The residual stream stored split as well: sequence parallelism."""

ROWS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("qkv, up (forward)", ("forward",), ("attention.norm", "mlp.norm")),
    ("attention core (forward)", ("forward",), ("attention.k", "attention.v")),
    ("attention core (backward)", ("weight gradient", "input gradient"), ("attention.k", "attention.v")),
    ("attention output, down (forward)", ("forward",), ("attention.o", "mlp.down")),
    ("qkv, up (gradient of input)", ("input gradient",), ("attention.norm", "mlp.norm")),
    ("attention output, down (gradient of input)", ("input gradient",), ("d(attention.o)", "d(mlp.down)")),
    ("qkv, up (weight gradient)", ("weight gradient",), ("attention.norm", "mlp.norm")),
)
"""Row → directions and tensors of its collectives."""

GRADIENTS = (
    ("weights", ("attention.q.weight", "attention.o.weight", "mlp.up.weight", "mlp.down.weight")),
    ("norm gains, row-parallel biases", ("attention.norm.weight", "mlp.norm.weight", "mlp.down.bias")),
)
"""Row → weights whose gradients it speaks of."""


def dense_table() -> str:
    """A dense layer under tensor, context and data parallelism, without and with a split residual stream."""
    block, router = models.dense().runs[0].cycle[0], models.routed().runs[0].cycle[0]
    columns = [(derive(block, rules), derive(router, rules)) for rules in (SPLITS, SPLITS + STREAM)]
    lines = [
        "| operation | plain tensor parallel | with the residual stream split (sequence parallel) |",
        "| --- | --- | --- |",
    ]
    for row, directions, tensors in ROWS:
        cells = [_cell(found.collectives(directions=directions, tensors=tensors)) for found, _ in columns]
        lines.append(f"| {row} | {cells[0]} | {cells[1]} |")
    for row, weights in GRADIENTS:
        cells = [_sums(found, weights) for found, _ in columns]
        lines.append(f"| gradients of {row} | {cells[0]} | {cells[1]} |")
    cells = [_sums(found, ("moe.router.weight",)) for _, found in columns]
    lines.append(f"| gradients of a router | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def expert_table() -> str:
    """What routed experts need, by what they are split over."""
    block = models.routed().runs[0].cycle[0]
    plain = [rule for rule in SPLITS.splits if rule.over != "cp"]
    data = Rules(tuple(rule for rule in plain if rule.over == "dp"))
    experts = Rules((Split("experts", "ep"),))
    tp, dp, ep = Dimension("tp", "", 10), Dimension("dp", "", 30), Dimension("ep", "", 25, ("dp", "tp"))
    cases = (
        ("experts over data ranks", data + experts, (dp, ep)),
        ("each expert's width over tensor ranks", Rules(tuple(plain)), (tp, dp)),
        ("experts over data ranks, then tensor ranks", Rules(tuple(plain)) + experts, (tp, dp, ep)),
        ("the same with the residual stream split", Rules(tuple(plain)) + STREAM + experts, (tp, dp, ep)),
    )
    lines = [
        "| layout | before the experts | after the experts | gradients of expert weights |",
        "| --- | --- | --- | --- |",
    ]
    for name, rules, dimensions in cases:
        found = derive(block, rules, dimensions)
        forward = found.collectives(directions=("forward",))
        before = [f for f in forward if f.op in ("moe.dispatch", "moe.up")]
        after = [f for f in forward if f.tensor in ("moe.down", "moe.combine")]
        cells = [_cell(before, copies=True), _cell(after, copies=True), _sums(found, ("moe.up.weight",))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(found: Iterable[Found], *, copies: bool = False) -> str:
    """The collectives of a cell, each kind once."""
    texts = []
    for each in found:
        size = "token copies" if copies and each.kind != "all_reduce" else _size(each.elements)
        texts.append(f"{each.kind.replace('_', '-')} {size} over {', '.join(each.over)}")
    return "; then ".join(dict.fromkeys(texts)) or "none"


def _size(elements: Expr) -> str:
    """Elements in local symbols: b sequences of q tokens on this device, s in all, width h, local keys k."""
    import sympy

    b, s, h, cp = (symbol(name) for name in ("micro_batch", "sequence", "hidden", "cp"))
    k = symbol("kv_heads") * symbol("head_dim") / symbol("tp")
    known = {"b·q·h": b * s * h / cp, "b·s·h": b * s * h, "b·s·k": b * s * k}
    for text, size in known.items():
        if sympy.simplify(elements - size) == 0:
            return text
    return str(exact(elements))


def _sums(found: Derived, weights: tuple[str, ...]) -> str:
    """The dimensions over which gradients are partial sums: the same for all of ``weights``."""
    over = {found.gradients()[weight][1] for weight in weights}
    assert len(over) == 1, f"{weights} have different partial sums: {over}"
    order = [d.name for d in MESH]
    names = sorted(over.pop(), key=lambda a: (order.index(a.partition(".")[0]), a))
    return f"partial sums over {', '.join(names)}" if names else "none"
