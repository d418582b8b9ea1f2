"""Measured rows sorted into what is fitted together: one kernel, on one accelerator, in one format, from one source.

Floor: calibration. Uses the batches of the readers, the kernel family's view of a measured row, and the machine's
datasheet values. numpy inside functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, field, frozen

from slipstick.core.errors import SlipstickError, UserError
from slipstick.core.model.device import device_values, kernel_rate
from slipstick.core.model.interfaces.kernels import parameter_symbol
from slipstick.core.model.interfaces.trace_reader import SHAPES, Unread
from slipstick.core.model.work import COLLECTIVES

from .fit_rows import PartRows, Rows, joined

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from slipstick.core.algebra.formula import Formula
    from slipstick.core.model.interfaces.kernels import KernelFamily
    from slipstick.core.model.interfaces.trace_reader import TraceRow
    from slipstick.core.records.hardware import Machine

    from .readers.batch import Batch

GROUP_CLASSES = ((1.0, 1.0), (2.0, 16.0), (17.0, 32.0), (33.0, 56.0), (57.0, 4096.0))
"""Query heads that share one key head, in the classes that decode kernels treat apart: none, one tile of 16, two, and
so many that a library may fall back to a slow kernel (TensorRT-LLM from 48 on H100, from 64 on B200)."""

CLASS_ROWS = 24
"""Rows of a class of sizes below which it is too small for a fit of its own."""

PRODUCTS = ("gemm", "grouped_gemm", "attention", "attention_backward", "latent_attention")
"""Kernels that run at the rate of their number format."""


@frozen
class Key:
    """What the rows of one fit have in common."""

    device: str
    slot: str
    format: str
    kernel_source: str
    engine: str
    engine_version: str
    where: tuple[tuple[str, tuple[float, float]], ...] = ()


@frozen(eq=False)
class Segment:
    """The rows of one fit: ``others`` are the slots of further kernels in them."""

    key: Key
    rows: Rows

    @property
    def others(self) -> frozenset[str]:
        """Slots of the rows' other kernels."""
        return frozenset(part.slot for part in self.rows.parts if part.slot != self.key.slot)


@frozen(eq=False)
class Columns:
    """Many rows alike as a kernel family sees them: a TraceRow whose shape holds arrays."""

    kernel: str
    shape: Mapping[str, Any]
    format: str
    device: str
    seconds: Any
    measured: str = "columns of a trace"
    ranks: Any = 1
    source: str = ""
    samples: int = 1
    spread: float | None = None
    line: int = 0
    facts: Mapping[str, str] = field(factory=dict)


def segments_of(
    batches: Iterable[Batch], family: KernelFamily, machines: Mapping[str, Machine]
) -> tuple[list[Segment], list[Unread]]:
    """The segments of ``batches``, in a fixed order, and what could not be used.

    ``machines``: device as the trace says → its machine. Errors: UserError where the family can't be calibrated.
    """
    if not family.slots():
        raise UserError(f"the kernel family {family.name} has no slots: its formulas take no measurements")
    found: dict[Key, list[Rows]] = {}
    unread: list[Unread] = []
    for batch in batches:
        if batch.device not in machines:
            unread.append(Unread(batch.kernel, f"measured on {batch.device}, which is not fitted here", len(batch)))
            continue
        for key, rows in _split(batch, family, machines[batch.device], unread):
            found.setdefault(key, []).append(rows)
    made = [Segment(key, evolve(joined(rows).pooled(), kernel=rows[0].kernel)) for key, rows in _merged(found).items()]
    # what stands alone first, and a kernel before those that are expected to be like it
    made.sort(key=lambda s: (len(s.others), bool(family.sibling(s.key.slot)[0]), repr(s.key)))
    return made, unread


def _merged(found: Mapping[Key, list[Rows]]) -> dict[Key, list[Rows]]:
    """The rows by key, classes of sizes put together where most rows would stand in classes too small to be fitted."""
    merged: dict[Key, list[Rows]] = {}
    whole: dict[Key, dict[Key, list[Rows]]] = {}
    for key, rows in found.items():
        whole.setdefault(evolve(key, where=()), {})[key] = rows
    for classes in whole.values():
        for kept in (("group", "head_dim", "causal"), ("head_dim", "causal"), ("causal",)):
            parts: dict[Key, list[Rows]] = {}
            for key, rows in classes.items():
                coarser = evolve(key, where=tuple(pair for pair in key.where if pair[0] in kept))
                parts[coarser] = [*parts.get(coarser, []), *rows]
            sizes = [sum(map(len, rows)) for rows in parts.values()]
            if 2 * sum(size for size in sizes if size >= CLASS_ROWS) >= sum(sizes) or len(kept) == 1:
                merged |= parts
                break
    return merged


def _split(batch: Batch, family: KernelFamily, machine: Machine, unread: list[Unread]) -> Iterator[tuple[Key, Rows]]:
    name = machine.accelerator.name
    cache = batch.facts.get("kv_format", "")
    number_format = f"{batch.format}/{cache}" if cache and cache != batch.format else batch.format
    for mask, where in _classes(batch):
        shape: dict[str, Any] = {column: values[mask] for column, values in batch.arrays.items()}
        seconds = batch.seconds[mask]
        count = len(seconds)
        if batch.facts.get("table", "").startswith("context_") and (shape["query"] <= 1).all():
            unread.append(
                Unread(batch.kernel, "one new token in a kernel for prompts: neither prefill nor decode", count)
            )
            continue
        ranks = batch.ranks[mask].astype(float)
        try:
            # what multiplies nothing has a format of its own, or none (a copy), and no rate of it
            rated = batch.format if batch.kernel in PRODUCTS else "fp32"
            values = machine_values(machine, rated, ranks if batch.kernel in COLLECTIVES else None)
        except SlipstickError as error:
            unread.append(Unread(batch.kernel, str(error), count))
            continue
        columns = Columns(
            batch.kernel, shape, batch.format, name, seconds, ranks=ranks, source=batch.source, facts=batch.facts
        )
        try:
            parts = family.measured(cast("TraceRow", columns), values)
        except SlipstickError as error:
            unread.append(Unread(batch.kernel, str(error), count))
            continue
        except KeyError as error:
            unread.append(Unread(batch.kernel, f"its shape has no {error.args[0]}", count))
            continue
        if not parts:
            why = "no formula for it" if batch.kernel in SHAPES else "a kernel of another kind"
            unread.append(Unread(batch.kernel, f"{why} in the family {family.name}", count))
            continue
        main = next((part.slot for part in parts if part.slot.split(".")[0] == batch.kernel), parts[0].slot)
        if batch.kernel in COLLECTIVES:
            shape["ranks"] = ranks
        if "distribution" in batch.facts:  # rows of one shape but of another load are no repetition of it
            shape["distribution"] = distribution(batch.facts["distribution"])
        named = tuple(sorted((n, span) for n, span in where.items()))
        if not main.startswith("attention.decode"):
            named = tuple(pair for pair in named if pair[0] != "group")
        key = Key(name, main, number_format, batch.source, batch.engine, batch.engine_version, named)
        shown = {column: _array(values_, count) for column, values_ in shape.items()}
        rows = Rows(seconds, tuple(PartRows(p.slot, dict(p.inputs)) for p in parts), shown, batch.kernel)
        sound = _sound(rows)
        if not sound.all():
            unread.append(Unread(batch.kernel, "its amounts are not finite numbers", int((~sound).sum())))
            rows = rows.take(sound)
        if len(rows):
            yield key, rows


def _classes(batch: Batch) -> Iterator[tuple[Any, dict[str, tuple[float, float]]]]:
    """The rows of a batch that one call of the family may price, as masks, with the sizes that set them apart."""
    import numpy as np

    everything = np.ones(len(batch.seconds), dtype=bool)
    if batch.kernel == "grouped_gemm" and "matrices" in batch.arrays:  # with a gate and without are other kernels
        for count in np.unique(batch.arrays["matrices"]):
            yield batch.arrays["matrices"] == count, {"matrices": (float(count), float(count))}
        return
    if batch.kernel not in ("attention", "attention_backward", "latent_attention") or "query" not in batch.arrays:
        yield everything, {}
        return
    single = batch.arrays["query"] <= 1
    causal = batch.arrays.get("causal", np.ones(len(batch.seconds))) > 0
    for phase, decode, masked in (
        (~single & causal, False, True),
        (~single & ~causal, False, False),
        (single, True, True),
    ):
        if not phase.any():
            continue
        kind = {} if masked else {"causal": (0.0, 0.0)}
        if "head_dim" not in batch.arrays:
            yield phase, kind
            continue
        for width in np.unique(batch.arrays["head_dim"][phase]):
            own = phase & (batch.arrays["head_dim"] == width)
            where = {"head_dim": (float(width), float(width)), **kind}
            if not decode or not {"heads", "kv_heads"} <= set(batch.arrays):
                yield own, where
                continue
            group = batch.arrays["heads"] / np.maximum(batch.arrays["kv_heads"], 1.0)
            for low, high in GROUP_CLASSES:
                chosen = own & (group >= low) & (group < high + 1)
                if chosen.any():
                    yield chosen, {**where, "group": (low, high)}


def machine_values(machine: Machine, number_format: str, ranks: Any = None) -> dict[str, Any]:
    """What a kernel family asks of the machine for one format: rates, bandwidths, sizes; links for ``ranks`` devices.

    Errors: UserError where the accelerator has no rate for the format, or no link for a collective.
    """
    accelerator = machine.accelerator
    values: dict[str, Any] = {
        "rate": kernel_rate(accelerator, number_format),
        "vector_rate": kernel_rate(accelerator, "fp32"),
        **device_values(accelerator),
        "link_bandwidth": 0.0,
        "link_latency": 0.0,
    }
    tiers = machine.node.tiers
    if ranks is not None and not tiers:
        raise UserError(f"{accelerator.name} has no link to other devices in its record")
    if tiers:
        values["link_bandwidth"], values["link_latency"] = tiers[0].bandwidth.value, tiers[0].latency.value
    if ranks is not None:
        import numpy as np

        wide, slow = np.asarray(ranks, dtype=float) * 0.0, np.asarray(ranks, dtype=float) * 0.0
        for tier in reversed(tiers):  # the innermost tier that reaches all of them
            reached = np.asarray(ranks) <= (tier.span or np.inf)
            wide, slow = np.where(reached, tier.bandwidth.value, wide), np.where(reached, tier.latency.value, slow)
        if (wide <= 0).any():
            raise UserError(f"the node of {accelerator.name} does not reach {np.max(ranks):g} devices")
        values["link_bandwidth"], values["link_latency"] = _plain(wide), _plain(slow)
    return values


def slot_formulas(family: KernelFamily) -> dict[str, Formula]:
    """The family's formula of each slot, its parameters' defaults being those that the family states for the slot."""
    defaults = family.defaults()
    found = {}
    for slot, formula in family.slots().items():
        known = {p.name: defaults.get(parameter_symbol(p.name, slot)) for p in formula.parameters}
        found[slot] = formula.with_defaults({name: stated.value for name, stated in known.items() if stated})
    return found


def _sound(rows: Rows) -> npt.NDArray[np.bool_]:
    """Which rows have inputs that a formula can be given."""
    import numpy as np

    good = np.ones(len(rows), dtype=bool)
    for part in rows.parts:
        for value in part.inputs.values():
            good &= np.isfinite(value)
    return good


def distribution(text: str) -> float:
    """How tokens spread over experts, as a number that tells one way from another.

    >>> distribution("balanced"), distribution("power_law_1.2")
    (0.0, 1.2)
    """
    if text in ("balanced", "uniform"):
        return 0.0
    try:
        return float(text.rpartition("_")[2])
    except ValueError:
        return float(sum(map(ord, text)))


def _array(value: Any, count: int) -> npt.NDArray[Any]:
    import numpy as np

    return np.broadcast_to(np.asarray(value, dtype=np.float64), (count,))


def _plain(value: Any) -> Any:
    return value if value.ndim else float(value)
