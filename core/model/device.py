"""What formulas of kernels need to know of an accelerator beside its rates, and the rate of a kernel's own format.

Floor: model. Plain numbers; for prices, for fits and for traces alike.
"""

from __future__ import annotations

from ..errors import UserError
from ..records.hardware import Accelerator
from ..records.numerics import WIDTHS, rate_of

UNITS, CACHE = 100.0, 40e6
"""Processors, and bytes of last-level cache, of an accelerator whose record does not tell."""

RATE_OF = {
    "fp8_block": "fp8", "fp8_static": "fp8", "fp8_ootb": "fp8", "sq": "int8", "int8_wo": "bf16", "int4_wo": "bf16",
    "w4afp8": "fp8", "w4a8_mxfp4_mxfp8": "fp8", "w4a16_mxfp4": "bf16", "half": "fp16", "float16": "fp16",
    "bfloat16": "bf16", "float32": "fp32",
}  # fmt: skip
"""Format of a kernel → the one whose rate its products run at, where the two are not called the same."""


def device_values(accelerator: Accelerator) -> dict[str, float]:
    """``bandwidth`` of its memory [B/s], ``units``, and ``cache`` [B]."""
    return {
        "bandwidth": accelerator.memory_bandwidth.value,
        "units": accelerator.units.value if accelerator.units else UNITS,
        "cache": accelerator.cache.value if accelerator.cache else CACHE,
    }


def kernel_rate(accelerator: Accelerator, number_format: str) -> float:
    """The dense rate [FLOP/s] that products of a kernel's format run at, a cache's own format left aside.

    Errors: UserError where the device has none.
    """
    plain = number_format.split("/")[0]
    plain = RATE_OF.get(plain, plain)
    if plain not in WIDTHS:
        if plain in accelerator.rates:
            return accelerator.rates[plain].value
        raise UserError(f"no rate of {accelerator.name} is known for the format {number_format}")
    return rate_of(accelerator, plain)[0]
