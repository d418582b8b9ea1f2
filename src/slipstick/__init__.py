"""slipstick: time, throughput and memory of LLM training and serving, each with the formula behind it.

The public face. It may use every floor below, but imports none of them until a name is asked for
(PEP 562), so that ``import slipstick`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .core.version import __version__

if TYPE_CHECKING:
    from .core.errors import NotFeasible as NotFeasible
    from .core.errors import PluginError as PluginError
    from .core.errors import SlipstickError as SlipstickError
    from .core.errors import UserError as UserError
    from .core.host.hookspecs import hookimpl as hookimpl
    from .core.host.host import Host as Host
    from .core.records.scenario import Scenario as Scenario
    from .core.study.api import derive as derive
    from .core.study.api import serve as serve
    from .core.study.api import sweep as sweep
    from .core.study.api import train as train
    from .core.study.ask import Outcome as Outcome
    from .core.study.derive import Derivation as Derivation
    from .core.study.prediction import Prediction as Prediction

# Name of the public face → module that holds it. Type checkers read the block above; a test keeps the two equal.
_HOMES = {
    "Derivation": ".core.study.derive",
    "Host": ".core.host.host",
    "NotFeasible": ".core.errors",
    "Outcome": ".core.study.ask",
    "PluginError": ".core.errors",
    "Prediction": ".core.study.prediction",
    "Scenario": ".core.records.scenario",
    "SlipstickError": ".core.errors",
    "UserError": ".core.errors",
    "derive": ".core.study.api",
    "hookimpl": ".core.host.hookspecs",
    "serve": ".core.study.api",
    "sweep": ".core.study.api",
    "train": ".core.study.api",
}

__all__ = [
    "Derivation",
    "Host",
    "NotFeasible",
    "Outcome",
    "PluginError",
    "Prediction",
    "Scenario",
    "SlipstickError",
    "UserError",
    "__version__",
    "derive",
    "hookimpl",
    "serve",
    "sweep",
    "train",
]


def __getattr__(name: str) -> object:
    """Import the home of ``name`` on first use and keep the object here."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'slipstick' has no attribute {name!r}")
    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
