"""Values put into the description of a cost tree: seconds, shares and what binds each node.

Floor: study. Plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records.prediction import TreeNode
from .program import Program


def valued_tree(program: Program, root: int, values: Mapping[str, float], parameters: Mapping[str, float]) -> TreeNode:
    """The tree at node number ``root`` with the values of one evaluation.

    A pipelined node shows its fill and the slowest of its periods with how often each runs; an overlap and a choice
    count only what decides them, and what runs beside other work counts as far as it shows.
    """
    total = float(values[f"t{root}"])

    def visit(number: int, times: float) -> TreeNode:
        node = program.nodes[number]
        seconds = float(values[f"t{number}"])
        children, chosen = [], ""
        ids = node["children"]
        if node["kind"] == "repeat":
            children = [visit(ids[0], times * float(values[f"t{number}.count"]))]
        elif node["kind"] == "pipelined":
            count = float(values[f"t{number}.count"])
            slowest = max(ids[1:], key=lambda i: float(values[f"t{i}"]))
            if node["steady"]:
                children = [visit(slowest, times * count)]
            else:
                children = [visit(ids[0], times)]
                if count > 1:
                    children.append(visit(slowest, times * (count - 1)))
        elif node["kind"] == "choice":
            best = min(range(len(ids)), key=lambda i: float(values[f"t{ids[i]}"]))
            chosen = node["variants"][best]
            children = [visit(ids[best], times)]
        elif node["kind"] == "exposed":  # what it runs behind counts elsewhere
            whole = float(values[f"t{ids[0]}"])
            children = [visit(ids[0], times * seconds / whole if whole > 0 else 0.0)]
        elif node["kind"] == "waiting":  # idle as long as this; what it waits for counts where it is done
            whole = sum(float(values[f"t{i}"]) for i in ids)
            children = [visit(i, times * seconds / whole if whole > 0 else 0.0) for i in ids]
        elif node["kind"] == "overlap":
            longest = max(ids, key=lambda i: float(values[f"t{i}"]))
            children = [visit(i, times if i == longest else 0.0) for i in ids]
        else:
            children = [visit(i, times) for i in ids]
        # What is hidden is shown, and takes no time.
        hidden = times == 0 or node["kind"] in ("overlap", "exposed")
        children = [
            child
            for child in children
            if (child.seconds > 0 or (child.kind == "exposed" and child.children)) and (child.times > 0 or hidden)
        ]
        terms = {t: float(values[f"t{number}:{t}"]) for t in node.get("terms", ())}
        binding = max(terms, key=lambda t: terms[t]) if terms else _binding(children)
        return TreeNode(
            node["name"], node["kind"], seconds, times, times * seconds / total if total > 0 else 0.0, binding,
            node.get("formula", ""), node.get("text", ""),
            {name: (text, float(values[f"t{number}.{name}"])) for name, text in node.get("inputs", {}).items()},
            {name: float(parameters[s]) for name, s in node.get("parameters", {}).items() if s in parameters},
            terms, chosen, node.get("tags", {}), tuple(children), node.get("slot", ""),
        )  # fmt: skip

    return visit(root, 1.0)


def _binding(children: list[TreeNode]) -> str:
    """What binds the largest part of the time below a node."""
    totals: dict[str, float] = {}

    def collect(node: TreeNode) -> None:
        if node.children:
            for child in node.children:
                collect(child)
        elif node.bound_by:
            totals[node.bound_by] = totals.get(node.bound_by, 0.0) + node.seconds * node.times

    for child in children:
        collect(child)
    return max(totals, key=lambda t: totals[t]) if totals else ""


def leaves(node: TreeNode) -> list[TreeNode]:
    """All leaves below a node."""
    if not node.children:
        return [node]
    return [leaf for child in node.children for leaf in leaves(child)]
