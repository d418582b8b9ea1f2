"""Hardware records from TOML: what each kind of file may say, and a folder of such files as a catalog.

Floor: records. Uses errors, the unit parser and the walk of ``toml_walk``. The format is described for people in
``docs/hardware.md``. Reading one accelerator parses its own file, its node's, and those of the node's links and
host, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from attrs import evolve

from ..errors import UserError, shown, unknown
from .hardware import RATE_FORMATS, Accelerator, Host, Link, Machine, Node, Tier
from .provenance import Quantity, Source
from .toml_walk import Problems, Table, is_name, place, read_quantity, read_sources, read_toml, source_of

SCHEMA = 1
MAX_TIERS = 16

Record = Accelerator | Host | Link | Node
Resolve = Callable[[str, str], Record]
"""(kind, name) → record, or ``UserError``: how a file reaches the links and the host that it names."""

KIND_FOLDERS = {"accelerator": "accelerators", "host": "hosts", "link": "links", "node": "clusters"}
"""The folder of a catalog that holds the files of each kind."""

_KIND_CLASSES: dict[str, type] = {"accelerator": Accelerator, "host": Host, "link": Link, "node": Node}

Bounds = tuple[str, float, float]
RATE: Bounds = ("FLOP/s", 1e6, 1e19)
BANDWIDTH: Bounds = ("B/s", 1e5, 1e16)
LATENCY: Bounds = ("s", 1e-12, 10.0)
ACCELERATOR_VALUES: dict[str, Bounds] = {
    "memory_capacity": ("B", 1e6, 1e16),
    "memory_reported": ("B", 1e6, 1e16),
    "memory_bandwidth": BANDWIDTH,
    "host_bandwidth": BANDWIDTH,
    "power": ("W", 0.1, 1e6),
    "units": ("1", 1.0, 1e7),
    "cache": ("B", 1e3, 1e13),
}
HOST_VALUES: dict[str, Bounds] = {
    "cores": ("1", 1.0, 1e5),
    "memory_capacity": ("B", 1e6, 1e16),
    "memory_bandwidth": BANDWIDTH,
    "power": ("W", 0.1, 1e6),
}
LINK_VALUES: dict[str, Bounds] = {"bandwidth": BANDWIDTH, "latency": LATENCY}
"""Unit and allowed range of each value: wide enough for any machine, narrow enough to catch a lost prefix."""

_HEAD = ["schema", "kind", "name", "title", "aliases", "note", "sources"]
_NODE_KEYS = ["devices", "host", "source", "tiers"]


def load_file(path: Path, resolve: Resolve | None = None) -> Record:
    """The record that the TOML file at ``path`` describes.

    ``resolve`` finds the links that a node's tiers name. Raises ``UserError`` that tells every problem of the file.
    """
    top = Table(read_toml(path), "", problems := Problems(path))
    top.whole("schema", SCHEMA, SCHEMA)
    kind = top.text("kind")
    reader = _READERS.get(kind)
    if reader is None:
        if kind:
            top.add("kind", f"{shown(kind)} is not one of {', '.join(_READERS)}")
        problems.check()
    assert reader is not None
    record = reader(top, read_sources(top), resolve)
    problems.check()
    return record


def read_machine(path: Path, resolve: Resolve, node: str = "") -> Machine:
    """The machine of a user's own accelerator file: ``--on ./mychip.toml``.

    ``node`` names another node form than the file's own. Raises ``UserError``.
    """
    record = load_file(path, resolve)
    if not isinstance(record, Accelerator):
        kind = next(name for name, known in _KIND_CLASSES.items() if isinstance(record, known))
        raise UserError(f"{place(path)}: kind: describes a {kind}; an accelerator is needed here")
    return evolve(assemble(record, resolve, node), folder=str(path.parent))


def assemble(accelerator: Accelerator, resolve: Resolve, node: str = "") -> Machine:
    """``accelerator`` in the node form named ``node``, else its own, else its default, else alone without a peer.

    Raises ``UserError`` for an unknown node form or host.
    """
    if node:
        form = resolve("node", node)
    elif accelerator.own_node is not None:
        form = accelerator.own_node
    elif accelerator.node:
        form = resolve("node", accelerator.node)
    else:
        form = Node(name=accelerator.name, title=accelerator.title, devices=1, tiers=())
    assert isinstance(form, Node)
    host = resolve("host", form.host) if form.host else None
    assert host is None or isinstance(host, Host)
    return Machine(accelerator=accelerator, node=form, host=host)


# --- the four kinds -------------------------------------------------------------------------------------------


def _accelerator(top: Table, sources: dict[str, Source], resolve: Resolve | None) -> Accelerator:
    top.only([*_HEAD, "vendor", "node", "own_node", "kernels", "year", "values", "rates", "parameters"])
    values = _values(top, sources, ACCELERATOR_VALUES, needed=("memory_capacity", "memory_bandwidth"))
    rates = _rates(top, sources)
    # A family of kernel formulas of its own may price work by other parameters than FLOP rates.
    kernels = top.name("kernels", "measured")
    told = top.content.get("rates")
    has_rate = isinstance(told, dict) and any(key in told for key in RATE_FORMATS)
    if kernels in ("measured", "roofline") and not has_rate:
        top.add("rates", "missing; the kernel formulas need at least one rate, such as bf16")
    name, title = top.name("name"), top.text("title", limit=100)
    own = top.table("own_node")
    if own is not None and "node" in top.content:
        top.add("own_node", "the file names a node form too; keep one of them")
    return Accelerator(
        name=name,
        title=title,
        vendor=top.text("vendor", limit=60),
        memory_capacity=values["memory_capacity"],
        memory_bandwidth=values["memory_bandwidth"],
        rates=rates,
        node=top.name("node", ""),
        kernels=kernels,
        memory_reported=values.get("memory_reported"),
        host_bandwidth=values.get("host_bandwidth"),
        power=values.get("power"),
        units=values.get("units"),
        cache=values.get("cache"),
        parameters=_parameters(top, sources),
        own_node=None if own is None else _own_node(own, name, title, sources, resolve),
        aliases=top.names("aliases"),
        year=top.whole("year", 1980, 2100) if "year" in top.content else None,
        note=top.text("note", ""),
    )


def _host(top: Table, sources: dict[str, Source], resolve: Resolve | None) -> Host:
    top.only([*_HEAD, "vendor", "sockets", "values", "rates"])
    values = _values(top, sources, HOST_VALUES, needed=("cores", "memory_capacity", "memory_bandwidth"))
    return Host(
        name=top.name("name"),
        title=top.text("title", limit=100),
        vendor=top.text("vendor", limit=60),
        cores=values["cores"],
        memory_capacity=values["memory_capacity"],
        memory_bandwidth=values["memory_bandwidth"],
        rates=_rates(top, sources),
        sockets=top.whole("sockets", 1, 1024, default=1),
        power=values.get("power"),
        aliases=top.names("aliases"),
        note=top.text("note", ""),
    )


def _link(top: Table, sources: dict[str, Source], resolve: Resolve | None) -> Link:
    top.only([*_HEAD, "values"])
    values = _values(top, sources, LINK_VALUES, needed=tuple(LINK_VALUES))
    return Link(
        name=top.name("name"),
        title=top.text("title", limit=100),
        bandwidth=values["bandwidth"],
        latency=values["latency"],
        aliases=top.names("aliases"),
        note=top.text("note", ""),
    )


def _node(top: Table, sources: dict[str, Source], resolve: Resolve | None) -> Node:
    top.only([*_HEAD, *_NODE_KEYS])
    node = _own_node(top, top.name("name"), top.text("title", limit=100), sources, resolve)
    return evolve(node, aliases=top.names("aliases"))


_READERS: dict[str, Callable[[Table, dict[str, Source], Resolve | None], Record]] = {
    "accelerator": _accelerator,
    "host": _host,
    "link": _link,
    "node": _node,
}


# --- their parts ----------------------------------------------------------------------------------------------


class _Values(dict[str, Quantity]):
    """Values by key; one that is missing was noted as a problem, so its stand-in never leaves this file."""

    def __missing__(self, key: str) -> Quantity:
        return Quantity(1.0, "1", Source("", "", "", "", "default"))


def _values(top: Table, sources: dict[str, Source], known: dict[str, Bounds], needed: tuple[str, ...]) -> _Values:
    found = _Values()
    table = top.table("values") or Table({}, "values", top.problems)
    table.only(known)
    for key, (unit, lower, upper) in known.items():
        quantity = read_quantity(table, key, sources, unit, lower, upper)
        if quantity is not None:
            found[key] = quantity
        elif key in needed and key not in table.content:
            table.add(key, "missing; this kind of record needs it")
    return found


def _rates(top: Table, sources: dict[str, Source]) -> dict[str, Quantity]:
    rates: dict[str, Quantity] = {}
    table = top.table("rates") or Table({}, "rates", top.problems)
    table.only(RATE_FORMATS)
    for key in RATE_FORMATS:
        quantity = read_quantity(table, key, sources, *RATE)
        if quantity is not None:
            rates[key] = quantity
    return rates


def _parameters(top: Table, sources: dict[str, Source]) -> dict[str, Quantity]:
    """Overrides of a kernel family's parameters; their names and units are the family's to check."""
    parameters: dict[str, Quantity] = {}
    table = top.table("parameters") or Table({}, "parameters", top.problems)
    for key in table.content:
        if len(key) > 64 or not all(part.isidentifier() for part in re.split(r"[@.]", key)):
            table.add(key, "is no name of a parameter; letters, digits and '_' are, and a slot after '@'")
            continue
        quantity = read_quantity(table, key, sources, None, 0.0, 1e30)
        if quantity is not None:
            parameters[key] = quantity
    return parameters


def _own_node(table: Table, name: str, title: str, sources: dict[str, Source], resolve: Resolve | None) -> Node:
    if table.where:
        table.only([*_NODE_KEYS, "title", "note"])
        title = table.text("title", title, limit=100)
    source = source_of(table, sources)
    tiers: list[Tier] = []
    entries = table.tables("tiers")
    if len(entries) > MAX_TIERS:
        table.add("tiers", f"{len(entries)} tiers; at most {MAX_TIERS} are allowed")
        entries = []
    for index, entry in enumerate(entries):
        tier = _tier(entry, sources, source, resolve)
        if tier.name in [other.name for other in tiers]:
            entry.add("name", f"{shown(tier.name)} names another tier of this node too")
        if tier.span is None and index < len(entries) - 1:
            entry.add("span", "missing; only the last tier may reach any number of devices")
        if tiers and tier.span is not None and tiers[-1].span is not None and tier.span <= tiers[-1].span:
            entry.add("span", f"{tier.span} is not above the span {tiers[-1].span} of the tier before it")
        tiers.append(tier)
    return Node(
        name=name,
        title=title,
        devices=table.whole("devices", 1, 100_000),
        tiers=tuple(tiers),
        host=table.name("host", ""),
        source=source,
        note=table.text("note", ""),
    )


def _tier(entry: Table, sources: dict[str, Source], source: Source | None, resolve: Resolve | None) -> Tier:
    entry.only(["name", "span", "link", "links_per_device", "bandwidth", "latency", "note"])
    bandwidth = read_quantity(entry, "bandwidth", sources, *BANDWIDTH)
    latency = read_quantity(entry, "latency", sources, *LATENCY)
    link = entry.name("link", "")
    ports = entry.number("links_per_device", 1e-4, 4096.0, default=1.0)
    found: Link | None = None
    if link:
        found = _find_link(entry, link, resolve)
    else:
        if "links_per_device" in entry.content:
            entry.add("links_per_device", "no link is named; name one, or give the bandwidth")
        for key in ("bandwidth", "latency"):
            if key not in entry.content:
                entry.add(key, "missing; name a link, or give the bandwidth and the latency")
    if found is not None and bandwidth is None and source is not None:
        bandwidth = _bundle(found, ports, source, entry.text("note", ""))
    if found is not None and latency is None:
        latency = found.latency
    stand_in = _Values()
    return Tier(
        name=entry.name("name"),
        span=entry.whole("span", 2, 10_000_000) if "span" in entry.content else None,
        bandwidth=bandwidth or stand_in["bandwidth"],
        latency=latency or stand_in["latency"],
        link=link,
        ports=ports,
    )


def _find_link(entry: Table, link: str, resolve: Resolve | None) -> Link | None:
    try:
        if resolve is None:
            raise UserError(f"{shown(link)} cannot be looked up here; give the bandwidth and the latency")
        found = resolve("link", link)
    except UserError as error:
        entry.add("link", str(error))
        return None
    assert isinstance(found, Link)
    return found


def _bundle(link: Link, ports: float, source: Source, note: str) -> Quantity:
    """The bandwidth of ``ports`` links of a device: the link's figure, by the count that the node's source states."""
    if ports == 1.0:
        return evolve(link.bandwidth, note=note or link.bandwidth.note)
    counted = f"{ports:g} × {link.bandwidth.text} ({link.name})"
    because = f"the count from «{source.title}»"
    return evolve(
        link.bandwidth,
        value=link.bandwidth.value * ports,
        text=counted,
        note="; ".join(part for part in (because, note) if part),
    )


# --- a folder of files ----------------------------------------------------------------------------------------


class TomlCatalog:
    """The records in the folders ``accelerators``, ``clusters`` (node forms), ``hosts`` and ``links`` of ``folder``.

    ``origin`` says who brings them. With a ``part`` only the sub-folder of that name is seen in each of the four
    (``accelerators/nvidia``). TOML files that lie in ``folder`` itself are accelerators, so that a user's folder
    needs no folders in it. A folder that does not exist is an empty catalog.
    """

    def __init__(self, folder: Path, origin: str, part: str = "") -> None:
        self.folder = folder
        self.origin = origin
        self.part = part

    def __repr__(self) -> str:
        return f"TomlCatalog({str(self.folder)!r}, {self.origin!r}, {self.part!r})"

    @property
    def name(self) -> str:
        """The name of this catalog among those of all plugins: its origin."""
        return self.origin

    def _folders(self, kind: str) -> list[Path]:
        if kind not in KIND_FOLDERS:
            raise unknown("kind of record", kind, KIND_FOLDERS)
        folders = [self.folder / KIND_FOLDERS[kind] / self.part]
        return folders if kind != "accelerator" or self.part else [*folders, self.folder]

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of the records of ``kind``, in order, from the file names alone: no file is opened."""
        found: set[str] = set()
        for folder in self._folders(kind):
            with contextlib.suppress(OSError):  # a folder that is missing or unreadable offers nothing
                found.update(entry[:-5] for entry in os.listdir(folder) if entry.endswith(".toml"))
        return tuple(sorted(name for name in found if is_name(name)))

    def path(self, kind: str, name: str) -> Path:
        """The file of the record ``name`` of ``kind``; ``UserError`` if there is none."""
        if is_name(name):  # so that no name reaches a file outside of the folders
            for folder in self._folders(kind):
                path = folder / f"{name}.toml"
                if path.exists():
                    return path
        raise unknown(kind, name, self.names(kind))

    def load(self, kind: str, name: str, resolve: Resolve | None = None) -> Record:
        """The record ``name`` of ``kind``; links are found by ``resolve``, by default in this catalog.

        Raises ``UserError`` for an unknown name and for a file that does not load.
        """
        path = self.path(kind, name)
        record = load_file(path, resolve or self.load)
        if not isinstance(record, _KIND_CLASSES[kind]):
            raise UserError(f'{place(path)}: kind: a file in this folder describes a {kind}; write kind = "{kind}"')
        if record.name != name:
            raise UserError(f'{place(path)}: name: {shown(record.name)} differs from the file name; write "{name}"')
        return record

    def aliases(self, kind: str) -> dict[str, str]:
        """Alias → name of all records of ``kind``. Opens every file; one that does not load has no alias."""
        found: dict[str, str] = {}
        for name in self.names(kind):
            try:
                listed = read_toml(self.path(kind, name)).get("aliases", [])
            except UserError:
                continue
            if isinstance(listed, list):
                found.update((alias, name) for alias in listed if is_name(alias))
        return found
