"""The training sets, each with what others reach on it: errors on rows that were not fitted, beside a constant.

Floor: calibration. ``python -m slipstick.calibration.training_table FOLDER`` prints it (four minutes), and with
``--write docs/validation.md`` puts it between the page's marks. numpy inside functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.files import replace_file
from slipstick.core.host.host import Host
from slipstick.core.study.validation.names import Skipped
from slipstick.core.study.validation.points import read_file
from slipstick.core.study.validation.run import Predicted, Run
from slipstick.core.study.validation.scores import rank_correlation

from .stack_fit import predicted
from .stack_runs import SMALL, Runs, configuration, runs
from .stack_training import FITTED, Trained, refitted, sets_of, trained

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

FILE = "training_points.csv"
BEGIN, END = "<!-- training sets -->", "<!-- end of training sets -->"
SPLITS = 20
"""Random divisions of the large sets into fitted and judged rows, beside the one that is fixed."""


@frozen
class Set:
    """Rows of one publication. ``rows``: a pattern over their ids; ``others``: the best published tool's error on them,
    with its name; ``goal``: the mean error to reach."""

    title: str
    rows: str
    others: str
    goal: float


SETS = (
    Set("Korthikanti et al., table 5", "KOR22T5", "Calculon 3.7 %", 0.025),
    Set("Narayanan et al., tables 1 and 2", "NAR21T1|NAR21T2-0(07|08|09|1)", "llm-analysis 5.8 to 7.9 %", 0.03),
    Set("Narayanan et al., table 2, ZeRO-3", "NAR21T2-00[1-6]", "", 0.03),
    Set("Megatron-LM on H100", "MLMH100", "llm-analysis 9.4 %", 0.05),
    Set("BLOOM tuning", "BLOOM", "SimuMax 22.6 %", 0.05),
    Set("vTrain, several nodes", "VTRAINM", "SimuMax 11.2 %", 0.06),
    Set("vTrain, one node", "VTRAINS", "38 %", 0.05),
    Set("MPT, A100 40 GB", "MPT@a100-sxm-40gb", "", 0.04),
    Set("MPT, A100 80 GB", "MPT@a100-sxm-80gb", "", 0.04),
    Set("MPT, H100", "MPT@h100-sxm", "", 0.04),
    Set("torchtitan", "TITAN|TITANTP", "", 0.07),
    Set("ATorch", "ATORCH", "", 0.07),
    Set("Llama 3", "LLAMA3", "", 0.07),
    Set("NeMo 24.07, H100", "NEMO2407", "", 0.08),
    Set("Megatron-Bridge, H100", "MBRIDGE@h100-sxm", "", 0.08),
    Set("Megatron-Bridge, B200", "MBRIDGE@b200", "", 0.08),
    Set("Megatron-Bridge, GB200", "MBRIDGE@gb200", "", 0.08),
    Set("Megatron-Bridge, GB300", "MBRIDGE@gb300", "", 0.08),
    Set("MaxText, TPU v5e", "MAXV5E", "", 0.08),
    Set("SimuMax B200", "SIMUB200", "SimuMax 5.6 %", 0.045),
)
"""The published sets. What others reach: README of the reference measurements, side by side on the same rows."""


def rows_of(one: Set, found: Runs) -> list[int]:
    """The rows of a set: by the start of the id, and the accelerator after an @."""
    pattern, _, device = one.rows.partition("@")
    named = re.compile(f"({pattern})")
    return [
        i
        for i, question in enumerate(found.questions)
        if named.match(question.point.name) and (not device or found.devices[i] == device)
    ]


def hardware_flops(found: Runs) -> Array:
    """FLOPs of each row's step over all devices, recomputation counted."""
    import numpy as np

    result = np.zeros(len(found.questions))
    for i, question in enumerate(found.questions):
        result[i] = float(question.case.evaluate(question.settings, ["hardware_flops"])["hardware_flops"])
    return result


def constant(work: Array, measured: Array, devices: Array, fitted: Any, ways: Sequence[str]) -> Array:
    """Seconds at one rate of FLOPs a device, carried over from other rows: those that are fitted where some are not,
    else all but the row's own configuration."""
    import numpy as np

    rate = work / devices / measured
    ways_ = np.array(ways)
    result = np.full(len(measured), np.nan)
    for i in range(len(measured)):
        others = fitted if not fitted.all() else ways_ != ways_[i]
        if others.any():
            result[i] = work[i] / devices[i] / np.exp(np.mean(np.log(rate[others])))
    return result


def floor(measured: Array, ways: Sequence[str]) -> tuple[float, int]:
    """Mean error of the geometric mean of other runs of the same configuration, and how many runs have such others."""
    import numpy as np

    off = []
    for i, way in enumerate(ways):
        same = [j for j, other in enumerate(ways) if other == way and j != i]
        if same:
            off.append(abs(np.exp(np.mean(np.log(measured[same]))) / measured[i] - 1))
    return (float(np.mean(off)), len(off)) if off else (0.0, 0)


def random_splits(done: Trained) -> list[tuple[Any, Array]]:
    """For each random division: which rows were fitted, and the seconds of all rows by that fit. Deterministic."""
    import numpy as np

    found, sets = done.found, sets_of(done.found)
    ways = [configuration(q) for q in found.questions]
    kinds = sorted(set(ways))
    large = np.array([sets.count(name) >= SMALL for name in sets])
    made = []
    for number in range(SPLITS):
        drawn = dict(zip(kinds, np.random.default_rng(number).random(len(kinds)) < 0.2, strict=True))
        chosen = np.where(large, [drawn[way] for way in ways], done.chosen) & (found.measured > 0)
        whole = refitted(found, chosen)
        made.append((chosen, predicted(whole, found.parts, found.stacks, found.devices)))
    return made


def table(done: Trained) -> list[str]:
    """The lines of the table in Markdown, and one with the mean over the sets."""
    import numpy as np

    found = done.found
    ways = [configuration(q) for q in found.questions]
    work = hardware_flops(found)
    count = np.array([float(q.settings["devices"]) for q in found.questions])
    splits = random_splits(done)
    lines = [
        "| set | rows | judged | mean | median | bias | constant | worst of 20 splits | repeats | others | goal |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    means = []
    for one in SETS:
        rows = np.array(rows_of(one, found), int)
        if not rows.size:
            continue
        measured = found.measured[rows]
        own_ways = [ways[i] for i in rows]
        ratio = done.held_out[rows] / measured
        judged = np.isfinite(ratio)
        off = ratio[judged] - 1
        fitted = done.chosen[rows]
        carried = np.abs(constant(work[rows], measured, count[rows], fitted, own_ways)[judged] / measured[judged] - 1)
        again, repeats = floor(measured, own_ways)
        worst = ""
        if not fitted.all():
            scores = [float(np.abs(times[rows] / measured - 1)[~c[rows]].mean()) for c, times in splits]
            worst = f"{max(scores):.1%}"
        means.append(float(np.abs(off).mean()))
        lines.append(
            f"| {one.title} | {rows.size} | {int(judged.sum())} | **{means[-1]:.1%}** | {np.median(np.abs(off)):.1%} | "
            f"{off.mean():+.1%} | {np.nanmean(carried):.1%} | {worst} | "
            f"{f'{again:.1%} ({repeats})' if repeats else ''} | {one.others} | {one.goal:.1%} |"
        )
    lines += ["", f"All sets, each weighing the same: mean {np.mean(means):.1%}; {sum(m > 0.1 for m in means)} of "
              f"{len(means)} above 10 %."]  # fmt: skip
    return lines


def orderings(done: Trained) -> list[str]:
    """How well settings are ordered: rank correlation and regret of the predicted best, median over the groups."""
    import numpy as np

    found = done.found
    lines = []
    for title, rows in (("BLOOM", "BLOOM"), ("vTrain, several nodes", "VTRAINM"), ("vTrain, one node", "VTRAINS")):
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, question in enumerate(found.questions):
            if re.match(rows, question.point.name) and np.isfinite(done.held_out[i]):
                sizes = question.case.graph.sizes
                key = tuple(sizes.get(n) for n in ("layers", "hidden", "heads"))
                asked = tuple(question.settings.get(n) for n in ("devices", "global_batch", "sequence"))
                groups.setdefault((*key, *asked), []).append(i)
        ranks, lost = [], []
        for several in groups.values():
            guess, real = done.held_out[several].tolist(), found.measured[several].tolist()
            rank = rank_correlation(guess, real)
            if rank is not None and len(set(guess)) > 1:
                ranks.append(rank)
                lost.append(real[int(np.argmin(guess))] / min(real) - 1)
        if ranks:
            lines.append(f"| {title} | {len(ranks)} | {np.median(ranks):.2f} | {np.median(lost):.1%} |")
    return ["| settings of one model | groups | rank correlation | regret of the predicted best |",
            "| --- | ---: | ---: | ---: |", *lines]  # fmt: skip


def memory(folder: Path, host: Host) -> list[str]:
    """Peak memory and out-of-memory verdicts, with the shipped stacks."""
    points = read_file(folder / FILE, host)
    wanted = [p for p in points.points if p.metric in ("memory", "oom")]
    run = Run(host)
    rows: list[Predicted] = []
    for point in wanted:
        with suppress(Skipped):  # what can't be asked is counted by ``slipstick validate``
            rows.append(run.predict(point))
    return ["| memory | n | mean | bias |", "| --- | ---: | ---: | ---: |", *_memory(rows)]


def _memory(rows: Iterable[Predicted]) -> list[str]:
    rows = list(rows)
    lines = []
    for title, pattern in (("BLOOM tuning", "BLOOM"), ("SimuMax B200", "SIMUB200"), ("torchtitan", "TITAN"),
                           ("ATorch", "ATORCH")):  # fmt: skip
        own = [r.error for r in rows if r.point.metric == "memory" and r.point.name.startswith(pattern)]
        if own:
            mean, bias = sum(map(abs, own)) / len(own), sum(own) / len(own)
            lines.append(f"| {title} | {len(own)} | {mean:.1%} | {bias:+.1%} |")
    flagged = [r for r in rows if r.point.metric == "oom"]
    ran = [r for r in rows if r.point.metric == "memory" and r.point.name.startswith("BLOOM")]
    caught, alarms = sum(not r.fits for r in flagged), sum(not r.fits for r in ran)
    lines += ["", f"Out of memory (BLOOM): {caught} of {len(flagged)} runs that failed are flagged, and {alarms} of "
              f"{len(ran)} that ran."]  # fmt: skip
    return lines


def page(folder: Path, host: Host) -> str:
    """Everything, in Markdown."""
    found = runs("train", [folder / FILE], host, lambda q: str(q.case.structure.get("stack")) in FITTED)
    done = trained(found)
    return "\n".join([*table(done), "", *orderings(done), "", *memory(folder, host)])


def written(text: str, content: str) -> str:
    """``text`` with ``content`` between its marks. Errors: ValueError where they are missing."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no place for the table: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    import click

    @click.command()
    @click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
    @click.option("--write", "target", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    def show(folder: Path, target: Path | None) -> None:
        """Judge the training stacks on the published runs in FOLDER."""
        content = page(folder, Host.load())
        click.echo(content)
        if target is not None:
            replace_file(target, written(target.read_text(encoding="utf-8"), content))

    show.main(args=list(arguments) if arguments is not None else None, standalone_mode=True)


if __name__ == "__main__":
    main()
