"""A prediction explained as plain text: the tree, each line with its time, share and binding resource.

Floor: study. Plain text; the face adds colour.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..algebra.units import format_si
from ..records.prediction import Answer, TreeNode


def explain_text(answer: Answer, depth: int = 4) -> str:
    """Every tree of an answer."""
    blocks = []
    for name, root in answer.trees.items():
        lines = [f"{name}: {format_si(root.seconds, 's')}"]
        lines += list(tree_lines(root, depth))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def tree_lines(node: TreeNode, depth: int, level: int = 0) -> Iterator[str]:
    """One line a node, two more for a leaf's formula and inputs."""
    indent = "  " * level
    times = f"{node.times:g} × " if node.times not in (0.0, 1.0) else ""
    chosen = f" [{node.chosen}]" if node.chosen else ""
    yield (
        f"{indent}{node.name}{chosen}: {times}{format_si(node.seconds, 's')}, {node.share:.1%}, "
        f"bound by {node.bound_by or 'nothing'}"
    )
    if not node.children and node.text:
        yield f"{indent}    {node.text}"
        for name, (expression, value) in node.inputs.items():
            yield f"{indent}    {name} = {shortened(expression)} = {value:.6g}"
    if level < depth:
        for child in node.children:
            yield from tree_lines(child, depth, level + 1)


def shortened(expression: str, limit: int = 160) -> str:
    """A long expression cut for reading; ``--json`` has it whole."""
    return expression if len(expression) <= limit else expression[: limit - 1] + "…"
