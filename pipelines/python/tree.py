"""Queries of a released tree in Python: every answer has its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.questions.released import CDF, NODES, Answer, Released, StatisticKind
from dptrees.pipelines.python.answers import (
    CURVES,
    HISTOGRAM,
    NO_DRAWING,
    POINTS,
    QUANTILES,
    Answers,
    numeric_quantile,
    plain,
    quantile_table,
    several,
    to_table,
)
from dptrees.pipelines.python.answers import NODES as BARS
from dptrees.pipelines.python.error import (
    Error,
    reports_edits,
    short_tracebacks,
    user_errors,
    warn_caller,
)
from dptrees.pipelines.query.above import Thresholds, statements
from dptrees.pipelines.query.folders import AnyFolder
from dptrees.pipelines.query.release_folder import OTHER_FORM, ReleaseFolder
from dptrees.pipelines.show.answers import counted_values, overview
from dptrees.pipelines.show.figures import (
    QUANTILE_VALUES,
    column_titles,
    counted_note,
    counted_noun,
    titled,
)

if TYPE_CHECKING:
    from dptrees.dpcore.ordered.lookup import QuantileLookup

_ERRORS = ("estimate", "std_error", "ci_low", "ci_high", "count")
_COLUMNS = ("label", *_ERRORS, "fraction")
_DECILES = tuple(tenth / 10 for tenth in range(1, 10))


@short_tracebacks
@reports_edits
class TreeAnswers:
    """Queries of one tree of a release; they cost no budget.

    In a tree with keys (groups), every query takes ``key=``. Without it, the query covers all keys,
    and the answers have a column ``key``. Each query returns `Answers`: a table with standard
    errors and confidence intervals.

    Args:
        tree: the released tree, or its released quantiles, with which it is read when needed.
        folder: the folder of the release.
        owner: an object that must exist as long as this one.
        column: the column that `column` selected; "" for the whole tree.
    """

    def __init__(
        self,
        tree: Released | QuantileLookup,
        folder: AnyFolder,
        owner: object,
        column: str = "",
    ) -> None:
        self._found, self._folder, self._owner, self._column = tree, folder, owner, column

    @cached_property
    def _tree(self) -> Released:
        if isinstance(self._found, Released):
            return self._found
        return self._folder.release.tree(self._found.tree)

    @property
    def name(self) -> str:
        """The name of the tree."""
        return str(self._tree.question.name)

    @property
    def keys(self) -> list[str]:
        """The labels of the keys; an empty list if the tree has no keys."""
        keys = self._tree.question.keys
        return [] if keys is None else keys.labels_between(0, keys.size).to_pylist()

    @property
    def confidence(self) -> float:
        """The confidence of the intervals."""
        return float(getattr(self._tree, "confidence", self._tree.question.confidence))

    def at_confidence(self, confidence: float) -> TreeAnswers:
        """Return the same tree with confidence intervals of another confidence.

        `cdf` and `nodes` without arguments keep the confidence of the release.

        Args:
            confidence: the confidence, above 0 and at most 0.9999.

        Raises:
            Error: if the confidence is out of range, or this kind of tree has only the confidence
                of the release.
        """
        with user_errors(is_query=True):
            return self._as(self._tree.at_confidence(confidence))

    def column(self, name: str) -> TreeAnswers:
        """Return one of several columns of a box as a separate tree.

        Args:
            name: the name of the column.

        Raises:
            Error: if the tree has only one column, or no column of this name.
        """
        with user_errors(is_query=True):
            return self._as(self._tree.select_column(name), name)

    def _as(self, tree: Released, column: str = "") -> TreeAnswers:
        return TreeAnswers(tree, self._folder, self._owner, column or self._column)

    def cdf(
        self,
        values: Any = None,
        *,
        key: object = None,
        simultaneous: bool = False,
    ) -> Answers:
        """Return the CDF: the number of rows below values.

        Args:
            values: one value, or several; None: every edge of a cell.
            key: a key, in a tree with keys; None: all keys.
            simultaneous: return a band, whose intervals hold for all values together.

        Raises:
            Error: if the tree has no order, no band, or no such value or key.
        """
        if values is None:
            if not getattr(self._tree.question, "is_ordered", True):
                if self._tree.unordered != Released.unordered:
                    raise Error(f"cdf: tree {self.name} {self._tree.unordered}")
                raise Error(
                    f"cdf: the categories of tree {self.name} have no order; use top or nodes (if "
                    "they have an order, set `ordered: true` in the domain of the tree)"
                )
            whole = self._whole(CDF, key, ("upper", *_ERRORS, "fraction"))
            return self._band(whole) if simultaneous else whole
        return self._counts(
            "cdf",
            key,
            lambda each: [
                self._tree.cdf(value, each, simultaneous=simultaneous) for value in several(values)
            ],
        )

    def _band(self, points: Answers) -> Answers:
        """Return all points of a CDF with intervals that hold together."""
        table, errors = points.table, points.table["std_error"].to_numpy()
        with user_errors(is_query=True):
            margins = self._tree.band(errors * errors)
        estimate = table["estimate"].to_numpy()
        for name, ends in (("ci_low", estimate - margins), ("ci_high", estimate + margins)):
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(np.maximum(ends, 0.0)))
        return replace(points, table=table, title=f"{points.title}, all values at once")

    def quantiles(self, quantiles: Any = None, *, key: object = None) -> Answers:
        """Return quantiles: the values below which given fractions of the rows are.

        Each has a confidence interval for the true quantile.

        Args:
            quantiles: one fraction between 0 and 1, or several; None: the quantiles of the
                configuration, else the deciles.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if the tree has no order or no such key or quantile, or a fraction is not between
                0 and 1.
        """
        found = self._looked_up(quantiles, plain(key))
        if found is not None:
            return found
        if quantiles is None:
            listed = getattr(self._tree.question, "quantiles", ())
            quantiles = self._tree.released_quantiles or listed or _DECILES
        rows = self._quantile_rows(several(quantiles), key)
        table = quantile_table(rows, self._key_column(key))
        return self._answers("quantiles", table, QUANTILES)

    def _looked_up(self, quantiles: Any, key: object) -> Answers | None:
        """Return released quantiles, for which no plan is made; None where it is needed."""
        lookup, manifest, rows = self._found, self._folder.manifest, None
        if isinstance(lookup, Released) or lookup.key_columns is None:
            return None
        if manifest["spec"]["unit"] != "row":
            return None
        values = lookup.quantiles if quantiles is None else several(quantiles)
        with suppress(*OTHER_FORM):  # the plan says what is wrong
            rows = lookup.rows(values, key)
        if rows is None:
            return None
        titles, of_all = column_titles(manifest), key is None and bool(lookup.key_columns)
        labels = [{"key": row["key"]} if of_all else {} for row in rows]
        found = [label | numeric_quantile(row) for label, row in zip(labels, rows, strict=True)]
        return Answers(
            table=quantile_table(found, ("key",) if of_all else ()),
            title=f"{lookup.tree}: quantiles",
            confidence=lookup.confidence,
            form=QUANTILES,
            noun="rows",
            column=titles.get(lookup.column, lookup.column),
            keys=", ".join(titles.get(each, each) for each in lookup.key_columns),
        )

    def _quantile_rows(self, values: Sequence[Any], key: object) -> list[dict[str, Any]]:
        """Return the rows of quantiles of a key; for all keys, each row begins with its key."""
        if key is not None or not self.keys:
            return self._rows(
                key,
                lambda each: [
                    numeric_quantile(self._tree.quantile(value, each)) for value in values
                ],
            )
        with user_errors(is_query=True):
            found = self._tree.quantiles_by_key(values)
        labels = [label for label in self.keys for _ in values]
        pairs = zip(labels, found, strict=True)
        return [{"key": label} | numeric_quantile(row) for label, row in pairs]

    def range(self, lower: object, upper: object, *, key: object = None) -> Answers:
        """Return the number of rows in [lower, upper).

        The range is rounded to whole cells. The label shows the counted range, and a warning is
        given if it differs.

        Args:
            lower, upper: the ends of the range.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if the tree has no order, or no such values or key.
        """
        bounds = plain(lower), plain(upper)
        return self._counts("range", key, lambda each: [self._tree.range(*bounds, each)])

    def mean(self, lower: object = None, upper: object = None, *, key: object = None) -> Answers:
        """Return the mean of the values, with its confidence interval.

        Args:
            lower, upper: use only values in [lower, upper), which must be edges of cells; None
                leaves a side open.
            key: a key, in a tree with keys; None: all keys.

        Returns:
            Columns ``value``, ``std_error`` (from the noise), ``ci_low``, ``ci_high``, and
            ``within``: the part of either side of the interval that exists because only the cells
            of values are known.

        Raises:
            Error: if the values are no numbers, include missing ones, or are too few to divide by;
                if a bound is no edge; or if there is no such key.
        """
        return self._statistics(StatisticKind.MEAN, lower, upper, key)

    def variance(
        self, lower: object = None, upper: object = None, *, key: object = None
    ) -> Answers:
        """Return the variance of the values; arguments and columns are as for `mean`."""
        return self._statistics(StatisticKind.VARIANCE, lower, upper, key)

    def std(self, lower: object = None, upper: object = None, *, key: object = None) -> Answers:
        """Return the standard deviation of the values; arguments and columns are as for `mean`."""
        return self._statistics(StatisticKind.STD, lower, upper, key)

    def total(self, lower: object = None, upper: object = None, *, key: object = None) -> Answers:
        """Return the sum of the values; arguments and columns are as for `mean`."""
        return self._statistics(StatisticKind.TOTAL, lower, upper, key)

    def median(self, *, key: object = None) -> Answers:
        """Return the median, the value below which half of the rows are; see `quantiles`."""
        return self.quantiles(0.5, key=key)

    def share(self, lower: object = None, upper: object = None, *, key: object = None) -> Answers:
        """Return the fraction of all rows whose value is in [lower, upper).

        Args:
            lower, upper: the ends of the range, edges of cells; None leaves a side open. Of
                categories without an order, lower is one category.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if a bound is no edge of a cell, or there is no such key, or there are too few
                rows.
        """
        return self._statistics(StatisticKind.SHARE, lower, upper, key)

    def describe(self, *, key: object = None) -> Answers:
        """Return the number of rows, the mean, the standard deviation and the quartiles.

        Args:
            key: a key, in a tree with keys; None: all keys.

        Returns:
            Columns ``statistic``, ``value``, ``ci_low`` and ``ci_high``: numbers, or strings if the
            values are dates; None if a tree has no such value, such as the mean of dates.

        Raises:
            Error: if the tree has no order, or no such key.
        """
        rows = self._rows(key, lambda each: [asdict(line) for line in overview(self._tree, each)])
        if any(isinstance(row["value"], str) for row in rows):  # dates beside numbers
            for row in rows:
                row |= {name: _text(row[name]) for name in QUANTILE_VALUES}
        columns = ("statistic", "value", "ci_low", "ci_high")
        table = to_table(rows, (*self._key_column(key), *columns))
        of = "" if (counted := counted_values(self._tree)) is None else f" of {counted}"
        return self._answers(f"describe{of}", table, NO_DRAWING)

    def _statistics(
        self, kind: StatisticKind, lower: object, upper: object, key: object
    ) -> Answers:
        bounds = plain(lower), plain(upper)
        rows = self._rows(key, lambda each: [asdict(self._tree.statistic(kind, *bounds, each))])
        for row in rows:
            row["label"] = row["in_words"] or row["label"]
            row["std_error"] = None if math.isnan(row["std_error"]) else row["std_error"]
        columns = ("label", "value", "std_error", "ci_low", "ci_high", "within")
        table = to_table(rows, (*self._key_column(key), *columns))
        return replace(self._answers(kind.value, table, POINTS), noun=kind.value)

    def node(self, node: object, *, level: object = None, key: object = None) -> Answers:
        """Return the number of rows in a node.

        Args:
            node: the path of the node in a hierarchy, or a value in the node.
            level: the level of the node, if it is given by a value.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if there is no such node or key.
        """

        def ask(each: object) -> list[Answer]:
            if level is None:
                return [self._tree.at_path(str(node), each)]
            number = self._tree.numbered_level(str(level))
            return [self._tree.node(number, self._tree.find_node(plain(node), number), each)]

        return self._counts("node", key, ask)

    def children(self, path: str = "", *, key: object = None) -> Answers:
        """Return the number of rows in each child of a node.

        Args:
            path: the path of the node; "": the root.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if there is no such node or key, or the node is a leaf.
        """
        return self._counts("children", key, lambda each: self._tree.children(path, each))

    def top(self, n: int = 10, *, level: object = None, key: object = None) -> Answers:
        """Return the top k: the nodes of a level with the largest counts.

        Args:
            n: the number of nodes.
            level: the number or name of the level; None: the leaves. ``level=0`` gives the number
                of all rows.
            key: a key, in a tree with keys; None: all keys, with `n` nodes each.

        Raises:
            Error: if there is no such level or key.
        """

        def ask(each: object) -> list[Answer]:
            chosen_level = self._tree.height if level is None else self._tree.find_level(str(level))
            return self._tree.top(_number(n), chosen_level, each)

        return self._counts("top", key, ask)

    def count(self, values: Any, *, key: object = None) -> Answers:
        """Return the number of rows with values, in a sketch.

        Args:
            values: one value of the column, or several.
            key: None: a sketch has no keys.

        Raises:
            Error: if the tree is no sketch, or the column cannot have such a value.
        """
        asked = several(values)
        return self._counts("count", key, lambda each: self._tree.counts(asked, each))

    def top_among(self, values: Any, n: int = 10, *, key: object = None) -> Answers:
        """Return the top k of given values, in a sketch, which lists no values itself.

        Args:
            values: the values to look at.
            n: the number of values.
            key: None: a sketch has no keys.

        Raises:
            Error: if the tree is no sketch, or the column cannot have such a value.
        """
        asked = several(values)
        return self._counts("top", key, lambda each: self._tree.top_among(asked, _number(n), each))

    def above(
        self,
        rows: Thresholds,
        *,
        level: object = None,
        path: str | None = None,
        key: object = None,
        simultaneous: bool = False,
    ) -> Answers:
        """Return whether nodes hold at least so many rows: surely, surely not, or undecided.

        Args:
            rows: the number of rows; or a mapping (a Series too) from the paths of some nodes
                (values or intervals of an ordered tree) to a number of rows for each.
            level: the number or name of the level; None: the leaves, or the level below the path.
            path: only nodes below this one.
            key: a key, in a tree with keys; None: all keys.
            simultaneous: all verdicts hold together with the confidence; else each by itself.

        Returns:
            Columns ``threshold`` and ``verdict``, then the columns of counts; the largest counts
            first, or in the order of the mapping. A node that was not published has no estimate.

        Raises:
            Error: if there is no such node, level or key, or a threshold is not above 0, or there
                are too many nodes for verdicts that hold together.
        """
        name = None if level is None else str(level)
        if hasattr(rows, "items"):
            rows = dict(pairs := [(plain(node), each) for node, each in rows.items()])
            if len(rows) < len(pairs):  # of a Series
                raise Error("by: a node is there twice")
        keys = self.keys if key is None and self.keys else [plain(key)]
        with user_errors(is_query=True):
            found = statements(self._tree, keys, rows, name, path, among=int(simultaneous))
        lines = [
            {"key": of_key} | each.about | asdict(each.answer) | {"label": each.answer.shown}
            for of_key, own in zip(keys, found, strict=True)
            for each in own
        ]
        columns = (*self._key_column(key), "threshold", "verdict", *_COLUMNS)
        title = "above, all nodes at once" if simultaneous else "above"
        return self._answers(title, to_table(lines, columns), BARS)

    def sum(self, nodes: Sequence[str], *, key: object = None) -> Answers:
        """Return the number of rows in several nodes together, with the exact error of the sum.

        Args:
            nodes: the paths of the nodes.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if there is no such node or key, or the tree cannot add up nodes.
        """
        return self._counts("sum", key, lambda each: [self._tree.sum(several(nodes), each)])

    def box(self, sides: Mapping[str, tuple[object, object]], *, key: object = None) -> Answers:
        """Return the number of rows in a box of several columns.

        Args:
            sides: the range [lower, upper) of some columns; None leaves a side open.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if the tree has no boxes, or no such column, values or key.
        """
        bounds = {
            column: ("" if low is None else plain(low), "" if high is None else plain(high))
            for column, (low, high) in sides.items()
        }
        return self._counts("box", key, lambda each: [self._tree.box(bounds, each)])

    def nodes(self, *, level: object = None, key: object = None) -> Answers:
        """Return all released nodes, or all nodes of a level, such as for a histogram.

        Args:
            level: the number or name of the level; None: all levels, in a column ``level``.
            key: a key, in a tree with keys; None: all keys.

        Raises:
            Error: if there is no such level or key.
        """
        result = self._in_words(self._whole(NODES, key, ("level", "node", "label", *_ERRORS)))
        if level is None:
            return result
        with user_errors(is_query=True):
            number = self._tree.find_level(str(level))
        table = result.table.filter(pc.equal(result.table["level"], number)).drop_columns(["level"])
        # Cells in order are a histogram, but calendar days, which are a line by day.
        is_ordered = getattr(self._tree.question, "is_ordered", False)
        return self._answers(f"nodes of level {level}", table, HISTOGRAM if is_ordered else BARS)

    def _in_words(self, found: Answers) -> Answers:
        """Return nodes without their numbers; their labels show the cells of values outside."""
        table = found.table
        labels = pa.chunked_array([pa.array(self._tree.labels_in_words(table), pa.string())])
        table = table.set_column(table.column_names.index("label"), "label", labels)
        return replace(found, table=table.drop_columns(["node"]))

    def _whole(self, kind: str, key: object, columns: Sequence[str]) -> Answers:
        """Return a released table of the tree."""
        question = self._tree.question
        if self._tree.released_quantiles is not None:
            raise Error(f"{kind}: tree {self.name} {self._tree.unordered}")
        parts = [part for part in question.parts() if part.kind == kind]
        if not parts:
            raise Error(f"{kind}: tree {self.name} was released without this table; give values")
        with user_errors(is_query=True):
            tables = [self._part(kind, part.key, part.index) for part in parts]
            table = pa.concat_tables(tables, promote_options="permissive")
            if question.keys is not None:
                table = table.set_column(
                    table.column_names.index("key"), "key", table["key"].cast(pa.string())
                )
                if key is not None:
                    label = question.key_label(question.keys.find_code(plain(key)))
                    table = table.filter(pc.equal(table["key"], label))
        form = CURVES if kind == CDF else BARS
        return self._answers(kind, table.select([*self._key_column(key), *columns]), form)

    def _part(self, kind: str, key: int, index: int) -> pa.Table:
        if isinstance(self._folder, ReleaseFolder):
            return self._folder.part(kind, self.name, key, index)
        return self._folder.tables(self.name).part(kind, key, index)

    def _counts(
        self, query: str, key: object, answer_one: Callable[[object], list[Answer]]
    ) -> Answers:
        """Return the answers to a query, for one key or for all."""
        rows = self._rows(
            key,
            lambda each: [asdict(answer) | {"label": answer.shown} for answer in answer_one(each)],
        )
        rounded = {row["asked"]: row["label"] for row in rows if row["asked"] is not None}
        for asked, answered in rounded.items():
            warn_caller(
                f"requested {asked}, answered {answered}: tree {self.name} has no edges there"
            )
        return self._answers(query, to_table(rows, (*self._key_column(key), *_COLUMNS)), BARS)

    def _rows(
        self, key: object, answer_rows: Callable[[object], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return the rows of answers for a key; for all keys, each row begins with its key."""
        labels = self.keys if key is None else []
        with user_errors(is_query=True):
            if not labels:
                return answer_rows(plain(key))
            return [{"key": label} | row for label in labels for row in answer_rows(label)]

    def _key_column(self, key: object) -> tuple[str, ...]:
        return ("key",) if key is None and self.keys else ()

    def _answers(self, query: str, table: pa.Table, form: str) -> Answers:
        column = f", {self._column}" if self._column else ""
        apart = " of rows with a value" if getattr(self._tree, "has_missing", False) else ""
        return Answers(
            table=table,
            title=f"{self.name}{column}: {query}{apart}",
            confidence=self.confidence,
            form=form,
            noun=self._noun,
            column=self._column or ", ".join(self._value_columns),
            keys=", ".join(self._key_columns),
        )

    @property
    def _noun(self) -> str:
        return counted_noun(self._tree.question)

    @cached_property
    def _shown(self) -> Any:
        """The question with the titles of its columns."""
        return titled(self._tree.question, column_titles(self._folder.manifest))

    @property
    def _key_columns(self) -> tuple[str, ...]:
        keys = self._shown.keys
        return () if keys is None else tuple(keys.columns)

    @property
    def _value_columns(self) -> list[str]:
        return [each for each in self._shown.columns if each not in self._key_columns]

    def _described(self) -> tuple[str, str, str]:
        """Return the columns, the keys and the rows of the tree as strings for people."""
        columns, keys = ", ".join(self._tree.question.columns), self.keys
        if keys:
            return columns, f"{len(keys):,}", "-"
        try:
            (root,) = self._tree.top(1, 0)
        except ValueError:
            return columns, "-", "-"
        return columns, "-", f"{root.count:,} {self._noun}"

    def _line(self) -> str:
        columns, keys, rows = self._described()
        by = "" if keys == "-" else f", by {keys} keys"
        about = "" if rows == "-" else f", about {rows}"
        note = counted_note(self._tree.question)
        bounds = "" if note is None else f"; {note}"
        return f"{self.name} ({columns}{by}{about}{bounds})"

    def __repr__(self) -> str:
        return f"<tree {self._line()}>"


def _text(value: object) -> str | None:
    return None if value is None else f"{value:,.0f}" if isinstance(value, float) else str(value)


def _number(n: int) -> int:
    """Return a number of answers; refuse what is none."""
    if n < 1 or n != int(n):
        raise ValueError(f"n: {n} is " + ("not above 0" if n < 1 else "no whole number"))
    return int(n)
