"""A software stack as a record: coefficients fitted to published runs, by task and accelerator, with their errors.

Floor: records. Plain data and its reading from TOML (docs/stacks.md). Uses the walk of ``toml_walk``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from ..errors import shown
from .fitted import ErrorSummary
from .fitted_toml import bare_key, cut, keyed, text_of
from .provenance import Quantity, Source
from .toml_walk import Problems, Table, read_quantity, read_sources, read_toml

SCHEMA = 1
TASKS = ("train", "serve")
KERNELS = "kernels"
"""In a table of spreads: the share of the kernels' spread that the fit of the stack leaves."""

FIGURES = (
    KERNELS,
    "step_time_s", "tpot_s", "ttft_s", "output_tokens_per_s", "request_s", "memory_peak_bytes", "kv_capacity_tokens",
)  # fmt: skip
"""Figures whose spread a record may state; a rate has the spread of the time it follows from."""

SAME_SPREAD = {
    "tokens_per_s": "step_time_s", "tokens_per_s_per_device": "step_time_s", "tflops_per_device": "step_time_s",
    "hardware_tflops_per_device": "step_time_s", "mfu": "step_time_s", "hfu": "step_time_s",
    "run_days": "step_time_s", "run_device_hours": "step_time_s", "run_cost_usd": "step_time_s",
    "step_energy_j": "step_time_s", "energy_per_token_j": "step_time_s", "run_energy_kwh": "step_time_s",
    "tokens_per_s_per_request": "tpot_s", "output_tokens_per_s_per_device": "output_tokens_per_s",
    "energy_per_output_token_j": "output_tokens_per_s",
    "max_concurrency": "kv_capacity_tokens",
}  # fmt: skip


@frozen(kw_only=True)
class StackFit:
    """Coefficients of a stack for one task on one accelerator ("" for all: what stands in for one without runs).

    ``values``: symbol → value; ``spread``: figure → standard deviation of ln(measured/predicted) over runs that were
    not fitted, beside the share of the kernels' own spread that stands under "kernels"; ``rows``: runs fitted;
    ``errors``: part → errors.
    """

    task: str
    accelerator: str = ""
    values: Mapping[str, Quantity]
    spread: Mapping[str, float] = field(factory=dict)
    rows: int = 0
    errors: Mapping[str, ErrorSummary] = field(factory=dict)
    command: str = ""
    note: str = ""


@frozen(kw_only=True)
class StackRecord:
    """``kernels``: task → whose kernels it runs, the preferred ones first."""

    name: str
    title: str
    kernels: Mapping[str, tuple[str, ...]]
    fits: tuple[StackFit, ...]
    note: str = ""

    def fit(self, task: str, accelerator: str) -> StackFit | None:
        """The coefficients for exactly this accelerator ("" for the shared ones)."""
        return next((f for f in self.fits if f.task == task and f.accelerator == accelerator), None)


def read_stack(path: Path, units: Mapping[str, str]) -> StackRecord:
    """The stack that the TOML file at ``path`` describes; ``units``: coefficient → its unit.

    Errors: UserError that tells every problem of the file.
    """
    top = Table(read_toml(path), "", problems := Problems(path))
    top.only(["schema", "kind", "name", "title", "note", "sources", "kernels", "fit"])
    top.whole("schema", SCHEMA, SCHEMA)
    if top.text("kind") not in ("stack", ""):
        top.add("kind", "is not 'stack'")
    sources = read_sources(top)
    kernels: dict[str, tuple[str, ...]] = {}
    table = top.table("kernels")
    if table is not None:
        table.only(TASKS)
        kernels = {task: table.names(task) for task in TASKS if task in table.content}
    record = StackRecord(
        name=top.name("name"), title=top.text("title", limit=100), kernels=kernels,
        fits=tuple(_fit(entry, sources, units) for entry in top.tables("fit")), note=top.text("note", ""),
    )  # fmt: skip
    seen: set[tuple[str, str]] = set()
    for fit in record.fits:
        if (fit.task, fit.accelerator) in seen:
            top.add("fit", f"two for {fit.task} on {fit.accelerator or 'all accelerators'}; keep one")
        seen.add((fit.task, fit.accelerator))
    problems.check()
    return record


def _fit(entry: Table, sources: Mapping[str, Source], units: Mapping[str, str]) -> StackFit:
    entry.only(["task", "accelerator", "values", "spread", "rows", "errors", "command", "note"])
    task = entry.text("task")
    if task and task not in TASKS:
        entry.add("task", f"{shown(task)} is not one of {', '.join(TASKS)}")
    values: dict[str, Quantity] = {}
    table = entry.table("values") or Table({}, "values", entry.problems)
    table.only([*units, *(name for name in table.content if name in units)])
    for name in table.content:
        if name in units:
            quantity = read_quantity(table, name, sources, units[name], 0.0, 1e15)
            if quantity is not None:
                values[name] = quantity
    spread: dict[str, float] = {}
    stated = entry.table("spread")
    if stated is not None:
        stated.only(FIGURES)
        spread = {name: stated.number(name, 0.0, 10.0, 0.0) for name in stated.content if name in FIGURES}
    errors: dict[str, ErrorSummary] = {}
    judged = entry.table("errors")
    for name in judged.content if judged is not None else ():
        part = judged.table(name) if judged is not None else None
        if part is not None:
            part.only(["n", "mean", "median", "p90", "bias"])
            mean, median, p90 = (part.number(key, 0.0, 1e6, 0.0) for key in ("mean", "median", "p90"))
            count = part.whole("n", 0, 10**9, 0)
            errors[name] = ErrorSummary(count, mean, median, p90, part.number("bias", -1.0, 1e6, 0.0))
    return StackFit(
        task=task, accelerator=entry.name("accelerator", "") if entry.content.get("accelerator") else "",
        values=values, spread=spread, rows=entry.whole("rows", 0, 10**9, 0), errors=errors,
        command=entry.text("command", ""), note=entry.text("note", ""),
    )  # fmt: skip


def write_stack(record: StackRecord) -> str:
    """The TOML text of a record; the same record gives the same text."""
    from ..algebra.units import format_si

    lines = [f"schema = {SCHEMA}", 'kind = "stack"', f"name = {_text(record.name)}", f"title = {_text(record.title)}"]
    if record.note:
        lines.append(f"note = {_text(record.note)}")
    keys = keyed(q.source for fit in record.fits for q in fit.values.values())
    for source, key in keys.items():
        lines += ["", f"[sources.{bare_key(key)}]", f"title = {_text(source.title)}", f"url = {_text(source.url)}",
                  f"date = {_text(source.date)}", f"kind = {_text(source.kind)}"]  # fmt: skip
    if record.kernels:
        lines += ["", "[kernels]"]
        for task, names in sorted(record.kernels.items()):
            lines.append(f"{task} = [{', '.join(_text(name) for name in names)}]")
    for fit in record.fits:
        lines += ["", "[[fit]]", f"task = {_text(fit.task)}"]
        if fit.accelerator:
            lines.append(f"accelerator = {_text(fit.accelerator)}")
        lines.append(f"rows = {fit.rows}")
        for key, told in (("command", fit.command), ("note", fit.note)):
            if told:
                lines.append(f"{key} = {_text(told)}")
        lines += ["", "[fit.values]"]
        for name, quantity in fit.values.items():
            plain = quantity.unit == "1"
            value = f"{quantity.value:.6g}" if plain else _text(format_si(quantity.value, quantity.unit, 5))
            extra = f", note = {_text(quantity.note)}" if quantity.note else ""
            lines.append(f"{bare_key(name)} = {{ value = {value}, source = {_text(keys[quantity.source])}{extra} }}")
        if fit.spread:
            lines += ["", "[fit.spread]", *(f"{name} = {value:.4g}" for name, value in fit.spread.items())]
        for name, error in fit.errors.items():
            lines += ["", f"[fit.errors.{name}]", f"n = {error.n}",
                      *(f"{k} = {getattr(error, k):.4f}" for k in ("mean", "median", "p90", "bias"))]  # fmt: skip
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return text_of(cut(value))
