"""The report of a validation: scores over all rows, by metric, by source, by group, and every row that was skipped.

Floor: study. Plain data; ``to_json`` is the documented schema of ``slipstick validate --json``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from .points import Passed
from .run import Predicted, value_of
from .scores import constant_errors, group_of, scores

SCHEMA = 1


@frozen(eq=False)
class Report:
    """``overall``: the scores of everything; the others: name → scores; ``by``: of the columns asked for."""

    overall: Mapping[str, Any]
    by_metric: Mapping[str, Mapping[str, Any]]
    by_source: Mapping[str, Mapping[str, Any]]
    by_group: Mapping[str, Mapping[str, Any]]
    by: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]
    rows: tuple[Predicted, ...]
    passed: tuple[Passed, ...]
    reasons: Mapping[str, int] = field(factory=dict)

    def to_json(self, *, rows: bool = False) -> dict[str, Any]:
        """The report under the documented schema; ``rows``: every predicted row too."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "overall": dict(self.overall),
            "by_metric": {name: dict(part) for name, part in self.by_metric.items()},
            "by_source": {name: dict(part) for name, part in self.by_source.items()},
            "by_group": {name: dict(part) for name, part in self.by_group.items()},
            "skipped": [
                {"id": p.name, "metric": p.metric, "reason": p.reason, "source": p.source,
                 **({"count": p.count} if p.count != 1 else {})}
                for p in self.passed
            ],
            "skipped_reasons": dict(self.reasons),
        }  # fmt: skip
        if self.columns:
            found["by"] = {"columns": list(self.columns), "groups": {n: dict(part) for n, part in self.by.items()}}
        if rows:
            found["rows"] = [row_json(row) for row in self.rows]
        return found


def row_json(row: Predicted) -> dict[str, Any]:
    """One predicted row."""
    return {
        "id": row.name, "source": row.point.source, "model": row.point.model, "device": row.point.device,
        "metric": row.point.metric, "measured": row.point.value, "predicted": row.value,
        "low": row.low if row.has_interval else None, "high": row.high if row.has_interval else None,
        "error": row.error, "stack": row.stack, "missing_stack": row.missing_stack or None,
        "calibrated": row.calibrated, "fits": row.fits, "notes": list(row.notes),
    }  # fmt: skip


def report(rows: Sequence[Predicted], passed: Sequence[Passed], columns: Sequence[str] = ()) -> Report:
    """Sum up. ``columns``: what to group by beside metric, source and source × metric × accelerator."""
    constants = constant_errors(rows)

    def parts(own: Callable[[Predicted], str], other: Callable[[Passed], str | None]) -> dict[str, dict[str, Any]]:
        grouped: dict[str, list[Predicted]] = defaultdict(list)
        for row in rows:
            grouped[own(row)].append(row)
        missing: Counter[str] = Counter()
        for item in passed:
            name = other(item)
            if name is not None:
                missing[name] += item.count
        names = sorted({*grouped, *missing})
        return {name: scores(grouped.get(name, []), missing[name], constants) for name in names}

    reasons: Counter[str] = Counter()
    for item in passed:
        # Without the numbers at its end, a reason is the same for rows that fail alike.
        reasons[re.sub(r" \([^()]*\d[^()]*\)$", "", item.reason)] += item.count
    return Report(
        scores(rows, sum(item.count for item in passed), constants),
        parts(lambda row: row.point.metric, lambda item: item.metric),
        parts(lambda row: row.point.source, lambda item: item.source),
        # Rows that were skipped belong to no accelerator for certain; they count in the other tables.
        parts(lambda row: " | ".join(group_of(row)), lambda item: None),
        parts(lambda row: " | ".join(value_of(row.point, c) for c in columns), lambda item: None) if columns else {},
        tuple(columns), tuple(rows), tuple(passed), dict(reasons.most_common()),
    )  # fmt: skip
