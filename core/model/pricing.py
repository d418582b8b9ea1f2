"""Work and collectives as cost trees: each kernel gets the formula of the machine's kernel family.

Floor: model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..algebra.cost import Choice, Exposed, Leaf, Node, Sequence
from ..algebra.formula import Formula
from ..algebra.symbols import symbol
from .collectives import Network, collective_node
from .interfaces.kernels import ENGINE_OF_SLOT, ENGINES_APART, KernelFamily, parameter_symbol
from .mesh import Mesh
from .work import Alternatives, Collective, Step, Work, fused

if TYPE_CHECKING:
    from sympy import Expr

EXPOSED, LAUNCH_EXPOSED = "exposed_share", "launch_exposed"
"""The symbols of the share of what could be hidden that shows nevertheless: of transfers, and of launches."""

WAITED = "waited"
"""In place of kinds of work: transfers that run beside nothing."""

LAUNCHES = Formula(
    "launches",
    inputs={"launches": "1", "launch_time": "s"},
    parameters=(),
    build=lambda n: (n.launches * n.launch_time, {"host": n.launches * n.launch_time}),
    unit="s",
    source="defined here: time of the host to launch the kernels of so many operations",
)


def work_leaf(work: Work, family: KernelFamily, phase: str) -> Leaf:
    """One kernel."""
    priced = family.price(work)
    slot, parameters = priced.slot, dict(priced.parameters)
    if slot in ENGINE_OF_SLOT and work.engine in ENGINES_APART:
        apart = f"{slot}.{work.engine}"
        parameters = {p: parameter_symbol(p, apart) if s == parameter_symbol(p, slot) else s
                      for p, s in parameters.items()}  # fmt: skip
        slot = apart
    if work.unfused_by and "unfused_share" in parameters:
        parameters["unfused_share"] = work.unfused_by
    tags = {"phase": phase, "op": work.name, "direction": work.direction, "kind": work.kind}
    return Leaf(
        work.name, priced.formula, priced.inputs, parameters, tags=tags,
        factors=("time_factor", "attention_factor") if work.kind == "attention" else ("time_factor",),
        extra="kernel_overhead", slot=slot,
    )  # fmt: skip


def step_node(step: Step, family: KernelFamily, mesh: Mesh, network: Network, phase: str) -> Node:
    """One step of a placed block."""
    if isinstance(step, Work):
        return work_leaf(step, family, phase)
    if isinstance(step, Collective):
        return collective_node(step, mesh, network, family, phase)
    if isinstance(step, Alternatives):
        variants = {
            name: steps_node(name, works, family, mesh, network, phase) for name, works in step.variants.items()
        }
        return Choice(step.name, variants, tags={"phase": phase, "op": step.name, "direction": step.direction})
    raise TypeError(f"no price for a {type(step).__name__}")


def steps_node(
    name: str, steps: Iterable[Step], family: KernelFamily, mesh: Mesh, network: Network, phase: str
) -> Node:
    """Steps in order, neighbouring kernels joined where real ones are."""
    nodes = tuple(step_node(step, family, mesh, network, phase) for step in fused(steps))
    if len(nodes) == 1:
        return nodes[0]
    return Sequence(name, nodes, tags={"phase": phase})


def beside(name: str, device: Sequence, moved: Mapping[str, Sequence], phase: str, launched: Expr | None) -> Sequence:
    """A pass of a block over one device, with what runs beside it as far as it shows.

    ``moved``: kinds of work → transfers that run beside these ("gemm", "attention", several with spaces between them;
    "" for all of the pass, "weights" for all as well: those of its weights and their gradients; "waited" for none);
    ``launched``: operations of ``device`` whose kernels the host launches ahead of it; None where that is a graph.
    What runs beside the whole pass runs one after the other: it shares the links. Before the first block of a step
    nothing can hide its transfers; that one is not told apart.
    """
    tags = {"phase": phase}
    parts = list(device.parts)
    for kinds, transfers in moved.items():
        if kinds in ("", "weights"):
            continue
        works = tuple(n for n in device.parts if n.tags.get("kind") in kinds.split())
        behind = Sequence(kinds, works, tags=tags)
        parts += [Exposed("transfers, not hidden", transfers, behind, EXPOSED, tags=tags)] if works else transfers.parts
    whole = [moved[kinds] for kinds in ("", "weights") if kinds in moved]
    if whole:
        label = "weights, not hidden" if "" not in moved else "transfers, not hidden"
        transfers = whole[0] if len(whole) == 1 else Sequence("transfers", tuple(whole), tags=tags)
        parts.append(Exposed(label, transfers, device, EXPOSED, tags=tags))
    if launched is not None:
        launches = Leaf(
            "host", LAUNCHES, {"launches": launched, "launch_time": symbol("launch_time")},
            tags={**tags, "kind": "host"},
        )  # fmt: skip
        parts.append(Exposed("launches, not hidden", launches, device, LAUNCH_EXPOSED, tags=tags))
    return device if len(parts) == len(device.parts) else Sequence(name, tuple(parts), tags=tags)
