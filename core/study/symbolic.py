"""Figures as expressions: the same parts that are compiled, written out, with values put in where they are known.

Floor: study. Imports sympy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sympy

from ..algebra.functions import functions
from ..algebra.symbols import UNIT_SYMBOLS, symbol
from ..errors import unknown
from ..model.interfaces.stack import NEUTRAL
from .case import Case

if TYPE_CHECKING:
    from sympy import Expr

TRAINING_FIGURES = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_device", "tflops_per_device", "hardware_tflops_per_device", "mfu",
    "hfu", "memory_peak_bytes", "memory_headroom_bytes",
)  # fmt: skip
SERVING_FIGURES = (
    "tpot_s", "ttft_s", "output_tokens_per_s", "output_tokens_per_s_per_device", "tokens_per_s_per_request",
    "request_s", "kv_capacity_tokens", "max_concurrency", "memory_peak_bytes", "memory_headroom_bytes",
)  # fmt: skip


LONGEST = 256
"""Bits of the longest numerator or denominator that is kept exact."""

SOFTWARE = (
    "time_factor", "kernel_overhead", "collective_factor", "prefill_factor", "attention_factor", "launch_time",
    "launch_exposed", "exposed_share", "routed_unfused",
)  # fmt: skip
"""What stands in every leaf or loop for the software; of no interest where the stack costs nothing."""


def kept(settings: Mapping[str, Any], by: str = "") -> tuple[str, ...]:
    """Coefficients that stay in a formula though the stack costs nothing: ``by``, and what a straggler multiplies."""
    slowed = by == "straggler" or settings.get("straggler", 1) != 1
    return (*((by,) if by else ()), *(("time_factor",) if slowed else ()))


def check_figure(task: str, name: str) -> None:
    """Raise UserError for a figure that ``task`` does not have."""
    names = TRAINING_FIGURES if task == "train" else SERVING_FIGURES
    if name not in names:
        raise unknown("figure", name, names)


def figure_expression(case: Case, name: str, keep: tuple[str, ...] = ()) -> Expr:
    """A figure as an expression of named symbols.

    Coefficients of the stack that say "no cost" are left out, but for those in ``keep``.
    Errors: UserError for a figure that the task does not have.
    """
    check_figure(case.task, name)
    if name == "memory_headroom_bytes":
        return symbol("hbm_capacity") - figure_expression(case, "memory_peak_bytes", keep)
    found = _training(case, name) if case.task == "train" else _serving(case, name)
    idle = [n for n in SOFTWARE if n not in keep and case.fixed[n] == NEUTRAL[n]]
    return found.xreplace({symbol(n): sympy.Integer(int(NEUTRAL[n])) for n in idle})


def _training(case: Case, name: str) -> Expr:
    from .build_training import training_model

    model = training_model(case.plan)
    if name == "memory_peak_bytes":
        return functions().fmax(*(ledger.peak() for ledger in model.ledgers))
    step = model.step.expression()
    if name == "step_time_s":
        return step
    tokens = symbol("global_batch") * symbol("sequence")
    devices = symbol("devices")
    ratios = {
        "tokens_per_s": tokens / step,
        "tokens_per_s_per_device": tokens / step / devices,
        "tflops_per_device": model.model_flops / step / devices / 10**12,
        "hardware_tflops_per_device": model.hardware_flops / step / devices / 10**12,
        "mfu": model.model_flops / step / devices / symbol("gemm_rate"),
        "hfu": model.hardware_flops / step / devices / symbol("gemm_rate"),
    }
    return ratios[name]


def _serving(case: Case, name: str) -> Expr:
    from .build_serving import serving_model

    model = serving_model(case.plan)
    if name == "memory_peak_bytes":
        return functions().fmax(*(ledger.peak() for ledger in model.ledgers))
    if name == "kv_capacity_tokens":
        return model.capacity_tokens
    if name == "max_concurrency":
        return model.max_concurrency
    if name == "ttft_s":
        return model.ttft.expression()
    tpot = model.tpot.expression()
    if name == "tpot_s":
        return tpot
    refill = functions().fmax(*(p.expression() for p in model.prefill.periods))
    generated = symbol("output_tokens")
    if name == "tokens_per_s_per_request":
        return 1 / tpot
    apart = functions().fmax(0, 1 - symbol("prefill_factor")) * model.sequences
    cycle = generated * tpot + apart * refill
    if name == "request_s":
        return cycle
    rate = symbol("concurrency") * generated / cycle
    return rate / symbol("devices") if name.endswith("per_device") else rate


def substituted(case: Case, expression: Expr, settings: Mapping[str, Any], keep: tuple[str, ...] = ()) -> Expr:
    """The expression with every known value put in; settings that are symbols, and names in ``keep``, stay.

    What follows from a symbol keeps it: with ``tp`` kept and the number of devices given, dp is devices/(tp·pp).
    """
    values = case.complete({**settings, **{name: symbol(name) for name in keep}})
    replace: dict[Any, Any] = {}
    for free in expression.free_symbols:
        name = str(free)
        if name in UNIT_SYMBOLS:
            replace[free] = sympy.Integer(1)
        elif values.get(name) is not None:
            replace[free] = exact(values[name])
    found = expression.xreplace(replace)
    # (1 - 2/8)^8192 is exact and has thousands of digits, which nobody reads and Python refuses to print
    long = {n: sympy.Float(n) for n in found.atoms(sympy.Rational) if max(abs(n.p), n.q).bit_length() > LONGEST}
    return found.xreplace(long) if long else found


def exact(value: Any) -> Any:
    """A number as sympy keeps it best: whole numbers as integers, others as floats; expressions as they are."""
    if hasattr(value, "free_symbols"):
        return value
    number = float(value)
    return sympy.Integer(int(number)) if number == int(number) and abs(number) < 2**53 else sympy.Float(number)
