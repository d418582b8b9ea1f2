"""The fit of training stacks to published runs: what is fitted, on which rows, and how the others are predicted.

Floor: calibration. numpy inside functions. Used by ``stacks``, which writes the records, and by ``training_table``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from slipstick.core.model.interfaces.stack import NEUTRAL

from .stack_fit import PRIORS, Fit, fit, predicted
from .stack_parts import TRAINING, UNFUSED, Parts
from .stack_runs import SMALL, Runs, configuration, is_fitted
from .stack_tangent import followed

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

FITTED: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": ("time_factor", "collective_factor", "kernel_overhead", UNFUSED),
    "megatron-lm-2021": ("time_factor", "collective_factor", "exposed_share", "attention_factor"),
    "megatron-lm-2022": ("time_factor", "collective_factor", "exposed_share", "kernel_overhead"),
    "megatron-bridge": ("time_factor", "collective_factor", "exposed_share", "launch_time"),
    "megatron-bridge-25": ("time_factor", "collective_factor", "exposed_share", "launch_time"),
    "megatron-deepspeed": ("time_factor", "collective_factor", "exposed_share", "launch_time"),
    "bigscience": ("time_factor", "collective_factor", "exposed_share", "kernel_overhead"),
    "deepspeed": ("time_factor", "collective_factor", "exposed_share"),
    "fsdp": ("time_factor", "collective_factor", "exposed_share"),
    "llm-foundry": ("time_factor", "attention_factor", UNFUSED, "kernel_overhead"),
    "torchtitan": ("time_factor", "attention_factor", "exposed_share", UNFUSED),
    "llama3": ("time_factor", "collective_factor", "exposed_share"),
    "nemo-automodel": ("time_factor", "collective_factor", "exposed_share"),
    "maxtext": ("time_factor", "collective_factor", "exposed_share"),
}
"""The coefficients that are fitted of each training stack, at most four; what its software is known for decides which.
The others are stated (``STATED``), or cost nothing."""

STATED: Mapping[str, tuple[float, str]] = {
    "reserve": (1.0e9, ""),
    "step_overhead": (3e-3, "optimizer, loss scale and logging on the host"),
    "launch_exposed": (0.25, "kernels of a pass differ in length; short ones hide no launch"),
    "exposed_share": (0.25, "what transfers take from the kernels beside them"),
    "routed_unfused": (1.0, "grouped products have no biases of their own in training libraries"),
}
"""What every training stack states, where it is not fitted: coefficient → value and why."""

SHRINKAGE: Mapping[str, Any] = {
    "stack_spread": {name: 1.2 * spread for name, (_, spread) in PRIORS["train"].items()},
    "device_spread": {name: 0.5 * spread for name, (_, spread) in PRIORS["train"].items()},
    "free": FITTED,
}
"""How far stacks and devices may depart from the shared values, in standard deviations of the priors: training software
of five years has little in common."""


@frozen(eq=False)
class Trained:
    """``found``: the rows, their parts where the fit ended; ``chosen``: which were fitted; ``whole``: the fit to them;
    ``held_out``: seconds of every row that could be judged, by a fit without its configuration, NaN for the others."""

    found: Runs
    chosen: Mask
    whole: Fit
    held_out: Array


def trained(found: Runs) -> Trained:
    """Fit and judge every row of ``found``."""
    import numpy as np

    chosen = fitted_rows(found) & np.isfinite(found.measured) & (found.measured > 0)
    stacks, devices, weights = found.stacks, found.devices, weights_of(found, chosen)
    rows = np.flatnonzero(chosen).tolist()
    whole, parts = followed(found, rows, start_of(stacks), stacks, devices, weights, **SHRINKAGE)
    found = evolve(found, parts=parts)
    return Trained(found, chosen, whole, judged(found, chosen, whole, weights))


def refitted(found: Runs, chosen: Mask) -> Fit:
    """A fit to other rows, along the tangents that ``found`` has."""
    import numpy as np

    rows = np.flatnonzero(chosen).tolist()
    return _fit(found.parts, found, rows, weights_of(found, chosen))


def _fit(parts: Parts, found: Runs, rows: Sequence[int], weights: Array) -> Fit:
    stacks, devices = found.stacks, found.devices
    own = [stacks[i] for i in rows], [devices[i] for i in rows]
    return fit(parts.take(rows), found.measured[rows], *own, weights=weights[rows], **SHRINKAGE)


def start_of(stacks: Sequence[str]) -> dict[str, Any]:
    """Where the fit of training stacks starts: priors' medians of what is fitted, stated values of the rest.

    What neither a fit nor a statement gives is what it is where software costs nothing; the part that is not fused is
    the device's own.
    """
    import numpy as np

    priors = PRIORS["train"]
    return {
        name: np.array([
            priors[name][0] if name in FITTED[stack] else STATED.get(name, (NEUTRAL[name], ""))[0]
            for stack in stacks
        ])
        for name in TRAINING if name != UNFUSED
    } | {UNFUSED: np.array([priors[UNFUSED][0] if UNFUSED in FITTED[stack] else 0.0 for stack in stacks])}  # fmt: skip


def sets_of(found: Runs) -> list[str]:
    """The set of each row: where it was published, and on what."""
    return [f"{q.point.source} {q.case.machine.accelerator.name}" for q in found.questions]


def fitted_rows(found: Runs) -> Mask:
    """Large sets are split by the hash of their rows' ids; of small ones every row is fitted."""
    import numpy as np

    sets = sets_of(found)
    size = {name: sets.count(name) for name in set(sets)}
    split = is_fitted(found.questions)
    return np.array([split[i] if size[sets[i]] >= SMALL else True for i in range(len(sets))], bool)


def weights_of(found: Runs, chosen: Mask) -> Array:
    """How much each row counts: the rows of a set that are fitted count as ``SMALL`` of them at most."""
    import numpy as np

    sets = sets_of(found)
    fitted = {name: sum(1 for s, c in zip(sets, chosen, strict=True) if c and s == name) for name in set(sets)}
    return np.array([min(1.0, SMALL / max(fitted[name], 1)) for name in sets])


def judged(found: Runs, chosen: Mask, whole: Fit, weights: Array) -> Array:
    """Large sets: the rows that were not fitted. Small ones: each row by a fit without its configuration."""
    import numpy as np

    parts, stacks, devices = found.parts, found.stacks, found.devices
    result = np.where(chosen, np.nan, predicted(whole, parts, stacks, devices))
    sets = sets_of(found)
    small = [name for name in sorted(set(sets)) if sets.count(name) < SMALL]
    for name in small:
        for label in sorted({configuration(found.questions[i]) for i in range(len(sets)) if sets[i] == name}):
            out = [i for i in range(len(sets)) if sets[i] == name and configuration(found.questions[i]) == label]
            keep = np.array([i for i in np.flatnonzero(chosen) if i not in out])
            # Only runs of the same stack tell about it: the rest stays as it is.
            keep = np.array([i for i in keep if stacks[i] == stacks[out[0]]], int)
            if keep.size == 0:
                continue
            again = _fit(parts, found, keep.tolist(), weights)
            own = np.asarray(out, int)
            result[own] = predicted(again, parts.take(own), [stacks[i] for i in out], [devices[i] for i in out])
    return result
