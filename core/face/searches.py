"""What a search found as a page: the best setting, the best few in a table, and why others fail.

Floor: face. Uses the plain data of the study floor's search report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algebra.units import format_si
from .answers import answer_page
from .figures import figure_text, setting_text, short
from .text import Block, Grid, Note, Pairs

if TYPE_CHECKING:
    from ..study.search import SearchReport
    from .answers import Infos

_COLUMNS = {
    "train": ("step_time_s", "tokens_per_s_per_device", "mfu", "memory_peak_bytes"),
    "serve": ("tpot_s", "ttft_s", "output_tokens_per_s", "memory_peak_bytes"),
}


def search_page(report: SearchReport, task: str, infos: Infos, hint: str = "") -> list[Block]:
    """The whole report, the best setting in full."""
    blocks: list[Block] = [*_counts(report)]
    if report.top:
        blocks.append(_table(report, task, infos))
    if report.best is not None:
        blocks.append(Note("The best of them", "title"))
        blocks += answer_page(report.best.answer, infos, hint)
    else:
        blocks.append(Note("NOT FEASIBLE: no setting that was tried meets every condition", "warning"))
        if report.nearest is not None:
            blocks.append(Note("The nearest miss", "title"))
            blocks += answer_page(report.nearest.answer, infos, hint)
    return blocks


def _counts(report: SearchReport) -> list[Block]:
    rows = [
        ("varied", ", ".join(name.replace("_", " ") for name in report.varied) or "nothing"),
        ("tried", f"{report.tried:,} settings"),
        ("feasible", f"{report.feasible:,}"),
        ("best", report.objective),
    ]
    blocks: list[Block] = [Note("Search", "title"), Pairs(tuple(rows))]
    if report.reasons:
        reasons = sorted(report.reasons.items(), key=lambda pair: -pair[1])
        blocks.append(Grid(("settings", "why not"), tuple((f"{n:,}", why) for why, n in reasons), right={0}))
    return blocks


def _table(report: SearchReport, task: str, infos: Infos) -> Grid:
    shown = [key for key in _COLUMNS[task] if key in report.top[0]]
    figures = {*shown}
    settings = [key for key in report.top[0] if key in infos or key in report.varied]
    settings = [key for key in settings if key not in figures]
    columns = [*(infos[key].flag.lstrip("-") if key in infos else short(key) for key in settings), *map(_head, shown)]
    rows = [
        (*(setting_text(key, row.get(key)) for key in settings), *(_cell(key, row.get(key)) for key in shown))
        for row in report.top
    ]
    title = f"The best {len(rows)}" if len(rows) > 1 else "The only one"
    return Grid(("", *columns), tuple((f"{n}", *row) for n, row in enumerate(rows, 1)), title,
                right=set(range(len(columns) + 1)), split=True)  # fmt: skip


def _head(key: str) -> str:
    return {"memory_peak_bytes": "memory", "tokens_per_s_per_device": "tokens/s/GPU"}.get(key) or short(key)


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    if key == "memory_peak_bytes":
        return format_si(value, "B")
    return figure_text(key, value).removesuffix(" tokens/s")
