"""What bounds on the rows of a privacy unit cut off, and what they cost: a help to choose them.

How many rows units have is private. It is read from a release of it (a tree whose domain has the
type unit_rows), never from the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpcore.arrays import Floats
from dpcore.release.composition import TreeRefused
from dpcore.release.guarantee import budget_text
from pipelines.answers.figures import significant
from pipelines.configuration import Configuration
from pipelines.release_folder import ReleaseFolder
from pipelines.sections.error import ConfigurationError
from pipelines.user_error import UserError

# Of the rows, the parts that bounds are shown for.
_KEPT = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


def unit_bounds_entry(configuration: Configuration, path: str) -> dict[str, Any]:
    """Bounds of the rows of a unit, what each leaves out, and the errors of the plan with it.

    Args:
        configuration: of the release to be planned.
        path: of a release that has a tree of units by their rows.

    Returns:
        `release`, its `budget` and its `most`; `bounds`, each with `max_rows`, `rows_left_out` (a
        part of all rows), `units_cut` (a part of all units) and `errors` by tree (None where the
        tree cannot be planned with it).

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
    up_to = np.asarray(folder.rows("cdf", counted[0].name)["count"], dtype=np.float64)
    with_more = up_to[-1] - np.concatenate([[0.0], up_to])  # units of more than 0, 1, ... rows
    if not with_more[0]:
        raise UserError(f"--units: {path} found no units, so there is nothing to choose by")
    return {
        "release": path,
        "budget": budget_text(folder.plan),
        "most": len(up_to),
        "bounds": [
            _bound(configuration, rows, with_more) for rows in _candidates(unit.rows, with_more)
        ],
    }


def _candidates(given: int, with_more: Floats) -> list[int]:
    """The least bounds that keep some parts of the rows, and the one of the configuration."""
    kept = np.cumsum(with_more[:-1])
    found = np.searchsorted(kept, np.array(_KEPT) * kept[-1] * (1 - 1e-12)) + 1
    return sorted({given, *found.tolist()})


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
        f"rows of a unit, from {entry['release']} ({entry['budget']}, spent beside this plan; "
        f"more than {entry['most']:,} count as that):"
    )
    names = next((list(each["errors"]) for each in entry["bounds"] if each["errors"]), [])
    yield "  ".join(["  max_rows", "rows left out", "units cut", *(f"{name} ±" for name in names)])
    for each in entry["bounds"]:
        errors = each["errors"] or {}
        shown = (significant(errors[name]) if name in errors else "not possible" for name in names)
        widths = (len(name) + 2 for name in names)
        yield "  ".join(
            [
                f"{each['max_rows']:>10,}",
                f"{each['rows_left_out']:>13.1%}",
                f"{each['units_cut']:>9.1%}",
                *(text.rjust(width) for text, width in zip(shown, widths, strict=True)),
            ]
        )
