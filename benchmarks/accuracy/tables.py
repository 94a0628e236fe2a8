"""Tables of errors in Markdown, and why a method is absent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, sqrt

import numpy as np

from benchmarks.accuracy.cases import TASKS, Error, Origin, Place, Records
from benchmarks.accuracy.ours import OURS, by_default, with_guess
from benchmarks.accuracy.papers import PAPERS
from benchmarks.harness import paragraph, table

# By the beginning of a task and of the better method's name.
_REASONS: dict[tuple[str, str], str] = {
    ("nodes, ", "AHP"): "AHP measures one mean of all leaves that look alike, wherever they lie; "
    "a hierarchy joins neighbors alone",
    ("3 quantiles, ", "OpenDP, quantiles"): "the first quartile of hours lies three rows from the "
    "next value: where it is missed, it is by so few rows",
    ("9", "DAWA"): "DAWA joins cells that look alike where rows are few, as do adaptive trees for "
    "counts, which the planner does not take for quantiles",
    ("9 quantiles, ", "GreedyH"): "all are off by less than a row",
    ("nodes, ", "Uniform"): "so few rows that every count is best guessed from their total",
}


def find_reason(task: str, better: str) -> str:
    """Return the known reason, or that none is known."""
    for (begins, name), reason in _REASONS.items():
        if task.startswith(begins) and better.startswith(name):
            return reason
    return "not known"


# How much worse than the best a point may be, beside twice the Monte Carlo error of both.
ALLOWED = 1.06
WORSE = "▲"
NONE = "-"
_NATIVE = ", native"
_TITLES = {
    "4096": "Histograms of 4,096 cells",
    "native": "One cell a value: age (85) and hours (99)",
    "hierarchy": "Nodes of a hierarchy: the 25,181 census blocks of Rhode Island",
}

_SHORT = {"4096": "4,096 cells", "native": "a cell a value", "hierarchy": "blocks"}


@dataclass(frozen=True, kw_only=True, order=True)
class Column:
    """A point of the tables: every method is measured on the same sets."""

    group: str
    privacy: str
    task: str
    rows: int


Found = Mapping[str, Error]


def combine_columns(errors: Mapping[Place, Error]) -> dict[Column, Found]:
    """The errors of each method over all sets of a group; a method that lacks one at a point is
    left out there."""
    points: dict[Column, dict[str, dict[str, Error]]] = defaultdict(lambda: defaultdict(dict))
    for at, error in errors.items():
        group = "native" if at.data.endswith(_NATIVE) else "4096"
        if at.task.startswith("nodes"):
            group = "hierarchy"
        column = Column(group=group, privacy=at.privacy, task=at.task, rows=at.rows)
        points[column][at.method][at.data] = error
    sets: dict[str, set[str]] = defaultdict(set)
    for column, methods in points.items():
        sets[column.group].update(data for by_set in methods.values() for data in by_set)
    found = {
        column: {
            name: over_sets(column.task, list(by_set.values()))
            for name, by_set in methods.items()
            if set(by_set) == sets[column.group]
        }
        for column, methods in points.items()
    }
    return {column: whole for column, whole in found.items() if whole}


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
_PAPERS = tuple(each.name for each in PAPERS)


def find_origin(method: str) -> Origin:
    """Return the origin of a line of the tables."""
    name = method.split(":")[0]
    if name in _OURS:
        return Origin.OURS
    return Origin.PAPER if name in _PAPERS else Origin.PACKAGE


def best_method(found: Found, origins: Iterable[Origin]) -> tuple[str, Error] | None:
    """Return the method with the least error among these origins, if there is any."""
    allowed = set(origins)
    among = [(error.mean, name) for name, error in found.items() if find_origin(name) in allowed]
    if not among:
        return None
    name = min(among)[1]
    return name, found[name]


def planned_method(name: str, found: Found) -> tuple[str, Error] | None:
    """What a plan of this name says as `count`, or as a quantile where it makes no counts."""
    return next(((each, found[each]) for each in (f"{name}: count", name) if each in found), None)


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


def format_error(error: Error) -> str:
    """An error with its Monte Carlo error.

    >>> format_error(Error(mean=8.4321, deviation=0.12, releases=50))
    '8.43 ± 0.12'
    >>> format_error(Error(mean=1234.5, deviation=20.0, releases=50))
    '1,234 ± 20'
    """
    digits = 0 if error.mean >= 100 else 1 if error.mean >= 10 else 2
    return f"{error.mean:,.{digits}f} ± {error.deviation:,.{digits}f}"


def document(records: Records) -> str:
    """All tables: what is best at each point, and where that is not this project."""
    columns = combine_columns(records.errors())
    if not columns:
        return "Nothing has been measured."
    parts = [paragraph(_extent(columns))]
    groups = [name for name in _TITLES if any(each.group == name for each in columns)]
    for group in groups:
        parts.append(f"## {_TITLES[group]}")
        for privacy in _privacies(columns, group):
            here = {c: f for c, f in columns.items() if (c.group, c.privacy) == (group, privacy)}
            parts += [f"### {privacy.replace('=', ' = ')}", _best_table(here)]
    parts += ["## Where another method is better", _worse_list(columns)]
    return "\n\n".join(parts)


def _extent(columns: Mapping[Column, Found]) -> str:
    releases = [error.releases for found in columns.values() for error in found.values()]
    count = f"{min(releases)}" if min(releases) == max(releases) else f"{min(releases)} or more"
    return (
        f"{count} releases a point. Errors of ranges, prefixes and ranks are rows times epsilon "
        "(times the square root of 2 rho under rho), errors of values thousandths of the domain; "
        f"behind ± is the Monte Carlo standard error. {WORSE}: worse than the best other method "
        "by more than 6 % and twice the Monte Carlo error. By default: what `mechanism: planned` "
        "takes for the task. With a guess: what it takes when the number of rows is guessed right."
    )


def _privacies(columns: Mapping[Column, Found], group: str) -> list[str]:
    found = {each.privacy for each in columns if each.group == group}
    return sorted(found, key=lambda text: (text.split("=")[0], -float(text.split("=")[1])))


def _tasks(columns: Iterable[Column]) -> list[str]:
    there = {each.task for each in columns}
    return [each for each in TASKS if each in there]


def _best_table(here: Mapping[Column, Found]) -> str:
    """Return a table of each task: this project's best method, the best package and the best
    paper."""
    rows = sorted({each.rows for each in here})
    lines = []
    for task in _tasks(here):
        points = {each.rows: found for each, found in here.items() if each.task == task}
        for label, chosen in (
            (f"{task}: this project", partial(best_method, origins=[Origin.OURS])),
            ("by default", partial(planned_method, by_default(task))),
            ("with a guess", partial(planned_method, with_guess(task))),
            ("released packages", partial(best_method, origins=[Origin.PACKAGE])),
            ("papers", partial(best_method, origins=[Origin.PAPER])),
        ):
            found = [points.get(each, {}) for each in rows]
            cells = [_format_cell(each, chosen(each)) for each in found]
            if set(cells) != {NONE}:
                lines.append([label, *cells])
    return table(["best of", *[f"{each:,} rows" for each in rows]], lines)


def _format_cell(found: Found, chosen: tuple[str, Error] | None) -> str:
    if chosen is None:
        return NONE
    name, error = chosen
    is_ours = find_origin(name) is Origin.OURS
    mark = f" {WORSE}" if is_ours and _better_than(error, found) else ""
    return f"{format_error(error)}{mark} ({name})"


def _better_than(ours: Error, found: Found) -> tuple[str, Error] | None:
    """The best other method, where it is better than one of this project."""
    other = best_method(found, [Origin.PACKAGE, Origin.PAPER])
    return other if other is not None and is_worse(ours, other[1]) else None


def _worse_list(columns: Mapping[Column, Found]) -> str:
    best = {column: best_method(found, [Origin.OURS]) for column, found in columns.items()}
    planned, guessed = (
        {column: planned_method(name(column.task), found) for column, found in columns.items()}
        for name in (by_default, with_guess)
    )
    parts = []
    named = (("This project's best", best), ("By default", planned), ("With a guess", guessed))
    for label, chosen in named:
        lines = [
            _worse_line(column, *chosen_one, *other)
            for column, found in sorted(columns.items())
            if (chosen_one := chosen[column]) is not None
            and (other := _better_than(chosen_one[1], found)) is not None
        ]
        points = sum(each is not None for each in chosen.values())
        parts.append(f"{label}: worse at {len(lines)} of {points} points.")
        if lines:
            parts.append(table(["point", "this project", "best other", "ratio", "why"], lines))
    return "\n\n".join(parts)


def _worse_line(column: Column, name: str, ours: Error, best: str, other: Error) -> list[str]:
    where = f"{column.task}, {column.privacy.replace('=', ' = ')}, {column.rows:,} rows"
    return [
        f"{where} ({_SHORT[column.group]})",
        f"{format_error(ours)} ({name})",
        f"{format_error(other)} ({best})",
        f"{ours.mean / other.mean:.2f}" if other.mean else NONE,
        find_reason(column.task, best),
    ]
