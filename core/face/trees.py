"""Cost trees on a page: for each node its time, share and what binds it; for each leaf its formula and inputs.

Floor: face. rich only on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import evolve

from ..algebra.units import format_si
from ..records.prediction import Answer, TreeNode
from .answers import group_of, headline, obstacles
from .figures import figure_text, label
from .text import Block, Note, Pairs, clean

if TYPE_CHECKING:
    from rich.tree import Tree

NAME_WIDTH = 46
"""Columns that the names of a page of plain text take, where they are not longer."""


def matching(node: TreeNode, text: str) -> TreeNode | None:
    """The part of a tree that leads to nodes whose name, operation or kind holds ``text``, None if there is none.

    What lies below a match is kept whole.
    """
    words = [node.name, node.chosen, *node.tags.values()]
    if not node.children:
        words.append(group_of(node))
    if any(text.casefold() in word.casefold() for word in words):
        return node
    children = tuple(found for child in node.children if (found := matching(child, text)) is not None)
    return evolve(node, children=children) if children else None


def pruned(node: TreeNode, depth: int) -> TreeNode:
    """The tree down to ``depth`` levels below its root."""
    if depth <= 0:
        return evolve(node, children=())
    return evolve(node, children=tuple(pruned(child, depth - 1) for child in node.children))


def tree_text(root: TreeNode, depth: int, least: float = 0.0, clip: int = 0) -> str:
    """The tree as plain text: indented names, then time of all runs, share and what binds it.

    Parts whose share is below ``least`` are counted in one line; ``clip`` as in ``detail``.
    """
    lines = [f"{'':<{NAME_WIDTH}}{'time':>11}{'share':>8}  bound by"]
    lines += _lines(root, depth, least, clip, 0)
    return "".join(line.rstrip() + "\n" for line in lines)


def detail(node: TreeNode, clip: int = 0) -> list[str]:
    """Inputs and parameters of a leaf, a line each; ``clip``: longest expression that is written out (0: any)."""
    lines = []
    for name, (expression, value) in node.inputs.items():
        number = f"{value:.6g}"
        written = expression if not clip or len(expression) <= clip else expression[:clip].rstrip() + "…"
        lines.append(f"{name} = {number}" if expression == number else f"{name} = {written} = {number}")
    if node.formula:
        parameters = ", ".join(f"{name} {value:g}" for name, value in node.parameters.items())
        lines.append(f"by {node.formula}" + (f" with {parameters}" if parameters else ""))
    return lines


def formulas(roots: Iterable[TreeNode]) -> dict[str, str]:
    """Name → text of every formula of the leaves of trees."""
    found: dict[str, str] = {}
    for root in roots:
        if root.formula:
            found[root.formula] = root.text.removeprefix(f"{root.formula} = ")
        found |= formulas(root.children)
    return found


def summary(answer: Answer) -> list[Block]:
    """What stands above the trees of an answer."""
    figures = tuple((label(key), figure_text(key, value)) for key, value in answer.figures.items())
    return [Note(headline(answer), "title"), *obstacles(answer), Pairs(figures)]


def _split(node: TreeNode, least: float) -> tuple[list[TreeNode], list[TreeNode]]:
    """The parts of a node that are shown, and those too small to be."""
    shown = [child for child in node.children if child.share >= least]
    small = [child for child in node.children if child.share < least]
    return (shown, small) if len(small) > 1 else (list(node.children), [])


def _title(node: TreeNode) -> str:
    chosen = f" [{node.chosen}]" if node.chosen else ""
    hidden = " (hidden)" if node.times == 0 else ""
    times = f"{node.times:,.4g} × " if node.times not in (0, 1) and not node.children else ""
    direction = node.tags.get("direction", "") if not node.children else ""
    gradient = f", {direction}" if direction.endswith("gradient") else ""
    return clean(f"{times}{node.name}{gradient}{chosen}{hidden}")


def _figures(node: TreeNode) -> tuple[str, str, str]:
    """Time of all runs (of one run, where an overlap hides it), share of the whole, what binds it."""
    total = node.seconds * node.times if node.times else node.seconds
    share = "–" if node.times == 0 else f"{node.share:.1%}"
    return format_si(total, "s"), share, node.bound_by or "–"


def _rest(small: list[TreeNode]) -> tuple[str, str, str]:
    seconds = sum(node.seconds * node.times for node in small)
    return f"({len(small)} smaller parts)", format_si(seconds, "s"), f"{sum(node.share for node in small):.1%}"


def _lines(node: TreeNode, depth: int, least: float, clip: int, level: int) -> Iterator[str]:
    indent = "  " * level
    time, share, bound = _figures(node)
    name = indent + _title(node)
    more = f"  (+{_count(node)} below)" if depth <= 0 and node.children else ""
    if len(name) >= NAME_WIDTH:
        yield name
        name = ""
    yield f"{name:<{NAME_WIDTH}}{time:>11}{share:>8}  {bound}{more}"
    if not node.children:
        yield from (f"{indent}    {clean(line)}" for line in detail(node, clip))
    if depth <= 0:
        return
    shown, small = _split(node, least)
    for child in shown:
        yield from _lines(child, depth - 1, least, clip, level + 1)
    if small:
        name, time, share = _rest(small)
        yield f"{indent + '  ' + name:<{NAME_WIDTH}}{time:>11}{share:>8}"


def _count(node: TreeNode) -> int:
    return sum(1 + _count(child) for child in node.children)


def tree_drawing(root: TreeNode, depth: int, least: float = 0.0, clip: int = 0) -> Tree:
    """The tree for a terminal."""
    from rich.text import Text
    from rich.tree import Tree

    def told(node: TreeNode, left: int) -> Text:
        time, share, bound = _figures(node)
        text = Text.assemble((_title(node), "bold" if node.children else ""), "  ", (time, "cyan"), f"  {share}  ")
        text.append(bound, style="magenta")
        if left <= 0 and node.children:
            text.append(f"  (+{_count(node)} below)", style="dim")
        if not node.children:
            for line in detail(node, clip):
                text.append("\n  " + clean(line), style="dim")
        return text

    def grow(branch: Tree, node: TreeNode, left: int) -> None:
        if left <= 0:
            return
        shown, small = _split(node, least)
        for child in shown:
            grow(branch.add(told(child, left - 1)), child, left - 1)
        if small:
            branch.add(Text("  ".join(_rest(small)), style="dim"))

    top = Tree(told(root, depth))
    grow(top, root, depth)
    return top
