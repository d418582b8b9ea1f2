"""``slipstick train``: the figures of a train question.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

from .asking import JSON, SAVE, TIMELINE, answered
from .question import Question, question_command


@question_command("train", "train", "Step time, throughput and memory of training a model.", (SAVE, TIMELINE, JSON))
def command(question: Question, as_json: bool, save: str | None, timeline: str | None) -> int:
    """Step time, throughput and memory of training MODEL on MACHINE.

    A setting is a value, a list or range (--tp 1,2,4, --micro-batch 1..8, --pp 1..16*2: side by side or a table of the
    best), or ? (the best of all settings). MODEL is a preset or the path of a Hugging Face config.json.

    Exit status: 0, 1 where nothing is feasible, 2 for a mistake in the question.
    """
    return answered(question, as_json, save, timeline)
