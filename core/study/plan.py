"""The structure of a question: which strategies take part, their rules, mesh dimensions and choices.

Floor: study. No sympy. A plan is everything that decides which formula is compiled; values come later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from ..errors import PluginError
from ..model.graph import ModelGraph
from ..model.interfaces.kernels import KernelFamily
from ..model.interfaces.strategy import Constraint, Option, Schedule, Strategy
from ..model.layout import Rules
from ..model.mesh import Dimension


@frozen(eq=False)
class Plan:
    """One task (train or serve) for one model structure under one set of strategies.

    ``tiers``: number of link tiers of the machine; ``recompute`` and what is named after it, ``fused_attention``,
    ``extras``, ``loss_chunks``, ``clip`` and ``graphs`` as asked; ``packed``:
    sequences are packed from documents of ``document_tokens``.
    """

    task: str
    graph: ModelGraph
    strategies: tuple[Strategy, ...]
    options: Mapping[str, Any]
    family: KernelFamily
    tiers: int
    recompute: str = "none"
    fused_attention: bool = True
    extras: tuple[str, ...] = ()
    packed: bool = False
    recompute_ops: tuple[str, ...] = ()
    recompute_layers: int = 0
    recompute_group: int = 1
    loss_chunks: int = 1
    clip: bool = False
    graphs: bool = False

    @property
    def rules(self) -> Rules:
        """The rules of all strategies together."""
        total = Rules()
        for strategy in self.strategies:
            total = total + strategy.rules(self.options)
        return total.checked()

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The mesh dimensions of all strategies, inner first."""
        return tuple(sorted((d for s in self.strategies for d in s.mesh(self.options)), key=lambda d: d.order))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The conditions of all strategies."""
        return tuple(c for s in self.strategies for c in s.constraints(self.options))

    @property
    def schedule(self) -> Schedule | None:
        """The pipeline schedule, where a strategy brings one."""
        for strategy in self.strategies:
            found = strategy.schedule(self.options)
            if found is not None:
                return found
        return None

    def key(self) -> tuple[object, ...]:
        """What the compiled formula depends on, as JSON-ready data."""
        schedule = self.schedule
        return (
            self.task,
            self.graph.structure(),
            [s.name for s in self.strategies],
            repr(self.rules),
            repr(self.dimensions),
            schedule.name if schedule else "",
            # Rules show most options; a schedule may read others (how many stages a device holds).
            sorted((name, repr(value)) for name, value in self.options.items()),
            self.family.name,
            self.tiers,
            self.recompute,
            self.fused_attention,
            sorted(self.extras),
            [
                *self.recompute_ops,
                self.recompute_layers,
                self.recompute_group,
                self.loss_chunks,
                self.clip,
                self.graphs,
            ],
            self.packed,
        )

    def files(self) -> tuple[str, ...]:
        """Files of the plugins that took part and are not slipstick's own."""
        found = []
        for item in (*self.strategies, self.family):
            module = sys.modules.get(type(item).__module__)
            path = getattr(module, "__file__", None)
            if path and not type(item).__module__.startswith("slipstick."):
                found.append(str(path))
        return tuple(dict.fromkeys(found))


def applicable(strategies: Iterable[Strategy], sizes: Mapping[str, int], task: str = "") -> tuple[Strategy, ...]:
    """The strategies that have something to do for a model (and a task), in mesh order, their claims checked.

    Errors: PluginError where two claim the same mesh dimension or option, naming both.
    """
    chosen = [s for s in strategies if s.applies(sizes) and (not task or task in s.tasks)]
    owners: dict[str, str] = {}
    for strategy in chosen:
        for name in (*(d.name for d in strategy.dimensions), *(o.name for o in strategy.options)):
            if name in owners:
                raise PluginError(
                    f"strategies {owners[name]!r} and {strategy.name!r} both claim {name!r}; "
                    "switch one off with SLIPSTICK_DISABLE_PLUGINS"
                )
            owners[name] = strategy.name
    chosen.sort(key=lambda s: (min((d.order for d in s.dimensions), default=0), s.name))
    return tuple(chosen)


def all_options(strategies: Iterable[Strategy], task: str) -> dict[str, Option]:
    """Option name → option of every strategy, for a task."""
    return {o.name: o for s in strategies for o in s.options if task in o.tasks}
