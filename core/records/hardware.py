"""Machines as data: accelerators, hosts, links, nodes (with their network) and the machine they make together.

Floor: records. Frozen attrs classes with SI values; how they are read from TOML is in ``hardware_toml``.
A bandwidth is per direction and per device unless its name says otherwise; a rate is dense, never sparse.
"""

from __future__ import annotations

from attrs import field, frozen

from .provenance import Quantity, Source

RATE_FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4")


@frozen
class Link:
    """A kind of wire: ``bandwidth`` [B/s, one direction, one port], ``latency`` [s, one hop, software included]."""

    name: str
    title: str
    bandwidth: Quantity
    latency: Quantity
    aliases: tuple[str, ...] = ()
    note: str = ""


@frozen
class Tier:
    """One level of the network of a node form, innermost first.

    ``span``: devices that reach one another on this tier (None: any number, the outermost tier);
    ``bandwidth`` [B/s per device, one direction]; ``latency`` [s a message]; ``link``: the kind of wire, of which
    a device has ``ports`` (a fraction where several devices share one).
    """

    name: str
    span: int | None
    bandwidth: Quantity
    latency: Quantity
    link: str = ""
    ports: float = 1.0


@frozen
class Host:
    """A host computer: ``memory_capacity`` [B], ``memory_bandwidth`` [B/s], ``cores``, ``rates`` [FLOP/s by format]."""

    name: str
    title: str
    vendor: str
    cores: Quantity
    memory_capacity: Quantity
    memory_bandwidth: Quantity
    rates: dict[str, Quantity] = field(factory=dict)
    sockets: int = 1
    power: Quantity | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""


@frozen
class Node:
    """A node form: how many accelerators share a chassis, on which tiers they meet, and beside which host.

    ``devices`` is what one host drives; a tier may span more than one host (72 on NVLink, a torus of TPUs).
    ``source`` stands behind the count of devices and of links a device. Without tiers a device has no peer.
    """

    name: str
    title: str
    devices: int
    tiers: tuple[Tier, ...]
    host: str = ""
    aliases: tuple[str, ...] = ()
    source: Source | None = None
    note: str = ""


@frozen
class Accelerator:
    """One device.

    ``memory_capacity`` [B, as sold], ``memory_reported`` [B, as the driver reports it, where known],
    ``memory_bandwidth`` [B/s], ``rates`` [FLOP/s by number format, dense], ``host_bandwidth`` [B/s, one direction,
    device to host], ``power`` [W, board], ``units`` (streaming multiprocessors or cores), ``node``: the default
    node form; ``kernels``: the family of kernel formulas that prices work on it; ``parameters``: values that
    override that family's parameters.
    """

    name: str
    title: str
    vendor: str
    memory_capacity: Quantity
    memory_bandwidth: Quantity
    rates: dict[str, Quantity]
    node: str = ""
    kernels: str = "measured"
    memory_reported: Quantity | None = None
    host_bandwidth: Quantity | None = None
    power: Quantity | None = None
    units: Quantity | None = None
    cache: Quantity | None = None
    parameters: dict[str, Quantity] = field(factory=dict)
    own_node: Node | None = None
    aliases: tuple[str, ...] = ()
    year: int | None = None
    note: str = ""

    @property
    def memory(self) -> float:
        """Bytes a program can allocate: what the driver reports where that is known, else the datasheet's."""
        return (self.memory_reported or self.memory_capacity).value


@frozen
class Machine:
    """An accelerator in its node form: what ``--on`` names. ``host`` is None where the node names none.

    ``folder``: where the accelerator's file lies, for one that was given by its path.
    """

    accelerator: Accelerator
    node: Node
    host: Host | None = None
    folder: str = ""

    @property
    def name(self) -> str:
        """The accelerator's name."""
        return self.accelerator.name
