"""How long the compiled formulas are, and how long they take to build: counts by model family and task."""

from __future__ import annotations

import time

from slipstick.core.host.host import default_host
from slipstick.core.study.ask import ask

MODELS = ("gpt2", "llama-3.1-8b", "gemma-2-9b", "mixtral-8x7b", "deepseek-v3")


def run(quick: bool) -> None:
    """Print instructions, inputs and outputs of each tape, its nodes, and the seconds to derive and compile it."""
    host = default_host()
    for model in MODELS[1:4:2] if quick else MODELS:
        for task in ("train", "serve"):
            case = ask(task, (model,), ("h200-sxm",), {"devices": 8}, host).predictions[0].case
            start = time.process_time()
            built = case._build()
            spent = time.process_time() - start
            tape = built.tape
            asked = (
                ("step_time", "memory.peak")
                if task == "train"
                else ("tpot", "ttft", "output_tokens_per_s", "memory.peak")
            )
            needed = len(tape._need(asked).instructions)
            print(
                f"{model} {task}: {len(tape.instructions)} instructions ({needed} for the figures of a search), "
                f"{len(tape.inputs)} inputs, {len(tape.outputs)} outputs, "
                f"{len(built.nodes)} nodes; built in {spent:.2f} s"
            )
