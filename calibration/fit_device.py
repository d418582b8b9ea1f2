"""Devices of a trace: by the name that slipstick knows, or as a new accelerator made of what was measured.

Floor: calibration. Uses the host's records, the record classes and the TOML of hardware. A new accelerator's rates and
bandwidths are the highest that were measured, so fitted efficiencies are fractions of what was seen.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from slipstick.core.algebra.units import format_si, parse
from slipstick.core.errors import UserError, shown
from slipstick.core.model.device import RATE_OF
from slipstick.core.model.work import COLLECTIVES
from slipstick.core.records.hardware import RATE_FORMATS, Accelerator, Machine, Node, Tier
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.toml_walk import is_name

if TYPE_CHECKING:
    from slipstick.core.host.host import Host

    from .fit_rows import Array
    from .readers.batch import Batch

_NOISE = {"nvidia", "amd", "intel", "google", "aws", "tesla", "geforce", "instinct", "graphics", "gpu", "device", "tm",
          "r", "accelerator", "server", "edition", "oam"}  # fmt: skip
_MEMORY = re.compile(r"hbm\d*e?|\d+gb?|\d+gib|gddr\d\w*")
_SXM = re.compile(r"sxm\d*")

DRIVER_NAMES = {
    "nvidia h100 80gb hbm3": "h100-sxm",
    "nvidia h200": "h200-sxm",
    "nvidia h800": "h800",
    "nvidia rtx pro 6000 blackwell server edition": "rtx-pro-6000",
    "nvidia a100-sxm4-80gb": "a100-sxm-80gb",
    "nvidia a100-sxm4-40gb": "a100-sxm-40gb",
    "nvidia a100 80gb pcie": "a100-pcie-80gb",
    "nvidia a100-pcie-40gb": "a100-pcie-40gb",
    "tesla v100-sxm2-16gb": "v100-sxm2-16gb",
    "tesla v100-sxm2-32gb": "v100-sxm2-32gb",
    "tesla v100-pcie-32gb": "v100-pcie-32gb",
}
"""Names as NVIDIA's driver reports them that do not follow from the record's own name."""

VECTOR_SHARE = 16.0
"""Where no product in FP32 was measured, its rate is taken as that of 16-bit products over this: between the 16.0 of
an A100's datasheet (312 over 19.5 TFLOP/s) and the 14.8 of an H100's (989.4 over 66.9)."""

LARGE = 0.25
"""Passes and copies of at least this share of the largest one tell the bandwidth of the memory."""

MEMORY = "device_memory"
"""Fact of a row: the capacity of the device's memory, in bytes or with a unit."""

UPDATE_BYTES = 28.0
"""Bytes that one Adam step in FP32 moves for an element: parameter, gradient and two moments read, three written."""


def known_name(device: str, host: Host) -> str:
    """The accelerator's name in slipstick for a name in a trace; "" where slipstick does not know it."""
    machines = host.machines()
    names, aliases = machines.names("accelerator"), machines.aliases("accelerator")
    every = {name: name for name in names} | aliases
    plain = " ".join(device.casefold().split())
    for candidate in (plain, slug(device)):
        if candidate in every:
            return every[candidate]
    stated = DRIVER_NAMES.get(plain, "")
    if stated in names:
        return stated
    words = _words(device)
    matches = {every[name] for name in every if words and _words(name) == words}
    return next(iter(matches)) if len(matches) == 1 else ""


def slug(device: str) -> str:
    """A device's name as a record may be called.

    >>> slug("Acme Chip (R) X1 / 96GB")
    'acme-chip-r-x1-96gb'
    """
    text = "-".join(re.findall(r"[a-z0-9]+", device.casefold()))[:60].strip("-")
    if not is_name(text):
        raise UserError(f"{shown(device)} can't name an accelerator; give one with --device")
    return text


def _words(name: str) -> frozenset[str]:
    """What tells one device from another in its name: no vendor, no kind of memory, one spelling of SXM."""
    found = {_SXM.sub("sxm", word) for word in re.findall(r"[a-z0-9]+", name.casefold())}
    return frozenset(word for word in found if word not in _NOISE and not _MEMORY.fullmatch(word))


@frozen
class Made:
    """A new accelerator: its ``machine`` and the ``text`` of its file."""

    machine: Machine
    text: str


def made_accelerator(
    name: str, batches: Sequence[Batch], source: Source, family: str, memory: float | None, like: Accelerator | None
) -> Made:
    """An accelerator of the highest rates and bandwidths in ``batches``; the rest from ``like`` where it is given.

    ``memory``: capacity [B]. Errors: UserError where the capacity, the memory's bandwidth or every rate is unknown.
    """
    maxima = _maxima(batches)
    rates: dict[str, Quantity] = {}
    if like is not None:
        rates = {key: evolve(quantity, note=f"of {like.name}") for key, quantity in like.rates.items()}
    rates |= {
        key: _measured(value, "FLOP/s", source, note) for key, (value, note) in maxima.items() if key in RATE_FORMATS
    }
    if not rates:
        raise UserError(f"no matrix product of {name} was measured: give --like ACCELERATOR for its rates")
    if "fp32" not in rates:
        base = next((rates[key] for key in ("bf16", "fp16", "tf32") if key in rates), next(iter(rates.values())))
        assumed = Source(
            "assumed", "no measurement: a sixteenth of the 16-bit rate", source.url, source.date, "default"
        )
        rates["fp32"] = _measured(base.value / VECTOR_SHARE, "FLOP/s", assumed, "not measured")
    if "bandwidth" in maxima:
        bandwidth = _measured(maxima["bandwidth"][0], "B/s", source, maxima["bandwidth"][1])
    elif like is not None:
        bandwidth = evolve(like.memory_bandwidth, note=f"of {like.name}")
    else:
        raise UserError(f"nothing measured on {name} tells the bandwidth of its memory: give --like ACCELERATOR")
    told = next((batch.facts[MEMORY] for batch in batches if MEMORY in batch.facts), "")
    if memory is None and told:
        with contextlib.suppress(UserError):
            memory = parse(told if not told.isdigit() else f"{told} B", expect="B")[0]
    if memory is not None:
        given = Source("memory", "told by the trace, or by --memory", source.url, source.date, "default")
        capacity = Quantity(memory, "B", given, format_si(memory, "B", 6))
    elif like is not None:
        capacity = evolve(like.memory_capacity, note=f"of {like.name}")
    else:
        raise UserError(
            f"slipstick does not know {name}, and a trace does not tell its memory: give --memory 80GB (or --like "
            "ACCELERATOR, or --device NAME if it is a known one under another name)"
        )
    own = None
    if "link" in maxima:
        ranks, wide = maxima["ranks"][0], maxima["link"]
        delay = maxima["delay"]
        tier = Tier(
            "link", int(ranks), _measured(wide[0], "B/s", source, wide[1]), _measured(delay[0], "s", source, delay[1])
        )
        own = Node(name, name, int(ranks), (tier,), source=source, note="as many devices as one collective had")
    node = "" if own is not None or like is None else like.node
    accelerator = Accelerator(
        name, name, like.vendor if like else "measured", capacity, bandwidth, rates, node=node, kernels=family,
        own_node=own, units=like.units if like else None, cache=like.cache if like else None,
        note="Rates and bandwidths are the highest measured; calibrated efficiencies are fractions of them.",
    )  # fmt: skip
    form = own or Node(name, name, 1, ())
    return Made(Machine(accelerator, form), _file(accelerator))


def _measured(value: float, unit: str, source: Source, note: str) -> Quantity:
    """A value as its file will say it, so that the fit and every later answer see the same number."""
    return Quantity(float(f"{value:.6g}"), unit, source, f"{value:.6g} {unit}", note)


def _maxima(batches: Sequence[Batch]) -> dict[str, tuple[float, str]]:
    """Format → highest rate of a matrix product, "bandwidth", "link", "delay", "ranks"; each with where it was seen."""
    import numpy as np

    found: dict[str, tuple[float, str]] = {}

    def keep(key: str, values: object, batch: Batch, least: bool = False) -> None:
        array = np.asarray(values, dtype=float)
        if not array.size or not np.isfinite(array).any():
            return
        place = int(np.nanargmin(array) if least else np.nanargmax(array))
        value = float(array[place])
        if value > 0 and (key not in found or (value < found[key][0] if least else value > found[key][0])):
            shape = ", ".join(f"{n} {v[place]:g}" for n, v in batch.arrays.items())
            found[key] = value, f"{'shortest' if least else 'highest'} measured: {batch.kernel}, {shape}"[:300]

    for batch in batches:
        columns, seconds = batch.arrays, batch.seconds
        if batch.kernel == "gemm" and {"m", "n", "k"} <= set(columns):
            plain = RATE_OF.get(batch.format, batch.format)
            keep(plain, 2 * columns["m"] * columns["n"] * columns["k"] / seconds, batch)
        elif batch.kernel in COLLECTIVES and "bytes" in columns:
            ranks = batch.ranks.astype(float)
            several = ranks > 1
            share = {"all_reduce": 2 * (ranks - 1) / ranks, "send": ranks * 0 + 1}.get(
                batch.kernel, (ranks - 1) / ranks
            )
            keep("link", np.where(several, share * columns["bytes"] / seconds, np.nan), batch)
            keep("delay", np.where(several, seconds / np.maximum(ranks - 1, 1), np.nan), batch, least=True)
            keep("ranks", ranks, batch)
    moved = [(batch, amounts) for batch in batches if (amounts := _moved(batch)) is not None]
    # without a copy or a pass, the weights that a product of few rows reads tell the bandwidth
    moved = moved or [(batch, amounts) for batch in batches if (amounts := _read(batch)) is not None]
    largest = max((float(np.nanmax(amounts, initial=0.0)) for _, amounts in moved), default=0.0)
    for batch, amounts in moved:
        # what is small comes from a cache, at another speed
        keep("bandwidth", np.where(amounts >= LARGE * largest, amounts / batch.seconds, np.nan), batch)
    return found


def _moved(batch: Batch) -> Array | None:
    """Bytes that passes, copies and optimizer steps read and write; None for other kernels."""
    if batch.kernel in ("memory_copy", "pointwise"):
        return batch.arrays.get("bytes")
    if batch.kernel == "optimizer" and "elements" in batch.arrays:
        return UPDATE_BYTES * batch.arrays["elements"]
    return None


def _read(batch: Batch) -> Array | None:
    """Bytes that matrix products of up to sixteen rows read and write; None for other kernels."""
    import numpy as np

    from slipstick.core.records.numerics import WIDTHS

    width = WIDTHS.get(RATE_OF.get(batch.format, batch.format))
    if batch.kernel != "gemm" or not width or not {"m", "n", "k"} <= set(batch.arrays):
        return None
    m, n, k = (batch.arrays[name] for name in ("m", "n", "k"))
    return np.where(m <= 16, width * (n * k + m * k + m * n), np.nan)


# --- its file -----------------------------------------------------------------------------------------------------


def _file(accelerator: Accelerator) -> str:
    from slipstick.core.records.fitted_toml import text_of

    sources: dict[Source, str] = {}

    def key(source: Source) -> str:
        if source not in sources:
            stem, number = source.key or "trace", 2
            name = stem
            while name in sources.values():
                name, number = f"{stem}-{number}", number + 1
            sources[source] = name
        return sources[source]

    def quantity(value: Quantity) -> str:
        note = f", note = {text_of(value.note)}" if value.note else ""
        told = value.text or f"{value.value:.6g} {value.unit}"
        if value.unit == "1":
            return f"{{ value = {value.value:g}, source = {text_of(key(value.source))}{note} }}"
        return f"{{ value = {text_of(told)}, source = {text_of(key(value.source))}{note} }}"

    values = {
        "memory_capacity": accelerator.memory_capacity,
        "memory_bandwidth": accelerator.memory_bandwidth,
        "units": accelerator.units,
        "cache": accelerator.cache,
    }
    body = ["[values]", *(f"{name} = {quantity(value)}" for name, value in values.items() if value is not None)]
    body += ["", "[rates]", *(f"{name} = {quantity(accelerator.rates[name])}" for name in RATE_FORMATS
                              if name in accelerator.rates)]  # fmt: skip
    node = accelerator.own_node
    if node is not None and node.source is not None:
        tier = node.tiers[0]
        body += ["", "[own_node]", f"devices = {node.devices}", f"source = {text_of(key(node.source))}",
                 f"note = {text_of(node.note)}", "", "[[own_node.tiers]]", f"name = {text_of(tier.name)}",
                 f"span = {tier.span}", f"bandwidth = {quantity(tier.bandwidth)}",
                 f"latency = {quantity(tier.latency)}"]  # fmt: skip
    head = ["schema = 1", 'kind = "accelerator"', f"name = {text_of(accelerator.name)}",
            f"title = {text_of(accelerator.title)}", f"vendor = {text_of(accelerator.vendor)}",
            f"kernels = {text_of(accelerator.kernels)}", f"note = {text_of(accelerator.note)}"]  # fmt: skip
    if accelerator.node:
        head.append(f"node = {text_of(accelerator.node)}")
    for source, name in sources.items():
        head += ["", f"[sources.{name}]", f"title = {text_of(source.title)}", f"url = {text_of(source.url)}",
                 f"date = {text_of(source.date)}", f"kind = {text_of(source.kind)}"]  # fmt: skip
    return "\n".join([*head, "", *body]) + "\n"


def checked(made: Mapping[str, Made]) -> None:
    """Refuse two devices of a trace that would become one accelerator. Errors: UserError naming it."""
    names = [one.machine.name for one in made.values()]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"several devices of the trace would be called {name}; fit one at a time with --device")
