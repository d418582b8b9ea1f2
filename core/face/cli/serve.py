"""``slipstick serve``: the figures of a serve question.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

from .asking import JSON, SAVE, answered
from .question import Question, question_command


@question_command("serve", "serve", "Latency, throughput, memory and KV capacity of serving a model.", (SAVE, JSON))
def command(question: Question, as_json: bool, save: str | None) -> int:
    """Latency, throughput, memory and KV capacity of serving MODEL on MACHINE.

    A setting is a value, a list or range (--tp 1,2,4, --concurrency 1..64*2: side by side or a table of the best), or
    ? (the best of all settings); `--gpus ? --tp ? --max-tpot 30ms` asks for the fewest devices that meet a limit.
    MODEL is a preset or the path of a Hugging Face config.json.

    Exit status: 0, 1 where nothing is feasible, 2 for a mistake in the question.
    """
    return answered(question, as_json, save)
