"""A released tree: its tables, and the answers about its nodes, each with its error.

``nodes``: tree, key, level, node, label, estimate, std_error, ci_low, ci_high, count, and columns
that a kind of tree adds. ``cdf``: tree, key, upper, estimate, std_error, ci_low, ci_high, count,
fraction. ``quantiles``: tree, key, q, value, ci_low, ci_high, each also as text in the domain's
notation. ``estimate`` is the unbiased least squares estimate, ``count`` the consistent
nonnegative integer. The interval is the estimate's, clipped to what is possible, and covers the
true count, so ``count`` may lie outside it. Nonnegative counts are too large on average where
hardly any rows are and too small where many are, so sums over nodes use ``estimate``. Nothing
here knows exact counts.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import hypotenuse
from dptrees.dpcore.arrays import Floats

if TYPE_CHECKING:
    from dptrees.dpcore.noise.randomness import RandomStream
    from dptrees.dpcore.questions.question import Question

NODES_SCHEMA = pa.schema(
    [
        ("tree", pa.dictionary(pa.int32(), pa.string())),
        ("key", pa.dictionary(pa.int32(), pa.string())),
        ("level", pa.int32()),
        ("node", pa.int64()),
        ("label", pa.string()),
        ("estimate", pa.float64()),
        ("std_error", pa.float64()),
        ("ci_low", pa.float64()),
        ("ci_high", pa.float64()),
        ("count", pa.int64()),
    ]
)


def tree_and_key(question: Question, first_key: int, rows: int, wide: int) -> list[pa.Array]:
    """Return the columns that name the tree and its key, (rows * wide,) each.

    Args:
        question: the tree.
        first_key: the code of the key of the first row.
        rows: how many keys.
        wide: how many rows of the table each of them has.
    """
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows * wide, np.int32)), pa.array([question.name])
    )
    if question.keys is None:
        return [names, pa.nulls(wide * rows, NODES_SCHEMA.field("key").type)]
    codes = np.repeat(np.arange(rows, dtype=np.int32), wide)
    labels = question.keys.labels_between(first_key, first_key + rows)
    return [names, pa.DictionaryArray.from_arrays(pa.array(codes), labels)]


def number_column(values: Floats) -> pa.Array:
    """One column of all units; null where a number is not known."""
    flat = np.ascontiguousarray(values).reshape(-1)
    unknown = np.isnan(flat)
    return pa.array(flat, mask=unknown) if unknown.any() else pa.array(flat)


NODES, CDF, QUANTILES = "nodes", "cdf", "quantiles"
# The cells of a sketch, and the law that they show.
SKETCH = "sketch"
ERROR_COLUMNS = ("std_error", "ci_low", "ci_high")


# Nodes that are named in the label of a sum.
_NAMED = 3


class NamedRun(NamedTuple):
    """The nodes that one name of a sum represents.

    Attributes:
        name: as it is shown.
        start, stop: of the leaves.
    """

    name: str
    start: int
    stop: int


def check_apart(runs: Sequence[NamedRun]) -> None:
    """Refuse sums of nothing, and those that would count rows twice.

    Raises:
        ValueError: nothing is named; one is there twice, or lies within another.

    >>> check_apart([NamedRun("a", 0, 4), NamedRun("a/b", 2, 3)])
    Traceback (most recent call last):
    ValueError: sum: 'a/b' lies within 'a', so its rows would count twice
    """
    if not runs:
        raise ValueError("sum: nothing is named that could be summed")
    rising = sorted(runs, key=lambda run: (run.start, -run.stop))
    for first, second in pairwise(rising):
        if second.start >= first.stop or second.start == second.stop:
            continue
        if (first.start, first.stop) == (second.start, second.stop):
            again = f"'{second.name}' is there twice"
            if first.name != second.name:
                again = f"'{first.name}' and '{second.name}' are the same"
            raise ValueError(f"sum: {again}, so its rows would count twice")
        how = "lies within" if second.stop <= first.stop else "overlaps with"
        raise ValueError(
            f"sum: '{second.name}' {how} '{first.name}', so its rows would count twice"
        )


def sum_label(names: Sequence[str]) -> str:
    """Name of a sum.

    >>> sum_label(["a", "b", "c"]), sum_label(["a", "b", "c", "d"])
    ('a + b + c', 'a + ... + d (4 parts)')
    """
    if len(names) <= _NAMED:
        return " + ".join(names)
    return f"{names[0]} + ... + {names[-1]} ({len(names)} parts)"


# (kind of table, tree, code of the first key, index of the chunk, branch or spine) -> its rows
ReadPart = Callable[[str, str, int, int], pa.Table]

# The most keys whose totals are added up.
_MOST_KEYS = 256


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An estimated count with its error.

    Attributes:
        label: the part of the domain that was counted, in the domain's notation.
        estimate: in rows, unbiased where it has a standard error; None where only a node below it
            was published.
        std_error: its standard error, in rows; None where it is not known.
        ci_low, ci_high: the interval for the true count, at the release's confidence.
        count: the consistent nonnegative integer; it may lie outside the interval.
        fraction: count / total count, None where the total count is zero.
        asked: what was requested, where the label is something else: rounded down to edges of
            cells, or cut off at the ends of the domain; None where the label is what was requested.
        remark: a sentence on what the interval is, where it is another than those beside it.
        in_words: the label for people, where values outside the domain are counted too ("95 and
            above"); None where the label is it.
    """

    label: str
    estimate: float | None
    std_error: float | None
    ci_low: float
    ci_high: float
    count: int
    fraction: float | None
    asked: str | None = None
    remark: str | None = None
    in_words: str | None = None

    @property
    def shown(self) -> str:
        """The label for people."""
        return self.label if self.in_words is None else self.in_words


class StatisticKind(Enum):
    """What is computed of the values of a column."""

    MEAN = "mean"
    VARIANCE = "variance"
    STD = "std"
    TOTAL = "total"
    SHARE = "share"  # the part of all rows that a range holds


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A statistic of the values of a column, with its error.

    Attributes:
        label: the range of values that it is of.
        value: the estimate.
        std_error: its standard error, from the noise alone; NaN where none is known.
        ci_low, ci_high: the interval for the true one.
        within: how much of either side of the interval is there because only the cells of values
            are known; 0 where a cell is one number.
        in_words: the label for people, where values outside the domain are counted too ("95 and
            above, counted as [95, 100)"); None where the label is it.
    """

    label: str
    value: float
    std_error: float
    ci_low: float
    ci_high: float
    within: float
    in_words: str | None = None

    @property
    def shown(self) -> str:
        """The label for people."""
        return self.label if self.in_words is None else self.in_words


class Total(NamedTuple):
    """The rows of a tree over all keys.

    Attributes:
        name: of the tree.
        rows: the unbiased estimate.
        std_error: its standard error; 0 where the number is public.
    """

    name: str
    rows: float
    std_error: float


class Sampler(Protocol):
    """Sampler of synthetic rows of a released tree."""

    @property
    def total(self) -> int:
        """The released number of rows."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""

    def batches(self, rows: int, stream: RandomStream) -> Iterator[pa.RecordBatch]:
        """So many rows, some at a time, from uniform bits."""


class Released(ABC):
    """The answers about a released tree, for one key at a time (None for a tree without).

    A kind overrides what it answers. The others are refused with a `ValueError`.

    Args:
        question: the tree.
        read: gives the rows of a part.
        confidence: of the intervals, by default the release's.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """

    # How messages say that the tree has no order, where it has none.
    unordered: ClassVar[str] = "has no order"
    # What people read for an empty label: the root's path, or a value.
    empty_label: ClassVar[str] = "(all)"
    # Whether synthetic rows can be drawn from it.
    draws_rows: ClassVar[bool] = False
    # What it has of its values, where it has no order and still has something.
    only_statistics: ClassVar[tuple[StatisticKind, ...]] = ()

    question: Any

    def __init__(self, question: Any, read: ReadPart, confidence: float | None = None) -> None:
        if confidence is not None and not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        self.question, self._read = question, read
        self.confidence = question.confidence if confidence is None else confidence

    @property
    @abstractmethod
    def height(self) -> int:
        """The level of the leaves, the root being level 0."""

    @abstractmethod
    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The nodes of a level with the largest counts.

        Raises:
            ValueError: there is no such level or key.
        """

    def rows_in_all(self) -> Total | None:
        """The rows of the tree over all keys; None where rows are not what it counts, the error is
        not known, or there are too many keys to add up at once."""
        question = self.question
        if not question.counts_rows or question.key_count > _MOST_KEYS:
            return None
        labels = question.labels_between(0, question.key_count)
        roots = [self.top(1, 0, label)[0] for label in labels]
        rows = [root.estimate for root in roots if root.estimate is not None]
        errors = [root.std_error for root in roots if root.std_error is not None]
        if len(rows) < len(roots) or len(errors) < len(roots):
            return None
        # The noise of each key is its own.
        return Total(self._name, math.fsum(rows), hypotenuse(*errors))

    def ends(self) -> list[tuple[str, Answer]]:
        """Return the cells in which values beyond the bounds of the domain are counted too.

        Returns:
            each with the bound, "lower" or "upper"; none where there are no such cells, or so few
            cells that one may well hold most rows.
        """
        return []

    def labels_in_words(self, rows: pa.Table) -> list[str]:
        """Return the labels of nodes for people; "95 and above" where values outside are counted.

        Args:
            rows: of the table of nodes.
        """
        labels: list[str] = rows["label"].to_pylist()
        return labels

    def at_confidence(self, confidence: float) -> Released:
        """The same answers with intervals of another confidence.

        Raises:
            ValueError: it is not above 0 and at most 0.9999; or the intervals are only known at
                the release's.
        """
        raise ValueError(f"confidence: the intervals of tree {self._name} are those of the release")

    def simultaneous(self, count: int) -> Released:
        """The same answers with wider intervals: so many hold together with the confidence.

        Args:
            count: how many, at least 1.

        Raises:
            ValueError: each needs a confidence above 0.9999; or as of `at_confidence`.

        Source: Bonferroni's inequality.
        """
        left = 1 - self.confidence
        if left / count < 1e-4 * (1 - 1e-9):
            raise ValueError(
                f"simultaneous: {count:,} nodes are too many to hold together at "
                f"{100 * self.confidence:g} %; {math.floor(1e4 * left + 1e-6):,} can: name a path, "
                "a level or nodes, or a lower confidence"
            )
        return self.at_confidence(min(1 - left / count, 0.9999))

    def with_others(self, others: Sequence[Released]) -> Released:
        """The answers about the rows of this and other releases of the tree, each with rows of its
        own.

        Raises:
            ValueError: the answers of this kind are not added up so.
        """
        raise ValueError(f"window: the answers of tree {self._name} are not added up")

    def find_level(self, name: str) -> int:
        """The level of a number written out, or of a name where levels have names.

        Raises:
            ValueError: there is none.
        """
        if not (name.isdecimal() and int(name) <= self.height):
            raise ValueError(f"level: {name} is not between 0 and {self.height}")
        return int(name)

    def numbered_level(self, name: str | None) -> int:
        """Return the level of a node that is given by its number, or by a value.

        Raises:
            ValueError: there is none, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def find_node(self, value: object, level: int) -> int:
        """The node of a level that holds a value, or that a path leads to.

        Raises:
            ValueError: there is none, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def node(self, level: int, node: int, key: object = None) -> Answer:
        """The count of one node, by its number.

        Raises:
            ValueError: there is no such node or key, or nodes have no numbers.
        """
        raise self._has_no_numbers()

    def at_path(self, path: str, key: object = None) -> Answer:
        """The count of the node that a path leads to.

        Raises:
            ValueError: there is no such path or key.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy; use --value")

    def named(self, name: str, key: object = None) -> Answer:
        """The count of the node of a path, or of what a value, an interval or a label names; of a
        node that was not published its bounds.

        Raises:
            ValueError: as of `at_path`.
        """
        return self.at_path(name, key)

    def unpublished(self, level: int | None, path: str | None = None) -> list[Answer]:
        """Return what each node of a level has that was not published; nothing if all were. With
        a path it is of nodes below, on the level that `top_below` takes."""
        return []

    def children(self, path: str, key: object = None) -> list[Answer]:
        """The counts of the children of the node that a path leads to.

        Raises:
            ValueError: there is no such path or key, or it leads to a leaf.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy; use --value")

    def top_below(
        self, path: str, count: int, level: int | None, key: object = None
    ) -> list[Answer]:
        """The nodes of a level below the node of a path with the largest counts.

        Args:
            path: of the node.
            count: how many at most.
            level: their level; None: the one right below the path's.
            key: of a tree with keys.

        Raises:
            ValueError: there is no such path, level or key, or the level is above the path's.
        """
        raise ValueError(f"path: tree {self._name} is no hierarchy")

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """The count of several nodes together, with the error of the sum of their estimates.

        Args:
            paths: of the nodes; of an ordered tree its values or intervals of them.
            key: of a tree with keys.

        Raises:
            ValueError: there is no such path or key; rows would count twice, as nodes are the same
                or lie within each other; or the error of a sum is not known for this tree.
        """
        raise ValueError(f"sum: the error of a sum of nodes of tree {self._name} is not known")

    def counts(self, values: Sequence[object], key: object = None) -> list[Answer]:
        """The counts of rows with values, where no list of values is released.

        Raises:
            ValueError: the tree is no sketch, or no such values or key.
        """
        raise self._is_no_sketch("count")

    def top_among(self, values: Sequence[object], count: int, key: object = None) -> list[Answer]:
        """The values with the largest estimates among given ones, where none are listed.

        Raises:
            ValueError: the tree is no sketch, or no such values or key.
        """
        raise self._is_no_sketch("among")

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """The count of rows below a value.

        Raises:
            ValueError: the tree has no order, or no such value or key.
        """
        raise self._has_no_order("cdf")

    def band(self, variances: Floats) -> Floats:
        """Return the margins of points of the CDF that hold at all points at once.

        Args:
            variances: (n,) of the points, in rows^2.

        Raises:
            ValueError: the tree has no order, or no such band is known.
        """
        raise self._has_no_order("cdf")

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """The count of rows in [lower, upper).

        Raises:
            ValueError: the tree has no order, or no such values or key.
        """
        raise self._has_no_order("range")

    def select_column(self, column: str) -> Released:
        """The answers about one of several columns.

        Raises:
            ValueError: the tree has one column, or none of this name.
        """
        raise ValueError(f"column: tree {self._name} has one; leave --column out")

    def statistic(
        self,
        kind: StatisticKind,
        lower: object = None,
        upper: object = None,
        key: object = None,
    ) -> Statistic:
        """Return the mean, the variance, the standard deviation or the total of the values.

        Raises:
            ValueError: the tree has no values that are numbers.
        """
        raise ValueError(
            f"{kind.value}: tree {self._name} has no values that are numbers; a tree over one "
            "column of type integer or number has"
        )

    def box(self, sides: Mapping[str, tuple[object, object]], key: object = None) -> Answer:
        """The count of rows in a box.

        Args:
            sides: of some columns [lower, upper); an empty text leaves a side open.
            key: of a tree with keys.

        Raises:
            ValueError: the tree is of no box, or no such column, values or key.
        """
        raise ValueError(f"box: tree {self._name} is no hypercube, so it has no boxes")

    def sampler(self) -> Sampler:
        """Return the sampler of synthetic rows of the tree.

        Raises:
            ValueError: rows cannot be drawn of this kind of tree, or all its counts are zero.
        """
        raise ValueError(
            f"sample: tree {self._name} is neither a hypercube nor a table, so it gives no rows"
        )

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """The value below which a fraction of the count lies, and its interval.

        Args:
            quantile: a number, or one as it is written.
            key: of a tree with keys.

        Raises:
            ValueError: the tree has no order or no such key, or it is not between 0 and 1.
        """
        raise self._has_no_order("quantile")

    def quantiles_by_key(self, quantiles: Sequence[float | str]) -> list[dict[str, object]]:
        """Return quantiles of all keys, each as `quantile` does.

        Args:
            quantiles: numbers, or as they are written.

        Returns:
            rows: the first key's quantiles as they were requested, then the next key's.

        Raises:
            ValueError: as of `quantile`.
        """
        labels = self.question.labels_between(0, self.question.key_count)
        return [self.quantile(each, label) for label in labels for each in quantiles]

    @property
    def released_quantiles(self) -> tuple[float, ...] | None:
        """Quantiles that can be queried, with margins of their ranks; None: any can be."""
        return None

    @property
    def _name(self) -> str:
        return str(self.question.name)

    def _check_no_key(self, key: object) -> None:
        if key is not None:
            raise ValueError(f"key: tree {self._name} has no keys")

    def _code(self, key: object) -> int:
        """Return the code of a key, 0 where the tree has no keys."""
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        return 0 if keys is None else int(keys.find_code(key))

    def _is_no_sketch(self, query: str) -> ValueError:
        return ValueError(f"{query}: tree {self._name} is no sketch; its nodes have counts: node")

    def _has_no_numbers(self) -> ValueError:
        return ValueError(f"node: in tree {self._name} nodes are found by --path")

    def _has_no_order(self, query: str) -> ValueError:
        return ValueError(f"{query}: tree {self._name} {self.unordered}")


def quantile_number(quantile: float | str) -> float:
    """Return a quantile as a number, which may be written out.

    Raises:
        ValueError: it is none.
    """
    try:
        return float(quantile)
    except ValueError:
        raise ValueError(f"quantile: {quantile!r} is not a number") from None


def named_level(names: Sequence[str], name: str) -> int:
    """The level of a name, or of a number written out.

    Args:
        names: of the levels, root first.
        name: the one that is requested.

    Raises:
        ValueError: there is none.
    """
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    raise ValueError(f"level: {name!r} is none of {', '.join(names)}")


_DIGITS = re.compile(r"([0-9]+)")


def natural_key(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key of names.

    >>> sorted(["b", "a10", "a2", "10", "9", "a"], key=natural_key)
    ['9', '10', 'a', 'a2', 'a10', 'b']
    """
    parts = [part for part in _DIGITS.split(name) if part]
    return tuple(
        (False, int(part), part) if _DIGITS.fullmatch(part) else (True, 0, part) for part in parts
    )


def in_natural_order(answers: Iterable[Answer]) -> list[Answer]:
    """Answers by their labels."""
    return sorted(answers, key=lambda answer: natural_key(answer.label))
