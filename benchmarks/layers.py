"""Cost does not grow with the number of layers: 16, 32 or 126 of them, one program, and as long to evaluate."""

from __future__ import annotations

import time

from configurations import points, seconds

from slipstick.core.host.host import default_host
from slipstick.core.study.ask import ask


def run(quick: bool) -> None:
    """Print instruction counts and the ratio of times for one family at several depths."""
    host = default_host()
    count = 20_000 if quick else 200_000
    found = {}
    for model in ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-405b"):
        case = ask("train", (model,), ("h100-sxm",), {"devices": 64}, host).predictions[0].case
        settings = points(count)
        seconds(case, points(1000))
        start = time.process_time()
        for _ in range(100):
            case.evaluate({"devices": 64, "tp": 8, "dp": 8, "global_batch": 64})
        one = (time.process_time() - start) / 100
        found[model] = (
            case.graph.layers,
            len(case.program.tape.instructions),
            min(seconds(case, settings) for _ in range(3)),
            one,
        )
    base = next(iter(found.values()))
    for model, (layers, instructions, spent, one) in found.items():
        print(
            f"{model}: {layers} layers, {instructions} instructions, "
            f"{spent / base[2]:.2f} × the time of {base[0]} layers; "
            f"one setting with its whole tree {one * 1e3:.2f} ms"
        )
