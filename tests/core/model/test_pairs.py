"""The closed forms for (query, context) pairs against counting them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.algebra.symbols import symbol
from slipstick.core.model import symbols as _registered  # noqa: F401  # registers the law's symbols
from slipstick.core.model.pairs import attention_pairs

q, c, w = symbol("query"), symbol("context"), symbol("window")
FORMS = {
    "full": attention_pairs(q, c, False),
    "causal": attention_pairs(q, c, True),
    "sliding": attention_pairs(q, c, True, w),
    "chunked": attention_pairs(q, c, True, w, chunked=True),
}
TAPE = compile_expressions(FORMS)


def sees(kind: str, token: int, other: int, window: int) -> bool:
    """Whether the token at one position attends to another."""
    if kind == "full":
        return True
    if other > token:
        return False
    if kind == "sliding":
        return token - other < window
    return kind == "causal" or token // window == other // window


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 80))
@settings(max_examples=150, deadline=None)
def test_pairs_are_those_that_one_counts(query: int, before: int, window: int) -> None:
    context = before + query
    found = TAPE.evaluate({"query": query, "context": context, "window": window})
    for kind in FORMS:
        counted = sum(sees(kind, i, j, window) for i in range(before, context) for j in range(context))
        assert found[kind] == counted, kind


@pytest.mark.parametrize("kind", list(FORMS))
def test_a_window_as_wide_as_the_context_limits_nothing(kind: str) -> None:
    values = {"query": 5, "context": 9, "window": 9}
    assert TAPE.evaluate(values)[kind] == TAPE.evaluate(values)["full" if kind == "full" else "causal"]


def test_numbers_come_out_whole() -> None:
    assert attention_pairs(4, 4, True) == 10  # type: ignore[arg-type]  # numbers work as symbols do
    assert attention_pairs(1, 7, True, 3) == 3  # type: ignore[arg-type]
