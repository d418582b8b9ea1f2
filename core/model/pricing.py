"""Work and collectives as cost trees: each kernel gets the formula of the machine's kernel family.

Floor: model.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..algebra.cost import Choice, Leaf, Node, Sequence
from .collectives import Network, collective_node
from .interfaces.kernels import ENGINE_OF_SLOT, ENGINES_APART, KernelFamily, parameter_symbol
from .mesh import Mesh
from .work import Alternatives, Collective, Step, Work, fused


def work_leaf(work: Work, family: KernelFamily, phase: str) -> Leaf:
    """One kernel."""
    priced = family.price(work)
    slot, parameters = priced.slot, dict(priced.parameters)
    if slot in ENGINE_OF_SLOT and work.engine in ENGINES_APART:
        apart = f"{slot}.{work.engine}"
        parameters = {p: parameter_symbol(p, apart) if s == parameter_symbol(p, slot) else s
                      for p, s in parameters.items()}  # fmt: skip
        slot = apart
    tags = {"phase": phase, "op": work.name, "direction": work.direction, "kind": work.kind}
    return Leaf(
        work.name, priced.formula, priced.inputs, parameters, tags=tags,
        factor="time_factor", extra="kernel_overhead", slot=slot,
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
