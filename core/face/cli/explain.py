"""``slipstick explain train|serve``: the tree of an answer, with formula, value, share and what binds each node.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ...errors import NotFeasible, UserError
from ...records.prediction import SCHEMA
from .asking import JSON, finite
from .question import Question, question_command

if TYPE_CHECKING:
    from ...records.prediction import Answer, TreeNode
    from ...study.prediction import Prediction

DEEPEST = 100
CLIP = 100
"""Characters of an expression that are printed without --full."""

_DEPTH = click.option(
    "--depth", type=click.IntRange(0, DEEPEST), help="Levels of the tree below its root.  [default: all]"
)
_LEAST = click.option(
    "--min-share",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="Count parts with a smaller share in one line; --json has all.",
)
_MATCH = click.option("--match", metavar="TEXT", help="Only what leads to a part whose name holds TEXT, however small.")
_FULL = click.option("--full", is_flag=True, help="Write long expressions out; --json has all of them.")
_AGAINST = click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="TRACE",
    help="A measured trace: each of its kernels beside what is predicted for it.",
)
_MEMORY = click.option("--memory", is_flag=True, help="Memory over the step, stage by stage, instead of its time.")
OPTIONS = (_DEPTH, _LEAST, _MATCH, _FULL, _AGAINST, JSON)


@click.group("explain", short_help="Where an answer comes from: formula, value and share of each part.")
def command() -> None:
    """The tree behind an answer: what each part costs, what binds it, and the formula and inputs of each leaf.

    The options are those of `slipstick train` and `slipstick serve`; of a search the best setting is explained.
    """


def explained(
    question: Question,
    depth: int | None,
    min_share: float,
    match: str | None,
    full: bool,
    against: str | None,
    as_json: bool,
    memory: bool = False,
) -> int:
    """Print the trees of one answer, or its memory over time; the exit status."""
    if memory and against is not None:
        raise UserError("--memory and --against: one of them at a time")
    prediction = the_prediction(question)
    if memory:
        return _memory(prediction, as_json)
    if against is not None:
        return _beside(prediction, against, question, as_json)
    answer = prediction.answer
    trees = dict(answer.trees)
    if match is not None:
        trees = matched(trees, match)
        min_share = 0.0
    depth = DEEPEST if depth is None else depth
    if as_json:
        from ..trees import pruned

        found = answer.to_json(tree=False)
        found["tree"] = {name: pruned(node, depth).to_json() for name, node in trees.items()}
        click.echo(json.dumps(finite({**found, "schema": SCHEMA}), allow_nan=False))
    else:
        _print(answer, trees, depth, min_share / 100, 0 if full else CLIP)
    return 0 if answer.feasible else 1


def _memory(prediction: Prediction, as_json: bool) -> int:
    from ...study.memory_curve import memory_curve

    answer = prediction.answer
    for obstacle in answer.obstacles:
        if obstacle.layout:
            raise NotFeasible(f"--memory: no step to look at: {obstacle.reason}")
    curves = memory_curve(prediction)
    if as_json:
        stages = [curve.to_json() for curve in curves]
        click.echo(json.dumps({"schema": SCHEMA, "capacity_bytes": answer.capacity, "stages": stages}, allow_nan=False))
    else:
        from ..answers import headline, obstacles
        from ..memory import memory_page
        from ..tables import show
        from ..text import Note

        show([Note(headline(answer), "title"), *obstacles(answer), *memory_page(curves, answer.capacity)])
    return 0 if answer.feasible else 1


def _beside(prediction: Prediction, trace: str, question: Question, as_json: bool) -> int:
    from pathlib import Path

    from ...study.against import against

    found = against(prediction, Path(trace), question.host)
    if as_json:
        click.echo(json.dumps(finite({**found.to_json(), "schema": SCHEMA}), allow_nan=False))
        return 0
    from ..comparisons import comparison_page
    from ..tables import show

    show(comparison_page(found, prediction.answer))
    return 0


def the_prediction(question: Question) -> Prediction:
    """The one prediction that a question is about. Errors: UserError for several, NotFeasible for none."""
    from ...study.ask import ask

    outcome = ask(question.task, question.models, question.machines, question.settings, question.host)
    if not outcome.predictions:
        raise NotFeasible(f"no setting that was tried is feasible: `slipstick {question.task} ...` tells why")
    if len(outcome.predictions) > 1:
        raise UserError("explain takes one value for every setting, or ? for the best; not a list or range")
    return outcome.predictions[0]


def matched(trees: dict[str, TreeNode], text: str) -> dict[str, TreeNode]:
    """The trees cut down to what leads to ``text``. Errors: UserError where nothing does."""
    from ...errors import shown
    from ..trees import matching

    found = {name: kept for name, node in trees.items() if (kept := matching(node, text)) is not None}
    if not found:
        raise UserError(f"--match: no part of the tree has {shown(text)} in its name; without --match all are shown")
    return found


def _print(answer: Answer, trees: dict[str, TreeNode], depth: int, least: float, clip: int) -> None:
    from ..answers import assumptions
    from ..tables import echo, on_terminal, show
    from ..text import Pairs
    from ..trees import formulas, summary, tree_drawing, tree_text

    show(summary(answer))
    for node in trees.values():
        echo("\n")
        if on_terminal():
            from rich.console import Console

            Console(highlight=False).print(tree_drawing(node, depth, least, clip))
        else:
            echo(tree_text(node, depth, least, clip))
    texts = tuple(formulas(trees.values()).items())
    show([Pairs(texts, "Formulas"), *assumptions([answer])] if texts else assumptions([answer]))


@question_command("train", "train", "Explain the time of a training step.", (*OPTIONS[:-1], _MEMORY, JSON))
def train_command(question: Question, **options: Any) -> int:
    """Explain the step time of training MODEL on MACHINE: the tree with formula, value and share of each part.

    With --memory: what lies in the memory of each stage as the step goes on, and what makes its peak.
    """
    return explained(question, **options)


@question_command("serve", "serve", "Explain the latencies of serving.", OPTIONS)
def serve_command(question: Question, **options: Any) -> int:
    """Explain the latencies of serving MODEL on MACHINE: the trees with formula, value and share of each part."""
    return explained(question, **options)


command.add_command(train_command)
command.add_command(serve_command)
