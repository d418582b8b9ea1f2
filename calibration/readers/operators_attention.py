"""Shapes of PyTorch's and flash-attn's fused attention, forward and backward.

Calibration. Where an operator has its arguments is that of its schema in torch 2.13 and in flash-attn 2.
"""

from __future__ import annotations

from attrs import frozen

from .operators_call import Call, Unclear


@frozen
class Layout:
    """Where an attention operator has its arguments.

    ``query``: place of the query, keys and values follow; ``order``: axes of a tensor, b batch, h heads, s sequence,
    d head, t for all sequences one after the other; ``causal``: place of that flag; ``mask``: place of a mask;
    ``window``: place of how far to the left is seen; ``kind``: whether ``causal`` is the number of a kind of mask;
    ``lengths``: place of the cumulative lengths of queries, then of keys, longest query, longest keys.
    """

    query: int
    order: str
    causal: int
    mask: int = -1
    window: int = -1
    kind: bool = False
    lengths: int = -1
    backward: bool = False


ATTENTION: dict[str, Layout] = {
    "aten::scaled_dot_product_attention": Layout(0, "bhsd", 5, mask=3),
    "aten::_scaled_dot_product_flash_attention": Layout(0, "bhsd", 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": Layout(0, "bhsd", 4, mask=5),
    "aten::_scaled_dot_product_efficient_attention": Layout(0, "bhsd", 6, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": Layout(0, "bhsd", 6, mask=3),
    "aten::_cudnn_attention_forward": Layout(0, "bhsd", 10, mask=3),
    "aten::_flash_attention_forward": Layout(0, "bshd", 8, window=11, lengths=3),
    "aten::_efficient_attention_forward": Layout(0, "bshd", 9, mask=3, kind=True, lengths=4),
    "aten::_scaled_dot_product_flash_attention_backward": Layout(1, "bhsd", 11, backward=True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": Layout(1, "bhsd", 7, mask=8, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": Layout(1, "bhsd", 11, mask=4, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": Layout(1, "bhsd", 14, mask=8, backward=True),
    "aten::_cudnn_attention_backward": Layout(1, "bhsd", 14, mask=8, backward=True),
    "aten::_flash_attention_backward": Layout(1, "bshd", 11, window=15, lengths=6, backward=True),
    "aten::_efficient_attention_backward": Layout(1, "bshd", 14, mask=4, kind=True, lengths=6, backward=True),
    "flash_attn::_flash_attn_forward": Layout(0, "bshd", 5, window=6),
    "flash_attn::_flash_attn_backward": Layout(1, "bshd", 11, window=12, backward=True),
    "flash_attn::_flash_attn_varlen_forward": Layout(0, "thd", 9, window=10, lengths=3),
    "flash_attn::_flash_attn_varlen_backward": Layout(1, "thd", 15, window=16, lengths=9, backward=True),
}


def attention_shape(call: Call) -> tuple[str, dict[str, float], str]:
    """Kernel, shape and number format of a call of an operator of ``ATTENTION``.

    Errors: Unclear where what was recorded doesn't tell the shape, or it is none that slipstick has (unequal
    sequences, a mask of its own).
    """
    layout = ATTENTION[call.name]
    query, key = call.array(layout.query), call.array(layout.query + 1)
    order = layout.order
    lengths = _packed(call, layout)
    if order == "bshd" and len(query.dims) == 4 and query.dims[0] == 1 and lengths:
        sizes, other = dict(zip("tshd", query.dims, strict=True)), dict(zip("tshd", key.dims, strict=False))
        sizes["t"], other["t"] = sizes.pop("s"), other.pop("s", 0)
    elif len(query.dims) == len(order) == len(key.dims):
        sizes, other = dict(zip(order, query.dims, strict=True)), dict(zip(order, key.dims, strict=True))
    else:
        raise Unclear(f"its query has {len(query.dims)} axes and its keys {len(key.dims)}, not {len(order)}")
    if "t" in sizes:
        if not lengths:
            raise Unclear("lengths of its sequences aren't recorded")
        batch, longest_query, longest_keys = lengths
        if batch < 1 or sizes["t"] != batch * longest_query or other["t"] != batch * longest_keys:
            raise Unclear("sequences of unequal lengths in one call")
        sizes["b"], sizes["s"], other["s"] = batch, longest_query, longest_keys
    if layout.mask >= 0 and _given(call, layout.mask):
        raise Unclear("a mask of its own")
    steps = sizes["s"]
    causal = _causal(call, layout)
    if causal is None:
        if steps > 1:
            raise Unclear("whether it is causal isn't recorded")
        causal = False
    left = call.whole(layout.window) if layout.window >= 0 else None
    shape = {
        "batch": sizes["b"],
        "query": steps,
        "context": other["s"],
        "heads": sizes["h"],
        "kv_heads": other["h"],
        "head_dim": sizes["d"],
        "window": left + 1 if left is not None and 0 <= left < other["s"] else 0,
        "causal": int(causal),
    }
    if not all(shape[name] for name in ("batch", "query", "context", "heads", "kv_heads", "head_dim")):
        raise Unclear("an empty attention")
    numbers: dict[str, float] = dict(shape)
    return "attention_backward" if layout.backward else "attention", numbers, query.format


def _causal(call: Call, layout: Layout) -> bool | None:
    if layout.kind:
        kind = call.whole(layout.causal)
        return None if kind is None else kind > 0
    return call.truth(layout.causal)


def _packed(call: Call, layout: Layout) -> tuple[int, int, int] | None:
    """Sequences, longest query and longest keys of a call over sequences one after the other, None for another one."""
    place = layout.lengths
    if place < 0 or not _given(call, place):
        return None
    ends = call.array(place).dims
    query, keys = call.whole(place + 2), call.whole(place + 3)
    return None if query is None or keys is None or len(ends) != 1 else (ends[0] - 1, query, keys)


def _given(call: Call, place: int) -> bool:
    """Whether a tensor was passed as input ``place``."""
    dims = call.dims[place] if place < len(call.dims) else ()
    return isinstance(dims, tuple) and len(dims) > 0
