"""The work behind ``train`` and ``serve``: ask, print, and leave with the status that says whether it is feasible.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ...records.prediction import SCHEMA
from .paths import complete_file, path_of

if TYPE_CHECKING:
    from ...study.ask import Outcome
    from .question import Question

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, in SI units (docs/json.md).")
SAVE = click.option(
    "--save", metavar="FILE", shell_complete=complete_file, help="Save the question; --scenario FILE asks it again."
)

TIMELINE = click.option(
    "--timeline", metavar="FILE", shell_complete=complete_file,
    help="Write the step as a trace that ui.perfetto.dev opens (JSON): a row for each resource of each stage, "
    "and a counter of its memory.",
)  # fmt: skip


def answered(question: Question, as_json: bool, save: str | None, timeline: str | None = None) -> int:
    """Ask a question, print the answer, save the question and the timeline where wanted; the exit status."""
    from ...study.ask import ask

    outcome = ask(question.task, question.models, question.machines, question.settings, question.host)
    if save is not None:
        from ...study.saving import save_scenario

        save_scenario(path_of(save, "--save"), question.scenario())
    if timeline is not None:
        _write_timeline(outcome, timeline)
    if as_json:
        click.echo(json.dumps(document(outcome, question.task), allow_nan=False, default=_plain))
    else:
        _print(outcome, question)
    return 0 if feasible(outcome) else 1


def _write_timeline(outcome: Outcome, target: str) -> None:
    from ...errors import UserError
    from ...files import replace_file
    from ...study.memory_curve import counters, memory_curve
    from ...study.timeline import timeline, trace

    if outcome.search is not None or len(outcome.predictions) != 1:
        raise UserError("--timeline: a timeline is of one setting; give each degree one value")
    (prediction,) = outcome.predictions
    title = f"{prediction.answer.model} on {prediction.answer.machine}"
    path = path_of(target, "--timeline")
    events = timeline(prediction)
    document = trace(events, title)
    document["traceEvents"] += counters(memory_curve(prediction, events))
    replace_file(path, json.dumps(document, allow_nan=False) + "\n")


def feasible(outcome: Outcome) -> bool:
    """Whether some setting of the outcome is."""
    return any(prediction.answer.feasible for prediction in outcome.predictions)


def document(outcome: Outcome, task: str) -> dict[str, Any]:
    """The JSON of an outcome: an answer, a list of answers, or a search with its best answer.

    Trees stand in the JSON of a single answer only; ``explain --json`` has those of others.
    """
    if outcome.search is not None:
        best = outcome.search.best
        return {
            "schema": SCHEMA, "task": task, "search": finite(outcome.search.to_json()),
            "best": finite(best.to_json()) if best is not None else None,
        }  # fmt: skip
    if len(outcome.predictions) == 1:
        return dict(finite(outcome.predictions[0].to_json()))
    answers = [finite(prediction.to_json(tree=False)) for prediction in outcome.predictions]
    return {"schema": SCHEMA, "task": task, "predictions": answers}


def finite(value: Any) -> Any:
    """JSON-ready data in which an infinite or undefined number is null: JSON has no word for either."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None
    return value


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    return finite(value.item())


def _print(outcome: Outcome, question: Question) -> None:
    from ..tables import show

    if outcome.search is not None:
        from ..searches import search_page

        show(search_page(outcome.search, question.task, question.infos, question.explain))
        return
    from ..answers import answer_page, side_by_side

    answers = [prediction.answer for prediction in outcome.predictions]
    if len(answers) == 1:
        show(answer_page(answers[0], question.infos, question.explain))
    else:
        show(side_by_side(answers, question.infos))
