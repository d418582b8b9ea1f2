"""``slipstick derive train|serve``: the formula of one figure, its derivative by one symbol, and the slope at a point.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ...errors import UserError
from .asking import JSON, finite
from .question import Question, question_command

if TYPE_CHECKING:
    from ...study.derive import Derivation

SCHEMA = 1
_FOR = click.option(
    "--for", "figure", metavar="FIGURE", help="The figure: step_time, tpot, ttft, mfu, memory, ...  [default: the time]"
)
_BY = click.option("--by", metavar="SYMBOL", required=True, help="The symbol: tp, hbm_bandwidth, tier_bandwidth_0, ...")
_FULL = click.option("--full", is_flag=True, help="Print the formula for every value of the symbol too.")
_LATEX = click.option("--latex", is_flag=True, help="Print formula and derivative as LaTeX, nothing else.")

OPTIONS = (_FOR, _BY, _LATEX, _FULL, JSON)


@click.group("derive", short_help="The formula of one quantity, and its derivative by one symbol.")
def command() -> None:
    """The formula of one figure in one symbol, everything else put in, and how the figure moves with the symbol.

    The elasticity is the relative change of the figure for a relative change of the symbol: -0.8 by hbm_bandwidth means
    that 1 % more bandwidth takes 0.8 % off. The options are those of `slipstick train` and `slipstick serve`.
    """


def derived(question: Question, figure: str, by: str, latex: bool, full: bool, as_json: bool) -> None:
    """Print a derivation."""
    from ...study.derive import derive

    if len(question.models) > 1 or len(question.machines) > 1:
        raise UserError("derive takes one model and one machine, not a list")
    found = derive(
        question.task, question.models[0], question.machines[0], question.settings, figure, by, question.host
    )
    if as_json:
        click.echo(json.dumps(finite({"schema": SCHEMA, **found.to_json()}), allow_nan=False))
    elif latex:
        click.echo(f"{_name(found)} = {found.formula_latex}")
        click.echo(f"\\frac{{d}}{{d\\,\\mathrm{{{_escaped(by)}}}}} = {found.derivative_latex}")
    else:
        _print(found, full)


def _name(found: Derivation) -> str:
    return f"\\mathrm{{{_escaped(found.figure)}}}"


def _escaped(text: str) -> str:
    return text.replace("_", "\\_")


def _print(found: Derivation, full: bool) -> None:
    from ..figures import figure_text, label
    from ..tables import show
    from ..text import Block, Note, Pairs

    blocks: list[Block] = [
        Note(f"{found.figure} by {found.by}", "title"),
        Pairs(
            (
                (found.by, f"{found.at:g}"),
                (label(found.figure), figure_text(found.figure, found.value)),
                ("slope", f"{found.slope:.4g} (change of {found.figure} for one more {found.by}, SI units)"),
                ("elasticity", f"{found.elasticity:+.3f}: 1 % more {found.by} changes it by {found.elasticity:+.2f} %"),
            )
        ),
        Note("Formula where the symbol is near this value", "title"),
        Note(f"{found.figure} = {found.formula}"),
        Note("Derivative", "title"),
        Note(f"d {found.figure} / d {found.by} = {found.derivative}"),
    ]
    if full:
        blocks += [Note("Formula for every value", "title"), Note(f"{found.figure} = {found.exact}")]
    show(blocks)


@question_command("train", "train", "Formula and derivative of a figure of training.", OPTIONS)
def train_command(question: Question, figure: str | None, by: str, latex: bool, full: bool, as_json: bool) -> None:
    """The formula of a figure of training MODEL on MACHINE, and its derivative by SYMBOL."""
    derived(question, figure or "step_time", by, latex, full, as_json)


@question_command("serve", "serve", "Formula and derivative of a figure of serving.", OPTIONS)
def serve_command(question: Question, figure: str | None, by: str, latex: bool, full: bool, as_json: bool) -> None:
    """The formula of a figure of serving MODEL on MACHINE, and its derivative by SYMBOL."""
    derived(question, figure or "tpot", by, latex, full, as_json)


command.add_command(train_command)
command.add_command(serve_command)
