"""Attention pairs against a count by hand, and the counts of single operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.model.axes import (
    BATCH,
    EXPERTS,
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    QUERY,
    ROUTED,
    Tensor,
    Weight,
    axis,
)
from slipstick.core.model.counting import attention_pairs, op_flops
from slipstick.core.model.ops import Attention, Contraction, GroupedContraction, Norm


def by_hand(query: int, context: int, causal: bool, window: int, chunked: bool) -> int:
    """Every pair looked at one by one."""
    pairs = 0
    for position in range(context - query, context):
        for key in range(context):
            visible = not causal or key <= position
            if causal and window and chunked:
                visible = visible and key // window == position // window
            elif causal and window:
                visible = visible and position - key < window
            pairs += visible
    return pairs


@given(st.integers(0, 40), st.integers(0, 40), st.booleans(), st.integers(0, 45), st.booleans())
def test_pairs_equal_the_count_by_hand(query: int, more: int, causal: bool, window: int, chunked: bool) -> None:
    expected = by_hand(query, query + more, causal, window, chunked)
    assert attention_pairs(query, query + more, causal, window, chunked) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_decoding_step_by_step_sees_what_one_pass_sees(context: int, window: int) -> None:
    """Pairs of the first n tokens and of the rest add up, for each kind of window."""
    first = context // 2
    for chunked in (False, True):
        whole = attention_pairs(context, context, True, window, chunked)
        parts = attention_pairs(first, first, True, window, chunked)
        assert parts + attention_pairs(context - first, context, True, window, chunked) == whole


def test_more_queries_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="5 queries cannot be the last of 4"):
        attention_pairs(5, 4)


B, Q, H, F = axis(BATCH), axis(QUERY), axis(HIDDEN), axis(FFN)
SIZES = {"hidden": 5, "ffn": 7, "heads": 6, "kv_heads": 2, "head_dim": 3, "experts": 4, "window": 2}


def test_a_linear_layer_is_two_flops_a_product() -> None:
    op = Contraction("up", Tensor("x", (B, Q, H)), Weight("w", (H, F)), Tensor("y", (B, Q, F)))
    assert op_flops(op, SIZES, 2, 3, 3) == 2 * (2 * 3) * 5 * 7


def test_experts_multiply_the_token_copies_only() -> None:
    experts, routed = axis(EXPERTS), axis(ROUTED)
    x, y = Tensor("x", (experts, routed, H)), Tensor("y", (experts, routed, F))
    op = GroupedContraction("up", x, Weight("w", (experts, H, F), "expert"), y)
    assert op_flops(op, SIZES, 2, 3, 3, top_k=2) == 2 * (2 * 3 * 2) * 5 * 7


def attention(window: str = "") -> Attention:
    heads, kv_heads, dim = axis(HEADS), axis(KV_HEADS), axis(HEAD_DIM)
    q, k, v, out = (
        Tensor(name, (B, Q, kind, dim)) for name, kind in (("q", heads), ("k", kv_heads), ("v", kv_heads), ("o", heads))
    )
    return Attention("attention", q, k, v, out, window=window)


def test_attention_multiplies_every_pair_twice() -> None:
    """Scores and values, 2·b·a·q·c·d each; grouped keys are read, not multiplied, less often."""
    assert op_flops(attention(), SIZES, 2, 3, 4) == 2 * (2 * 2 * 6 * 3 * 4 * 3)
    assert op_flops(attention(), SIZES, 2, 3, 4, causal=True) == 2 * (2 * 2 * 6 * (2 + 3 + 4) * 3)
    assert op_flops(attention("window"), SIZES, 2, 3, 4, causal=True) == 2 * (2 * 2 * 6 * (2 + 2 + 2) * 3)


def test_a_norm_multiplies_no_matrix() -> None:
    x = Tensor("x", (B, Q, H))
    assert op_flops(Norm("n", (x,), (Tensor("y", (B, Q, H)),), 5), SIZES, 2, 3, 3) == 0
