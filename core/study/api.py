"""The Python API: the command line's grammar as two functions.

Floor: study. A value is a number or a name; a list or tuple is several side by side (``sweep``); "?" asks for the best;
a sympy symbol stays in the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import NotFeasible, UserError
from ..host.host import default_host
from .ask import Outcome, ask, cases, checked_settings, is_plain
from .derive import Derivation
from .derive import derive as _derive
from .prediction import Prediction
from .settings import settings_for

if TYPE_CHECKING:
    from ..host.host import Host

SHORT = {"gpus": "devices", "input": "input_tokens", "output": "output_tokens"}
"""Command-line names that the Python API takes too."""


def train(model: str, on: str, *, host: Host | None = None, **settings: Any) -> Prediction:
    """Predict one training step: time [s], throughput, memory [B] and the formula behind each.

    ``model``: a preset's name or the path of a Hugging Face ``config.json``; ``on``: an accelerator's name or the path
    of its TOML file; ``settings``: ``devices`` (or ``gpus``), ``tp``, ``pp``, ``dp``, ``ep``, ``micro_batch``,
    ``global_batch``, ``sequence``, ``precision``, ``recompute``, ... as ``slipstick train --help`` lists them. "?"
    for a degree or a batch asks for the best; a sympy symbol stays symbolic.

    Errors: UserError for a bad input; NotFeasible where a search finds nothing.

    >>> step = train("llama-3.1-8b", on="h100-sxm", gpus=8, tp=8, global_batch=8)
    >>> step.answer.figures["tokens_per_s"] == 8 * 8192 / step.time
    True
    >>> step.feasible, step.answer.calibrated
    (True, False)
    """
    return _one("train", model, on, settings, host)


def serve(model: str, on: str, *, host: Host | None = None, **settings: Any) -> Prediction:
    """Predict serving: time to first token [s], time per output token [s], throughput, memory [B], KV capacity.

    Arguments as in ``train``; ``settings`` as ``slipstick serve --help`` lists them (``input_tokens``,
    ``output_tokens``, ``concurrency``, ``kv_precision``, ...).

    >>> from slipstick.core.algebra.symbols import symbol
    >>> serve("llama-3.1-8b", on="h100-sxm", concurrency=symbol("concurrency")).time.free_symbols
    {concurrency}
    """
    return _one("serve", model, on, settings, host)


def sweep(
    task: str, model: str | Sequence[str], on: str | Sequence[str], *, host: Host | None = None, **settings: Any
) -> Outcome:
    """Any question of the grammar, lists and searches included: predictions side by side, or a search's report.

    >>> outcome = sweep("train", "llama-3.1-8b", "h100-sxm", gpus=8, tp=[1, 2, 4, 8], global_batch=64)
    >>> [prediction.settings["tp"] for prediction in outcome.predictions]
    [1, 2, 4, 8]
    """
    models = (model,) if isinstance(model, str) else tuple(model)
    machines = (on,) if isinstance(on, str) else tuple(on)
    return ask(task, models, machines, named(settings), host or default_host())


def derive(
    task: str, model: str, on: str, *, figure: str, by: str, host: Host | None = None, **settings: Any
) -> Derivation:
    """A figure as a formula of one symbol, with its derivative and elasticity at the given setting.

    >>> derive("serve", "llama-3.1-8b", "h100-sxm", figure="tpot", by="hbm_bandwidth").elasticity < 0
    True
    """
    return _derive(task, model, on, named(settings), figure, by, host or default_host())


def named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their full names."""
    return {SHORT.get(name, name): value for name, value in settings.items()}


def _one(task: str, model: str, on: str, settings: Mapping[str, Any], host: Host | None) -> Prediction:
    host = host or default_host()
    full = named(settings)
    if any(hasattr(value, "free_symbols") for value in full.values()):
        infos = settings_for(task, host)
        found = list(cases(task, (model,), (on,), checked_settings(task, full, infos), host, infos))
        if len(found) != 1 or not is_plain(found[0][1]):
            raise UserError("a question with symbols takes one value for every other setting")
        return Prediction(*found[0])
    outcome = ask(task, (model,), (on,), full, host)
    if len(outcome.predictions) == 1:
        return outcome.predictions[0]
    if not outcome.predictions:
        assert outcome.search is not None
        why = "; ".join(f"{reason}: {count:,}" for reason, count in outcome.search.reasons.items())
        raise NotFeasible(f"none of {outcome.search.tried:,} settings is feasible ({why})")
    raise UserError(f"{task} takes one value for every setting; for lists and ranges use slipstick.sweep")
