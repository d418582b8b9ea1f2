"""What an offload policy is: where the rows of the ledger lie, who computes on them, and when they move.

A minimal plugin::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.offload import HOST, Compute, Offload, OffloadPolicy, Placement, Stream

    class OptimizerOnHost(OffloadPolicy):
        name = "optimizer-on-host"
        tasks = ("train",)

        def offload(self, options):
            return Offload(
                placements=(Placement("optimizer", HOST),),
                computes=(Compute("optimizer", HOST),),
                streams=(Stream("gradients", "device", HOST, during="backward", ahead=1),),
            )

    @hookimpl
    def slipstick_offload_policies():
        return [OptimizerOnHost()]

That is a whole policy. The optimizer state leaves the device's ledger for the host's; the update is priced on the host;
gradients must reach it and new weights must come back, because work needs its tensors where it runs. The stream says
only that gradients go while the backward pass goes on; nothing is said of the weights, so the step waits for them.

The same law as for strategies: **that** something moves, and how many bytes, follows from placements and computes;
a policy states **how** it moves. It writes no formula, no volume and no time.

Floor: model. Pure data and abstract classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeGuard

from attrs import frozen

from ...errors import PluginError, nearest, shown
from .strategy import Constraint, Option

if TYPE_CHECKING:
    from typing import TypeAlias

    from sympy import Expr

    Amount: TypeAlias = "Expr | float"
    Share: TypeAlias = "Amount | Every | Literal['rest', 'fit']"

ROWS = ("weights", "gradients", "optimizer", "activations", "kv_cache")
"""The rows of the memory ledger that can lie elsewhere."""

PHASES = ("forward", "backward", "update", "prefill", "decode")
"""The parts of a step that a stream can run beside."""

DEVICE = "device"
"""The pool that computes: the accelerators of the scenario."""

HOST = "host"
"""The memory and cores of the computer that the devices are plugged into. Further pools and tiers have the names that
the machine gives them (a drive, a file system, other computers)."""

REST: Literal["rest"] = "rest"
"""The share that the other entries of the same row or work leave."""

FIT: Literal["fit"] = "fit"
"""As large a share as the pool has room for; what is left must have a place of its own (``REST``)."""


@frozen
class Every:
    """The share of every ``stride``-th tile: ⌊n / stride⌋ of n tiles, spread evenly among the others."""

    stride: Amount

    def __attrs_post_init__(self) -> None:
        if _is_number(self.stride) and not self.stride >= 1:
            raise PluginError(f"every {shown(self.stride)}-th tile makes no sense; a stride is at least 1")


def _is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a plain number, which can be checked; an expression is checked once it has values."""
    return isinstance(value, int | float)


def _check_share(where: str, share: Share) -> None:
    if isinstance(share, str) and share not in (REST, FIT):
        raise PluginError(f"{where}: the share {shown(share)} is neither {REST!r} nor {FIT!r} nor an amount")
    if _is_number(share) and not 0 <= share <= 1:
        raise PluginError(f"{where}: the share {share:g} is not between 0 and 1")


def _check_one_of(where: str, what: str, name: str, known: Iterable[str]) -> None:
    known = tuple(known)
    if name not in known:
        near = nearest(name, known, limit=1) if isinstance(name, str) else []
        told = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise PluginError(f"{where}: unknown {what} {shown(name)}; {told}")


def _check_amount(where: str, what: str, amount: Amount) -> None:
    if _is_number(amount) and not amount >= 0:
        raise PluginError(f"{where}: {what} is {amount:g}; it can't be negative")


@frozen
class Placement:
    """A share of a ledger ``row`` lies in ``pool`` between its uses, and not on the device.

    ``share`` [1]: an amount of the row's bytes on one device, ``Every(k)``, ``REST`` or ``FIT``; what no placement
    names stays on the device. ``tile``: elements that are kept and moved together [elements], "layer" for what one
    layer has of the row, 0 where the row can be cut anywhere; shares are of whole tiles, rounded down.
    """

    row: str
    pool: str
    share: Share = 1.0
    tile: Amount | Literal["layer"] = 0

    def __attrs_post_init__(self) -> None:
        where = f"placement of {self.row} in {self.pool}"
        _check_one_of(where, "row", self.row, ROWS)
        _check_share(where, self.share)
        if isinstance(self.tile, str) and self.tile != "layer":
            raise PluginError(f"{where}: the tile {shown(self.tile)} is neither 'layer' nor a number of elements")
        _check_amount(where, "the tile", self.tile)


@frozen
class Compute:
    """A share of some ``work`` is done by the processors of ``pool``.

    ``work``: a kind of work (optimizer, attention, grouped_gemm, ...) or the name of one operation (sampling).
    ``share`` [1] is of the tiles of the row that the work is about, else of its sequences. What no entry names runs
    on the device. Pools that have a share work at the same time; a resource that they have in common is shared.
    """

    work: str
    pool: str
    share: Share = 1.0

    def __attrs_post_init__(self) -> None:
        where = f"computing {self.work} in {self.pool}"
        if not self.work:
            raise PluginError("a policy moves work without a name; give its kind or the name of an operation")
        _check_share(where, self.share)
        if self.share == FIT:
            raise PluginError(f"{where}: work takes no room; its share can't be {FIT!r}")


@frozen
class Stream:
    """How what must move between two pools moves. Without one, the work that needs it waits for all of it.

    ``row`` goes from ``source`` to ``target`` beside the phase ``during``; ``ahead`` [tiles]: how many tiles may be on
    their way beyond the one in use, each of which needs a buffer; 0: in phase, but each tile is waited for.
    ``tile``: as in ``Placement``, where the row has none. ``format``: the role whose width it travels in ("weight",
    "gradient", "master", ...), converted at the source; "" as it is kept. ``copy``: the source keeps its own as well
    and nothing waits (a checkpoint): such a stream moves bytes that no work asks for.
    """

    row: str
    source: str
    target: str
    during: str
    ahead: Amount = 1
    tile: Amount | Literal["layer"] = 0
    format: str = ""
    copy: bool = False

    def __attrs_post_init__(self) -> None:
        where = f"stream of {self.row} from {self.source} to {self.target}"
        _check_one_of(where, "row", self.row, ROWS)
        _check_one_of(where, "phase", self.during, PHASES)
        if self.source == self.target:
            raise PluginError(f"{where}: it goes nowhere")
        if isinstance(self.tile, str) and self.tile != "layer":
            raise PluginError(f"{where}: the tile {shown(self.tile)} is neither 'layer' nor a number of elements")
        _check_amount(where, "the tile", self.tile)
        _check_amount(where, "ahead", self.ahead)


@frozen
class Offload:
    """What a policy states. ``batches`` [1]: batches that take turns, so that several pools are busy at once.

    Errors: PluginError where a row or work has two entries for one pool, or shares that come to more than all.
    """

    placements: tuple[Placement, ...] = ()
    computes: tuple[Compute, ...] = ()
    streams: tuple[Stream, ...] = ()
    batches: Amount = 1

    def __attrs_post_init__(self) -> None:
        _check_together("row", [(p.row, p.pool, p.share) for p in self.placements])
        _check_together("work", [(c.work, c.pool, c.share) for c in self.computes])
        streams = [(s.row, s.source, s.target, s.during) for s in self.streams]
        for stream in streams:
            if streams.count(stream) > 1:
                raise PluginError("two streams of {} from {} to {} during {}".format(*stream))
        if _is_number(self.batches) and not self.batches >= 1:
            raise PluginError(f"{self.batches:g} batches take turns; there is at least 1")


def _check_together(what: str, entries: list[tuple[str, str, Share]]) -> None:
    for name in dict.fromkeys(entry[0] for entry in entries):
        pools = [pool for own, pool, _ in entries if own == name]
        shares = [share for own, _, share in entries if own == name]
        twice = next((pool for pool in pools if pools.count(pool) > 1), None)
        if twice is not None:
            raise PluginError(f"{what} {name} has two entries for the pool {twice}")
        if shares.count(REST) > 1:
            raise PluginError(f"{what} {name}: two pools are to take the rest")
        if FIT in shares and REST not in shares:
            raise PluginError(f"{what} {name}: no pool takes the rest of what does not fit")
        total = sum(share for share in shares if _is_number(share))
        if total > 1 + 1e-9:
            raise PluginError(f"{what} {name}: its shares come to {total:g}, which is more than all of it")


class OffloadPolicy(ABC):
    """A way of keeping things off the device. It states places; movement, contention and time follow from them."""

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]] = ("train", "serve")
    options: ClassVar[tuple[Option, ...]] = ()

    @abstractmethod
    def offload(self, options: Mapping[str, Any]) -> Offload:
        """The placements, computes and streams under the given option values (each option is present).

        A number among the values may be an expression, so that its best value can be asked for.
        Errors: UserError for values that are no choice together; PluginError (raised by the records) for what is
        never one. A pool that the machine lacks is found, and told, by the study.
        """

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        """Conditions that a setting must meet."""
        return ()
