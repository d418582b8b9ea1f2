"""Number formats and recipes: how wide each role is kept, and at whose rate its products run.

Floor: records. Uses errors and the hardware record. A width is in bytes per element, block scales included.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from ..errors import UserError, unknown
from .hardware import Accelerator

WIDTHS: dict[str, float] = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "mxfp8": 1.0 + 1 / 32,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "fp4": 0.5,
    "int4": 0.5 + 2 / 128,
    "nf4": 0.5 + 1 / 128,
}
"""Bytes per element. fp8_block has a 32-bit scale for 128 x 128 elements (DeepSeek-V3, arXiv:2412.19437, 3.3); MX
formats share an 8-bit scale among 32 elements (OCP Microscaling 1.0), NVFP4 an 8-bit one among 16; int4 is the usual
group of 128 with a 16-bit scale; nf4 the double-quantised 0.127 bits of arXiv:2305.14314 rounded to one byte in
128."""

SIXTEEN_BITS = ("bf16", "fp16")

_RATES: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
    "bf16": ("bf16",),
    "fp16": ("fp16",),
    "fp8": ("fp8", "bf16", "fp16"),
    "fp8_block": ("fp8", "bf16", "fp16"),
    "mxfp8": ("fp8", "bf16", "fp16"),
    "int8": ("int8", "bf16", "fp16"),
    "nvfp4": ("fp4", "bf16", "fp16"),
    "mxfp4": ("fp4", "bf16", "fp16"),
    "fp4": ("fp4", "bf16", "fp16"),
    # Weight-only formats: products run in 16 bits after the weights are expanded on chip.
    "int4": ("bf16", "fp16"),
    "nf4": ("bf16", "fp16"),
}
"""Which rate of an accelerator a product in a format uses: the first it has. Below its own, weights are expanded."""


@frozen
class Numerics:
    """Widths by role [B], and the number format whose rate each engine runs at.

    ``widths``: weight, expert, high, activation, cache, gradient, gradient_copy, master, moment, mask, wide;
    frozen where weights that are not trained have a format of their own;
    ``engines``: gemm, expert, high, attention, vector → format; ``title`` is printed with every answer.
    """

    name: str
    title: str
    widths: Mapping[str, float]
    engines: Mapping[str, str]


def rate_of(accelerator: Accelerator, number_format: str) -> tuple[float, str]:
    """The dense rate [FLOP/s] at which an accelerator multiplies in a format, and the format it really runs in.

    Errors: UserError where the accelerator has no rate for it, naming the formats it has.
    """
    for candidate in _RATES[number_format]:
        if candidate in accelerator.rates:
            return accelerator.rates[candidate].value, candidate
    has = ", ".join(accelerator.rates)
    raise UserError(f"{accelerator.name} has no {number_format} rate; it has {has} (choose another --precision)")


def expanded(wanted: str, used: str) -> bool:
    """Whether products in a format that has a rate of its own run in 16 bits instead, for want of that rate.

    >>> expanded("nvfp4", "bf16"), expanded("nvfp4", "fp4"), expanded("int4", "bf16")
    (True, False, False)
    """
    return used in SIXTEEN_BITS and _RATES[wanted][0] not in SIXTEEN_BITS


TRAINING: dict[str, Numerics] = {
    name: Numerics(
        name,
        title,
        {
            "weight": width, "expert": width, "high": width, "activation": width, "cache": width,
            "gradient": 4.0, "gradient_copy": 0.0, "master": master, "moment": 8.0, "mask": 1.0, "wide": 4.0,
        },
        {"gemm": gemm, "expert": gemm, "high": high, "attention": high, "vector": "fp32"},
    )
    for name, title, width, master, gemm, high in (
        ("bf16", "BF16 with FP32 master weights and gradients", 2.0, 4.0, "bf16", "bf16"),
        ("fp16", "FP16 with FP32 master weights and gradients", 2.0, 4.0, "fp16", "fp16"),
        ("fp8", "FP8 linear layers, the rest BF16, FP32 master weights and gradients", 2.0, 4.0, "fp8", "bf16"),
        ("fp8_block", "FP8 linear layers scaled in blocks, the rest BF16, FP32 master weights and gradients", 2.0, 4.0,
         "fp8_block", "bf16"),
        ("mxfp8", "MXFP8 linear layers, the rest BF16, FP32 master weights and gradients", 2.0, 4.0, "mxfp8", "bf16"),
        ("nvfp4", "NVFP4 linear layers, the rest BF16, FP32 master weights and gradients", 2.0, 4.0, "nvfp4", "bf16"),
        ("tf32", "FP32 with TF32 products", 4.0, 0.0, "tf32", "tf32"),
        ("fp32", "FP32", 4.0, 0.0, "fp32", "fp32"),
    )
}  # fmt: skip
"""Training recipes. Adam keeps two FP32 moments (8 B); gradients accumulate in FP32, as Megatron-LM does."""


GRADIENTS: dict[str, tuple[float, float, str]] = {
    "fp32": (4.0, 0.0, ""), "16bit": (2.0, 0.0, "gradients in 16 bits"),
    "both": (4.0, 2.0, "gradients in FP32 beside those in 16 bits"),
}  # fmt: skip
"""What gradients are kept and added up in → bytes, bytes of a copy kept beside them, and what an answer says of it.
DeepSpeed's FP16 optimizer keeps them in 16 bits; its BF16 optimizer adds them up in FP32 and keeps those that the
backward pass made in 16 bits as well (deepspeed/runtime/bf16_optimizer.py)."""

MOMENTS: dict[str, tuple[float, str]] = {
    "fp32": (8.0, ""), "bf16": (4.0, "Adam's moments in BF16"),
    "8bit": (2.0 * (1.0 + 4 / 2048), "Adam's moments in 8 bits"),
}  # fmt: skip
"""Format of Adam's two moments → bytes of both. 8 bits: a 32-bit scale for 2,048 of them (arXiv:2110.02861, 2.1)."""


BASES: tuple[str, ...] = tuple(name for name in WIDTHS if name != "tf32")
"""What weights that are not trained may be kept in."""


def training_numerics(name: str, gradients: str = "fp32", moments: str = "fp32") -> Numerics:
    """The recipe of that name, with gradients and moments in these formats. Errors: UserError with the known ones."""
    for what, given, known in (
        ("training precision", name, TRAINING), ("format of gradients", gradients, GRADIENTS),
        ("format of optimizer states", moments, MOMENTS),
    ):  # fmt: skip
        if given not in known:
            raise unknown(what, given, known)
    recipe = TRAINING[name]
    (gradient, copied, told), (moment, more) = GRADIENTS[gradients], MOMENTS[moments]
    title = recipe.title.replace(" and gradients", "") if told else recipe.title
    return evolve(
        recipe, title=", ".join(filter(None, (title, told, more))),
        widths={**recipe.widths, "gradient": gradient, "gradient_copy": copied, "moment": moment},
    )  # fmt: skip


def with_base(recipe: Numerics, base: str) -> tuple[Numerics, str]:
    """A training recipe whose frozen linear weights are kept in the format ``base``, and how products read them.

    ``plain``: as they are kept anyway; ``direct``: ``base`` is what the recipe multiplies in; ``expanded``: products
    need them in the format of the recipe's weights first (QLoRA, arXiv:2305.14314, section 3).
    Errors: UserError for an unknown format.
    """
    if base not in BASES:
        raise unknown("format of frozen weights", base, BASES)
    kept = "fp32" if recipe.widths["weight"] == WIDTHS["fp32"] else recipe.engines["high"]
    if base == kept:
        return recipe, "plain"
    title = f"{recipe.title}, frozen linear weights {base}"
    found = evolve(recipe, title=title, widths={**recipe.widths, "frozen": WIDTHS[base]})
    return found, "direct" if base == recipe.engines["gemm"] else "expanded"


def serving_numerics(precision: str, cache: str, quantization: Mapping[str, str], dtype: str) -> Numerics:
    """How a served model is kept: as its configuration says, unless ``precision`` or ``cache`` override it.

    ``precision`` "auto" follows the configuration's quantisation (weights, experts), else its dtype; any other format
    applies to all linear layers. Norms, embeddings and the output layer stay in 16 bits (in FP32 where that
    is asked for).
    """
    # Engines serve a checkpoint stored in FP32 in 16 bits (vLLM's --dtype auto); FP32 has to be asked for.
    base = dtype if dtype in ("bf16", "fp16") else "bf16"
    if precision in ("bf16", "fp16", "fp32"):
        base = precision
    if precision == "auto":
        weight, expert = quantization.get("weight", base), quantization.get("expert", quantization.get("weight", base))
        name = "as configured"
    else:
        weight = expert = name = precision
    kept = quantization.get("cache", base) if cache == "auto" else cache
    for number_format in (weight, expert, kept):
        if number_format not in WIDTHS:
            raise unknown("serving precision", number_format, ["auto", *WIDTHS])
    title = f"weights {weight}" + (f", experts {expert}" if expert != weight else "") + f", cache {kept}"
    return Numerics(
        name,
        title,
        {
            "weight": WIDTHS[weight], "expert": WIDTHS[expert], "high": WIDTHS[base], "activation": WIDTHS[base],
            "cache": WIDTHS[kept], "gradient": 0.0, "gradient_copy": 0.0, "master": 0.0, "moment": 0.0, "mask": 1.0,
            "wide": 4.0,
        },
        {"gemm": weight, "expert": expert, "high": base, "attention": base, "vector": "fp32"},
    )  # fmt: skip
