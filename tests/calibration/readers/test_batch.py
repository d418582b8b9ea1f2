"""Rows as columns and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.calibration.readers.batch import SPLITTING, Batch, from_rows
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceRow

ROWS = st.builds(
    lambda kernel, m, seconds, ranks, line, engine, clock: TraceRow(
        kernel,
        {"m": m} if kernel == "gemm" else {"bytes": m, "elements": m},
        "bf16",
        "h100-sxm",
        seconds,
        "by hand",
        ranks=ranks,
        line=line,
        facts={"engine": engine, "clock": clock},
    ),
    st.sampled_from(["gemm", "pointwise"]),
    st.floats(0, 1e9),
    st.floats(1e-9, 1e3),
    st.integers(1, 64),
    st.integers(0, 10**6),
    st.sampled_from(["vllm", "sglang"]),
    st.sampled_from(["1.98 GHz", "1.41 GHz"]),
)


@given(st.lists(ROWS, max_size=30))
def test_every_row_is_in_one_batch_with_its_numbers(rows: list[TraceRow]) -> None:
    back = [row for batch in from_rows(rows) for row in batch.rows()]

    def told(row: TraceRow) -> tuple[object, ...]:
        return (row.kernel, tuple(sorted(row.shape.items())), row.seconds, row.ranks, row.line, row.facts["engine"])

    assert sorted(map(told, back), key=repr) == sorted(map(told, rows), key=repr)


@given(st.lists(ROWS, min_size=1, max_size=30))
def test_a_batch_says_only_what_is_true_of_all_its_rows(rows: list[TraceRow]) -> None:
    for batch in from_rows(rows):
        members = [r for r in rows if r.kernel == batch.kernel and r.facts["engine"] == batch.engine]
        assert len(members) == len(batch)
        assert all(member.facts.items() >= batch.facts.items() for member in members)


@pytest.mark.parametrize("fact", SPLITTING)
def test_rows_that_differ_in_a_splitting_fact_are_apart(fact: str) -> None:
    rows = [TraceRow("gemm", {"m": 1}, "bf16", "a40", 1e-6, "by hand", facts={fact: text}) for text in ("x", "y")]
    assert [batch.facts[fact] for batch in from_rows(rows)] == ["x", "y"]


def test_columns_of_two_lengths_are_refused() -> None:
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(UserError, match="2 values of m for 1 times"):
        Batch("gemm", "bf16", "", "a40", {"m": two}, one, np.ones(1, int), np.ones(1, int), np.ones(1, int))
