"""Pages of a validation: tables of errors, what was skipped and why, and claims with what is predicted.

Floor: face. Uses the reports of study and the blocks of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .text import Block, Grid, Note, Pairs

if TYPE_CHECKING:
    from ..study.validation.claims import Checked
    from ..study.validation.report import Report
    from ..study.validation.run import Predicted

COLUMNS: tuple[tuple[str, str], ...] = (
    ("n", "n"),
    ("mean", "mean_abs_error"),
    ("median", "median_abs_error"),
    ("p90", "p90_abs_error"),
    ("bias", "bias"),
    ("constant", "constant_mean_abs_error"),
    ("rank", "rank_correlation"),
    ("regret", "regret"),
    ("inside", "coverage"),
    ("width", "median_interval_width"),
    ("skipped", "skipped"),
    ("with skipped", "mean_abs_error_with_skipped"),
)
"""Head of a column → key of the scores."""

FEWER = ("n", "mean_abs_error", "median_abs_error", "p90_abs_error", "bias", "constant_mean_abs_error", "coverage")
"""Keys that the tables with many rows show."""

MOST_REASONS = 12
MOST_GROUPS = 40


def report_page(report: Report, *, rows: bool = False, most: int = MOST_GROUPS) -> list[Block]:
    """The page of a report of measured points."""
    overall = report.overall
    total = overall["n"] + overall["skipped"]
    blocks: list[Block] = [
        Note(f"validate: {overall['n']:,} of {total:,} measured points predicted", "title"),
        Pairs(tuple(_headline(overall))),
        _grid("metric", {**report.by_metric, "all": overall}, most),
    ]
    if len(report.by_source) > 1:
        blocks.append(_grid("source", report.by_source, most, FEWER))
    if report.by:
        blocks.append(_grid(", ".join(report.columns), report.by, most, FEWER))
    if report.reasons:
        shown = list(report.reasons.items())[:MOST_REASONS]
        blocks.append(Grid(("skipped", "rows"), tuple((reason, f"{n:,}") for reason, n in shown), right={1}))
        if len(report.reasons) > MOST_REASONS:
            blocks.append(Note(f"and {len(report.reasons) - MOST_REASONS} more reasons; --json has every row"))
    if rows:
        blocks.append(_rows(report.rows))
    blocks.append(
        Note(
            "errors are |predicted/measured - 1|; constant: one value carried over from the rest of the group; rank: "
            "Spearman's; regret: what picking the predicted best costs; inside: measurements in the 80 % interval"
        )
    )
    return blocks


def _headline(overall: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "error", f"mean {_percent(overall['mean_abs_error'])}, median {_percent(overall['median_abs_error'])}"
    if overall["skipped"]:
        yield (
            "skipped",
            f"{overall['skipped']:,}; mean error where each counts as 100 %: "
            + _percent(overall["mean_abs_error_with_skipped"]),
        )
    if overall["constant_mean_abs_error"] is not None:
        yield "a constant", f"mean {_percent(overall['constant_mean_abs_error'])}"
    if overall["approximated"]:
        yield "approximated", f"{overall['approximated']:,} rows rest on an assumption (--rows --json tells which)"
    if overall["missing_stack"]:
        yield "software", f"{overall['missing_stack']:,} rows name a stack that is not installed: predicted with ideal"
    if overall["calibrated"] < overall["n"]:
        yield "uncalibrated", f"{overall['n'] - overall['calibrated']:,} predictions"


def _grid(head: str, parts: Mapping[str, Mapping[str, Any]], most: int, keys: Sequence[str] = ()) -> Grid:
    rows = []
    used = [
        (title, key) for title, key in COLUMNS
        if key == "n" or ((not keys or key in keys) and any(p.get(key) not in (None, 0) for p in parts.values()))
    ]  # fmt: skip
    names = sorted(parts, key=lambda name: (name == "all", -parts[name]["n"])) if len(parts) > most else list(parts)
    for name in names[:most] if len(parts) > most else names:
        rows.append((name, *(_cell(key, parts[name].get(key)) for _, key in used)))
    if len(parts) > most:
        rows.append((f"and {len(parts) - most} more", *("" for _ in used)))
    return Grid((head, *(title for title, _ in used)), tuple(rows), right=range(1, len(used) + 1), split=True)


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if key == "rank_correlation" else _percent(value, sign=key == "bias")


def _percent(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value * 100:+.1f} %" if sign else f"{value * 100:.1f} %"


def _rows(rows: Sequence[Predicted]) -> Grid:
    from ..algebra.units import format_si
    from ..records.measured import METRICS

    table = tuple(
        (row.name, row.point.metric, format_si(row.point.value, METRICS[row.point.metric]),
         format_si(row.value, METRICS[row.point.metric]), _percent(row.error, sign=True))
        for row in rows
    )  # fmt: skip
    return Grid(("row", "metric", "measured", "predicted", "error"), table, right={2, 3, 4})


def claims_page(checked: Sequence[Checked], summary: Mapping[str, int]) -> list[Block]:
    """The page of the evidence of plugins."""
    title = f"validate: {summary['claims']:,} claims, {summary['held']:,} hold, {summary['failed']:,} do not"
    if summary["not_asked"]:
        title += f", {summary['not_asked']:,} could not be asked"
    blocks: list[Block] = [Note(title, "title")]
    if not checked:
        blocks.append(Note("no plugin that is installed brings evidence (hook slipstick_evidence)"))
        return blocks
    rows = []
    for item in checked:
        state = "not asked" if item.verdict is None else "holds" if item.verdict.held else "FAILS"
        text = item.reason if item.verdict is None else item.verdict.text
        rows.append((item.claim.name, state, text, f"{item.claim.source.title} ({item.claim.trust})"))
    return [*blocks, Grid(("claim", "", "predicted and published", "source"), tuple(rows))]
