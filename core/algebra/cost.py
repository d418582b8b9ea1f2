"""The cost tree: leaves with one formula each, and the seven nodes that combine them.

Floor: algebra. A tree says how long something takes [s] and why. It is never flattened for display; it is compiled
once, node by node, to one tape with a result for every node, or written out as one expression for symbolic questions.
Nodes may be shared: the same block stands in a pipeline's fill and in its slowest stage, and is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..errors import PluginError
from .compile import Builder
from .dimension import DimensionError, check
from .formula import COMBINED, Formula
from .text import text_printer

if TYPE_CHECKING:
    from sympy import Expr

LATENCY = "latency"
"""The term of a leaf that occupies no resource."""


@frozen(eq=False)
class Node:
    """Base: a ``name`` for people and ``tags`` (phase, operation, direction, kind) for filters and sums."""

    name: str
    tags: Mapping[str, str] = field(factory=dict, kw_only=True)
    _made: dict[str, Any] = field(factory=dict, init=False, repr=False)

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes below."""
        return ()

    def expression(self) -> Expr:
        """The time as one expression of everything below [s]; made once, however many parents a node has."""
        if "expression" not in self._made:
            self._made["expression"] = self._expression()
        return self._made["expression"]

    def _expression(self) -> Expr:
        raise NotImplementedError  # abstract

    def busy(self) -> dict[str, Expr]:
        """Seconds that each resource is in use."""
        raise NotImplementedError  # abstract


@frozen(eq=False)
class Leaf(Node):
    """One kernel or transfer: a ``formula`` and the expressions of its ``inputs`` (name of the input → expression).

    The formula's terms (compute, memory, link, latency, ...) name what binds the leaf and which resource it occupies.
    ``parameters``: the symbol that each parameter of the formula stands for here. ``resources``: which resource a
    term occupies where its name does not say it (a link of which tier). ``factors`` and ``extra``: symbols of what the
    software makes of it, factors on the formula's time and seconds on the host beside it. ``slot``: the kind of
    kernel whose measurements calibrate the formula.
    """

    formula: Formula
    inputs: Mapping[str, Expr]
    parameters: Mapping[str, str] = field(factory=dict)
    resources: Mapping[str, str] = field(factory=dict)
    factors: tuple[str, ...] = field(default=(), kw_only=True)
    extra: str = field(default="", kw_only=True)
    slot: str = field(default="", kw_only=True)

    def _values(self) -> dict[str, Any]:
        from .symbols import symbol

        return {**{p: symbol(name) for p, name in self.parameters.items()}, **self.inputs}

    def _factor(self) -> Any:
        from .symbols import symbol

        return prod(symbol(name) for name in self.factors)

    def _expression(self) -> Expr:
        from .symbols import symbol

        time = self._factor() * self.formula.bound_expr(**self._values())
        return time + symbol(self.extra) if self.extra else time

    def busy(self) -> dict[str, Expr]:
        terms = self.formula.bind(**self._values()).terms
        factor = self._factor()
        return {self.resources.get(name, name): factor * expr for name, expr in terms.items() if name != LATENCY}


@frozen(eq=False)
class Sequence(Node):
    """Its parts one after the other: the sum."""

    parts: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def _expression(self) -> Expr:
        import sympy

        return sympy.Add(*(part.expression() for part in self.parts))

    def busy(self) -> dict[str, Expr]:
        return _added([(1, part) for part in self.parts])


@frozen(eq=False)
class Overlap(Node):
    """Its parts at the same time: the longest, or a resource that several of them need, whichever takes more.

    Valid when: shared resources are divided fairly and work is divisible (then the larger bound is reached).
    """

    parts: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def _expression(self) -> Expr:
        from .functions import functions

        shared = [total for total, users in _shared(self.parts).values() if users > 1]
        return functions().fmax(*(part.expression() for part in self.parts), *shared)

    def busy(self) -> dict[str, Expr]:
        return _added([(1, part) for part in self.parts])


@frozen(eq=False)
class Exposed(Node):
    """What shows of ``part`` where it runs beside ``behind``, which counts elsewhere: what is longer than that, and of
    what could be hidden the share that the symbol ``share`` stands for (0: all is hidden, 1: nothing).

    Valid when: the two need different resources, or the share says what they take from each other.
    """

    part: Node
    behind: Node
    share: str

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.part, self.behind)

    def _expression(self) -> Expr:
        from .functions import functions
        from .symbols import symbol

        part = self.part.expression()
        return part - (1 - symbol(self.share)) * functions().fmin(part, self.behind.expression())

    def busy(self) -> dict[str, Expr]:
        return self.part.busy()


@frozen(eq=False)
class Waiting(Node):
    """Idle time that follows from how long other things take: a ``formula`` of the times of ``passes`` (input → node)
    and of further ``inputs``; what is waited for counts elsewhere."""

    formula: Formula
    passes: Mapping[str, Node]
    inputs: Mapping[str, Expr]

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(self.passes.values())

    def _expression(self) -> Expr:
        return self.formula.bound_expr(**{name: p.expression() for name, p in self.passes.items()}, **self.inputs)

    def busy(self) -> dict[str, Expr]:
        return {}


@frozen(eq=False)
class Repeat(Node):
    """``count`` times the same: layers of a stage, steps of a loop."""

    count: Expr
    body: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.body,)

    def _expression(self) -> Expr:
        return self.count * self.body.expression()

    def busy(self) -> dict[str, Expr]:
        return _added([(self.count, self.body)])


@frozen(eq=False)
class Pipelined(Node):
    """``count`` iterations of ``body`` that overlap: the first takes the whole body, each further one the period.

    The period is the largest of ``periods``: the busiest resource (a pipeline's slowest stage) or the longest cycle
    of dependencies from one iteration to the next. ``steady``: a loop that runs on and on, its first iteration long
    past: every iteration takes the period. Source: modulo scheduling's two lower bounds, ResMII and RecMII
    (Rau, MICRO-27 1994); a pipeline of stages reaches them.
    """

    count: Expr
    body: Node
    periods: tuple[Node, ...]
    steady: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.body, *self.periods)

    def _expression(self) -> Expr:
        from .functions import functions

        period = functions().fmax(*(p.expression() for p in self.periods))
        return self.count * period if self.steady else self.body.expression() + (self.count - 1) * period

    def busy(self) -> dict[str, Expr]:
        return _added([(self.count, self.body)])


@frozen(eq=False)
class Choice(Node):
    """Several ways to do the same thing (name → node): the cheapest is taken, and named."""

    variants: Mapping[str, Node]

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(self.variants.values())

    def _expression(self) -> Expr:
        from .functions import functions

        return functions().fmin(*(v.expression() for v in self.variants.values()))

    def busy(self) -> dict[str, Expr]:
        # Which variant wins is known only with values; a bound that holds for every one of them is none at all.
        return {}


def _added(parts: list[tuple[Any, Node]]) -> dict[str, Expr]:
    total: dict[str, Expr] = {}
    for count, node in parts:
        for resource, seconds in node.busy().items():
            total[resource] = total[resource] + count * seconds if resource in total else count * seconds
    return total


def _shared(parts: tuple[Node, ...]) -> dict[str, tuple[Expr, int]]:
    """Resource → (seconds in use by all parts together, how many parts use it)."""
    totals: dict[str, tuple[Expr, int]] = {}
    for part in parts:
        for resource, seconds in part.busy().items():
            before, users = totals.get(resource, (0, 0))
            totals[resource] = (before + seconds, users + 1)
    return totals


def walk(root: Node) -> Iterator[Node]:
    """Every distinct node below ``root`` and itself, children before parents."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for child in node.children:
            yield from visit(child)
        yield node

    yield from visit(root)


class TreeCompiler:
    """Compiles trees into a builder: every node's time is an output named by its number, and so are a leaf's terms.

    ``nodes`` describes each node as plain data (number, kind, name, children, formula, tags) for display.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.text = text_printer()
        self.nodes: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        self._keep: list[Node] = []

    def add(self, root: Node) -> int:
        """Compile the tree at ``root``; returns its number."""
        for node in walk(root):
            if id(node) not in self._numbers:
                self._keep.append(node)
                number = self._numbers[id(node)] = len(self.nodes)
                self.nodes.append({
                    "id": number, "name": node.name, "kind": type(node).__name__.lower(), "tags": dict(node.tags),
                    "children": [self._numbers[id(c)] for c in node.children],
                })  # fmt: skip
                self._slots[id(node)] = self._compile(node, number)
                self.builder.output(f"t{number}", self._slots[id(node)])
        return self._numbers[id(root)]

    def slot(self, node: Node) -> int:
        """The slot of a compiled node's time."""
        return self._slots[id(node)]

    def _compile(self, node: Node, number: int) -> int:
        b = self.builder
        about = self.nodes[number]
        if isinstance(node, Leaf):
            return self._leaf(node, number)
        slots = [self._slots[id(child)] for child in node.children]
        if isinstance(node, Sequence):
            return b.add(slots)
        if isinstance(node, Overlap):
            shared = [total for total, users in _shared(node.parts).values() if users > 1]
            return b.max([*slots, *(b.expr(total) for total in shared)])
        if isinstance(node, Choice):
            about["variants"] = list(node.variants)
            return b.min(slots)
        if isinstance(node, Exposed):
            hidden = b.mul(b.sub(b.constant(1.0), b.input(node.share)), b.min(slots))
            about["software"] = [node.share]
            return b.sub(slots[0], hidden)
        if isinstance(node, Waiting):
            about.update(formula=node.formula.name, text=node.formula.text(), software=[])
            local = {**dict(zip(node.passes, slots, strict=True)), **{n: b.expr(e) for n, e in node.inputs.items()}}
            return b.inline(node.formula.tape(), local)[COMBINED]
        if isinstance(node, Repeat):
            count = b.expr(node.count)
            b.output(f"t{number}.count", count)
            about["count"] = self.text(node.count)
            return b.mul(count, slots[0])
        if isinstance(node, Pipelined):
            count = b.expr(node.count)
            b.output(f"t{number}.count", count)
            about["count"] = self.text(node.count)
            about["steady"] = node.steady
            if node.steady:
                return b.mul(count, b.max(slots[1:]))
            return b.add([slots[0], b.mul(b.sub(count, b.constant(1.0)), b.max(slots[1:]))])
        raise TypeError(f"no rule to compile a {type(node).__name__}")

    def _leaf(self, node: Leaf, number: int) -> int:
        b = self.builder
        node.formula.check()  # a plugin's slip in its units would be a figure of years for a step
        for name, expr in node.inputs.items():
            try:
                check(expr, node.formula.inputs[name])
            except (DimensionError, KeyError) as error:
                told = error if isinstance(error, DimensionError) else "the formula declares no such input"
                raise PluginError(f"{node.name}: input {name!r} of formula {node.formula.name!r}: {told}") from None
        local = {name: b.expr(expr) for name, expr in node.inputs.items()}
        for name, slot in local.items():
            b.output(f"t{number}.{name}", slot)
        defaults = {p.name: p.default for p in node.formula.parameters if p.name not in node.parameters}
        local.update({p: b.constant(value) for p, value in defaults.items()})
        local.update({p: b.input(name) for p, name in node.parameters.items()})
        factors = [b.input(name) for name in node.factors]

        def scaled(slot: int) -> int:
            for factor in factors:
                slot = b.mul(factor, slot)
            return slot

        slots = b.inline(node.formula.tape(), local)
        for term in node.formula.terms:
            b.output(f"t{number}:{term}", scaled(slots[term]))
        about = self.nodes[number]
        about["formula"] = node.formula.name
        about["text"] = node.formula.text()
        about["inputs"] = {name: self.text(expr) for name, expr in node.inputs.items()}
        about["parameters"] = dict(node.parameters)
        about["terms"] = list(node.formula.terms)
        about["software"] = [name for name in (*node.factors, node.extra) if name]
        if node.slot:
            about["slot"] = node.slot
        time = scaled(slots[COMBINED])
        return b.add([time, b.input(node.extra)]) if node.extra else time
