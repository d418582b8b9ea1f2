"""An answer as a page: what was asked, the figures, memory, where the time goes, what was assumed.

Floor: face. Uses the records of answers and the setting table; no rich, no sympy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..algebra.units import format_si
from ..records.prediction import Answer, TreeNode
from .figures import differing, figure_text, label, setting_text
from .text import Block, Grid, Note, Pairs

if TYPE_CHECKING:
    from ..study.settings import SettingInfo

    Infos = Mapping[str, SettingInfo]

TOP = 5
"""Groups shown of where the time goes."""

_MAIN = {"train": "step", "serve": "tpot"}
_KINDS = {
    "gemm": "matrix products",
    "grouped_gemm": "expert matrix products",
    "attention": "attention",
    "pointwise": "norms and pointwise work",
    "permute": "sorting tokens by expert",
    "lookup": "embedding look-up",
    "optimizer": "optimizer update",
    "sampling": "sampling",
    "host": "host",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "send": "send and receive",
}
# Told on lines of their own, or of no interest to a person where they have their default.
_HEADLINE = {
    "devices", "global_batch", "micro_batch", "micro_batches", "sequence", "input_tokens", "output_tokens",
    "concurrency", "numerics", "node", "kernels", "precision", "gradients", "optimizer_states", "kv_precision",
    "load_skew", "straggler",
}  # fmt: skip


_ALWAYS = {
    "memory_utilisation", "recompute", "attention", "stack", "zero", "dispatch", "schedule", "interleave",
    "sequence_parallel",
}  # fmt: skip
"""Settings that are told even where they are as by default; the JSON has every one."""


def answer_page(answer: Answer, infos: Infos, hint: str = "") -> list[Block]:
    """One answer; ``hint``: the command that explains it."""
    blocks: list[Block] = [Note(headline(answer), "title"), Pairs(tuple(_setting(answer, infos)))]
    if not answer.feasible:
        blocks += obstacles(answer)
    if not laid_out(answer, infos):
        return [*blocks, Note("No figures: these numbers of devices and sequences cannot be laid out.")]
    figures = tuple((label(key), with_interval(key, value, answer)) for key, value in answer.figures.items())
    title = "Figures" if answer.calibrated else "Figures (uncalibrated)"
    blocks.append(Pairs(figures, f"{title}, with 80 % intervals"))
    blocks += [memory_table(answer), *time_table(answer)]
    blocks += assumptions([answer])
    if hint:
        blocks.append(Note(f"formula: {hint}", "command"))
    return blocks


def with_interval(key: str, value: object, answer: Answer) -> str:
    """A figure and, where there is one, the range that 80 % of measurements are expected in."""
    text = figure_text(key, value)
    if key not in answer.intervals or value is None:
        return text
    low, high = (figure_text(key, bound) for bound in answer.intervals[key])
    unit = text.partition(" ")[2]
    # The unit is told once where all three share it.
    if unit and low.endswith(f" {unit}") and high.endswith(f" {unit}"):
        low = low.removesuffix(f" {unit}")
    return f"{text}  ({low} to {high})"


def headline(answer: Answer) -> str:
    """Task, model, number and kind of devices."""
    devices = answer.setting.get("devices", 1)
    node = answer.setting.get("node", "")
    inside = f" ({node})" if node and node != answer.machine else ""
    return f"{answer.task} {answer.model} on {setting_text('devices', devices)} × {answer.machine}{inside}"


def laid_out(answer: Answer, infos: Infos) -> bool:
    """Whether the setting can be laid out: the figures of 10.67 replicas would mislead."""
    if any(obstacle.layout for obstacle in answer.obstacles):
        return False
    counts = [
        name for name in answer.setting if name == "micro_batches" or (name in infos and infos[name].kind == "count")
    ]
    return all(answer.setting[name] == int(answer.setting[name]) for name in counts)


def obstacles(answer: Answer) -> list[Block]:
    """Why an answer is not feasible, and what would be."""
    blocks: list[Block] = []
    for obstacle in answer.obstacles:
        blocks.append(Note(f"NOT FEASIBLE: {obstacle.reason}", "warning"))
        if obstacle.remedy:
            blocks.append(Note(f"remedy: {obstacle.remedy}"))
    return blocks


def memory_table(answer: Answer) -> Grid:
    """The memory ledger of the fullest device."""
    capacity = answer.capacity or 1.0
    sizes = [*((row.name.replace("_", " "), row.bytes) for row in answer.ledger), ("peak", answer.peak)]
    sizes.append(("short of" if answer.headroom < 0 else "free", abs(answer.headroom)))
    rows = [(name, format_si(size, "B"), f"{size / capacity:.1%}") for name, size in sizes]
    stage = f", {answer.stage}" if answer.stage and answer.setting.get("pp", 1) != 1 else ""
    title = f"Memory of the fullest device{stage} ({format_si(answer.capacity, 'B')} there)"
    return Grid(("row", "bytes", "of capacity"), tuple(rows), title, right={1, 2})


def time_table(answer: Answer) -> list[Block]:
    """The largest groups of the main time, for the tree that ``bound_by`` speaks of."""
    root = answer.trees.get(_MAIN.get(answer.task, "")) or next(iter(answer.trees.values()), None)
    if root is None or root.seconds <= 0:
        return []
    groups = sorted(time_groups(root).items(), key=lambda pair: -pair[1])
    rows = [(name, format_si(seconds, "s"), f"{seconds / root.seconds:.1%}") for name, seconds in groups[:TOP]]
    rest = sum(seconds for _, seconds in groups[TOP:])
    if rest > 0:
        rows.append(("everything else", format_si(rest, "s"), f"{rest / root.seconds:.1%}"))
    what = {"train": "step time", "serve": "time per output token"}.get(answer.task, "time")
    title = f"Where the {what} goes; bound by {answer.bound_by or 'nothing'}"
    return [Grid(("part", "time", "share"), tuple(rows), title, right={1, 2})]


def time_groups(root: TreeNode) -> dict[str, float]:
    """Seconds of the whole by kind of work: what the leaves add up to.

    A leaf counts as often as it runs; what an overlap hides runs zero times.
    """
    found: dict[str, float] = {}

    def visit(node: TreeNode) -> None:
        if node.children:
            for child in node.children:
                visit(child)
            return
        name = group_of(node)
        found[name] = found.get(name, 0.0) + node.seconds * node.times

    visit(root)
    return found


def assumptions(answers: Sequence[Answer]) -> list[Block]:
    """What a reader has to know, each line once."""
    lines = dict.fromkeys(line for answer in answers for line in answer.assumptions)
    blank: list[Block] = [Note("")] if lines else []
    return [*blank, *(Note(line) for line in lines)]


def side_by_side(answers: Sequence[Answer], infos: Infos) -> list[Block]:
    """Several answers, one column each: what differs, then the figures."""
    asked = [{"model": a.model, "machine": a.machine, **a.setting} for a in answers]
    rows: list[tuple[str, ...]] = []
    varied = differing(asked) or ["devices"]
    # A node form goes with its machine, the words of a recipe with its name.
    told_by = {"node": "machine", "numerics": "precision"}
    varied = [key for key in varied if told_by.get(key) not in varied]
    for key in varied:
        rows.append((name_of(key, infos), *(setting_text(key, row.get(key)) for row in asked)))
    keys = dict.fromkeys(key for answer in answers for key in answer.figures)
    for key in keys:
        rows.append((label(key), *(_cell(key, answer) for answer in answers)))
    rows.append(("memory", *(format_si(answer.peak, "B") for answer in answers)))
    rows.append(("of capacity", *(f"{answer.peak / (answer.capacity or 1.0):.0%}" for answer in answers)))
    rows.append(("bound by", *(answer.bound_by for answer in answers)))
    rows.append(("feasible", *("yes" if answer.feasible else "NO" for answer in answers)))
    columns = ("", *(f"[{n}]" for n in range(1, len(answers) + 1)))
    head = {"model": answers[0].model, "machine": answers[0].machine}
    told = [head[key] for key in ("model", "machine") if key not in varied]
    blocks: list[Block] = [Note(" ".join([answers[0].task, *told[:1], *(f"on {name}" for name in told[1:])]), "title")]
    blocks.append(Grid(columns, tuple(rows), right=set(range(1, len(columns))), split=True))
    for number, answer in enumerate(answers, 1):
        for obstacle in answer.obstacles:
            remedy = f"; remedy: {obstacle.remedy}" if obstacle.remedy else ""
            blocks.append(Note(f"[{number}] NOT FEASIBLE: {obstacle.reason}{remedy}", "warning"))
    return blocks + assumptions(answers)


def name_of(key: str, infos: Infos) -> str:
    """A setting as the command line calls it."""
    info = infos.get(key)
    return info.flag.lstrip("-") if info else key.replace("_", " ")


def _cell(key: str, answer: Answer) -> str:
    """A figure without the words that its row says already."""
    if key not in answer.figures:
        return "–"
    text = figure_text(key, answer.figures[key])
    return text.removesuffix(" tokens/s").removesuffix(" TFLOP/s").removesuffix(" tokens")


def group_of(node: TreeNode) -> str:
    """The kind of work of a leaf in words, with the group that a collective is over."""
    kind = node.tags.get("kind", "")
    name = _KINDS.get(kind) or kind.replace("_", " ") or node.name
    over = _dimensions(node.tags.get("over", ""))
    return f"{name} over {over}" if over else name


def _dimensions(over: str) -> str:
    """The mesh dimensions of a group as a person calls them, from the atoms of the mesh that they are made of.

    >>> _dimensions("tp.rest×tp.ep"), _dimensions("tp.ep×dp.ep"), _dimensions("dp×pp")
    ('tp', 'ep', 'dp×pp')
    """
    if not over:
        return ""
    pairs = [atom.partition(".")[::2] for atom in over.split("×")]
    owners = dict.fromkeys(owner for owner, _ in pairs)
    borrowers = {borrower for _, borrower in pairs}
    if len(borrowers) == 1 and not borrowers & {"", "rest"}:
        return borrowers.pop()
    return "×".join(owners)


def _is_degree(info: SettingInfo) -> bool:
    return info.owner != "core" and not info.structural


def _setting(answer: Answer, infos: Infos) -> list[tuple[str, str]]:
    setting = dict(answer.setting)
    degrees = [k for k in setting if k in infos and infos[k].kind == "count" and _is_degree(infos[k])]
    layout = " · ".join(f"{k} {setting_text(k, setting[k])}" for k in degrees if setting[k] != 1) or "one device"
    told = {key: setting_text(key, value) for key, value in setting.items()}
    if answer.task == "train":
        one = setting.get("micro_batches") == 1
        batch = "{global_batch} sequences of {sequence} tokens: {micro_batches} micro-batches of {micro_batch}"
        batch = batch.replace("micro-batches of", "micro-batch of") if one else batch
        pairs = [("layout", layout), ("batch", batch.format_map(told))]
    else:
        requests = "{concurrency} at once, {input_tokens} tokens in, {output_tokens} out"
        pairs = [("layout", layout), ("requests", requests.format_map(told))]
    pairs.append(("precision", str(setting.get("numerics", setting.get("precision", "")))))
    others = [
        f"{name_of(key, infos)} {setting_text(key, value)}"
        for key, value in setting.items()
        if key not in _HEADLINE
        and key not in degrees
        and (key in _ALWAYS or key not in infos or value != infos[key].default)
    ]
    for key in ("load_skew", "straggler"):
        if setting.get(key, 1) != 1:
            others.append(f"{name_of(key, infos)} {setting[key]:g}".replace("_", "-"))
    if others:
        pairs.append(("settings", ", ".join(others)))
    return pairs
