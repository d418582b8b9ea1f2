"""Questions answered: one setting, several side by side, or a search over all that are left open.

Floor: study. One pipeline: every setting, asked alone or in an enumeration, is the same compiled program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..errors import UserError, shown, unknown
from ..records.scenario import ASK
from .case import Case, make_case
from .models import load_model
from .prediction import Prediction
from .settings import SettingInfo, settings_for
from .values import checked_value

if TYPE_CHECKING:
    from ..host.host import Host
    from .search import SearchReport

SIDE_BY_SIDE = 8
"""Up to so many settings are printed side by side; more are a table of the best."""


@frozen
class Outcome:
    """What a question came to: ``predictions`` (one for a plain question) and, where there was more, the ``search``."""

    predictions: list[Prediction]
    search: SearchReport | None = None
    settings: Mapping[str, Any] = field(factory=dict)


def checked_settings(task: str, settings: Mapping[str, Any], infos: Mapping[str, SettingInfo]) -> dict[str, Any]:
    """Settings with every value checked; unknown names are errors with the nearest known one."""
    found = {}
    for name, value in settings.items():
        if value is None:
            continue
        if name not in infos:
            raise unknown(f"setting of `{task}`", name, infos, f"see `slipstick {task} --help`")
        found[name] = checked_value(value, infos[name])
    return found


def is_structural(info: SettingInfo) -> bool:
    """Whether a setting decides the case (program, formats, machine) and is not a plain number."""
    return info.structural or info.kind in ("choice", "flag", "text")


def cases(
    task: str, models: tuple[str, ...], machines: tuple[str, ...], settings: Mapping[str, Any], host: Host,
    infos: Mapping[str, SettingInfo],
) -> Iterator[tuple[Case, dict[str, Any]]]:  # fmt: skip
    """Every case of a question, with its numeric settings (which may still be tuples or "?")."""
    structural = {name: value for name, value in settings.items() if is_structural(infos[name])}
    numeric = {name: value for name, value in settings.items() if name not in structural}
    for info in infos.values():  # stated defaults of plain numbers; those of degrees and choices are the case's
        if info.owner == "core" and not is_structural(info) and info.default is not None:
            numeric.setdefault(info.name, info.default)
    for name, value in structural.items():
        if value == ASK and not infos[name].choices:
            raise UserError(f"{infos[name].flag}: cannot be searched, give a value, a list or a range")
    axes = {
        name: infos[name].choices if value == ASK else value if isinstance(value, tuple) else (value,)
        for name, value in structural.items()
    }
    for name, machine_name, choice in product(models, machines, product(*axes.values())):
        chosen = dict(zip(axes, choice, strict=True))
        graph = load_model(name, host)
        machine = host.machine(machine_name, chosen.get("node"))
        case = make_case(task, graph, machine, chosen, host, infos)
        yield case, relevant(case, numeric, infos)


def relevant(case: Case, numeric: Mapping[str, Any], infos: Mapping[str, SettingInfo]) -> dict[str, Any]:
    """The numeric settings that a case knows: degrees of strategies that have nothing to do for the model are left out.

    Errors: UserError for such a degree above 1, which would silently change nothing, as would a capacity of experts
    that are not there.
    """
    if numeric.get("capacity_factor") is not None and "experts" not in case.graph.sizes:
        raise UserError(f"--capacity-factor: {case.graph.name} has no experts; leave --capacity-factor out")
    active = {"core", *(strategy.name for strategy in case.plan.strategies)}
    found = {}
    for name, value in numeric.items():
        info = infos[name]
        if info.owner in active:
            found[name] = value
        elif value not in (ASK, 1, (1,)):
            told = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            raise UserError(
                f"{info.flag} {shown(told)}: {case.graph.name} has nothing that {info.owner} parallelism splits; "
                f"leave {info.flag} out"
            )
    return found


def ask(
    task: str, models: tuple[str, ...], machines: tuple[str, ...], settings: Mapping[str, Any], host: Host
) -> Outcome:
    """Answer a question.

    ``settings``: name → value, tuple of values, or "?"; names as in ``settings_for``. Errors: UserError for anything
    that is not a setting, a model or a machine.
    """
    if task not in ("train", "serve"):
        raise unknown("task", task, ("train", "serve"))
    if not models or not machines:
        raise UserError(f"{task} needs a model and a machine (--on)")
    infos = settings_for(task, host)
    checked = checked_settings(task, settings, infos)
    found = list(cases(task, models, machines, checked, host, infos))
    open_ = any(value == ASK for value in checked.values() if isinstance(value, str))
    points = sum(count(numeric) for _, numeric in found)
    if not open_ and points <= SIDE_BY_SIDE:
        predictions = [Prediction(case, point) for case, numeric in found for point in spread(numeric)]
        return Outcome(predictions, None, checked)
    from .search import search

    report = search(task, found, checked)
    return Outcome([report.best] if report.best is not None else [], report, checked)


def is_plain(numeric: Mapping[str, Any]) -> bool:
    """Whether every setting has one value (a number or a symbol): no list, no range, no "?"."""
    return not any(isinstance(value, tuple) or (isinstance(value, str) and value == ASK) for value in numeric.values())


def count(numeric: Mapping[str, Any]) -> int:
    """Number of points of a set of settings."""
    total = 1
    for value in numeric.values():
        total *= len(value) if isinstance(value, tuple) else 1
    return total


def spread(numeric: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the tuples among the settings."""
    axes = [value if isinstance(value, tuple) else (value,) for value in numeric.values()]
    for choice in product(*axes):
        yield dict(zip(numeric, choice, strict=True))
