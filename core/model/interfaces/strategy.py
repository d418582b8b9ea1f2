"""What a parallel strategy is: dimensions of the mesh, splits and stores on them, conditions, perhaps a schedule.

A minimal plugin::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.strategy import Strategy
    from slipstick.core.model.layout import Rules, Split, Store
    from slipstick.core.model.mesh import Dimension

    class ContextParallel(Strategy):
        name = "context"
        dimensions = (Dimension("cp", "context parallel degree", order=20),)

        def rules(self, options):
            return Rules(splits=(Split("query", "cp"),))

    @hookimpl
    def slipstick_strategies():
        return [ContextParallel()]

That is a whole context parallelism: the all-gather of keys and values, the reduce-scatter of their gradients and the
further reduction of weight gradients follow from the split. (It is bundled, with what ZeRO splits beside it: a strategy
of your own has another name, and so has its dimension.)

Floor: model. Pure data and abstract classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import frozen

from ..layout import Rules
from ..mesh import Dimension

if TYPE_CHECKING:
    from sympy import Expr

    from ...algebra.formula import Formula


@frozen
class Option:
    """An option that a strategy brings to the command line and to ``--json``: ``--<name>``, with - for each _ of it.

    ``default`` gives its type (bool, int or str); ``choices`` limits it; ``unit`` is shown in help ("" for none).
    """

    name: str
    help: str
    default: bool | int | str
    choices: tuple[Any, ...] = ()
    unit: str = ""
    tasks: tuple[str, ...] = ("train", "serve")


@frozen
class Constraint:
    """A condition on a setting, checked on numbers and arrays alike; products of named values on both sides.

    ``divides``: the product of ``left`` must divide the product of ``right``; ``at_most``: must not exceed it.
    A condition that names a size which the model lacks (no experts, no key/value heads) does not apply. A whole number
    in place of a name stands for itself. ``split``: a degree; at 1 the condition does not apply either. ``more``: is
    added to the right side.
    """

    kind: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    message: str
    split: str = ""
    more: int = 0

    def sides(self, values: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Both products; None where a name has no value."""
        if any(name not in values and not name.isdigit() for name in (*self.left, *self.right)):
            return None
        left, right = (
            prod(int(name) if name.isdigit() else values[name] for name in names) for names in (self.left, self.right)
        )
        return left, right + self.more


def divides(left: str | tuple[str, ...], right: str | tuple[str, ...], message: str, split: str = "") -> Constraint:
    """The product of ``left`` must divide the product of ``right``."""
    return Constraint("divides", _names(left), _names(right), message, split)


def at_most(
    left: str | tuple[str, ...], right: str | tuple[str, ...], message: str, split: str = "", more: int = 0
) -> Constraint:
    """The product of ``left`` must be at most the product of ``right`` and ``more``."""
    return Constraint("at_most", _names(left), _names(right), message, split, more)


def never(message: str, split: str = "") -> Constraint:
    """What can't be met, whatever the degrees (but at a degree ``split`` of 1): a choice that would do nothing."""
    return Constraint("at_most", ("1",), ("0",), message, split)


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


@frozen
class Pass:
    """One pass of a micro-batch through one part of the model on a device.

    ``direction``: forward, backward, or the two halves of the latter: input (gradients of activations) and weight
    (gradients of weights). ``beside``: a pass of another micro-batch that runs together with this one.
    """

    direction: Literal["forward", "backward", "input", "weight"]
    micro_batch: int
    chunk: int = 0
    beside: Pass | None = None


Place = tuple[int, int]
"""A device of the pipeline, from 0, and which of the parts that it holds."""


class Schedule(ABC):
    """How micro-batches go through pipeline stages: what is in flight, and the dimension the stages lie on.

    ``chunks``: parts of the model that a device holds, spread over its depth; micro-batches cross the devices once for
    each, and the pipeline fills in so much less time. ``bubble``: of a schedule that makes weight gradients in passes
    of their own, the time [s] that an even pipeline waits in a step: a formula of forward, input and weight [s, passes
    of all that a device holds] and stages [1]; None where a pipeline waits for one micro-batch to go through.
    ``opposite``: a device holds the stage opposite to its own as well, and half of the micro-batches run backwards
    through the devices. ``returns``: the last part lies beside the first. ``ends``: layers of the first and of the last
    stage, 0 for an even share.
    """

    name: ClassVar[str]
    dimension: ClassVar[str]
    chunks: int = 1
    bubble: ClassVar[Formula | None] = None
    opposite: ClassVar[bool] = False
    returns: ClassVar[bool] = False
    ends: tuple[int, int] = (0, 0)

    @abstractmethod
    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        """Micro-batches whose activations stage number ``stage`` (from 0) holds at once."""

    @abstractmethod
    def idle(self, stages: Expr, micro_batches: Expr) -> Expr:
        """Idle time of an even pipeline over its busy time (the bubble), a dimensionless fraction."""

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """What stage number ``stage`` (from 0) does, pass by pass; empty where the schedule does not say."""
        return ()

    def with_ends(self, first: int, last: int) -> Schedule:
        """The same schedule with so many layers on its first and on its last stage (0: an even share)."""
        found = copy(self)
        found.ends = (first, last)
        return found

    def path(self, micro_batch: int, stages: int) -> tuple[Place, ...]:
        """Where the parts of the model lie that a micro-batch goes through, from the embedding to the loss."""
        return tuple((device, chunk) for chunk in range(self.chunks) for device in range(stages))


class Strategy(ABC):
    """A way of splitting the work. It states layouts; communication, memory and time follow from them."""

    name: ClassVar[str]
    dimensions: ClassVar[tuple[Dimension, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    tasks: ClassVar[tuple[str, ...]] = ("train", "serve")

    def mesh(self, options: Mapping[str, Any]) -> tuple[Dimension, ...]:
        """The dimensions under the given option values: those of the class, which may lie or borrow otherwise."""
        return self.dimensions

    @abstractmethod
    def rules(self, options: Mapping[str, Any]) -> Rules:
        """The splits and stores under the given option values (each option of this strategy is present)."""

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        """Conditions that a setting must meet."""
        return ()

    def schedule(self, options: Mapping[str, Any]) -> Schedule | None:
        """The schedule of pipeline stages, for a strategy that splits layers."""
        return None

    def applies(self, sizes: Mapping[str, int]) -> bool:
        """Whether the strategy has anything to do for a model with these sizes (experts only where there are any)."""
        return True
