"""What bounds on the rows of a privacy unit cut off, and what they cost: a help to choose them.

How many rows units have is private. It is read from a release of it (a tree whose domain has the
type unit_rows), never from the rows. One bound is recommended by the model of bounds that are
chosen privately (`dpcore.choices.unit_bounds`): the least that as few units exceed as is tolerated
there, since a larger one adds as much noise as it saves rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.release.composition import TreeRefused
from dptrees.dpcore.release.guarantee import budget_text
from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.sections.error import ConfigurationError
from dptrees.pipelines.unit_bounds.plan import tolerated_units
from dptrees.pipelines.user_error import UserError

# Of the rows, the parts that bounds are shown for.
_KEPT = (0.5, 0.75, 0.9, 0.95, 0.99)
# Numbers of units below so many standard errors are mostly noise; what they follow is read off
# between these and so many.
_SURE = (3.0, 12.0)
_NEAR = 0.5
# Of an interval, in standard errors.
_WIDTH = 4.0
_LEAST_POWER = 0.5


def unit_bounds_entry(configuration: Configuration, path: str) -> dict[str, Any]:
    """Bounds of the rows of a unit, what each leaves out, and the errors of the plan with it.

    Args:
        configuration: of the release to be planned.
        path: of a release that has a tree of units by their rows.

    Returns:
        `release`, its `budget` and its `most`; `recommended`, a bound; `bounds`, each with
        `max_rows`, `rows_left_out` (a part of all rows), `units_cut` (a part of all units) and
        `errors` by tree (None where the tree cannot be planned with it).

    Raises:
        UserError: the folder has no such tree, or is of another unit, or found no units.
    """
    folder = ReleaseFolder(path)
    unit, released = configuration.terms.unit, folder.plan.unit
    if unit.is_row:
        raise UserError("--units: the unit of the configuration is the row, which needs no bound")
    counted = [
        each
        for each in folder.plan.questions
        if each.unit_increments(np.ones(1, np.int64)) is not None
    ]
    if not counted:
        raise UserError(
            f"--units: {path} has no tree whose domain has the type unit_rows, which says how "
            "many rows units have"
        )
    if released.columns != unit.columns:
        raise UserError(
            f"--units: {path} is about {released.name}, but the privacy unit is {unit.name}"
        )
    units = UnitNumbers.from_table(folder.rows("cdf", counted[0].name))
    if not units.with_more[0]:
        raise UserError(f"--units: {path} found no units, so there is nothing to choose by")
    tolerated = float(tolerated_units(configuration.error_of_one_row))
    recommended = units.recommended(tolerated)
    with_more = units.with_tail(recommended, tolerated)
    given = [] if "max_rows" in configuration.auto_bounds else [unit.rows]
    return {
        "release": path,
        "budget": budget_text(folder.plan),
        "most": units.most,
        "recommended": recommended,
        "bounds": [
            _bound(configuration, rows, with_more)
            for rows in sorted({*given, recommended, *_keeping(with_more)})
        ],
    }


@dataclass(frozen=True, kw_only=True)
class UnitNumbers:
    """Noisy numbers of units by their rows.

    Args:
        with_more: (most + 1,) units of more than 0, 1, ... rows, falling.
        estimates: (most + 1,) the same without bias, falling but for noise.
        error: a typical standard error of these.
    """

    with_more: Floats
    estimates: Floats
    error: float

    @classmethod
    def from_table(cls, rows: pa.Table) -> UnitNumbers:
        """The numbers of a released tree of units.

        Args:
            rows: of its CDF: `count`, `estimate`, `ci_low` and `ci_high`, (most,) each. Counts that
                are averages have no standard error, but intervals, which are about four wide.
        """
        counts, estimates = (_above(rows[name]) for name in ("count", "estimate"))
        low, high = (np.asarray(rows[name], np.float64) for name in ("ci_low", "ci_high"))
        error = math.sqrt(math.fsum(((high - low) ** 2).tolist()) / len(low)) / _WIDTH
        return cls(with_more=counts, estimates=estimates, error=error)

    @property
    def most(self) -> int:
        """The rows from which on units are not distinguished."""
        return len(self.with_more) - 1

    def recommended(self, tolerated: float) -> int:
        """The least bound that no more than some units exceed.

        Fewer than three standard errors of units are mostly noise. The bound is then halfway, in
        ratio, between where the estimates fall to half a standard error, and where the power law
        through twelve and three standard errors falls to the tolerated number.

        Args:
            tolerated: how many units may exceed it.
        """
        sure, many = (_first_below(self.with_more, times * self.error) for times in _SURE)
        if tolerated >= _SURE[0] * self.error:
            return min(_first_below(self.estimates, tolerated), self.most)
        if not 1 <= many < sure < self.most:
            return min(sure, self.most)
        seen = min(_SURE[1] * self.error, float(self.with_more[1])) / (_SURE[0] * self.error)
        power = max(log(max(seen, 1.0)) / log(sure / many), _LEAST_POWER)
        far = log(float(sure)) + log(_SURE[0] * self.error / tolerated) / power
        near = log(float(_first_below(self.estimates, max(tolerated, _NEAR * self.error))))
        return max(1, min(round(exp((near + far) / 2)), self.most))

    def with_tail(self, bound: int, tolerated: float) -> Floats:
        """Numbers of units of more rows, where what is mostly noise is the power law that falls to
        the tolerated number at a bound.

        Args:
            bound: as of `recommended`.
            tolerated: as of `recommended`.
        """
        least = _SURE[0] * self.error
        sure = _first_below(self.with_more, least)
        if not 1 <= sure < bound or not 0 < tolerated < least:
            return self.with_more
        power = log(least / tolerated) / log(bound / sure)
        tail = [least * exp(-power * log(t / sure)) for t in range(sure, self.most + 1)]
        return np.concatenate([self.with_more[:sure], tail])


def _above(up_to: Any) -> Floats:
    """Units of more than 0, 1, ... rows, from units of up to 1, 2, ... rows."""
    numbers = np.asarray(up_to, dtype=np.float64)
    result: Floats = numbers[-1] - np.concatenate([[0.0], numbers])
    return result


def _first_below(with_more: Floats, most: float) -> int:
    """The first number of rows, from 1 on, that no more units exceed; beyond the last: none."""
    below = np.flatnonzero(with_more[1:] <= most)
    return int(below[0]) + 1 if len(below) else len(with_more)


def _keeping(with_more: Floats) -> list[int]:
    """The least bounds that keep some parts of the rows."""
    kept = np.cumsum(with_more[:-1])
    found = np.searchsorted(kept, np.array(_KEPT) * kept[-1] * (1 - 1e-12)) + 1
    return [int(each) for each in found]


def _bound(configuration: Configuration, rows: int, with_more: Floats) -> dict[str, Any]:
    every, most = with_more[:-1], len(with_more) - 1
    left_out = every[min(rows, most) :].sum() / every.sum()
    return {
        "max_rows": rows,
        "rows_left_out": float(left_out),
        "units_cut": float(with_more[min(rows, most)] / with_more[0]),
        "errors": _errors(configuration, rows),
    }


def _errors(configuration: Configuration, rows: int) -> dict[str, float] | None:
    unit = replace(configuration.terms.unit, rows=rows)
    bounded = replace(configuration, terms=replace(configuration.terms, unit=unit))
    try:
        plan = bounded.plan()
    except (ConfigurationError, TreeRefused):
        return None
    pairs = zip(bounded.workloads, plan.questions, strict=True)
    return {each.name: each.predicted(question) for each, question in pairs}


def unit_bounds_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The same for a person."""
    yield (
        f"rows of a unit, from {entry['release']} ({entry['budget']}, spent in addition to this "
        f"plan; more than {entry['most']:,} count as that):"
    )
    names = next((list(each["errors"]) for each in entry["bounds"] if each["errors"]), [])
    yield "  ".join(["  max_rows", "rows left out", "units cut", *(f"{name} ±" for name in names)])
    for each in entry["bounds"]:
        errors = each["errors"] or {}
        shown = (significant(errors[name]) if name in errors else "not possible" for name in names)
        widths = (len(name) + 2 for name in names)
        is_best = each["max_rows"] == entry["recommended"]
        mark = ["recommended"] if is_best else []
        yield "  ".join(
            [
                f"{each['max_rows']:>10,}",
                f"{each['rows_left_out']:>13.1%}",
                f"{each['units_cut']:>9.1%}",
                *(text.rjust(width) for text, width in zip(shown, widths, strict=True)),
                *mark,
            ]
        )
