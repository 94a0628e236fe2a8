"""Requests: queries of a table that build a configuration, and then one release."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import yaml

from dptrees.dpcore.rows.numbers import MOST_WHOLE, has_fractions
from dptrees.pipelines.python.config import plain, without_none
from dptrees.pipelines.python.error import Error, short_tracebacks
from dptrees.pipelines.python.rows import column_type
from dptrees.pipelines.sections.document import moment
from dptrees.pipelines.sections.privacy import is_auto

if TYPE_CHECKING:
    from dptrees.pipelines.python.making import Session
    from dptrees.pipelines.python.planned import Plan, RowCheck
    from dptrees.pipelines.python.release import Release


# The default number of cells of a column of numbers.
CELLS = 1024
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PRIVATE = "private"
_ROWS = "rows"
_WITH_CELLS = (float, Decimal, datetime)

Bounds: TypeAlias = tuple[Any, Any]


@short_tracebacks
@dataclass(frozen=True, kw_only=True, repr=False)
class Request:
    """A request for one release: a list of queries, which `dptrees.of` begins.

    Each method returns a new request with one more query. Nothing is read or spent before
    `release`, which makes one release of all queries; they share its budget.

    Args:
        rows: the data, as for `dptrees.release`.
        privacy: the section ``privacy``: the privacy budget and the privacy unit.
        groups: the section ``group_by`` of the next queries; None: all rows.
        value: the value of a privacy unit that the next queries are about; None: rows.
        trees: the section ``trees``, of the queries so far.

    >>> request = Request(rows=None, privacy={"neighbors": "add_remove", "epsilon": 1})
    >>> print(request.by("sex", ["f", "m"]).mean("hours", (0, 80)))
    privacy: {neighbors: add_remove, epsilon: 1}
    trees:
    - name: hours
      domain: {column: hours, lower: 0, upper: 80}
      group_by:
        column: sex
        keys: [f, m]
      objective: mean
    """

    rows: Any
    privacy: Mapping[str, Any]
    groups: Mapping[str, Any] | None = None
    value: str | None = None
    trees: tuple[Mapping[str, Any], ...] = ()

    def by(
        self,
        columns: str | Sequence[str] = (),
        keys: Sequence[Any] | Mapping[str, Any] | str | None = None,
    ) -> Request:
        """Group by columns: answer the next queries once for each group.

        Args:
            columns: the column of the groups, or several; none: the next queries are for all rows.
            keys: the groups, which must be known without the rows: a list of values, or a
                dictionary of their labels. For several columns, a dictionary of lists (all
                combinations). Or "private": groups with many rows are selected from the data
                (private partition selection), which needs a delta.

        Raises:
            Error: if there are columns without keys, or keys without columns.
        """
        if not columns:
            return replace(self, groups=None)
        if isinstance(columns, str) and isinstance(keys, Mapping):
            labels = list(keys.values())
            return replace(self, groups={"column": columns, "keys": list(keys), "labels": labels})
        named = {"column": columns} if isinstance(columns, str) else {"columns": columns}
        if isinstance(keys, str) and keys != _PRIVATE:
            raise Error(f"by: keys must be a list, as [{keys!r}], or 'private'")
        if keys is None:
            of = columns if isinstance(columns, str) else ", ".join(columns)
            raise Error(
                f"by: list the groups of {of} as keys=[...]; do not make this list from the rows, "
                "because it would reveal who is in them; keys='private' selects the groups "
                "privately"
            )
        if isinstance(keys, Mapping) and set(keys) != set(columns):
            raise Error(f"by: keys must have a list for each of {', '.join(columns)}, and no other")
        return replace(self, groups={**named, "keys": keys})

    def per(self, unit: str | Sequence[str] | None, value: str = "sum") -> Request:
        """Make the next queries about privacy units, each with one value, and not about their rows.

            dptrees.of(rows, epsilon=1, unit="user").per("user").total("revenue", (0, 300))

        The values of a unit's rows (in a group) are added up first, and the bounds clamp the
        sum. So a unit counts once, however many rows it has. `total` is then the total of all sums,
        `mean` their mean, `count` the number of units.

        Args:
            unit: the privacy unit, as in `of`; None: the next queries are about rows again.
            value: "sum", "mean", "smallest" or "largest" of the values of a unit's rows; or "rows",
                the number of its rows that have a value.

        Raises:
            Error: if it is not the privacy unit.
        """
        if unit is None:
            return replace(self, value=None)
        columns, own = ([each] if isinstance(each, str) else each for each in (unit, self._unit))
        if list(columns) != list(own):
            named = ", ".join(own) or "the row"
            raise Error(f"per: {unit!r} is not the privacy unit, {named}; name it by of(unit=...)")
        return replace(self, value=value)

    def count(
        self,
        column: str | None = None,
        values: Sequence[Any] | Mapping[Any, str] | None = None,
        *,
        name: str | None = None,
        weight: float | None = None,
    ) -> Request:
        """Count the rows with each value of a column, or in each group; after `per`, the units.

        Args:
            column: the column to count; None: the column of the groups, or all combinations of
                several columns (a cross table).
            values: the values of the column, known without the rows: a list, or a dictionary of
                labels.
            name: the name of the tree; by default the name of the column.
            weight: the part of the budget, relative to the other queries.

        Raises:
            Error: if there are no values, and no listed groups.
        """
        without = self
        if self.value is not None:
            if column is not None or len(self._unit) > 1:
                raise Error("count: after per, count() has no column, and the unit has one")
            units = self.per(None).distinct(self._unit[0], name=name, weight=weight)
            return replace(units, value=self.value)
        if column is None:
            groups = self.groups or {}
            if isinstance(groups.get("keys"), Mapping):  # a count of the last column by the others
                *others, column = groups["columns"]
                keys = {each: groups["keys"][each] for each in others}
                crossed = self.by(others, keys) if others[1:] else self.by(*others, *keys.values())
                counted = crossed.count(column, groups["keys"][column], name=name, weight=weight)
                return replace(counted, groups=self.groups)
            if "column" not in groups or groups["keys"] == _PRIVATE:
                raise Error(
                    "count: give a column and its values, or groups of listed columns by "
                    "by(column, keys=[...])"
                )
            column, without = groups["column"], replace(self, groups=None)
            values = list(groups["keys"])
            if groups.get("labels"):
                values = dict(zip(values, groups["labels"], strict=True))
        if values is None:
            raise Error(
                f"count: list the values of {column} as values=[...]; if they are not known, use "
                "most_frequent"
            )
        if isinstance(values, str):
            raise Error(f"count: values must be a list, as [{values!r}]")
        domain: dict[str, Any] = {"categories": list(values)}
        if isinstance(values, Mapping):
            domain["labels"] = list(values.values())
        counted = without._with(column, domain, "count", name, weight=weight)
        return replace(counted, groups=self.groups)

    def cdf(
        self,
        column: str,
        bounds: Bounds,
        *,
        cells: int | None = None,
        name: str | None = None,
        weight: float | None = None,
    ) -> Request:
        """Count the rows below every value (CDF), for any range, quantile, mean or histogram.

        Args:
            column: a column of whole numbers, numbers, dates or times.
            bounds: the first and the last value: whole numbers, floats, dates or times. Whole
                numbers and dates have a cell each. If the column has floats or decimals, numbers
                are rounded to the nearest part of 1 (such as 0.1 between 0 and 100), so whole
                numbers stay exact, and intervals include the rounding. The last time is excluded.
                "auto" in place of a bound: it is chosen privately, for a part of the budget.
                Numbers outside the bounds are clamped to the nearest one; dates and times outside
                do not count.
            cells: the number of cells between numbers or times; 1,024 by default between floats or
                times, and one for each whole number.
            name, weight: as for `count`.
        """
        return self._with(column, self._domain(column, bounds, cells), "cdf", name, weight=weight)

    def quantiles(
        self,
        column: str,
        quantiles: Sequence[float],
        bounds: Bounds,
        *,
        cells: int | None = None,
        name: str | None = None,
        weight: float | None = None,
        optimize_for: str | None = None,
    ) -> Request:
        """Find quantiles: the values below which given fractions of the rows are.

        Args:
            column, bounds, cells, name, weight: as for `cdf`.
            quantiles: the fractions, from 0 to 1.
            optimize_for: "quantiles" releases up to nine quantiles alone, often closer, but no CDF,
                counts, number of rows or intervals; "counts" or "estimates" plans the tree for
                these. `plan` shows the errors of ranks.
        """
        chosen = {"quantiles": quantiles, "objective": "quantiles", "optimize_for": optimize_for}
        domain = self._domain(column, bounds, cells)
        return self._with(column, domain, "quantiles", name, **chosen, weight=weight)

    def median(self, column: str, bounds: Bounds, **more: Any) -> Request:
        """Find the median, the value below which half of the rows are.

        Args:
            column, bounds: as for `cdf`.
            more: other arguments of `quantiles`.
        """
        return self.quantiles(column, [0.5], bounds, **more)

    def mean(
        self,
        column: str,
        bounds: Bounds,
        *,
        name: str | None = None,
        weight: float | None = None,
    ) -> Request:
        """Measure the mean of a column of numbers, with its total and the number of rows.

        Args:
            column: a column of numbers.
            bounds: the smallest and the largest value; values outside are clamped to them. "auto"
                in place of a number: it is chosen privately, for a part of the budget.
            name, weight: as for `count`.
        """
        lower, upper = _pair(bounds)
        domain = {"lower": lower, "upper": upper}
        if self.value == _ROWS:
            domain = self._domain(column, bounds, None)
        return self._with(column, domain, "mean", name, objective="mean", weight=weight)

    def total(self, column: str, bounds: Bounds, **more: Any) -> Request:
        """Measure the sum of a column of numbers, with its mean and the number of rows.

        Args:
            column, bounds: as for `mean`.
            more: other arguments of `mean`.
        """
        return self.mean(column, bounds, **more)

    def metrics(
        self,
        column: str,
        metrics: Sequence[str],
        bounds: Bounds,
        *,
        cells: int | None = None,
        name: str | None = None,
        weight: float | None = None,
    ) -> Request:
        """Measure several statistics: ``count``, ``mean``, ``total``, ``std``, ``median``, ``p90``.

        Args:
            column, bounds, cells, name, weight: as for `cdf`.
            metrics: the statistics that `TreeAnswers.describe` will show.
        """
        domain = self._domain(column, bounds, cells)
        return self._with(column, domain, "metrics", name, metrics=metrics, weight=weight)

    def distinct(
        self,
        column: str,
        *,
        max_values: int | None = None,
        name: str | None = None,
        weight: float | None = None,
    ) -> Request:
        """Count the different values of a column (distinct count).

        Args:
            column: a column of any type.
            max_values: the largest number of values of a privacy unit that count.
            name, weight: as for `count`.
        """
        domain = {"kind": "distinct"}
        return self._with(column, domain, "distinct", name, weight=weight, max_values=max_values)

    def most_frequent(
        self, column: str, *, name: str | None = None, weight: float | None = None
    ) -> Request:
        """Find and count the most frequent values (top k) without a list; needs a delta.

        Args:
            column: a column of strings or whole numbers.
            name, weight: as for `count`.

        Raises:
            Error: if there are groups.
        """
        if self.groups is not None:
            raise Error("most_frequent: goes without groups; begin with by() to leave them out")
        return self._with(column, {"kind": "sparse"}, "most_frequent", name, weight=weight)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, for `dptrees.release`.

        Raises:
            Error: if there is no query yet.
        """
        if not self.trees:
            raise Error("nothing is requested yet: add a query such as .mean('age', (0, 120))")
        return {"privacy": self.privacy, "trees": list(self.trees)}

    @property
    def yaml(self) -> str:
        """The configuration as YAML, for a file of the command."""
        return yaml.safe_dump(
            _written(plain(self.config)),
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,
            width=100,
        )

    def plan(self) -> Plan:
        """Return the plan with its expected errors; no rows are read and nothing is spent."""
        import dptrees

        return dptrees.plan(self.config)

    def check(self) -> RowCheck:
        """Count the rows that a release would drop: **exact, not private**; nothing is spent."""
        import dptrees

        return dptrees.check(self.rows, self.config)

    def release(
        self,
        *,
        key: str | os.PathLike[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        session: Session | None = None,
    ) -> Release:
        """Make one release of all queries: **each call spends the budget again**.

        Args:
            key, output: as for `dptrees.release`.
            session: a session that pays for the release; the release is then in memory.

        Returns:
            The release; it may be published.

        Raises:
            Error: as for `dptrees.release`; or if both a session and an output are given.
        """
        import dptrees

        if session is None:
            return dptrees.release(self.rows, self.config, key=key, output=output)
        if output is not None:
            raise Error("output: a session makes releases in memory; Release.save writes one")
        return session.release(self.rows, self.config, key=key)

    @property
    def _unit(self) -> Sequence[str]:
        """The columns of the privacy unit; none: it is the row."""
        unit = self.privacy.get("unit", "row")
        return () if unit == "row" else [unit] if isinstance(unit, str) else unit

    def _domain(self, column: str, bounds: Bounds, cells: int | None) -> dict[str, Any]:
        """Return the keys of a domain whose first and last value are the bounds."""
        lower, upper = _pair(bounds)
        stated = [each for each in (lower, upper) if not is_auto(each)]
        if len(stated) < 2:
            kind = column_type(self.rows, column) or pa.null()
            keys = {"lower": lower, "upper": upper, "cells": cells}
            if pa.types.is_date(kind) or date in map(type, stated):
                last = moment(upper)
                after = last + timedelta(days=1) if type(last) is date else upper
                return without_none({"type": "date", **keys, "upper": after})
            keys["cells"] = CELLS if cells is None else cells
            if pa.types.is_timestamp(kind):
                return {"type": "timestamp", **keys}
            if not all(isinstance(each, Real | Decimal) for each in stated):
                raise Error(f"bounds: auto goes with a number, not {stated[0]!r}; state both")
            return keys
        are_whole = all(isinstance(each, Integral) for each in bounds)
        if are_whole and self.value != _ROWS and lower <= upper:
            kind = column_type(self.rows, column)
            if kind is not None and has_fractions(kind):
                return _rounded_domain(int(lower), int(upper), cells)
        return _domain(bounds, cells)

    def _with(
        self, column: str, domain: Mapping[str, Any], kind: str, name: str | None, **keys: Any
    ) -> Request:
        taken = {tree["name"] for tree in self.trees}
        chosen = name
        if chosen is None:
            plainly = _UNSAFE.sub("_", column)
            chosen = f"{plainly}_{kind}" if plainly in taken else plainly
        if chosen in taken:
            raise Error(f"name: there is a query called {chosen!r} already; give it another name")
        by = None if domain.get("kind") == "sparse" else self.groups
        if self.value is not None:
            if "kind" in domain:
                raise Error(f"{kind}: counts rows, not units; begin with per(None)")
            domain = {**domain, "per_unit": self.value}
        tree = {"name": chosen, "domain": {"column": column, **domain}, "group_by": by, **keys}
        return replace(self, trees=(*self.trees, without_none(tree)))

    def __str__(self) -> str:
        return self.yaml.rstrip("\n")

    def __repr__(self) -> str:
        return f"<Request, nothing spent:\n{self}>" if self.trees else "<Request without queries>"


def _pair(bounds: Bounds) -> Bounds:
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise Error("bounds: must be the first and the last value, as (0, 100)")
    lower, upper = bounds
    return lower, upper


def _domain(bounds: Bounds, cells: int | None) -> dict[str, Any]:
    """Return the keys of a domain whose first and last value are the bounds.

    >>> _domain((0, 100), None), _domain((0.0, 1.5), 8)
    ({'values': [0, 100]}, {'lower': 0.0, 'upper': 1.5, 'cells': 8})
    """
    lower, upper = _pair(bounds)
    if isinstance(lower, _WITH_CELLS) or isinstance(upper, _WITH_CELLS):
        return {"lower": lower, "upper": upper, "cells": CELLS if cells is None else cells}
    if cells is not None and isinstance(lower, Integral) and isinstance(upper, Integral):
        return {"lower": int(lower), "upper": int(upper) + 1, "cells": cells}
    if cells is not None:
        raise Error("cells: dates have a cell each")
    return {"values": [lower, upper]}


def _rounded_domain(lower: int, upper: int, cells: int | None) -> dict[str, Any]:
    """Return the keys of a domain of numbers whose cells have whole numbers at their middles.

    >>> _rounded_domain(0, 100, None)
    {'lower': Decimal('-0.05'), 'upper': Decimal('100.05'), 'cells': 1001}
    """
    if cells is not None:
        return {"lower": lower, "upper": upper, "cells": cells}
    if upper - lower > MOST_WHOLE:  # a mean chooses its cells; others need a number of them
        return {"lower": float(lower), "upper": float(upper)}
    sizes = (size * 10**power for power in range(4) for size in (1, 2, 5))
    parts = max((each for each in sizes if (upper - lower) * each <= CELLS), default=1)
    half = Decimal(1) / (2 * parts)
    return {"lower": lower - half, "upper": upper + half, "cells": (upper - lower) * parts + 1}


def _written(value: Any) -> Any:
    """Convert decimals to plain numbers, for YAML."""
    if isinstance(value, Mapping):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    if isinstance(value, Decimal):
        return (
            int(value)
            if value == value.to_integral_value() and "." not in str(value)
            else float(value)
        )
    return value
