"""The contract of a hardware catalog: names that load, aliases that lead somewhere, every value with its source.

Floor: testkit. Subclass it, give the catalog (and what resolves links and nodes of other catalogs), inherit the laws::

    class TestMine(HardwareCatalogContract):
        catalog = TomlCatalog(...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, ClassVar

import attrs
import pytest

from ..errors import UserError
from ..model.interfaces.hardware import KINDS, HardwareCatalog
from ..records.hardware import RATE_FORMATS, Accelerator
from ..records.provenance import Quantity

GIGA = 2**30 / 1e9
"""Some memories are sold in GB and have as many GiB."""


class HardwareCatalogContract:
    """Laws of one ``catalog``; ``others``: catalogs that its records refer to."""

    catalog: ClassVar[HardwareCatalog]
    others: ClassVar[tuple[HardwareCatalog, ...]] = ()

    def resolve(self, kind: str, name: str) -> Any:
        """A record of this catalog or of the others."""
        for catalog in (self.catalog, *self.others):
            if name in catalog.names(kind):
                return catalog.load(kind, name, self.resolve)
        raise UserError(f"no {kind} {name!r} in {self.catalog.name} or its companions")

    def records(self) -> Iterator[tuple[str, str, Any]]:
        """Kind, name and record of everything in the catalog."""
        for kind in KINDS:
            for name in self.catalog.names(kind):
                yield kind, name, self.catalog.load(kind, name, self.resolve)

    def test_names_are_unique_and_something_is_there(self) -> None:
        assert self.catalog.name, "a catalog needs a name"
        counts = {kind: self.catalog.names(kind) for kind in KINDS}
        assert any(counts.values()), f"catalog {self.catalog.name} is empty"
        for kind, names in counts.items():
            assert len(set(names)) == len(names), (
                f"catalog {self.catalog.name}: two records of kind {kind} share a name"
            )

    def test_every_record_loads_under_its_name(self) -> None:
        for kind, name, record in self.records():
            assert record.name == name, f"the {kind} {name!r} calls itself {record.name!r}"

    def test_aliases_lead_to_records(self) -> None:
        for kind in KINDS:
            names = self.catalog.names(kind)
            for alias, name in self.catalog.aliases(kind).items():
                assert name in names, f"the alias {alias!r} leads to no {kind} {name!r}"
                assert alias not in names, f"the alias {alias!r} is also the name of another {kind}"

    def test_an_unknown_name_is_a_users_mistake(self) -> None:
        for kind in KINDS:
            with pytest.raises(UserError):
                self.catalog.load(kind, "no-such-record-anywhere", self.resolve)

    def test_every_value_is_finite_and_has_a_source(self) -> None:
        for kind, name, record in self.records():
            for path, quantity in quantities(record):
                where = f"{kind} {name}, {path}"
                assert isfinite(quantity.value), f"{where} is {quantity.value}"
                assert quantity.value >= 0, f"{where} is {quantity.value:g}, below zero"
                assert quantity.source.url or quantity.source.title, f"{where} has no source"
                assert quantity.source.date, f"{where}: its source has no date"

    def test_accelerators_can_be_priced(self) -> None:
        for kind, name, record in self.records():
            if kind == "accelerator":
                assert isinstance(record, Accelerator)
                assert record.memory_bandwidth.value > 0, f"{name}: no memory bandwidth"
                sold = record.memory_capacity.value * GIGA
                assert 0 < record.memory <= sold, (
                    f"{name}: {record.memory:g} B to use, more than it is sold with ({sold:g})"
                )
                strange = set(record.rates) - set(RATE_FORMATS)
                assert not strange, (
                    f"{name}: rates of unknown formats {sorted(strange)}; known: {', '.join(RATE_FORMATS)}"
                )
                assert record.rates, f"{name}: no arithmetic rate"

    def test_nodes_widen_from_tier_to_tier(self) -> None:
        for kind, name, record in self.records():
            if kind == "node":
                spans = [tier.span for tier in record.tiers]
                finite = [span for span in spans if span is not None]
                assert finite == sorted(set(finite)), f"node {name}: the spans of its tiers do not grow: {spans}"
                assert None not in spans[:-1], f"node {name}: only the outermost tier may reach any number of devices"


def quantities(record: Any, path: str = "") -> Iterator[tuple[str, Quantity]]:
    """Every quantity inside a record, with where it stands."""
    if isinstance(record, Quantity):
        yield path, record
    elif isinstance(record, Mapping):
        for key, value in record.items():
            yield from quantities(value, f"{path}.{key}")
    elif isinstance(record, tuple):
        for i, value in enumerate(record):
            yield from quantities(value, f"{path}[{i}]")
    elif attrs.has(type(record)):
        for entry in attrs.fields(type(record)):
            yield from quantities(getattr(record, entry.name), f"{path}.{entry.name}".lstrip("."))
