"""A figure as a formula of one or more symbols, its derivative and its elasticity at a point.

Floor: study. Imports sympy inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..errors import UserError, unknown
from .ask import cases, checked_settings, is_plain
from .settings import settings_for

if TYPE_CHECKING:
    from sympy import Expr

    from ..host.host import Host

ALIASES = {"step_time": "step_time_s", "tpot": "tpot_s", "ttft": "ttft_s", "memory": "memory_peak_bytes"}


@frozen
class Derivation:
    """A figure as a formula of one symbol, with everything else put in.

    ``formula``: the branch that holds at ``at`` (every maximum, minimum and case resolved there, and blocks that divide
    evenly there as plain quotients), with its ``derivative``, as text and LaTeX; ``exact``: the formula for every
    value; ``value``, ``slope`` and ``elasticity`` (relative change for a relative change) at ``at``.
    """

    figure: str
    by: str
    formula: str
    formula_latex: str
    derivative: str
    derivative_latex: str
    exact: str
    value: float
    slope: float
    elasticity: float
    at: float

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        from attrs import asdict

        return asdict(self)


def derive(
    task: str, model: str, machine: str, settings: Mapping[str, Any], figure: str, by: str, host: Host
) -> Derivation:
    """The formula of a figure and its slope.

    ``figure``: a key of the JSON schema (``step_time_s``, ``mfu``, ``tpot_s``, ``memory_peak_bytes``, ...) with or
    without its unit; ``by``: any symbol of the formula (``hbm_bandwidth``, ``tier_bandwidth_0``, ``tp``, ...).
    Errors: UserError for an unknown figure or symbol, and for a setting with several values.
    """
    from ..algebra.symbols import TABLE, symbol
    from .symbolic import check_figure, exact, figure_expression, kept, substituted

    infos = settings_for(task, host)
    checked = checked_settings(task, settings, infos)
    found = list(cases(task, (model,), (machine,), checked, host, infos))
    if len(found) != 1 or not is_plain(found[0][1]):
        raise UserError("derive takes one value for every setting, no lists, ranges or ?")
    case, numeric = found[0]
    wanted, values = ALIASES.get(figure, figure), case.complete(numeric)
    check_figure(task, wanted)
    if not by[:1].isalpha():  # a symbol's name begins with a letter: no need to write the formula out first
        names = sorted(name for name, value in values.items() if value is not None and "@" not in name)
        raise unknown(f"symbol of {figure}", by, [name for name in names if TABLE.get(name)])
    expression = figure_expression(case, wanted, kept(numeric, by))
    names = sorted(name for name in map(str, expression.free_symbols) if values.get(name) is not None)  # no units
    # A setting that the formula's symbols follow from (the global batch sets the micro-batches) is one of them too.
    whole = substituted(case, expression, numeric, keep=(by,)) if values.get(by) is not None and TABLE.get(by) else None
    x = symbol(by) if whole is not None else None
    if whole is None or x not in whole.free_symbols:
        raise unknown(f"symbol of {figure}", by, names, _listed(names))
    # The symbol's own value: what the formulas get may follow from it (a skew that a capacity cuts off).
    own = {name: value for name, value in numeric.items() if value is not None}
    at = {**values, **case.fixed, **own}[by]
    point = {x: exact(at)}
    formula = active_branch(whole, point)
    slope = formula.diff(x)
    value, change = float(whole.xreplace(point)), float(slope.xreplace(point))
    import sympy

    return Derivation(
        ALIASES.get(figure, figure), by, str(formula), sympy.latex(formula), str(slope), sympy.latex(slope), str(whole),
        value, change, change * float(at) / value if value else 0.0, float(at),
    )  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    """The symbols of a formula for an error line: parameters of kernels by their slots alone, there are hundreds."""
    plain = [name for name in names if "@" not in name]
    slots = sorted({name.partition("@")[2] for name in names} - {""})
    more = f"; and parameters of {', '.join(slots)} (launch@gemm; see docs/symbols.md)" if slots else ""
    return f"its symbols: {', '.join(plain)}{more}"


def active_branch(expression: Expr, point: Mapping[Any, Any]) -> Expr:
    """The expression with every maximum, minimum, case and comparison resolved as it falls at ``point``.

    What is left is short, and equals the expression wherever the same resources bind as at the point. A division that
    leaves no remainder there (blocks of heads, of tokens) is written as a plain one: its slope is then that between
    settings that divide, where the rounded one would be flat with jumps.
    """
    import sympy

    values: dict[Any, Any] = {}

    def value(node: Any) -> Any:
        if node not in values:
            values[node] = node.xreplace(point)
        return values[node]

    done: dict[Any, Any] = {}

    def resolve(node: Any) -> Any:
        if node in done:
            return done[node]
        name = type(node).__name__
        if not node.args:
            found = node
        elif name in ("fmax", "fmin"):
            pick = max if name == "fmax" else min
            found = resolve(pick(node.args, key=value))
        elif name == "where":
            found = resolve(node.args[1] if value(node.args[0]) > 0 else node.args[2])
        elif name in ("eq", "lt", "le"):
            found = value(node)
        elif name in ("cdiv", "fdiv") and value(node) == value(node.args[0] / node.args[1]):
            found = resolve(node.args[0]) / resolve(node.args[1])
        else:
            found = node.func(*(resolve(arg) for arg in node.args))
        done[node] = found
        return found

    return sympy.expand(resolve(expression))
