"""The fitter: any formula with declared parameters to measured times, robustly, in the logarithm of time.

Floor: calibration. Uses the compiled formulas, numpy and scipy, both inside functions. Residuals are
ln(predicted/measured) under a soft L1 loss; every parameter keeps its declared bounds and is drawn, ever so weakly,
to its declared default, so that what the data do not determine stays where the formula's author put it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.errors import UserError
from slipstick.core.records.fitted import ErrorSummary

from .fit_model import FEW, Model, model_of
from .fit_model import residuals_of as errors_of
from .fit_rows import PartRows, Rows, chosen
from .fit_stats import TIGHT, identified, outliers, summary

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from slipstick.core.algebra.formula import Formula

    from .fit_rows import Array

    Held = Mapping[str, tuple[Formula, Mapping[str, float]]]

MOST_ROWS = 3000
"""Rows that a fit works on; errors are always told of all rows."""

TRIAL_ROWS = 1500
"""Rows of each start before the best one goes on."""

SCANNED, UNFELT = 300, 1e-3
"""Below so many rows, a parameter whose e-fold moves the times by less than this (root mean square) is tried ..."""

SCAN = (-4.5, -3.5, -2.5, -1.5, 1.5, 2.5, 3.5, 4.5)
"""... at these e-folds from where it is expected."""

SLOT = "it"

MACHINE = ("rate", "vector_rate", "bandwidth", "units", "cache", "latency")
"""Inputs that a machine has and no kernel."""


@frozen(eq=False)
class Fit:
    """What a fit found.

    ``parameters``: every parameter of the formula → its value; ``spread`` and ``unidentified`` as in FittedRecord;
    ``frozen``: parameters kept at their defaults because there were too few rows for them; ``ranges``: input → least
    and largest value; ``errors``: on all rows; ``residuals``: ln(predicted/measured) of each; ``outliers``: how many
    lie beyond five robust standard deviations, ``worst``: the farthest in words; ``places``: where the fit ended, in
    its own coordinates.
    """

    parameters: Mapping[str, float]
    spread: Mapping[str, float]
    unidentified: tuple[str, ...]
    frozen: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    errors: ErrorSummary
    residuals: Array
    outliers: int
    worst: tuple[str, ...]
    rows: int


def fit_formula(
    formula: Formula,
    inputs: Mapping[str, Any],
    seconds: Any,
    *,
    start: Mapping[str, float] | None = None,
    fixed: Mapping[str, float] | None = None,
    weights: Any = None,
    seed: int = 0,
    starts: int = 3,
    max_rows: int = MOST_ROWS,
) -> Fit:
    """Fit the parameters of ``formula`` to times ``seconds`` [s] measured at ``inputs`` (arrays or numbers).

    ``start``: parameter values to begin at, by default the declared ones; ``fixed``: parameters to keep;
    ``weights``: of each row, 1 by default; ``starts``: how many places to begin at.
    Errors: UserError for an input that is missing, of another length or not finite, and for times that are not
    positive.
    """
    rows = rows_of(formula, inputs, seconds)
    return fit_rows(
        formula, SLOT, rows, start=start, fixed=fixed, weights=weights, seed=seed, starts=starts, max_rows=max_rows
    )


def rows_of(formula: Formula, inputs: Mapping[str, Any], seconds: Any, slot: str = SLOT) -> Rows:
    """Plain arrays as rows of one kernel. Errors: UserError as ``fit_formula``."""
    import numpy as np

    times = np.asarray(seconds, dtype=np.float64)
    if times.ndim != 1 or not len(times):
        raise UserError("nothing to fit: give a list of measured times")
    if not np.isfinite(times).all() or (times <= 0).any():
        raise UserError("a measured time is not a positive number of seconds")
    made: dict[str, Array | float] = {}
    for name in formula.inputs:
        if name not in inputs:
            raise UserError(f"formula {formula.name!r} needs the input {name} of every measured row")
        value = np.asarray(inputs[name], dtype=np.float64)
        if not np.isfinite(value).all():
            raise UserError(f"the input {name} of a measured row is not a finite number")
        if value.ndim and value.shape != times.shape:
            raise UserError(f"the input {name} has {value.size} values for {len(times)} measured times")
        made[name] = value if value.ndim else float(value)
    shape = {name: value for name, value in made.items() if not isinstance(value, float)}
    return Rows(times, (PartRows(slot, made),), shape)


def fit_rows(
    formula: Formula,
    slot: str,
    rows: Rows,
    *,
    start: Mapping[str, float] | None = None,
    fixed: Mapping[str, float] | None = None,
    held: Held | None = None,
    weights: Any = None,
    seed: int = 0,
    starts: int = 3,
    max_rows: int = MOST_ROWS,
) -> Fit:
    """Fit the parameters of the kernels of ``slot`` in ``rows``; other kernels of a row cost what ``held`` says.

    Errors: UserError where no row has the kernel.
    """
    import numpy as np

    if not any(part.slot == slot for part in rows.parts):
        raise UserError(f"no measured row has the kernel {slot}")
    picked = chosen(rows, max_rows, seed, strata_of(rows))
    few = rows.take(picked) if len(picked) < len(rows) else rows
    model = model_of(formula, slot, len(few), fixed, held)
    begin = {p.name: p.default for p in formula.parameters} | dict(fixed or {}) | dict(start or {})
    frozen_ = _too_many(model, begin, few)
    if frozen_:
        kept = dict(fixed or {}) | {name: begin[name] for name in frozen_}
        model = model_of(formula, slot, len(few), kept, held)
    own = None if weights is None else np.asarray(weights, dtype=np.float64)[picked]
    places = _best(model, begin, few, own, seed, starts)
    values = model.outside(places)
    over = model.over(few)
    found = identified(model, places, over.jacobian(places), over.residuals(places))
    residuals = errors_of(model, values, rows)
    count, worst = outliers(residuals, rows)
    return Fit(
        values,
        found.spread,
        tuple(p.name for p in formula.parameters if p.name in found.unidentified or p.name in frozen_),
        frozen_,
        ranges_of(formula, slot, rows),
        summary(residuals),
        residuals,
        count,
        worst,
        rows.measurements,
    )


def residuals_of(formula: Formula, slot: str, values: Mapping[str, float], rows: Rows, held: Held | None) -> Array:
    """ln(predicted/measured) of rows for given parameter values."""
    return errors_of(model_of(formula, slot, len(rows), held=held, free=()), values, rows)


def ranges_of(formula: Formula, slot: str, rows: Rows) -> dict[str, tuple[float, float]]:
    """Input of the formula → least and largest value among the rows; what is the machine's own is no range."""
    import numpy as np

    found: dict[str, tuple[float, float]] = {}
    for part in rows.parts:
        if part.slot != slot or (part.index is not None and not len(part.index)):
            continue
        for name in formula.inputs:
            if name in MACHINE:
                continue
            value = np.asarray(part.inputs[name])
            low, high = found.get(name, (np.inf, -np.inf))
            found[name] = min(low, float(value.min())), max(high, float(value.max()))
    return found


def strata_of(rows: Rows) -> npt.NDArray[np.intp]:
    """A number for rows of alike size: the octave of the time, and that of the tokens where there are any."""
    import numpy as np

    strata = np.floor(np.log2(rows.seconds))
    for name in ("m", "tokens", "query", "bytes"):
        if name in rows.shape:
            return (strata * 64 + np.floor(np.log2(np.maximum(rows.shape[name], 1.0)))).astype(np.intp)
    return strata.astype(np.intp)


def _too_many(model: Model, begin: Mapping[str, float], rows: Rows) -> tuple[str, ...]:
    """The parameters to keep where there are not two rows for each: those that move the predictions least, given the
    others (a rank-revealing factorisation of the slopes)."""
    from scipy.linalg import qr

    most = len(rows) // 2
    if len(model.coordinates) <= most:
        return ()
    if most == 0:
        return model.names
    places = model.inside(begin)
    columns = model.over(rows).jacobian(places) * [c.scale for c in model.coordinates]
    order = qr(columns, mode="r", pivoting=True)[1]
    kept = {model.coordinates[i].name for i in order[:most]}
    return tuple(name for name in model.names if name not in kept)


def _best(
    model: Model, begin: Mapping[str, float], rows: Rows, weights: Array | None, seed: int, starts: int
) -> list[float]:
    """The best of several solutions, the first from ``begin``, each tried on fewer rows before the best goes on."""
    import numpy as np

    if not model.coordinates:
        return []
    first = model.inside(begin)
    places = first if starts <= 1 else _tried(model, first, rows, weights, seed, starts)
    places = _solve(model, places, rows, weights, 100)[0]
    if len(rows) < SCANNED:
        places = _scanned(model, places, rows, weights)
    if len(rows) >= FEW:
        return places
    # A few noisy rows could carry every parameter away: the defaults count for as much as a row of this noise.
    left = len(rows) - len(model.coordinates)
    found = model.over(rows).residuals(places)
    noise = float(np.sqrt(np.mean(found**2) * len(rows) / max(left, 1)))
    if noise <= TIGHT:
        return places
    again = [_solve(model, place, rows, weights, 60, noise) for place in (places, first)]
    return min(again, key=lambda pair: pair[1])[0]


def _scanned(model: Model, places: list[float], rows: Rows, weights: Array | None) -> list[float]:
    """The solution again from where parameters that it does not feel would do better elsewhere.

    A resource that binds nowhere has no slope, however many rows it ought to bind: its parameter is tried at several
    places of its range.
    """
    import numpy as np

    over = model.over(rows)

    def loss(x: list[float]) -> float:
        scaled = (over.residuals(x) / TIGHT) ** 2
        return float(np.sum((np.sqrt(1 + scaled) - 1) * (1.0 if weights is None else weights)))

    felt = np.sqrt(np.mean(over.jacobian(places) ** 2, axis=0))
    best, least = list(places), loss(list(places))
    for index, c in enumerate(model.coordinates):
        if not c.log or felt[index] >= UNFELT:
            continue
        for step in SCAN:
            moved = [*best[:index], min(max(c.centre + step, c.lower), c.upper), *best[index + 1 :]]
            if (found := loss(moved)) < least * (1 - 1e-6):
                best, least = moved, found
    return _solve(model, best, rows, weights, 100)[0] if best != list(places) else places


def _tried(
    model: Model, first: Sequence[float], rows: Rows, weights: Array | None, seed: int, starts: int
) -> list[float]:
    """The best of ``starts`` solutions on fewer rows, the first from ``first``, the others from around it."""
    import numpy as np

    picked = chosen(rows, TRIAL_ROWS, seed + 1, strata_of(rows))
    trial = rows.take(picked) if len(picked) < len(rows) else rows
    own = None if weights is None else weights[picked]
    random = np.random.default_rng(seed)
    tried = []
    for number in range(starts):
        places = first if number == 0 else _moved(model, first, random)
        tried.append(_solve(model, places, trial, own, 40))
    return min(tried, key=lambda pair: pair[1])[0]


def _moved(model: Model, places: Sequence[float], random: np.random.Generator) -> list[float]:
    moved = []
    for c, place in zip(model.coordinates, places, strict=True):
        step = float(random.normal())
        if c.log:
            place += 0.7 * step
        elif c.width:
            place += 0.2 * c.width * step
        elif c.upper < 1e300:
            place += 0.1 * abs(step) * (c.upper - c.lower)
        moved.append(min(max(place, c.lower), c.upper))
    return moved


def _solve(
    model: Model, places: Sequence[float], rows: Rows, weights: Array | None, most: int, noise: float = TIGHT
) -> tuple[list[float], float]:
    """Where the loss is least near ``places``, and the loss there; ``noise``: how far a row is thought to be off."""
    import numpy as np
    from scipy.optimize import least_squares

    over = model.over(rows)
    coordinates = model.coordinates
    drawn = [(i, c) for i, c in enumerate(coordinates) if c.width]
    pull = np.zeros((len(drawn), len(coordinates)))
    for row, (i, c) in enumerate(drawn):
        pull[row, i] = noise / c.width
    centre = np.array([c.centre for c in coordinates])
    factor = None if weights is None else np.sqrt(weights)

    def residuals(x: Array) -> Array:
        found = over.residuals(x.tolist())
        return np.concatenate((found if factor is None else found * factor, pull @ (x - centre)))

    def jacobian(x: Array) -> Array:
        found = over.jacobian(x.tolist())
        return np.vstack((found if factor is None else found * factor[:, None], pull))

    done = least_squares(
        residuals,
        np.array(places),
        jac=jacobian,
        bounds=([c.lower for c in coordinates], [c.upper for c in coordinates]),
        method="trf",
        loss="soft_l1",
        f_scale=TIGHT,
        x_scale="jac",
        ftol=1e-7,
        xtol=1e-7,
        gtol=1e-9,
        max_nfev=most,
    )
    return [float(x) for x in done.x], float(done.cost)
