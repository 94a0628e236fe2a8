"""Tables of errors in Markdown: the default of this project beside the best other method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from benchmarks.accuracy.cases import TASKS, Error, Place, Records
from benchmarks.accuracy.ours import OURS, by_default
from benchmarks.harness import table

# How much worse than the best a point may be, beside twice the Monte Carlo error of both.
ALLOWED = 1.06
WORSE = "▲"
NONE = "-"
_QUANTILES = tuple(each for each in TASKS if each.endswith("rank"))
_NODES = ("nodes, all levels", "nodes, block")
# The blocks of the page by the names of their marks: the budget's measure, and the tasks.
BLOCKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ranges": ("epsilon", ("ranges", "prefixes")),
    "quantiles": ("epsilon", _QUANTILES),
    "hierarchies": ("epsilon", _NODES),
    "rho": ("rho", ("ranges", "prefixes", "9 quantiles, rank", "nodes, all levels")),
}


@dataclass(frozen=True, kw_only=True, order=True)
class Column:
    """A point of the tables: every method is measured on the same sets."""

    privacy: str
    task: str
    rows: int


Found = Mapping[str, Error]


def combine_columns(errors: Mapping[Place, Error]) -> dict[Column, Found]:
    """The errors of each method over all sets; a method that lacks one at a point is left out
    there."""
    points: dict[Column, dict[str, dict[str, Error]]] = defaultdict(lambda: defaultdict(dict))
    for at, error in errors.items():
        column = Column(privacy=at.privacy, task=at.task, rows=at.rows)
        points[column][at.method][at.data] = error
    sets: dict[bool, set[str]] = defaultdict(set)
    for column, methods in points.items():
        sets[column.task.startswith("nodes")].update(
            data for by_set in methods.values() for data in by_set
        )
    return {
        column: {
            name: over_sets(column.task, list(by_set.values()))
            for name, by_set in methods.items()
            if set(by_set) == sets[column.task.startswith("nodes")]
        }
        for column, methods in points.items()
    }


def over_sets(task: str, errors: Sequence[Error]) -> Error:
    """The geometric mean of root mean squares; the mean of errors of quantiles, which may be zero.

    >>> def error(mean):
    ...     return Error(mean=mean, deviation=0.0, releases=2)
    >>> over_sets("ranges", [error(1.0), error(4.0)]).mean
    2.0
    """
    means = np.array([each.mean for each in errors])
    deviations = np.array([each.deviation for each in errors])
    if TASKS.get(task) == "square":
        mean = exp(float(np.mean(np.log(means))))
        deviation = mean * sqrt(float(np.sum((deviations / means) ** 2))) / means.size
    else:
        mean = float(means.mean())
        deviation = sqrt(float(np.sum(deviations**2))) / means.size
    return Error(mean=mean, deviation=deviation, releases=min(each.releases for each in errors))


_OURS = tuple(each.name for each in OURS)


def best_other(found: Found) -> tuple[str, Error] | None:
    """Return the method with the least error that is not of this project, if there is any."""
    among = [(found[name].mean, name) for name in found if name.split(":")[0] not in _OURS]
    return (min(among)[1], found[min(among)[1]]) if among else None


def own_default(task: str, found: Found) -> Error | None:
    """What the default says as `count`, or as a quantile where it makes no counts."""
    name = by_default(task)
    return next((found[each] for each in (f"{name}: count", name) if each in found), None)


def is_worse(ours: Error, other: Error) -> bool:
    """Whether more than the allowance and the Monte Carlo errors lie between two errors.

    >>> one = Error(mean=1.0, deviation=0.01, releases=50)
    >>> is_worse(Error(mean=1.07, deviation=0.01, releases=50), one)
    False
    >>> is_worse(Error(mean=1.11, deviation=0.01, releases=50), one)
    True
    """
    noise = 2 * sqrt(ours.deviation**2 + (ALLOWED * other.deviation) ** 2)
    return ours.mean > ALLOWED * other.mean + noise


def format_number(value: float) -> str:
    """Three digits before or after the point.

    >>> format_number(8.4321), format_number(0.125), format_number(12.34), format_number(1234.5)
    ('8.43', '.12', '12.3', '1,234')
    """
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.removeprefix("0") if digits else text


def blocks(records: Records) -> dict[str, str]:
    """The table of each block of the page, by the name of its marks."""
    columns = combine_columns(records.errors())
    return {name: _block(columns, measure, tasks) for name, (measure, tasks) in BLOCKS.items()}


def _block(columns: Mapping[Column, Found], measure: str, tasks: Sequence[str]) -> str:
    """A table with a line of each task and budget and a column of each number of rows, and a
    sentence on its Monte Carlo errors."""
    here = [each for each in columns if each.privacy.startswith(measure) and each.task in tasks]
    rows = sorted({each.rows for each in here})
    cells = {each: _compared(each.task, columns[each]) for each in here}
    lines = [
        [
            f"{_subject(task)}, {privacy.replace('=', ' ')}",
            *(
                _format_cell(*cells.get(Column(privacy=privacy, task=task, rows=n), ()))
                for n in rows
            ),
        ]
        for privacy in sorted({each.privacy for each in here}, reverse=True)
        for task in tasks
    ]
    points = [pair for pair in cells.values() if len(pair) == 2]
    worse = sum(is_worse(ours, other) for (_, ours), (_, other) in points)
    largest = max((error.deviation for pair in cells.values() for _, error in pair), default=0.0)
    return (
        f"{table(['default; best other', *[f'{n:,} rows' for n in rows]], lines)}\n\n"
        f"{WORSE}: worse, at {worse} of {len(points)} points. Monte Carlo standard errors are at "
        f"most {format_number(largest)}.\n"
    )


def _subject(task: str) -> str:
    name = task.removesuffix(", rank")
    return name.removesuffix("s") if name.startswith("1 ") else name


def _compared(task: str, found: Found) -> tuple[tuple[str, Error], ...]:
    """This project's default, and the best other method; whichever was measured."""
    ours = own_default(task, found)
    own = () if ours is None else (("", ours),)
    other = best_other(found)
    return own if other is None else (*own, other)


def _format_cell(*compared: tuple[str, Error]) -> str:
    errors = [error for _, error in compared]
    mark = f"{WORSE} " if len(errors) == 2 and is_worse(*errors) else ""
    shown = (f"{format_number(error.mean)} {name}".rstrip() for name, error in compared)
    return mark + "; ".join(shown) if compared else NONE
