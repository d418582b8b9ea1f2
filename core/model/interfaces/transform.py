"""What a transform is: a scenario becomes another one, before anything is modelled.

A minimal plugin, which says that a model is taught to think in fewer words::

    from attrs import evolve

    from slipstick.core.errors import UserError
    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.strategy import Option
    from slipstick.core.model.interfaces.transform import WORKLOAD, Transform

    class CompactReasoning(Transform):
        name = "compact-reasoning"
        order = WORKLOAD
        tasks = ("serve",)
        options = (Option("kept_percent", "output tokens that are still written", 100, unit="%", tasks=("serve",)),)

        def apply(self, scenario, options):
            if not 0 < options["kept_percent"] <= 100:
                raise UserError(f"kept_percent is {options['kept_percent']}; give more than 0 and at most 100")
            tokens = max(1, round(scenario.settings["output_tokens"] * options["kept_percent"] / 100))
            return evolve(scenario, settings={**scenario.settings, "output_tokens": tokens})

    @hookimpl
    def slipstick_transforms():
        return [CompactReasoning()]

A transform rewrites what is asked, on three levels, each left alone unless its method is written: the scenario's
settings (lengths, batch, model, machine); the model's graph (a further head, a fused output layer, parallel streams);
the passes that a request or a step is made of (draft and verify, fast and slow). It prices nothing.

Floor: model. Pure data and abstract classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from ...errors import PluginError, UserError
from .strategy import Option

if TYPE_CHECKING:
    from typing import TypeAlias

    from sympy import Expr

    from ...records.scenario import Scenario
    from ..graph import ModelGraph

    Amount: TypeAlias = "Expr | float"

WORKLOAD = 10
"""Place in the order: what is asked of the system (lengths, their distribution, how many tokens are written)."""

CONTEXT = 20
"""Place in the order: what of it the model looks at (chunks, compression, eviction)."""

MODEL = 30
"""Place in the order: which model answers, and how it is built (streams, heads, distilled stand-ins)."""

DECODING = 40
"""Place in the order: how tokens come about (draft and verify, mixed plans)."""


@frozen
class Pass:
    """A forward pass of a model over a sequence, and how often it is expected.

    ``count`` [1]: expected passes for one request, or for one micro-batch in training; ``query`` [tokens]: computed
    by one pass of one sequence; ``context`` [tokens]: attended to, mean; ``emitted`` [tokens]: output tokens that one
    pass yields, mean; ``model`` and ``pool``: where they differ from the scenario's (""); ``head``: whether the output
    layer and sampling run.
    """

    name: str
    count: Amount
    query: Amount
    context: Amount
    emitted: Amount = 0
    model: str = ""
    pool: str = ""
    head: bool = True


class Transform(ABC):
    """A function from a scenario to a scenario of the same task, and its place in the order."""

    name: ClassVar[str]
    order: ClassVar[int]
    tasks: ClassVar[tuple[str, ...]] = ("train", "serve")
    options: ClassVar[tuple[Option, ...]] = ()

    @abstractmethod
    def apply(self, scenario: Scenario, options: Mapping[str, Any]) -> Scenario:
        """The scenario that is modelled in place of ``scenario``, whose settings are complete (defaults filled in).

        ``options`` has each option of this transform. The given scenario is not changed; one that is left alone is
        returned as it is. Settings keep their units (tokens, sequences, seconds).
        Errors: UserError for a setting or option value that this transform can't work with.
        """

    def graph(self, graph: ModelGraph, options: Mapping[str, Any]) -> ModelGraph:
        """The graph that is modelled in place of ``graph``, that of the scenario after ``apply``."""
        return graph

    def passes(self, passes: tuple[Pass, ...], options: Mapping[str, Any]) -> tuple[Pass, ...]:
        """The passes that take the place of ``passes``; together they emit as many tokens as those did."""
        return passes


def in_order(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    """``transforms`` as they are composed: by ``order``, smaller first, then by name; how they were named is of no
    account."""
    return tuple(sorted(transforms, key=lambda transform: (transform.order, transform.name)))


def transformed(scenario: Scenario, chosen: Sequence[tuple[Transform, Mapping[str, Any]]]) -> Scenario:
    """``scenario`` after each transform of ``chosen``, given with its option values, in their order.

    Errors: UserError where one is chosen twice or is not for this task; PluginError where one returns something else
    than a scenario of the same task.
    """
    values: dict[str, Mapping[str, Any]] = {}
    for transform, options in chosen:
        if transform.name in values:
            raise UserError(f"transform {transform.name!r} is chosen twice; name it once")
        values[transform.name] = options
    for transform in in_order(transform for transform, _ in chosen):
        if scenario.task not in transform.tasks:
            told = " and ".join(transform.tasks)
            raise UserError(f"transform {transform.name!r} is for {told}, not for {scenario.task}")
        result: object = transform.apply(scenario, values[transform.name])
        if not isinstance(result, type(scenario)):
            raise PluginError(f"transform {transform.name!r} returned a {type(result).__name__}, not a scenario")
        if result.task != scenario.task:
            raise PluginError(f"transform {transform.name!r} made a {result.task} scenario of a {scenario.task} one")
        scenario = result
    return scenario
