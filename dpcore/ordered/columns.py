"""Several ordered columns, with one cell of each for a row: their domain, tree and answers.

Boxes and wide tables are counted from the same columns, drop the same rows and answer the same
queries about boxes, columns, CDFs and quantiles. How rows are counted, and what is known inside a
box, is their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import Answer, Released, quantile_number
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome
from dptrees.dpcore.specification import Coded, Refusal, coded

# The most synthetic rows that are drawn at once.
BATCH_ROWS = 2**18
# The cells [start, stop) of some columns, by their places.
Sides = Mapping[int, tuple[int, int]]
# A side that is left open.
_OPEN = ("", None)


@dataclass(frozen=True, kw_only=True)
class ColumnsDomain(Coded):
    """Several columns, with one cell of each for a row.

    Args:
        axes: (d,) the domain of each column; no column twice.

    Raises:
        Refusal: naming the field and the rule.
    """

    axes: tuple[OrderedDomain, ...] = field(
        metadata=coded(name="columns", read=lambda columns: tuple(map(make_domain, columns)))
    )

    def __post_init__(self) -> None:
        twice = {name for name in self.columns if self.columns.count(name) > 1}
        if twice:
            raise Refusal("columns", f"{min(twice)!r} is there twice")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(axis.column for axis in self.axes)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """(d,) how many cells of a column's domain are counted as one."""
        return (1,) * len(self.axes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """(d,) the cells of each column that are counted."""
        cells = zip(self.axes, self.widths, strict=True)
        return tuple(
            -(-axis.cells // width) + self.has_missing(place)
            for place, (axis, width) in enumerate(cells)
        )

    def has_missing(self, place: int) -> bool:
        """Whether the last counted cell of a column is of its missing values."""
        return False

    def present(self, place: int) -> int:
        """Number of the counted cells of a column that are of values."""
        return self.sizes[place] - self.has_missing(place)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """Type of each column where a file does not state it."""
        return {name: type for axis in self.axes for name, type in axis.value_types.items()}

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row."""
        return any(axis.drops_rows for axis in self.axes)

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of types that cannot be read.

        Raises:
            ValueError: naming the column.
        """
        for axis in self.axes:
            axis.check_type(types[axis.column])

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a cell of their own in a column, by cause."""
        return [outcome for axis in self.axes for outcome in axis.row_outcomes(columns)]

    def kept_cells(self, columns: Mapping[str, pa.Array]) -> tuple[list[Integers], Flags | None]:
        """The cells of the rows that every policy keeps.

        Args:
            columns: by name, (rows,) each.

        Returns:
            of each column (kept,) cells of its domain, in the order of the rows; and which rows are
            kept, (rows,); None: all are.

        Raises:
            ValueError: a column's type cannot be used.
        """
        cells = [self._cells(place, columns[name]) for place, name in enumerate(self.columns)]
        if not self.drops_rows:
            return cells, None
        kept = np.logical_and.reduce([each >= 0 for each in cells])
        return (cells, None) if kept.all() else ([each[kept] for each in cells], kept)

    def _cells(self, place: int, column: pa.Array) -> Integers:
        """(rows,) the cell of each row in a column's domain, below 0 if a policy drops the row."""
        return self.axes[place].cell_ids(column)

    def find_column(self, column: str) -> int:
        """The place of a column.

        Raises:
            ValueError: there is none of this name.
        """
        if column not in self.columns:
            raise ValueError(f"column: {column!r} is none of {', '.join(self.columns)}")
        return self.columns.index(column)

    @property
    def policies(self) -> dict[str, dict[str, object]]:
        """The policies of each column for values without a cell, by its name."""
        names = ("outside", "missing", "unknown")
        specs = ((axis.column, axis.spec()) for axis in self.axes)
        return {
            column: {name: spec[name] for name in names if name in spec} for column, spec in specs
        }


@dataclass(frozen=True, kw_only=True)
class ColumnsQuestion(Question):
    """The counts of several columns together.

    Args:
        domain: the columns.
        plan: how counts are measured.

    Raises:
        ValueError: keys.
    """

    written = ("name", "domain", "plan", "confidence", "weight")
    output_only = ("confidence", "weight")

    domain: ColumnsDomain
    plan: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError(f"keys: a {self.kind} has none; make the key one of its columns")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.domain.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_types(types)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        return self.domain.row_outcomes(columns)

    @property
    def unit(self) -> PrivacyUnit:
        unit: PrivacyUnit = self.plan.unit
        return unit

    @property
    def spending(self) -> Spending:
        spending: Spending = self.plan.spending
        return spending


@dataclass(frozen=True, kw_only=True)
class RowSampler:
    """Sampler of rows of several columns; a `dpcore.questions.released.Sampler`.

    Args:
        name: of the tree.
        domain: the columns.
        total: the released number of rows.
        drawn: gives so many rows, some at a time, from uniform bits: of each column its values.

    Raises:
        ValueError: there are no rows, so that there is nothing to draw from.
    """

    name: str
    domain: ColumnsDomain
    total: int
    drawn: Callable[[int, RandomStream], Iterator[list[pa.Array]]]

    def __post_init__(self) -> None:
        if self.total == 0:
            raise ValueError(f"tree {self.name}: all its counts are zero, so no row can be drawn")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the domain, in its order, with its types."""
        return pa.schema([(axis.column, axis.row_type) for axis in self.domain.axes])

    def batches(self, rows: int, stream: RandomStream) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time.

        Args:
            rows: n, at least 0.
            stream: of uniform bits.
        """
        for columns in self.drawn(rows, stream):
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


class ReleasedColumns(Released):
    """The answers about several columns.

    Args:
        question: the tree.
        read: gives the rows of a part; each level is one.
        confidence: of the intervals, by default the release's.
    """

    draws_rows = True
    # Whether the order of a list of categories is one of values: for sides, CDF and quantiles.
    orders_categories: ClassVar[bool] = True
    # How messages call what is released.
    form: ClassVar[str]

    @property
    @abstractmethod
    def total(self) -> int:
        """The consistent count of all rows."""

    @abstractmethod
    def count(self, sides: Sides) -> Answer:
        """The count of the rows in a box of cells; columns that are not named have all cells."""

    @abstractmethod
    def below(self, place: int) -> tuple[Integers, Floats]:
        """The consistent counts along one column: (m,) rising boundaries of cells of its domain,
        from 0 to K, and (m,) the rows below each."""

    @abstractmethod
    def _rows(self, level: int) -> pa.Table:
        """The released rows of a level."""

    @abstractmethod
    def _answer(self, row: Mapping[str, Any]) -> Answer:
        """The answer of a released row."""

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The released rows of a level with the largest counts."""
        self._check_no_key(key)
        rows = self._rows(level)
        order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:count]
        return [self._answer(row) for row in rows.take(pa.array(order)).to_pylist()]

    def sampler(self) -> RowSampler:
        domain = self.question.domain
        return RowSampler(name=self._name, domain=domain, total=self.total, drawn=self._drawn)

    @abstractmethod
    def _drawn(self, rows: int, stream: RandomStream) -> Iterator[list[pa.Array]]:
        """Yield synthetic rows, some at a time: of each column its values."""

    def _labelled(self, label: str, words: str, count: int, **known: Any) -> Answer:
        """Make an answer, with its label for people where that is another."""
        fraction = count / self.total if self.total else None
        in_words = None if words == label else words
        return Answer(label=label, count=count, fraction=fraction, in_words=in_words, **known)

    def box(self, sides: Mapping[str, tuple[object, object]], key: object = None) -> Answer:
        """The count of the rows in a box, rounded down to edges of cells; see `count`."""
        self._check_no_key(key)
        found = {self.question.domain.find_column(name): ends for name, ends in sides.items()}
        answer = self.count({place: self._cells(place, *ends) for place, ends in found.items()})
        if all(self._is_edge(place, end) for place, ends in found.items() for end in ends):
            return answer
        named = [self._side(name, *ends) for name, ends in sides.items()]
        return replace(answer, asked=", ".join(named))

    def _side(self, name: str, lower: object, upper: object) -> str:
        if lower == upper and not self.orders_categories:
            return f"{name} {lower}"
        return f"{name} [{lower or '...'}, {upper or '...'})"

    def _cells(self, place: int, lower: object, upper: object) -> tuple[int, int]:
        """The counted cells between two values of a column."""
        axis = self.question.domain.axes[place]
        present = self.question.domain.present(place)
        if lower == upper and self._is_missing(place, lower):
            return present, present + 1
        is_one = lower == upper and lower not in _OPEN and not axis.has_intervals
        if is_one and not self.orders_categories:
            cell = axis.find_cell(lower)
            return cell, cell + 1
        start = 0 if lower in _OPEN else self._boundary(place, lower)
        stop = present if upper in _OPEN else self._boundary(place, upper)
        if start > stop:
            raise ValueError(f"box: {lower} is above {upper}")
        return start, stop

    def _boundary(self, place: int, value: object) -> int:
        """The number of counted cells that lie wholly below a value."""
        domain = self.question.domain
        below = int(domain.axes[place].find_boundary(value))
        if below == domain.axes[place].cells:
            return int(domain.present(place))
        return int(below // domain.widths[place])

    def _is_missing(self, place: int, value: object) -> bool:
        """Whether a literal represents the missing values of a column, which have a cell."""
        return value == MISSING_VALUE and bool(self.question.domain.has_missing(place))

    def _is_edge(self, place: int, value: object) -> bool:
        """Whether a value is an edge of a counted cell, or open."""
        if value in _OPEN or self._is_missing(place, value):
            return True
        domain = self.question.domain
        axis, width = domain.axes[place], domain.widths[place]
        below = axis.find_boundary(value)
        return bool(axis.is_edge(value) and (below % width == 0 or below == axis.cells))


class ReleasedColumn(Released):
    """The answers about one of several columns: its CDF, ranges and quantiles.

    Args:
        whole: all columns.
        place: of the column.
    """

    def __init__(self, whole: ReleasedColumns, place: int) -> None:
        self.question, self._whole, self._place = whole.question, whole, place

    @property
    def height(self) -> int:
        return self._whole.height

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError("column: the nodes of the tree are of all its columns")

    @property
    def axis(self) -> OrderedDomain:
        """The domain of the column."""
        result: OrderedDomain = self.question.domain.axes[self._place]
        return result

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return a point of the CDF of the column, as `Released.cdf` does; see
        `ReleasedColumns.box`."""
        self._check_order("cdf")
        if simultaneous:
            raise ValueError(f"cdf: a {self._whole.form} has no simultaneous band")
        return self._whole.box({self.axis.column: ("", value)}, key)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the count of a range of the column, as `Released.range` does; see
        `ReleasedColumns.box`."""
        self._check_order("range")
        return self._whole.box({self.axis.column: (lower, upper)}, key)

    def _check_order(self, query: str) -> None:
        if not (self._whole.orders_categories or self.axis.is_ordered):
            raise ValueError(
                f"{query}: the categories of {self.axis.column} have no order; query a box"
            )

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """The value below which a fraction of the consistent count lies, rows being spread evenly
        where nothing else is known; and its interval, where it has one."""
        self._check_no_key(key)
        self._check_order("quantile")
        fraction = quantile_number(quantile)
        if not 0 <= fraction <= 1:
            raise ValueError(f"quantile: {fraction} is not between 0 and 1")
        edges, rows = self._whole.below(self._place)
        found = dict.fromkeys(("value", "ci_low", "ci_high"))
        if rows[-1] > 0:
            at = float(interpolated(fraction * rows[-1], rows, edges))
            ends = self._quantile_ends(fraction, edges)
            found = dict(zip(found, (self._value(at), *ends), strict=True))
        numbers = {
            name: each if isinstance(each, (int, float)) else None for name, each in found.items()
        }
        texts = {
            f"{name}_text": None if each is None else str(each) for name, each in found.items()
        }
        return self.axis.quantiles_in_words([{"q": fraction} | numbers | texts])[0]

    def _quantile_ends(self, fraction: float, edges: Integers) -> Sequence[Any]:
        """The values at both ends of the interval of a quantile; None: it is not known.

        Args:
            fraction: of the rows.
            edges: (m,) the boundaries of cells that `ReleasedColumns.below` gives.
        """
        return None, None

    def _value_below(self, first: int) -> Any:
        """The largest value below a boundary of cells: it is in the cell before."""
        return self.axis.value_at(np.array([first - 1]), np.array([1.0]))[0].as_py()

    def _value(self, at: float) -> Any:
        """The value at a place among the cells, from 0 to K."""
        cell = min(int(at), self.axis.cells - 1)
        share = min(max(at - cell, 0.0), 1.0)
        return self.axis.value_at(np.array([cell]), np.array([share]))[0].as_py()


def uniform(stream: RandomStream, size: int) -> Floats:
    """(size,) multiples of 2^-53 in [0, 1)."""
    result: Floats = (stream.uint64(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result
