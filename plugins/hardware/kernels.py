"""The measured kernel family: formulas that measurements of each kind of kernel calibrate.

Plugin. With the stated values it works from a datasheet alone; a fitted record replaces them kernel by kernel. Uses
the algebra; sympy only where a price is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.kernels import KernelFamily, Part, Priced, parameter_symbol
from slipstick.core.model.work import COLLECTIVES
from slipstick.core.records.provenance import Quantity

from .kernels_values import DEFAULTS, STATED, stated, unit_of

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula
    from slipstick.core.model.interfaces.trace_reader import TraceRow
    from slipstick.core.model.work import Work

LATENT = ("(expanded)", "(absorbed)")
"""How the law ends the names of latent attention, whose flops hold a projection beside the core."""


SIBLINGS = {
    "grouped_gemm": ("gemm", ("compute_efficiency", "memory_efficiency", "sharpness", "depth_extra", "tile_latency")),
    "attention.backward": (
        "attention.context", ("compute_efficiency", "memory_efficiency", "core_sharpness", "sharpness", "span_extra")
    ),
}  # fmt: skip
"""Slot → the kernel that works alike, and what the two have in common."""


@cache
def formulas() -> dict[str, Formula]:
    """Slot → its formula."""
    from . import kernels_attention, kernels_gemm, kernels_other

    made = {
        "gemm": kernels_gemm.gemm(),
        "grouped_gemm": kernels_gemm.grouped(),
        "attention.context": kernels_attention.context(),
        "attention.decode": kernels_attention.decode(),
        "attention.backward": kernels_attention.context("attention.backward"),
        "latent.context": kernels_attention.latent_context(),
        "latent.decode": kernels_attention.latent_decode(),
    }
    made["pointwise"] = kernels_other.chain()
    made |= {slot: kernels_other.one_pass(slot) for slot in ("permute", "lookup", "optimizer")}
    return made | {slot: kernels_other.transfer(slot) for slot in COLLECTIVES}


class Measured(KernelFamily):
    """Each kind of kernel with a formula of its own, whose parameters a fit to measurements fills."""

    name = "measured"

    def price(self, work: Work) -> Priced:
        slot, inputs = _bound(work)
        formula = formulas()[slot]
        return Priced(
            formula,
            {name: value for name, value in inputs.items() if name in formula.inputs},
            {parameter.name: parameter_symbol(parameter.name, slot) for parameter in formula.parameters},
            slot,
        )

    def slots(self) -> Mapping[str, Formula]:
        return formulas()

    def measured(self, row: TraceRow, machine: Mapping[str, float]) -> tuple[Part, ...]:
        from .kernels_measured import parts_of

        return parts_of(row, machine)

    def sibling(self, slot: str) -> tuple[str, tuple[str, ...]]:
        return SIBLINGS.get(slot, ("", ()))

    def transfer_slot(self, kind: str) -> str:
        return kind if kind in COLLECTIVES else ""

    def transfer(self) -> Formula:
        from . import kernels_other

        return kernels_other.transfer()

    def transfer_parameters(self) -> Mapping[str, str]:
        return {name: parameter_symbol(name, "all_reduce") for name in stated("all_reduce")}

    def defaults(self) -> Mapping[str, Quantity]:
        return {
            parameter_symbol(name, slot): Quantity(value, unit_of(name), STATED, f"{value:g}")
            for slot in DEFAULTS
            for name, value in stated(slot).items()
        }

    def formulas(self) -> tuple[Formula, ...]:
        return tuple(dict.fromkeys(formulas().values()))


def _bound(work: Work) -> tuple[str, dict[str, Any]]:
    """The slot of a kernel, and what its formula may ask for."""
    import sympy

    from slipstick.core.algebra.symbols import symbol, unit_symbol

    zero = sympy.Integer(0)
    shape = work.shape
    inputs: dict[str, Any] = {
        "flops": work.flops, "bytes": work.bytes, "rate": symbol(f"{work.engine}_rate"),
        "bandwidth": symbol("hbm_bandwidth"), "units": symbol("device_units"), "cache": symbol("device_cache"),
        "hot": zero, "working_set": zero, **shape,
    }  # fmt: skip
    if work.kind in ("gemm", "grouped_gemm") and {"m", "n", "k"} <= set(shape):
        inputs |= {"warm": work.at_hand, "cold": work.bytes - work.at_hand}  # weights are never at hand
        if work.kind == "grouped_gemm":
            inputs |= {
                "groups": shape.get("groups", sympy.Integer(1)),
                "uneven": 1 - 1 / shape.get("skew", sympy.Integer(1)),
            }
        return work.kind, inputs
    if work.kind == "pointwise":
        inputs = {"further": zero, "spilled": zero, **inputs}
    if work.kind == "attention" and {"batch", "heads", "query", "context"} <= set(shape):
        return _attention(work, inputs, unit_symbol("FLOP"))
    return work.kind if work.kind in ("permute", "lookup", "optimizer") else "pointwise", inputs


ALIGNED = 8
"""Elements of a head's width that tensor cores want a multiple of in 16 bits; what has not, runs without them.

Source: NVIDIA, Matrix Multiplication Background User's Guide (alignment to 16 bytes)."""


def _attention(work: Work, inputs: dict[str, Any], flop: Any) -> tuple[str, dict[str, Any]]:
    from slipstick.core.algebra.functions import functions
    from slipstick.core.algebra.symbols import symbol

    shape, f = work.shape, functions()
    width = shape["head_dim"]
    ragged = width / ALIGNED - f.fdiv(width, ALIGNED)
    inputs = {**inputs, "rate": f.where(ragged, symbol("vector_rate"), inputs["rate"])}
    single = shape["query"] == 1
    if work.direction == "forward" and work.name.endswith(LATENT):
        # on average a query looks at half of the new tokens beside all the old ones
        span = shape["context"] - (shape["query"] - 1) / 2
        return "latent.decode" if single else "latent.context", {**inputs, "span": span}
    passes = 5 if work.direction != "forward" else 2
    per_pair = 2 * passes * shape["batch"] * shape["heads"] * shape["head_dim"] * flop
    span = work.flops / (per_pair * shape["query"])
    if work.direction != "forward":
        return "attention.backward", {**inputs, "span": span}
    return "attention.decode" if single else "attention.context", {**inputs, "span": span}


@hookimpl
def slipstick_hardware() -> list[KernelFamily]:
    """The measured family."""
    return [Measured()]
