"""What a hardware plugin brings: a catalog of accelerators, hosts, links and node forms.

A complete minimal plugin, one Python file beside a folder ``records`` of TOML files::

    from pathlib import Path

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.records.hardware_toml import TomlCatalog

    @hookimpl
    def slipstick_hardware():
        return [TomlCatalog(Path(__file__).parent / "records", origin="acme")]

A catalog that computes its records instead of reading them implements ``HardwareCatalog`` itself.
Floor: model, interfaces. Uses records only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, runtime_checkable

from ...records.fitted import FittedRecord
from ...records.hardware_toml import Record, Resolve
from .kernels import KernelFamily

__all__ = ["KINDS", "FittedRecords", "HardwareCatalog", "KernelFamily"]

KINDS = ("accelerator", "host", "link", "node")
"""The kinds of record of a catalog."""


@runtime_checkable
class HardwareCatalog(Protocol):
    """Records of the four ``KINDS`` by name.

    A class may inherit from this one, or just have its methods: ``TomlCatalog``, on the floor below, does the latter.
    Listing names has to be cheap, since it is done for every catalog on every run: no file is opened for it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the catalog, unique among all plugins."""

    @abstractmethod
    def names(self, kind: str) -> tuple[str, ...]:
        """The names of the records of ``kind``; they are unique in the kind across all catalogs."""

    @abstractmethod
    def load(self, kind: str, name: str, resolve: Resolve) -> Record:
        """The record ``name`` of ``kind``; ``resolve(kind, name)`` finds records of any catalog, such as links.

        Raises ``UserError`` for an unknown name and for a record that is not sound.
        """

    @abstractmethod
    def aliases(self, kind: str) -> dict[str, str]:
        """Other name → name of the records of ``kind``; asked only when a name is not found."""


@runtime_checkable
class FittedRecords(Protocol):
    """Calibrated parameters of kernels by accelerator; ``FittedCatalog``, on the floor below, reads them from TOML."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of this collection, unique among all plugins."""

    @abstractmethod
    def records(self, accelerator: str) -> tuple[FittedRecord, ...]:
        """The records of an accelerator, by its name in slipstick; empty where there is none.

        Raises ``UserError`` for a file that is not sound.
        """
