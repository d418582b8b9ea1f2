"""Which measurements stand behind each kernel of an answer: fitted records chosen for a machine, a stack and a model.

Floor: study. Plain numbers. A record is chosen for each slot of the kernel family by number format, by whose kernels
the stack runs, and by the model's own sizes; what is not there stays at the family's stated defaults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from ..model.interfaces.kernels import ENGINE_OF_SLOT, ENGINES_APART, KernelFamily, parameter_symbol
from ..records.fitted import FittedRecord
from ..records.numerics import Numerics
from ..records.provenance import Quantity

FORMATS: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32", "tf32"),
    "tf32": ("tf32", "fp32"),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", "fp8_block"),
    "fp8_block": ("fp8_block", "fp8"),
    "mxfp8": ("mxfp8", "fp8_block", "fp8"),
    "int8": ("int8", "int8_wo", "fp8"),
    "nvfp4": ("nvfp4",),
    "fp4": ("nvfp4",),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "mxfp4", "w4a16_mxfp4", "nvfp4"),
    "int4": ("int4", "int4_wo"),
    "nf4": ("int4_wo",),
}
"""Number format → formats of records that may stand for it, the right one first. MXFP4 names weights alone: kernels
that take activations in MXFP8 are what engines choose where they have them."""

SAME = {
    frozenset(pair)
    for pair in (
        ("bf16", "fp16"), ("mxfp4", "w4a8_mxfp4_mxfp8"), ("mxfp4", "w4a16_mxfp4"),
        ("int4", "int4_wo"), ("fp4", "nvfp4"),
    )
}  # fmt: skip
"""Formats that go under one name or run at one speed: one standing for the other is no stand-in."""

UNMEASURED = 0.25
"""Standard deviation of ln(measured/predicted) of a kernel that nobody has measured: the stated efficiencies lie
within that of the published fits (docs/efficiency.md)."""


@frozen
class Trust:
    """What stands behind one slot: the record, or none; why it is only a stand-in; how uncertain its times are.

    ``sigma``: standard deviation of ln(measured/predicted), common to all kernels of the slot.
    """

    slot: str
    record: FittedRecord | None = None
    stands_in: str = ""
    sigma: float = UNMEASURED

    @property
    def calibrated(self) -> bool:
        """Whether measurements of this very kind of kernel stand behind it."""
        return self.record is not None and self.record.calibrated

    def beyond(self, inputs: Mapping[str, float]) -> float:
        """How far the inputs of a kernel lie outside the fitted range: the largest ln of the ratio, 0 inside."""
        if self.record is None:
            return 0.0
        worst = 0.0
        for name, (low, high) in self.record.ranges.items():
            value = inputs.get(name)
            if value is not None and value > 0 and low > 0:
                worst = max(worst, math.log(low / value), math.log(value / high))
        return worst if worst > 1e-6 else 0.0


@frozen
class Calibration:
    """Values of the kernel family's parameters that measurements give, and the trust in each slot."""

    values: Mapping[str, Quantity] = field(factory=dict)
    slots: Mapping[str, Trust] = field(factory=dict)


def calibration(
    family: KernelFamily,
    groups: Sequence[Sequence[FittedRecord]],
    numerics: Numerics,
    sources: Sequence[str],
    sizes: Mapping[str, float],
) -> Calibration:
    """The best record for each slot of the family. ``groups``: records in order of precedence (a person's own first);
    ``sources``: engines and kernel libraries that the stack prefers; ``sizes``: of the model."""
    values: dict[str, Quantity] = {}
    slots: dict[str, Trust] = {}
    own = [(rank, record) for rank, group in enumerate(groups) for record in group if record.family == family.name]
    for slot, formula in family.slots().items():
        for suffix in ("", *(f".{engine}" for engine in ENGINES_APART)):
            if suffix and slot not in ENGINE_OF_SLOT:
                continue
            wanted = _format(slot, suffix, numerics)
            found = _best([(r, x) for r, x in own if x.slot == slot], wanted, sources, sizes)
            name = f"{slot}{suffix}"
            if found is None:
                slots[name] = Trust(name)
                continue
            record, stands_in = found
            sigma = math.hypot(record.sigma, 0.1) if stands_in else record.sigma
            slots[name] = Trust(name, record, stands_in, sigma if record.calibrated else max(sigma, UNMEASURED))
            for parameter in formula.parameters:
                if parameter.name in record.parameters:
                    value = record.parameters[parameter.name]
                    note = f"held-out error of {record.slot} {record.format}: see slipstick calibrate show"
                    values[parameter_symbol(parameter.name, name)] = Quantity(
                        value, parameter.unit, record.source, f"{value:g}", note
                    )
    return Calibration(values, slots)


def _format(slot: str, suffix: str, numerics: Numerics) -> str:
    engine = suffix[1:] or ENGINE_OF_SLOT.get(slot, "")
    if not engine:
        return ""
    plain = numerics.engines.get(engine, "")
    if slot.partition(".")[0] in ("attention", "latent") and numerics.widths["cache"] == 1.0:
        return f"{plain}/fp8"
    return plain


def _best(
    candidates: Iterable[tuple[int, FittedRecord]], wanted: str, sources: Sequence[str], sizes: Mapping[str, float]
) -> tuple[FittedRecord, str] | None:
    """The record that fits best and why it is only a stand-in; None where none may stand for the format."""
    operands, _, cache = wanted.partition("/")
    best: tuple[tuple[float, ...], FittedRecord, str] | None = None
    for rank, record in candidates:
        kept, _, own_cache = record.format.partition("/")
        allowed = FORMATS.get(operands, (operands,)) if operands else (kept,)
        if kept not in allowed:
            continue
        why = []
        if operands and kept != operands and frozenset((kept, operands)) not in SAME:
            why.append(f"{kept} for {operands}")
        if (cache or operands) != (own_cache or kept) and cache != own_cache:
            why.append(f"{own_cache or kept} cache for {cache or operands}")
        preferred = _preference(record, sources)
        if sources and preferred == len(sources):
            why.append(f"{record.engine or record.kernel_source} kernels for {sources[0]}'s")
        away = _away(record, sizes)
        if away > 0:
            why.append("fitted at " + ", ".join(f"{n} {a:g} to {b:g}" for n, (a, b) in record.where.items()))
        key: tuple[float, ...] = (
            float(allowed.index(kept)), float(cache != own_cache), away, float(rank), float(preferred),
            float(not record.calibrated), *(-part for part in _version(record.engine_version)), -float(record.rows),
        )  # fmt: skip
        if best is None or key < best[0]:
            best = (key, record, "; ".join(why))
    return None if best is None else (best[1], best[2])


def _version(text: str) -> tuple[float, ...]:
    """The first four numbers of a version, so that the newest of several can be taken.

    >>> _version("1.3.0rc20") > _version("1.3.0rc5")
    True
    """
    found = [float(part) for part in re.findall(r"\d+", text)[:4]]
    return (*found, *[0.0] * (4 - len(found)))


def _preference(record: FittedRecord, sources: Sequence[str]) -> int:
    """The place of the first source that is the record's engine or part of its kernel's name; their number for none."""
    for index, source in enumerate(sources):
        if source == record.engine or source in record.kernel_source.casefold():
            return index
    return len(sources)


def _away(record: FittedRecord, sizes: Mapping[str, float]) -> float:
    """How far the model's sizes are from those that the record was fitted at, as the sum of ln of ratios."""
    known = {"causal": 1.0, "matrices": 3.0, **sizes}
    if "heads" in known and "kv_heads" in known:
        known["group"] = known["heads"] / known["kv_heads"]
    total = 0.0
    for name, (low, high) in record.where.items():
        value = known.get(name)
        if value is not None and not low <= value <= high:
            bound = low if value < low else high
            total += abs(math.log(value / bound)) if value > 0 and bound > 0 else 1.0
    return total
