"""What a PyTorch operator with the shapes of its inputs does, in slipstick's words: kind, shape, number format.

Calibration; used by the readers of profiler traces. The order of an operator's arguments is that of its schema
(``torch._C._jit_get_all_schemas()`` of torch 2.13); names of the fused attention's are those of flash-attn 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from attrs import field, frozen

from .kernel_names import WHOLE
from .operators_attention import ATTENTION, attention_shape
from .operators_call import Call, Operand, Unclear


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _aten(text: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in text.split())


MOVES = _aten(
    "empty empty_like empty_strided new_empty new_empty_strided new_zeros new_ones zeros zeros_like ones ones_like "
    "full full_like view _unsafe_view reshape _reshape_alias view_as as_strided transpose t permute expand "
    "expand_as broadcast_to select slice narrow split split_with_sizes chunk unbind squeeze unsqueeze flatten "
    "unflatten detach detach_ alias lift_fresh contiguous clone to _to_copy type_as item _local_scalar_dense "
    "result_type resolve_conj resolve_neg set_ resize_ resize_as_ is_nonzero is_pinned pin_memory swapaxes movedim "
    "numpy_T mT is_same_size record_stream _has_compatible_shallow_copy_type requires_grad_ output_nr"
)
"""Operators that make a view, allocate, or hand on to another operator: no kernel of their own."""

WRAPPER = re.compile(r"(autograd::|torch::autograd::|detach$|[A-Za-z_]\w*Backward\d*$)")
"""Names of autograd's nodes, which only call operators."""

COMPOSITE = _aten("linear matmul scaled_dot_product_attention layer_norm rms_norm softmax log_softmax dropout")
"""Operators that are what their name says only where no other operator of a known kind runs inside them."""

_UNARY = _words(
    "neg abs exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sigmoid tanh relu gelu silu mish cos sin erf square "
    "sign floor ceil round trunc bitwise_not logical_not hardtanh leaky_relu softplus elu hardswish tril triu "
    "native_dropout dropout bernoulli nan_to_num isnan isinf isfinite cumsum cumprod flip roll pow clamp clamp_min "
    "clamp_max normal uniform random fill zero"
)
_BINARY = _words(
    "add sub mul div rsub eq ne lt le gt ge maximum minimum fmod remainder atan2 logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor where masked_fill lerp addcmul addcdiv threshold_backward gelu_backward "
    "silu_backward sigmoid_backward tanh_backward native_dropout_backward dropout_backward hardtanh_backward"
)
_NORMS = _words(
    "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward native_group_norm "
    "native_group_norm_backward _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data layer_norm "
    "rms_norm softmax log_softmax"
)
_REDUCTIONS = _words("sum mean amax amin max min argmax argmin var std norm linalg_vector_norm all any prod nansum")
_LOGICAL = frozenset(_words("eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite"))
_FILLS = ("fill", "zero", "normal", "uniform", "random", "bernoulli")

POINTWISE = frozenset(f"aten::{name}" for name in (*_UNARY, *_BINARY, *_NORMS, *_REDUCTIONS))


@frozen
class Meaning:
    """What an operator is: ``kernel`` and ``shape`` as rows have them, and the ``format`` of its numbers."""

    kernel: str
    shape: Mapping[str, float]
    format: str
    facts: Mapping[str, str] = field(factory=dict)


def meaning(call: Call) -> Meaning | None:
    """What the operator does; None for one of a kind that is not known.

    Errors: Unclear where the kind is known and what was recorded does not tell the shape.

    >>> meaning(Call("aten::mm", ((4, 8), (8, 2)), ("c10::BFloat16", "c10::BFloat16")))
    Meaning(kernel='gemm', shape={'m': 4, 'n': 2, 'k': 8}, format='bf16', facts={})
    """
    name = call.name
    if name in ATTENTION:
        kernel, shape, number = attention_shape(call)
        return Meaning(kernel, shape, number)
    if name in GEMMS:
        return GEMMS[name](call)
    if name in LOOKUPS:
        return LOOKUPS[name](call)
    if name in ("aten::_fused_adam_", "aten::_fused_adamw_"):
        return _adam(call)
    if name == "aten::copy_":
        return _copy(call)
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if plain in POINTWISE:
        return _pointwise(call, plain.removeprefix("aten::"), in_place=plain != name)
    if name.startswith(("triton_poi_", "triton_per_", "triton_red_")):
        return _fused_pointwise(call)
    return None


def is_known(name: str) -> bool:
    """Whether ``meaning`` has a kind for the operator of this name."""
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return (
        name in ATTENTION
        or name in GEMMS
        or name in LOOKUPS
        or plain in POINTWISE
        or name in ("aten::_fused_adam_", "aten::_fused_adamw_", "aten::copy_")
        or name.startswith(("triton_poi_", "triton_per_", "triton_red_"))
    )


# --- matrix products ----------------------------------------------------------------------------------------------


def _product(a: Operand, b: Operand, transposed: bool = False, batched: bool = False) -> Meaning:
    """x[.., m, k] · w[k, n], or w[n, k] where ``transposed``, or one for each of a batch."""
    depth, wide = (b.dims[-1], b.dims[-2]) if transposed and len(b.dims) > 1 else (*b.dims[-2:], 1)[:2]
    if not a.dims or not b.dims or a.dims[-1] != depth:
        raise Unclear("the inner extents of the product differ")
    m, k, n = math.prod(a.dims[:-1]), a.dims[-1], wide
    batch = 1
    if batched:
        batch, m = math.prod(a.dims[:-2]), a.dims[-2]
    number = a.format if a.format not in WHOLE or b.format in WHOLE else b.format
    if number == "nvfp4":
        k *= 2  # two numbers in a byte
    if min(m, n, k, batch) == 0:
        raise Unclear("an empty product")
    if batch > 1:
        return Meaning("batched_gemm", {"batch": batch, "m": m, "n": n, "k": k}, number)
    return Meaning("gemm", {"m": m, "n": n, "k": k}, number)


def _gemm(first: int, second: int, transposed: bool = False, batched: bool = False) -> Callable[[Call], Meaning]:
    return lambda call: _product(call.array(first), call.array(second), transposed, batched)


def _matmul(call: Call) -> Meaning:
    a, b = call.array(0), call.array(1)
    if len(b.dims) > 2:
        if len(a.dims) != len(b.dims) or a.dims[:-2] != b.dims[:-2]:
            raise Unclear("a product that broadcasts its batch")
        return _product(a, b, batched=True)
    if len(a.dims) == 1:
        return _product(Operand((1, *a.dims), a.format, a.size), b)
    return _product(a, b)


def _scaled(call: Call) -> Meaning:
    """FP8 and FP4 products with scales: one scale, one a row, or one a block."""
    found = _product(call.array(0), call.array(1))
    scale = call.array(2)
    count = math.prod(scale.dims)
    per = "tensor" if count <= 1 else "row" if count == found.shape["m"] else "block"
    number = "fp8_block" if found.format == "fp8" and per == "block" else found.format
    return Meaning(found.kernel, found.shape, number, {"scales": f"one a {per}"})


GEMMS: dict[str, Callable[[Call], Meaning]] = {
    "aten::mm": _gemm(0, 1),
    "aten::_int_mm": _gemm(0, 1),
    "aten::addmm": _gemm(1, 2),
    "aten::addmm_": _gemm(1, 2),
    "aten::_addmm_activation": _gemm(1, 2),
    "aten::mv": _gemm(0, 1),
    "aten::addmv": _gemm(1, 2),
    "aten::addmv_": _gemm(1, 2),
    "aten::bmm": _gemm(0, 1, batched=True),
    "aten::baddbmm": _gemm(1, 2, batched=True),
    "aten::baddbmm_": _gemm(1, 2, batched=True),
    "aten::linear": _gemm(0, 1, transposed=True),
    "aten::mkldnn_linear": _gemm(0, 1, transposed=True),
    "aten::matmul": _matmul,
    "aten::_scaled_mm": _scaled,
}


# --- what passes over memory --------------------------------------------------------------------------------------


def _pointwise(call: Call, plain: str, in_place: bool) -> Meaning:
    arrays = call.arrays()
    if not arrays:
        raise Unclear("no shapes of its inputs")
    largest = max(arrays, key=lambda array: array.bytes)
    reads = sum(array.bytes for array in arrays)
    if plain in _REDUCTIONS:
        elements, writes = largest.elements, 0.0  # the result is small, and its extents are not recorded
    elif plain in _NORMS:
        elements = largest.elements
        writes = largest.bytes
    else:
        elements = arrays[0].elements if in_place else _broadcast(arrays)
        numbers = [array for array in arrays if array.format not in WHOLE] or arrays
        writes = elements * (1 if plain in _LOGICAL else max(array.size for array in numbers))
        if in_place and plain in _FILLS:
            reads = 0.0
    if reads + writes == 0:
        raise Unclear("nothing to do")
    return Meaning("pointwise", {"bytes": reads + writes, "elements": elements}, _first_number(arrays))


def _broadcast(arrays: list[Operand]) -> int:
    """Elements of what arrays of these extents are together."""
    extents: list[int] = []
    for array in arrays:
        for place, extent in enumerate(reversed(array.dims)):
            if place == len(extents):
                extents.append(extent)
            elif extent != 1:
                extents[place] = extent
    return math.prod(extents)


def _first_number(arrays: list[Operand]) -> str:
    return next((array.format for array in arrays if array.format not in WHOLE), arrays[0].format)


def _copy(call: Call) -> Meaning:
    target, source = call.array(0), call.array(1)
    if not target.elements or not source.elements:
        raise Unclear("nothing to do")
    return Meaning("pointwise", {"bytes": target.bytes + source.bytes, "elements": target.elements}, target.format)


def _fused_pointwise(call: Call) -> Meaning:
    """A kernel that torch.compile made: each array is read or written once (in place ones count once)."""
    arrays = call.arrays()
    amount = sum(array.bytes for array in arrays)
    if not amount:
        raise Unclear("no shapes of its inputs")
    elements = max(array.elements for array in arrays)
    return Meaning("pointwise", {"bytes": amount, "elements": elements}, _first_number(arrays))


def _rows_of(table: Operand, elements: float, indices: Operand) -> Meaning:
    if not elements:
        raise Unclear("nothing to do")
    amount = 2 * elements * table.size + indices.bytes
    return Meaning("lookup", {"bytes": amount, "elements": elements}, table.format)


def _embedding(call: Call) -> Meaning:
    table, indices = call.array(0), call.array(1)
    if len(table.dims) != 2:
        raise Unclear("a table that is no matrix")
    return _rows_of(table, indices.elements * table.dims[1], indices)


def _index_select(call: Call) -> Meaning:
    table, indices = call.array(0), call.array(2)
    along = call.whole(1)
    if along is None or not -len(table.dims) <= along < len(table.dims) or not table.dims[along]:
        raise Unclear("the axis it selects along isn't recorded")
    return _rows_of(table, table.elements // table.dims[along] * indices.elements, indices)


def _gather(call: Call) -> Meaning:
    table, indices = call.array(0), call.array(2)
    return _rows_of(table, indices.elements, indices)


LOOKUPS: dict[str, Callable[[Call], Meaning]] = {
    "aten::embedding": _embedding,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
}


def _adam(call: Call) -> Meaning:
    """One step of Adam over a list of weights; the profiler does not record the type of a list's tensors."""
    weights = call.lists(0)
    elements = sum(math.prod(dims) for dims in weights)
    if not elements:
        raise Unclear("no shapes of its inputs")
    return Meaning("optimizer", {"elements": elements}, "", {"tensors": str(len(weights))})
