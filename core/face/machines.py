"""Hardware records as pages: lists, and every value of one machine with its source.

Floor: face. Uses records and the unit table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..algebra.units import format_si
from ..records.hardware import Accelerator, Host, Link, Machine, Node
from .records_json import values_of
from .text import Block, Grid, Note, Pairs

if TYPE_CHECKING:
    from ..records.hardware_toml import Record
    from ..records.provenance import Quantity, Source

_WORDS = {
    "memory_capacity": "memory",
    "memory_reported": "memory (driver)",
    "memory_bandwidth": "memory bandwidth",
    "host_bandwidth": "to and from host",
    "power": "power",
    "units": "units",
    "cache": "cache",
    "cores": "cores",
    "bandwidth": "bandwidth",
    "latency": "latency",
}


class Sources:
    """The sources of a page, numbered in the order in which values name them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._lines: list[str] = []

    def mark(self, source: Source) -> str:
        """The number by which a value names ``source``."""
        key = (source.title, source.url, source.kind)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._lines.append(f"{source.title} ({source.date}; {source.kind}) {source.url}")
        return f"[{self._numbers[key]}]"

    def block(self) -> Pairs:
        """The list of sources."""
        return Pairs(tuple((f"[{n}]", line) for n, line in enumerate(self._lines, 1)), "Sources")


def listing(found: Mapping[str, Sequence[Record]]) -> list[Block]:
    """One table a kind."""
    blocks: list[Block] = []
    for records in found.values():
        blocks += _listed(records)
    blocks.append(Note("Rates are dense, bandwidths in one direction; `slipstick hardware show NAME` has the sources."))
    return blocks


def machine_page(machine: Machine) -> list[Block]:
    """An accelerator, its node form, its network and its host."""
    sources = Sources()
    blocks = _record(machine.accelerator, sources)
    blocks += _node(machine.node, sources, f"Node form {machine.node.name}: {machine.node.title}")
    if machine.host is not None:
        blocks += _record(machine.host, sources, f"Host {machine.host.name}: {machine.host.title}")
    return [*blocks, sources.block()]


def record_page(record: Record) -> list[Block]:
    """A node form, a host or a link."""
    sources = Sources()
    if isinstance(record, Node):
        blocks = _node(record, sources, "")
        blocks.insert(0, Note(f"{record.name}: {record.title}", "title"))
    else:
        blocks = _record(record, sources)
    return [*blocks, sources.block()]


def _listed(records: Sequence[Record]) -> list[Block]:
    if not records:
        return [Note("none")]
    first = records[0]
    if isinstance(first, Node):
        nodes = [r for r in records if isinstance(r, Node)]
        rows = tuple((r.name, str(r.devices), " + ".join(t.name for t in r.tiers), r.title) for r in nodes)
        return [Grid(("node form", "devices", "tiers", "what it is"), rows, right={1})]
    if isinstance(first, Host):
        hosts = [r for r in records if isinstance(r, Host)]
        cells = tuple(
            (r.name, f"{r.cores.value:.0f}", _si(r.memory_capacity), _si(r.memory_bandwidth), r.title) for r in hosts
        )
        return [Grid(("host", "cores", "memory", "bandwidth", "what it is"), cells, right={1, 2, 3})]
    if isinstance(first, Link):
        links = [r for r in records if isinstance(r, Link)]
        wires = tuple((r.name, _si(r.bandwidth), _si(r.latency), r.title) for r in links)
        return [Grid(("link", "bandwidth", "latency", "what it is"), wires, right={1, 2})]
    return [_accelerators(records)]


def _accelerators(records: Iterable[Record]) -> Grid:
    rows = []
    for record in records:
        assert isinstance(record, Accelerator)
        half = record.rates.get("bf16") or record.rates.get("fp16")
        eight = record.rates.get("fp8") or record.rates.get("int8")
        words = "" if eight is None or "fp8" in record.rates else " int8"
        rows.append(
            (
                record.name,
                _si(record.memory_capacity),
                _si(record.memory_bandwidth),
                _rate(half),
                _rate(eight) + words,
                record.own_node.name if record.own_node else record.node or "alone",
            )
        )
    columns = ("accelerator", "memory", "bandwidth", "16 bit", "8 bit", "node form")
    return Grid(columns, tuple(rows), right={1, 2, 3, 4})


def _rate(quantity: Quantity | None) -> str:
    return _si(quantity).removesuffix("FLOP/s").strip() if quantity else "–"


def _record(record: Accelerator | Host | Link, sources: Sources, title: str = "") -> list[Block]:
    blocks: list[Block] = []
    if not title:
        blocks.append(Note(f"{record.name}: {record.title}", "title"))
        blocks.append(Pairs(tuple(_about(record))))
    rows = [_row(_WORDS[name], quantity, sources) for name, quantity in values_of(record).items()]
    if not isinstance(record, Link):
        rows += [_row(f"rate {name}", quantity, sources) for name, quantity in record.rates.items()]
    if isinstance(record, Accelerator):
        rows += [_row(f"parameter {name}", quantity, sources) for name, quantity in record.parameters.items()]
    blocks.append(Grid(("value", "", "source", "note"), tuple(rows), title, right={1}))
    if record.note:
        blocks.append(Note(record.note))
    return blocks


def _about(record: Accelerator | Host | Link) -> Iterable[tuple[str, str]]:
    if not isinstance(record, Link):
        yield "vendor", record.vendor
    if isinstance(record, Accelerator) and record.year:
        yield "year", str(record.year)
    if isinstance(record, Host):
        yield "sockets", str(record.sockets)
    if record.aliases:
        yield "also called", ", ".join(record.aliases)
    if isinstance(record, Accelerator):
        yield "kernel formulas", record.kernels


def _node(node: Node, sources: Sources, title: str) -> list[Block]:
    about = [("devices a host", f"{node.devices} {sources.mark(node.source)}" if node.source else str(node.devices))]
    if node.host and not title:
        about.append(("host", node.host))
    if node.aliases:
        about.append(("also called", ", ".join(node.aliases)))
    blocks: list[Block] = [Pairs(tuple(about), title)]
    rows = []
    for tier in node.tiers:
        note = "; ".join(filter(None, (tier.bandwidth.note, tier.latency.note)))
        ports = f" ({tier.ports:g} × {tier.link})" if tier.link else ""
        marks = dict.fromkeys((sources.mark(tier.bandwidth.source), sources.mark(tier.latency.source)))
        rows.append(
            (
                tier.name,
                "any" if tier.span is None else str(tier.span),
                _si(tier.bandwidth),
                _si(tier.latency),
                "".join(marks),
                (ports.strip(" ()") + (f": {note}" if ports and note else note)),
            )
        )
    if rows:
        columns = ("tier", "devices", "bandwidth", "latency", "source", "note")
        blocks.append(Grid(columns, tuple(rows), right={1, 2, 3}))
    else:
        blocks.append(Note("No peer: a device of this node form reaches no other."))
    if node.note:
        blocks.append(Note(node.note))
    return blocks


def _row(word: str, quantity: Quantity, sources: Sources) -> tuple[str, str, str, str]:
    return word, _si(quantity), sources.mark(quantity.source), quantity.note


def _si(quantity: Quantity) -> str:
    return format_si(quantity.value, quantity.unit)
