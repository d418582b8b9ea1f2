"""Plots: predicted against measured, on logarithmic axes, one panel for each metric.

Floor: face. matplotlib (the extra ``plot``) is imported inside functions only, and never through its global state.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, shown
from ..files import put, reason_of
from ..records.measured import METRICS

if TYPE_CHECKING:
    from ..study.validation.run import Predicted

KINDS = (".png", ".svg", ".pdf")
COLUMNS = 3
MOST_SOURCES = 10
"""Sources that have a colour of their own; the rest share one."""


def check_plot(path: Path) -> None:
    """Refuse what can't be plotted to, before anything is predicted.

    Errors: UserError for an ending other than those of ``KINDS``, a missing folder, or matplotlib not installed.
    """
    if path.suffix.casefold() not in KINDS:
        raise UserError(f"--plot: {shown(path)} ends in none of {', '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--plot: the folder of {shown(path)} is not there")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib, which is not installed: pip install 'slipstick[plot]'")


def plot_errors(rows: Sequence[Predicted], path: Path) -> None:
    """Draw predicted against measured values of all rows to a file, replaced at once.

    The diagonal is a perfect prediction, the dotted lines are a factor of 2. Errors: UserError where nothing can be
    drawn or the file can't be written; those of ``check_plot``.
    """
    check_plot(path)
    by_metric: dict[str, list[Predicted]] = defaultdict(list)
    for row in rows:
        if row.point.metric != "oom" and row.value > 0:
            by_metric[row.point.metric].append(row)
    if not by_metric:
        raise UserError("--plot: no row was predicted that could be drawn")
    figure = _figure(by_metric)
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.casefold()[1:], dpi=120)
        put(path, drawn.getvalue())
    except OSError as error:
        raise UserError(f"--plot: {shown(path)} can't be written: {reason_of(error)}") from None


def _figure(by_metric: dict[str, list[Predicted]]) -> Any:
    columns = min(COLUMNS, len(by_metric))
    lines = -(-len(by_metric) // columns)
    # Imported by name: type checkers need no stubs of an optional package.
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(5 * columns, 4.6 * lines), layout="constrained"
    )
    importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False)
    panels = [axes[i // columns][i % columns] for i in range(lines * columns)]
    for panel, (metric, several) in zip(panels, sorted(by_metric.items()), strict=False):
        _panel(panel, metric, several)
    for panel in panels[len(by_metric) :]:
        panel.set_axis_off()
    return figure


def _panel(panel: Any, metric: str, rows: Sequence[Predicted]) -> None:
    by_source: dict[str, list[Predicted]] = defaultdict(list)
    for row in rows:
        by_source[row.point.source].append(row)
    ordered = sorted(by_source, key=lambda name: -len(by_source[name]))
    for number, name in enumerate(ordered):
        own = by_source[name]
        label = name if number < MOST_SOURCES else "_others"
        panel.plot(
            [r.point.value for r in own], [r.value for r in own], ".", markersize=4, alpha=0.6,
            color=f"C{number}" if number < MOST_SOURCES else "0.6", label=label[:40],
        )  # fmt: skip
    values = [v for row in rows for v in (row.point.value, row.value)]
    ends = [min(values) / 1.3, max(values) * 1.3]
    for factor, style in ((1.0, "-"), (2.0, ":"), (0.5, ":")):
        panel.plot(ends, [factor * end for end in ends], style, color="0.3", linewidth=0.8)
    unit = METRICS[metric]
    told = f" [{unit}]" if unit != "1" else ""
    panel.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=metric,
              xlabel=f"measured{told}", ylabel=f"predicted{told}")  # fmt: skip
    panel.tick_params(axis="x", which="minor", labelsize=6, labelrotation=60)
    panel.legend(fontsize=7, loc="upper left")
