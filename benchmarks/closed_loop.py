"""The whole chain on this machine's processor: measure kernels, fit, predict real models, measure those, compare.

``python benchmarks/closed_loop.py [--budget 300] [--threads N] [--trace FILE] [--keep FOLDER] [--quick]``

A shared machine runs at one speed now and at another in a minute. So a fixed piece of work is timed between the parts
of the measuring and in turn with every model, and a prediction is compared at the speed that its kernels were measured
at: the table has the speed of each moment (1: as when kernels were measured) and the errors with and without it.

Needs the `torch` extra and an otherwise idle machine. The models are built by transformers at small sizes that no
microbenchmark knows; slipstick gets their config.json, the accelerator file and the records that `slipstick calibrate
fit` wrote, and nothing that was measured on them. Exit status 1 where the median error is above --limit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

import slipstick

MEMORY = "16GB"  # of the device that the fit makes; only times are compared
ROUNDS = 9


@frozen
class Model:
    """A model that transformers builds: ``name``, the configuration's class and its arguments."""

    name: str
    config: str
    arguments: dict[str, Any]


@frozen
class Task:
    """``step``: a whole training step of ``batch`` sequences; else the forward pass of one prompt. ``tokens`` each."""

    step: bool
    batch: int
    tokens: int

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{'train' if self.step else 'forward'} {self.batch} x {self.tokens}"


@frozen
class Pair:
    """One figure, measured and predicted [s]; ``pace``: time of the fixed work then, over that while kernels were
    measured."""

    model: str
    task: str
    measured: float
    predicted: float
    pace: float = 1.0

    @property
    def raw(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1

    @property
    def error(self) -> float:
        """The same at the speed that the kernels were measured at."""
        return self.predicted * self.pace / self.measured - 1


_SHARED = {"attn_implementation": "sdpa", "tie_word_embeddings": False}
MODELS = (
    Model("gpt2-like", "GPT2Config", {
        "n_embd": 448, "n_layer": 5, "n_head": 7, "vocab_size": 12000, "n_positions": 1024,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0,
        "attn_implementation": "sdpa",
    }),
    Model("llama-like, grouped queries", "LlamaConfig", {
        "hidden_size": 640, "intermediate_size": 1728, "num_hidden_layers": 4, "num_attention_heads": 10,
        "num_key_value_heads": 2, "vocab_size": 10000, "max_position_embeddings": 2048, **_SHARED,
    }),
    Model("qwen2-like", "Qwen2Config", {
        "hidden_size": 896, "intermediate_size": 2432, "num_hidden_layers": 3, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 16000, "max_position_embeddings": 2048, **_SHARED,
    }),
    Model("qwen3-like", "Qwen3Config", {
        "hidden_size": 576, "intermediate_size": 2000, "num_hidden_layers": 4, "num_attention_heads": 6,
        "head_dim": 128, "num_key_value_heads": 3, "vocab_size": 14000, "max_position_embeddings": 2048, **_SHARED,
    }),
    Model("mixtral-like", "MixtralConfig", {
        "hidden_size": 448, "intermediate_size": 960, "num_hidden_layers": 3, "num_attention_heads": 7,
        "num_key_value_heads": 7, "num_local_experts": 6, "num_experts_per_tok": 2, "vocab_size": 10000,
        "max_position_embeddings": 2048, **_SHARED,
    }),
)  # fmt: skip
TASKS = (Task(True, 2, 192), Task(True, 1, 448), Task(False, 1, 320), Task(False, 1, 832))


PARTS = (
    (0.4, ("gemm",)),
    (0.25, ("attention", "attention_backward")),
    (0.2, ("pointwise", "lookup", "memory_copy", "optimizer")),
    (0.15, ("grouped_gemm",)),
)
"""Shares of the budget, and the kinds of kernel that are measured in each."""

LONG = 60.0
"""Seconds of budget from which on it is shared out; a shorter one is spent on all kinds together."""


def calibrated(folder: Path, trace: Path | None, budget: float, threads: int) -> tuple[Path, float]:
    """Measure (unless there is a ``trace``) and fit with the commands that a person uses; the accelerator's file and
    the time [s] of the fixed work meanwhile, 0 where nothing was measured."""
    paces: list[float] = []
    if trace is None:
        trace = folder / "trace.csv"
        for share, kinds in PARTS if budget >= LONG else ((1.0, ()),):
            paces.append(pace(threads))
            command("calibrate", "measure", "--device", "cpu", "--device-name", "this-cpu", "--threads", str(threads),
                    "--format", "fp32", "--budget", str(share * budget), "--output", str(trace),
                    *(word for kind in kinds for word in ("--kind", kind)))  # fmt: skip
        paces.append(pace(threads))
    records = folder / "records"
    command("calibrate", "fit", str(trace), "--memory", MEMORY, "--output", str(records))
    return next(records.glob("*.toml")), median(paces) if paces else 0.0


def pace(threads: int) -> float:
    """The time [s] of the fixed work now: the median over a second and a half."""
    import torch

    torch.set_num_threads(threads)
    run, samples, end = fixed_work(), [], time.perf_counter() + 1.5
    run()
    while time.perf_counter() < end:
        samples += measured([run], 1)
    return median(samples)


def fixed_work() -> Callable[[], None]:
    """Products and a pass over memory, as a model has them, a few ten milliseconds in all."""
    import torch

    generator = torch.Generator().manual_seed(2)
    x, up, down = (torch.randn(shape, generator=generator) for shape in ((384, 640), (2560, 640), (640, 2560)))

    def run() -> None:
        with torch.no_grad():
            for _ in range(2):
                inner = torch.nn.functional.silu(torch.nn.functional.linear(x, up))
                torch.nn.functional.linear(inner, down).add_(x)

    return run


def command(*words: str) -> None:
    """Run slipstick; its output goes to ours."""
    subprocess.run([sys.executable, "-m", "slipstick", *words], check=True)


def built(model: Model, folder: Path) -> tuple[Any, str]:
    """The model of transformers with random weights, and the path of its config.json."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, model.config)(**model.arguments)
    made: Any = transformers.AutoModelForCausalLM  # ships no types
    made = made.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    place = folder / re.sub(r"[^a-z0-9]+", "-", model.name)
    made.config.save_pretrained(place)
    return made, str(place / "config.json")


def runner(made: Any, task: Task) -> Callable[[], None]:
    """What executes the task once."""
    import torch

    vocabulary = made.config.vocab_size
    tokens = torch.randint(vocabulary, (task.batch, task.tokens), generator=torch.Generator().manual_seed(1))
    if not task.step:

        def forward() -> None:
            made.eval()
            with torch.no_grad():
                made(tokens, use_cache=False, logits_to_keep=1)

        return forward
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        made.train()
        optimizer.zero_grad(set_to_none=True)
        made(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()

    return step


def measured(runs: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The median time [s] of each, timed in turn so that a change of the machine's speed hits all alike."""
    samples: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, own in zip(runs, samples, strict=True):
            start = time.perf_counter()
            run()
            if number:  # the first round allocates
                own.append(time.perf_counter() - start)
    return [median(own) for own in samples]


def predicted(config: str, task: Task, accelerator: Path) -> float:
    """What slipstick says of the task [s]."""
    if task.step:
        found = slipstick.train(
            config, on=str(accelerator), devices=1, micro_batch=task.batch, global_batch=task.batch,
            sequence=task.tokens, precision="fp32",
        )  # fmt: skip
        return float(found.answer.figures["step_time_s"])
    found = slipstick.serve(
        config, on=str(accelerator), devices=1, concurrency=task.batch, input_tokens=task.tokens, output_tokens=1,
        precision="fp32",
    )  # fmt: skip
    return float(found.answer.figures["ttft_s"])


def pairs(
    accelerator: Path, folder: Path, threads: int, rounds: int, models: Sequence[Model] = MODELS, usual: float = 0.0
) -> list[Pair]:
    """Every task of every model, measured and predicted; ``usual``: time [s] of the fixed work before."""
    import torch

    torch.set_num_threads(threads)
    found = []
    for model in models:
        made, config = built(model, folder)
        *times, now = measured([*(runner(made, task) for task in TASKS), fixed_work()], rounds)
        found += [
            Pair(model.name, task.name, seconds, predicted(config, task, accelerator), now / usual if usual else 1.0)
            for task, seconds in zip(TASKS, times, strict=True)
        ]
    return found


def table(found: Sequence[Pair]) -> float:
    """Print the comparison; the median of the errors' sizes."""
    print(f"{'model':<28} {'task':<16} {'measured':>10} {'predicted':>10} {'raw':>7} {'speed':>6} {'error':>7}")
    for pair in found:
        print(f"{pair.model:<28} {pair.task:<16} {pair.measured * 1e3:>7.1f} ms {pair.predicted * 1e3:>7.1f} ms "
              f"{pair.raw:>+7.1%} {1 / pair.pace:>6.2f} {pair.error:>+7.1%}")  # fmt: skip
    middle = median(abs(pair.error) for pair in found)
    for word in ("train", "forward"):
        own = [pair.error for pair in found if pair.task.startswith(word)]
        print(f"{word}: median error {median(map(abs, own)):.1%}, median of predicted/measured {1 + median(own):.2f}")
    print(f"median error {middle:.1%} of {len(found)} (raw: {median(abs(pair.raw) for pair in found):.1%})")
    return middle


def main() -> int:
    """Run the loop; exit status 1 where the median error is above the limit."""
    parser = argparse.ArgumentParser(description="Measure, fit, predict, compare, on this machine's processor.")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of microbenchmarks")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of PyTorch")
    parser.add_argument("--trace", type=Path, help="a trace of `slipstick calibrate measure`: measure none")
    parser.add_argument("--keep", type=Path, help="folder for trace and records; by default a temporary one")
    parser.add_argument("--limit", type=float, default=0.15, help="largest median error, as a fraction")
    parser.add_argument("--quick", action="store_true", help="a fifth of the budget, three rounds")
    chosen = parser.parse_args()
    budget, rounds = (chosen.budget / 5, 3) if chosen.quick else (chosen.budget, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="slipstick-") as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        accelerator, usual = calibrated(folder, chosen.trace, budget, chosen.threads)
        middle = table(pairs(accelerator, folder, chosen.threads, rounds, usual=usual))
    return 0 if middle <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
