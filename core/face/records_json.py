"""Hardware records as JSON-ready data: SI values, each with its source (docs/json.md).

Floor: face. Uses records only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records.hardware import Accelerator, Host, Link, Machine, Node, Tier

if TYPE_CHECKING:
    from ..records.hardware_toml import Record
    from ..records.provenance import Quantity, Source


def values_of(record: Accelerator | Host | Link) -> dict[str, Quantity]:
    """The values of a record that are not rates, by name, in the order of reading; unknown ones are left out."""
    names: tuple[str, ...] = {
        Accelerator: (
            "memory_capacity", "memory_reported", "memory_bandwidth", "host_bandwidth", "power", "units", "cache"
        ),
        Host: ("cores", "memory_capacity", "memory_bandwidth", "power"),
        Link: ("bandwidth", "latency"),
    }[type(record)]  # fmt: skip
    found = {name: getattr(record, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def summary_json(record: Record) -> dict[str, Any]:
    """A record in a list: values without their sources."""
    head = _head(record)
    if isinstance(record, Node):
        return {**head, "devices": record.devices, "host": record.host, "tiers": [tier.name for tier in record.tiers]}
    head["values"] = {name: quantity.value for name, quantity in values_of(record).items()}
    if isinstance(record, Accelerator):
        head["node"] = record.own_node.name if record.own_node else record.node
        head["year"] = record.year
    if not isinstance(record, Link):
        head["rates"] = {name: quantity.value for name, quantity in record.rates.items()}
    return head


def record_json(record: Record) -> dict[str, Any]:
    """A record in full."""
    head = _head(record)
    head["note"] = record.note
    if isinstance(record, Node):
        return {
            **head, "devices": record.devices, "host": record.host,
            "source": source_json(record.source) if record.source else None,
            "tiers": [_tier(tier) for tier in record.tiers],
        }  # fmt: skip
    head["values"] = {name: quantity_json(quantity) for name, quantity in values_of(record).items()}
    if not isinstance(record, Link):
        head["rates"] = {name: quantity_json(quantity) for name, quantity in record.rates.items()}
    if isinstance(record, Host):
        head["sockets"] = record.sockets
    if isinstance(record, Accelerator):
        head["year"], head["kernels"] = record.year, record.kernels
        head["parameters"] = {name: quantity_json(quantity) for name, quantity in record.parameters.items()}
    return head


def machine_json(machine: Machine) -> dict[str, Any]:
    """An accelerator in full, with its node form and host."""
    return {
        **record_json(machine.accelerator),
        "node": record_json(machine.node),
        "host": record_json(machine.host) if machine.host else None,
    }


def quantity_json(quantity: Quantity) -> dict[str, Any]:
    """A value with its unit, as its author wrote it, and its source."""
    return {
        "value": quantity.value, "unit": quantity.unit, "text": quantity.text, "note": quantity.note,
        "source": source_json(quantity.source),
    }  # fmt: skip


def source_json(source: Source) -> dict[str, str]:
    """Where a value can be checked."""
    return {"title": source.title, "url": source.url, "date": source.date, "kind": source.kind}


def _head(record: Record) -> dict[str, Any]:
    head: dict[str, Any] = {"kind": type(record).__name__.lower(), "name": record.name, "title": record.title}
    if isinstance(record, (Accelerator, Host)):
        head["vendor"] = record.vendor
    head["aliases"] = list(record.aliases)
    return head


def _tier(tier: Tier) -> dict[str, Any]:
    return {
        "name": tier.name, "span": tier.span, "link": tier.link, "ports": tier.ports,
        "bandwidth": quantity_json(tier.bandwidth), "latency": quantity_json(tier.latency),
    }  # fmt: skip
