"""Numbers of distinct values of a column, one for each key: counting, noise, plan and answers.

A cell is a number of 64 bits: the code of the row's key, then a hash of the value (7, 7.0 and the
decimal 7 are one value; strings and bytes alike are one). The hash is keyed by the release key,
so nothing in flight tests whether a value is in the data. Each cell counts once, whatever rows
and units have it. Two values with one cell count once, which moves no sensitivity and happens to
about n^2 / 2^(b + 1) of n values under one key with b bits of hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.bounding.unit_ids import has_ids, value_ids
from dptrees.dpcore.choices.key_selection import (
    KeyCounter,
    counted_once,
    merge_shard,
    shard_partials,
)
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.privacy.composition import Spending, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import distinct_sensitivity, noise_law
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.column_questions import ColumnQuestion
from dptrees.dpcore.questions.messages import (
    Drawn,
    Gathered,
    Increments,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.planning import ReleaseTerms, Share, Workload
from dptrees.dpcore.questions.released import (
    NODES,
    NODES_SCHEMA,
    Answer,
    ReadPart,
    Released,
    Total,
    tree_and_key,
)
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.questions.tree_question import budget_entry
from dptrees.dpcore.rows.columns import fixed_width_values, pack, unpack
from dptrees.dpcore.rows.keys import Keys, keys_from_spec
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome, check_column, missing_flags
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, Refusal

_BITS = 64
_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
NEEDED = "strings, numbers, truth values, dates or times"


@dataclass(frozen=True, kw_only=True)
class DistinctDomain(Coded):
    """A column whose different values are counted.

    Args:
        column: its name.
        type: how a CSV file's values are read: "text", "integer" or "number".

    Raises:
        Refusal: no name, or another type.

    >>> cities = DistinctDomain(column="city")
    >>> rows = {"city": pa.array(["Bern", None, "Rome", "Bern"])}
    >>> cells, kept = cities.row_increments(rows, None, KeyedBlocks(bytes(32)))
    >>> len(cells.cells.unique()), kept.tolist()
    (2, [0, 2, 3])
    """

    kind: ClassVar[str] = "distinct"
    written = ("kind", "column", "type")

    column: str
    type: str = "text"

    def __post_init__(self) -> None:
        check_column(self.column)
        if self.type not in _TYPES:
            raise Refusal("type", f"{self.type!r} must be one of {', '.join(_TYPES)}")

    @property
    def cells(self) -> int:
        """1: one number is released for each key."""
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of the column where a file does not give one."""
        return {self.column: _TYPES[self.type]}

    def check_type(self, type: pa.DataType) -> None:
        """Refuse a column whose values cannot be compared.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        if not has_ids(type):
            raise ValueError(
                f"column {self.column!r} has type {type}, but different values are counted of "
                f"{NEEDED}."
            )

    def row_increments(
        self, columns: Mapping[str, pa.Array], keys: Keys | None, blocks: KeyedBlocks
    ) -> RowIncrements:
        """The cell of each row that has a value and a key.

        Args:
            columns: of a batch by name, (rows,) each.
            keys: the listed keys; None: there are none.
            blocks: what values are hashed with.
        """
        ids, missing = value_ids(columns[self.column], blocks)
        cells = ids[:, 0].copy()
        dropped = np.zeros(len(cells), np.bool_) if missing is None else missing
        if keys is not None and (bits := key_bits(keys.size)):
            codes = keys.row_codes(columns)
            cells >>= np.uint64(bits)
            cells |= codes.astype(np.uint64) << np.uint64(_BITS - bits)
            dropped = dropped | (codes < 0)
        elif keys is not None:
            dropped = dropped | (keys.row_codes(columns) < 0)
        if not dropped.any():
            return RowIncrements(Increments(pa.array(cells)))
        kept = np.flatnonzero(~dropped)
        return RowIncrements(Increments(pa.array(cells[kept])), kept)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a value."""
        missing = missing_flags(columns[self.column])
        return [RowOutcome(self.column, MISSING_VALUE, "drop", missing)]


def key_bits(keys: int) -> int:
    """Number of leading bits of a cell that have the code of its key.

    >>> key_bits(1), key_bits(2), key_bits(5)
    (0, 1, 3)
    """
    return (keys - 1).bit_length()


def counts_by_key(cells: Integers, keys: int) -> Integers:
    """Number of different cells under each key, (keys,).

    Args:
        cells: uint64, (n,) all different.
        keys: how many there are.

    >>> cells = np.array([1, 2**63, 2**63 + 5], np.uint64)
    >>> counts_by_key(cells, 2).tolist(), counts_by_key(cells, 1).tolist()
    ([1, 2], [3])
    """
    bits = key_bits(keys)
    if not bits:
        return np.array([len(cells)], np.int64)
    codes = (cells >> np.uint64(_BITS - bits)).astype(np.int64)
    return np.bincount(codes, minlength=keys).astype(np.int64)


def most_values(unit: PrivacyUnit) -> int:
    """The most values of a unit that may count: as many as its bounds of rows and of keys let.

    >>> from dptrees.dpcore.privacy.unit import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
    >>> most_values(person)
    3
    """
    return counted_once(unit).rows


@dataclass(frozen=True, kw_only=True)
class DistinctPlan(Coded):
    """The plan of one number of different values, or of one for each key.

    Args:
        release_unit: what neighbors differ in, with the bounds of the release.
        budget: of all numbers together.
        max_values: m, the most pairs of a key and a value of a unit that count.
        keyed: whether there is a number for each key.

    Raises:
        Refusal: a bound out of range, or a budget whose noise is out of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10)
    >>> plan = DistinctPlan(release_unit=person, max_values=4, keyed=False,
    ...                     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan.law
    DiscreteLaplace(scale=Fraction(4, 1))
    """

    written = ("budget", "max_values", "keyed")

    release_unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    max_values: int
    keyed: bool

    def __post_init__(self) -> None:
        most = most_values(self.release_unit)
        if not 1 <= self.max_values <= most:
            raise Refusal(
                "max_values",
                f"{self.max_values} is not from 1 to {most}, the bounds of the privacy unit",
            )
        try:
            _ = self.law
        except ValueError as error:
            raise Refusal("budget", f"no noise fits it, as the {error}") from None

    @cached_property
    def unit(self) -> PrivacyUnit:
        """The unit with m values, one row of each: those with the smallest keyed hashes of the unit
        and the value, so that each of its values is as likely to count."""
        unit = self.release_unit
        if unit.is_row:
            return unit
        return replace(unit, rows=self.max_values, keys=self.max_values, rows_per_key=1)

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        """The L1 and the squared L2 sensitivity of all numbers together."""
        return distinct_sensitivity(self.release_unit, self.max_values, keyed=self.keyed)

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise of each number."""
        return noise_law(self.budget, *self.sensitivity)

    @property
    def spending(self) -> Spending:
        """Budget that the numbers spend."""
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        moved = moved_of_levels([(self.law, self.sensitivity)])
        return Spending(rho=self.budget.amount, moved=moved)


SHARDS = 32
_CELLS = pa.uint64()


@dataclass(frozen=True, kw_only=True)
class DistinctQuestion(ColumnQuestion):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        plan: how many values of a unit count, and the noise.
        shards: in how many parts the values are handled.
        blocks: what values are hashed with, where rows are read: `with_choices`.

    Raises:
        ValueError: a plan for other keys, or no shard.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = DistinctPlan(release_unit=ADD_REMOVE_ROW, max_values=1, keyed=False,
    ...                     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> cities = DistinctQuestion(name="cities", domain=DistinctDomain(column="city"), plan=plan)
    >>> cities.spending.epsilon, len(cities.places)
    (Fraction(1, 1), 32)
    """

    kind = "distinct"
    written = ("kind", "name", "domain", "keys", "plan", "shards", "confidence", "weight")

    domain: DistinctDomain
    plan: DistinctPlan
    shards: int = SHARDS
    blocks: KeyedBlocks | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards < 1:
            raise ValueError(f"shards: {self.shards} is not at least 1")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def noun(self) -> str:
        """What is counted, in words."""
        return f"different values of {self.domain.column}"

    @property
    def places(self) -> list[Place]:
        """The shards."""
        return [Place(0, shard) for shard in range(self.shards)]

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.blocks is None:
            raise RuntimeError(f"tree {self.name}: rows are read with a release key alone")
        return self.domain.row_increments(columns, self.keys, self.blocks)

    def with_choices(self, choices: KeyedChoices) -> DistinctQuestion:
        return replace(self, blocks=choices.key.blocks("value", choices.release, self.name))

    @property
    def is_keyed(self) -> bool:
        return True

    def cell_keys(self, cells: Integers) -> Integers:
        """Each cell is a key, under which a unit counts once."""
        return cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> KeyCounter:
        return KeyCounter(_CELLS, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return merge_shard(_CELLS, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of cells into partial counts.

        Cells are as `DistinctDomain.row_increments` makes them, with any numbers that identify the
        values in place of hashes.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: tree {self.name} needs counts of nodes")
        return shard_partials(counts, self.shards)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        cells = fixed_width_values(NodeCounts.from_bytes(counts).keys)
        return Drawn(sent=pack(counts_by_key(cells, self.key_count)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The noisy number of each key."""
        exact = np.zeros(self.key_count, np.int64)
        for counts in sent.values():
            exact += unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        noisy = add_noise(self.plan.law, exact, stream)
        (part,) = self.parts()
        return Gathered({}, [ReleasedPart(part, self._table(noisy))])

    def _table(self, noisy: Integers) -> pa.Table:
        """The rows of the table of nodes, one for each key."""
        keys = len(noisy)
        within = self.plan.law.bound(1 - self.confidence)
        low = np.maximum(noisy - within, 0).astype(np.float64)
        high = np.maximum(noisy + within, 0).astype(np.float64)
        return pa.Table.from_arrays(
            [
                *tree_and_key(self, 0, keys, 1),
                pa.array(np.zeros(keys, np.int32)),
                pa.array(np.zeros(keys, np.int64)),
                pa.array([""] * keys, pa.string()),
                pa.array(noisy.astype(np.float64)),
                pa.array(np.full(keys, np.sqrt(self.plan.law.variance))),
                pa.array(low),
                pa.array(high),
                pa.array(np.maximum(noisy, 0)),
            ],
            schema=NODES_SCHEMA,
        )

    def entry(self) -> dict[str, object]:
        """The bound, the noise and the policies."""
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": "count of different values",
            "max_values": self.plan.max_values,
            "sensitivity": {"L1": self.plan.sensitivity[0], "L2_squared": self.plan.sensitivity[1]},
            "noise": exact_scale(self.plan.law),
            "policies": self.policies(missing="drop"),
        }


def distinct_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> DistinctQuestion:
    """The question of a specification, as `DistinctQuestion.spec` writes it."""
    return DistinctQuestion.from_spec(
        spec, keys=keys_from_spec(spec["keys"]), release_unit=unit, measure=measure
    )


@dataclass(frozen=True, kw_only=True)
class DistinctWorkload(Workload[DistinctQuestion]):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        max_values: the most values of a unit that count; more than its bounds let count as these.
            None: as many as these let, and one where the units themselves are counted.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> cities = DistinctWorkload(name="cities", domain=DistinctDomain(column="city"))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan = cities.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW))
    >>> round(cities.predicted(plan), 3)  # standard deviation, in different values
    1.357
    """

    domain: DistinctDomain
    max_values: int | None = None

    @property
    def error_unit(self) -> str:
        return "different values"

    def planned(self, share: Share, terms: ReleaseTerms) -> DistinctQuestion:
        most = most_values(terms.unit)
        counts_units = self.keys is None and terms.unit.columns == (self.domain.column,)
        wanted = (1 if counts_units else most) if self.max_values is None else self.max_values
        plan = DistinctPlan(
            release_unit=terms.unit,
            budget=share.budget,
            max_values=min(wanted, most),
            keyed=self.keys is not None,
        )
        return DistinctQuestion(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            plan=plan,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def predicted(self, question: DistinctQuestion) -> float:
        """The standard deviation of the noise of each number."""
        return math.sqrt(question.plan.law.variance)


_NAMES = ("label", "estimate", "std_error", "ci_low", "ci_high", "count")


class ReleasedDistinct(Released):
    """The numbers of different values of one tree.

    Args:
        question: the tree.
        read: gives the rows of its one part.
    """

    unordered = "has numbers of different values alone, which have no order"
    question: DistinctQuestion

    def __init__(self, question: DistinctQuestion, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return 0

    @property
    def rows(self) -> pa.Table:
        """The table of nodes, a row for each key."""
        return self._read(NODES, self.question.name, 0, 0)

    def rows_in_all(self) -> Total | None:
        """Rows are not counted."""
        return None

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The number of a key, the only node.

        Raises:
            ValueError: there is no such level or key.
        """
        if level != 0:
            raise ValueError(f"level: {level} is not 0; tree {self._name} has one number for a key")
        return [self.at_path("", key)][:count]

    def at_path(self, path: str, key: object = None) -> Answer:
        """The number of different values under a key.

        Raises:
            ValueError: a path, or no such key.
        """
        if path:
            raise ValueError(f"path: tree {self._name} has one number for a key; use --path ''")
        return self._answer(self.rows, self._code(key))

    def node(self, level: int, node: int, key: object = None) -> Answer:
        if (level, node) != (0, 0):
            raise ValueError(f"node: tree {self._name} has node 0 of level 0 alone")
        return self._answer(self.rows, self._code(key))

    def _code(self, key: object) -> int:
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        return 0 if keys is None else keys.find_code(key)

    @staticmethod
    def _answer(rows: pa.Table, code: int) -> Answer:
        row: dict[str, Any] = rows.slice(code, 1).to_pylist()[0]
        return Answer(**{name: row[name] for name in _NAMES}, fraction=None)
