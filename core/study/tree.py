"""Values put into the description of a cost tree: seconds, shares and what binds each node.

Floor: study. Plain numbers. What shows of a tree is found at once, since intervals follow from its leaves; the
description of every node, which only a reader of the tree needs, is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ..records.prediction import TreeNode
from .program import Program


class Node(Protocol):
    """What sums over a tree need of a node, shown or described. ``children``: nodes of the same kind."""

    @property
    def name(self) -> str: ...
    @property
    def slot(self) -> str: ...
    @property
    def share(self) -> float: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def inputs(self) -> Mapping[str, tuple[str, float]]: ...
    @property
    def children(self) -> tuple[Any, ...]: ...


AnyNode = TypeVar("AnyNode", bound=Node)


class Shown:
    """One node of a tree in one evaluation: whether and how often it runs, not yet described.

    ``seconds``, ``times``, ``share``, ``chosen``, ``children`` and all that follows from the node as in ``TreeNode``.
    """

    __slots__ = ("_node", "_number", "_values", "children", "chosen", "seconds", "share", "times")

    def __init__(
        self, node: Mapping[str, Any], number: int, values: Mapping[str, float], seconds: float, times: float,
        share: float, chosen: str, children: tuple[Shown, ...],
    ) -> None:  # fmt: skip
        self._node, self._number, self._values = node, number, values
        self.seconds, self.times, self.share = seconds, times, share
        self.chosen, self.children = chosen, children

    @property
    def name(self) -> str:
        """As people call it."""
        return str(self._node["name"])

    @property
    def slot(self) -> str:
        """The kind of kernel whose measurements calibrate a leaf."""
        return self._node.get("slot", "")  # type: ignore[no-any-return]

    @property
    def tags(self) -> Mapping[str, str]:
        """What kind of work it is."""
        return self._node.get("tags", {})  # type: ignore[no-any-return]

    @property
    def inputs(self) -> Mapping[str, tuple[str, float]]:
        """Input of a leaf's formula → the expression behind it and its value."""
        values, number = self._values, self._number
        named = self._node.get("inputs", {}).items()
        return {name: (text, float(values[f"t{number}.{name}"])) for name, text in named}

    @property
    def terms(self) -> dict[str, float]:
        """What a leaf could be bound by → the seconds that it would take [s]."""
        return {term: float(self._values[f"t{self._number}:{term}"]) for term in self._node.get("terms", ())}

    @property
    def bound_by(self) -> str:
        """The longest term of a leaf; of another node what binds the largest part of the time below it."""
        terms = self.terms
        if terms:
            return max(terms, key=lambda t: terms[t])
        totals: dict[str, float] = {}
        for leaf in leaves(self) if self.children else ():
            if bound := leaf.bound_by:
                totals[bound] = totals.get(bound, 0.0) + leaf.seconds * leaf.times
        return max(totals, key=lambda t: totals[t]) if totals else ""

    def described(self, parameters: Mapping[str, float]) -> TreeNode:
        """The node and everything below it, as people read it; ``parameters``: symbol → value."""
        node = self._node
        children = tuple(child.described(parameters) for child in self.children)
        return TreeNode(
            node["name"], node["kind"], self.seconds, self.times, self.share, self.bound_by, node.get("formula", ""),
            node.get("text", ""), self.inputs,
            {name: float(parameters[s]) for name, s in node.get("parameters", {}).items() if s in parameters},
            self.terms, self.chosen, self.tags, children, self.slot,
        )  # fmt: skip


class Trees(Mapping[str, TreeNode]):
    """Trees by name, each described when it is first asked for: most callers read figures alone."""

    def __init__(self, shown: Mapping[str, Shown], parameters: Mapping[str, float]) -> None:
        self._shown, self._parameters = shown, parameters
        self._described: dict[str, TreeNode] = {}

    def __getitem__(self, name: str) -> TreeNode:
        if name not in self._described:
            self._described[name] = self._shown[name].described(self._parameters)
        return self._described[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __repr__(self) -> str:
        return f"<trees {', '.join(self._shown)}>"


def shown_tree(program: Program, root: int, values: Mapping[str, float]) -> Shown:
    """The tree at node number ``root`` as one evaluation has it.

    A pipelined node shows its fill and the slowest of its periods with how often each runs; an overlap and a choice
    count only what decides them, and what runs beside other work counts as far as it shows.
    """
    nodes = program.nodes
    seconds = [float(values[name]) for name in program.node_outputs]
    total = seconds[root]

    def visit(number: int, times: float) -> Shown:
        node = nodes[number]
        kind, ids, spent = node["kind"], node["children"], seconds[number]
        chosen = ""
        if kind == "repeat":
            parts = [(ids[0], times * float(values[f"t{number}.count"]))]
        elif kind == "pipelined":
            count = float(values[f"t{number}.count"])
            slowest = max(ids[1:], key=seconds.__getitem__)
            if node["steady"]:
                parts = [(slowest, times * count)]
            else:
                parts = [(ids[0], times)]
                if count > 1:
                    parts.append((slowest, times * (count - 1)))
        elif kind == "choice":
            best = min(range(len(ids)), key=lambda i: seconds[ids[i]])
            chosen = node["variants"][best]
            parts = [(ids[best], times)]
        elif kind == "exposed":  # what it runs behind counts elsewhere
            whole = seconds[ids[0]]
            parts = [(ids[0], times * spent / whole if whole > 0 else 0.0)]
        elif kind == "waiting":  # idle as long as this; what it waits for counts where it is done
            whole = sum(seconds[i] for i in ids)
            parts = [(i, times * spent / whole if whole > 0 else 0.0) for i in ids]
        elif kind == "overlap":
            longest = max(ids, key=seconds.__getitem__)
            parts = [(i, times if i == longest else 0.0) for i in ids]
        else:
            parts = [(i, times) for i in ids]
        # What is hidden is shown, and takes no time.
        hidden = times == 0 or kind in ("overlap", "exposed")
        children = []
        for part, runs in parts:
            if (runs > 0 or hidden) and (seconds[part] > 0 or nodes[part]["kind"] == "exposed"):
                child = visit(part, runs)
                if child.seconds > 0 or child.children:
                    children.append(child)
        share = times * spent / total if total > 0 else 0.0
        return Shown(node, number, values, spent, times, share, chosen, tuple(children))

    return visit(root, 1.0)


def leaves(node: AnyNode) -> list[AnyNode]:
    """All leaves below a node."""
    found: list[AnyNode] = []

    def collect(below: AnyNode) -> None:
        if below.children:
            for child in below.children:
                collect(child)
        else:
            found.append(below)

    collect(node)
    return found
