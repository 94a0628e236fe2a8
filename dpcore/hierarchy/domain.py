"""The domain of a hierarchy: the leaf of a public universe that each row belongs to.

A row's leaf depends on that row alone, so the policies for rows without a leaf leave the
sensitivity as it is. Values become codes: positions on a list of labels, numbers of digits, or
leaves of a calendar. A leaf is looked up by one integer, made of its levels' codes by mixed
radix; where that would pass 2^62, levels are looked up in several runs, each from the node found
before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.calendar import CalendarLeaves
from dptrees.dpcore.hierarchy.universe import OTHER, Universe
from dptrees.dpcore.rows.columns import (
    as_int64,
    fixed_width_values,
    is_text,
    is_utc,
    large_texts,
    map_chunks,
    missing_rows,
    value_type,
)
from dptrees.dpcore.rows.numbers import ABSENT, is_number, read_numbers, whole_numbers
from dptrees.dpcore.rows.policies import (
    DROPPED,
    MAP_VERSION,
    RowOutcome,
    check_column,
    check_policy,
)
from dptrees.dpcore.rows.policies import MISSING_VALUE as MISSING_ROWS
from dptrees.dpcore.rows.value_lists import IntegerIndex, TextIndex
from dptrees.dpcore.specification import Coded, coded

MISSING = -2
_PATHS_AT_ONCE = 2**20
_PARTS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class ColumnReader(ABC):
    """Reader that maps the values of one column to codes.

    Attributes:
        value_type: the type in which a file without types is read.
        needed: what a message needs.
    """

    value_type: pa.DataType
    needed: str

    @abstractmethod
    def accepts(self, type: pa.DataType) -> bool:
        """Whether columns of plain values of this type can be read."""

    @abstractmethod
    def positions(self, column: pa.Array) -> Integers:
        """The code of each value of a plain column, (rows,); -1 where unknown, any where null or
        NaN."""

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Integers:
        """The code of every row.

        Args:
            column: (rows,), of a type that is accepted; plain or dictionary-encoded, or all null.

        Returns:
            int64, (rows,), writable: -1 where unknown, -2 (`MISSING`) where null or NaN.
        """
        return map_chunks(column, self._codes, MISSING)

    def _codes(self, column: pa.Array) -> Integers:
        result = self.positions(column)
        missing = missing_rows(column)
        if missing is not None:
            result[missing] = MISSING
        return result


def column_readers(universe: Universe) -> tuple[ColumnReader, ...]:
    """The readers of the columns of a universe's leaves.

    Args:
        universe: the leaves, without the leaf "other".

    Returns:
        One a level for a universe of columns, whose codes are the codes of the level's labels. Else
        one in all: its codes are the numbers that codes of digits write, or else ids of leaves.

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_paths
    >>> (reader,) = column_readers(universe_from_paths(pa.array(["c", "a/b"]), "/"))
    >>> reader.codes(pa.array(["c", "a", None, "a/b"])).tolist()
    [1, -1, -2, 0]
    """
    if universe.form == "columns":
        return tuple(_listed(labels.values) for labels in universe.level_labels)
    if universe.form == "digits":
        width = sum(len(labels.picture) for labels in universe.level_labels)
        return (_CodeReader(width),)
    if universe.form == "calendar":
        return (_CalendarReader(universe),)
    if universe.form == "path":
        return (_TextReader(_leaf_paths(universe), numbers=False),)
    return (_listed(_leaf_names(universe)),)


class _IntegerReader(ColumnReader):
    value_type = pa.int64()
    needed = "a column of integers, or of floating-point numbers or decimals that are integers"

    def __init__(self, values: pa.Array) -> None:
        self._index = IntegerIndex(fixed_width_values(values))

    def accepts(self, type: pa.DataType) -> bool:
        return is_number(type)

    def positions(self, column: pa.Array) -> Integers:
        return self._index.codes(column)


class _TextReader(ColumnReader):
    """Listed strings; numbers too where every string is an integer without leading zeros."""

    value_type = pa.string()

    def __init__(self, values: pa.Array, *, numbers: bool) -> None:
        self._values, self._numbers = values, numbers
        self._index = TextIndex(values)

    @cached_property
    def _integers(self) -> IntegerIndex | None:
        canonical = pc.match_substring_regex(self._values, r"^(0|-?[1-9][0-9]{0,17})$")
        if not self._numbers or not pc.all(canonical).as_py():
            return None
        return IntegerIndex(fixed_width_values(self._values.cast(pa.int64())))

    @property
    def needed(self) -> str:  # type: ignore[override]
        return "a column of texts" + (" or integers" if self._integers else "")

    def accepts(self, type: pa.DataType) -> bool:
        return is_text(type) or (is_number(type) and self._integers is not None)

    def positions(self, column: pa.Array) -> Integers:
        if is_text(column.type):
            return self._index.positions(large_texts(column))
        assert self._integers is not None
        return self._integers.codes(column)


class _CodeReader(ColumnReader):
    """Codes of one width as the numbers that they write."""

    value_type = pa.string()
    needed = "a column of texts or integers"

    def __init__(self, width: int) -> None:
        self._width = width

    def accepts(self, type: pa.DataType) -> bool:
        return (is_text(type) or is_number(type)) and not pa.types.is_boolean(type)

    def positions(self, column: pa.Array) -> Integers:
        if is_text(column.type):
            return read_numbers(large_texts(column), "0" * self._width)
        values, is_none = whole_numbers(column)
        numbers = as_int64(values)
        known = (numbers >= 0) & (numbers < 10**self._width)
        if is_none is not None:
            known &= ~is_none
        return np.where(known, numbers, ABSENT)


class _CalendarReader(ColumnReader):
    """Dates and times as the leaves of a calendar."""

    def __init__(self, universe: Universe) -> None:
        self._utc, self._leaves = universe.utc, CalendarLeaves(universe)
        self.value_type = pa.timestamp("us", tz="UTC" if self._utc else None)
        if self._leaves.is_recurring:
            self.needed = "a column of dates, or of timestamps without a time zone or in UTC"
        elif self._utc:
            self.needed = "a column of timestamps with a time zone, as its bounds have one"
        else:
            self.needed = (
                "a column of dates, or of timestamps without a time zone, as its bounds have none"
            )

    def accepts(self, type: pa.DataType) -> bool:
        if pa.types.is_timestamp(type):
            if self._leaves.is_recurring:  # no bounds show that days are UTC days
                return type.tz is None or is_utc(type.tz)
            return bool((type.tz is not None) == self._utc)
        return bool(pa.types.is_date(type)) and not self._utc

    def positions(self, column: pa.Array) -> Integers:
        return self._leaves.find_leaves(self._steps(column))

    def _steps(self, column: pa.Array) -> Integers:
        """Hours or days since 1970-01-01."""
        values, seconds = fixed_width_values(column), 3600 if self._leaves.hourly else 86_400
        if pa.types.is_date32(column.type):
            return values.astype(np.int64) * (86_400 // seconds)
        unit = "ms" if pa.types.is_date64(column.type) else column.type.unit
        return values // (seconds * _PARTS[unit])


def _listed(values: pa.Array) -> ColumnReader:
    if pa.types.is_integer(values.type):
        return _IntegerReader(values)
    return _TextReader(values, numbers=True)


def _leaf_paths(universe: Universe) -> pa.Array:
    blocks = []
    for start in range(0, universe.leaves, _PATHS_AT_ONCE):
        leaves = np.arange(start, min(start + _PATHS_AT_ONCE, universe.leaves))
        blocks.append(universe.paths(universe.height, leaves).cast(pa.large_string()))
    return pa.concat_arrays(blocks)


def _leaf_names(universe: Universe) -> pa.Array:
    """The label of each leaf, on whatever level it is."""
    nodes, names = np.arange(universe.leaves), None
    for level in range(universe.height, 0, -1):
        labels = universe.level_labels[level - 1]
        codes = labels.codes.take(nodes).astype(np.int64)
        own = labels.values.take(pa.array(codes, mask=codes < 0))  # type: ignore[union-attr]
        names = own if names is None else pc.coalesce(names, own)
        if names.null_count == 0:
            break
        nodes = universe.parents(level, nodes)
    return names


POLICIES = ("drop", "other")
_KEY_LIMIT = 2**62


@dataclass(frozen=True, kw_only=True)
class HierarchyDomain(Coded):
    """The leaves of a public universe, found for each row in its columns.

    What is looked up is made on first use and not pickled.

    Attributes:
        universe: the public leaves, without the leaf "other".
        columns: what is read: a column a level for a universe of columns, else one column: of
            codes, paths, timestamps, or names of leaves.
        unknown: what happens to a row whose leaf is not in the universe: "drop", or "other", one
            more leaf at the end, directly below the root.
        missing: what happens to a row with a null in one of the columns: the same choices.

    Raises:
        ValueError: naming the field and the rule.

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_codes
    >>> universe = universe_from_codes(pa.array(["0101", "0203"]), (2, 2))
    >>> places = HierarchyDomain(universe=universe, columns=("place",), unknown="other")
    >>> places.leaf_ids({"place": pa.array(["0203", "0204", None, "0101"])}).tolist()
    [1, 2, -1, 0]
    >>> places.tree.paths(2, np.arange(3)).to_pylist()
    ['0101', '0203', 'other']
    """

    written = (
        *("kind", "map_version", "form", "columns"),
        *("levels", "universe", "unknown", "missing"),
    )
    kind: ClassVar[str] = "hierarchy"
    map_version: ClassVar[int] = MAP_VERSION
    universe: Universe = field(metadata=coded(write=lambda domain: domain.universe.digest))
    columns: tuple[str, ...]
    unknown: str = "drop"
    missing: str = "drop"

    def __post_init__(self) -> None:
        for name in self.columns:
            check_column(name)
        needed = self.universe.height if self.universe.form == "columns" else 1
        if len(self.columns) != needed or len(set(self.columns)) < needed:
            raise ValueError(
                f"columns {self.columns!r} must be {needed} different names for this universe."
            )
        for name in ("unknown", "missing"):
            check_policy(", ".join(self.columns), name, getattr(self, name), POLICIES)
        if self.universe.has_other:
            raise ValueError(f"universe must not have the leaf {OTHER!r}: a policy adds it.")
        if OTHER in (self.unknown, self.missing):
            _ = self.tree  # refuses a universe that has this label

    def __getstate__(self) -> dict[str, object]:
        return {each.name: self.__dict__[each.name] for each in fields(self)}

    @property
    def form(self) -> str:
        """The form in which the universe lists its leaves."""
        return self.universe.form

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels below the root."""
        return self.universe.levels

    @cached_property
    def tree(self) -> Universe:
        """The tree whose leaves `leaf_ids` gives: the universe, and the leaf "other" where a policy
        sends rows to it."""
        return self.universe.extended if OTHER in (self.unknown, self.missing) else self.universe

    @property
    def cells(self) -> int:
        """The number of leaves of the tree."""
        return self.tree.leaves

    @property
    def drops_rows(self) -> bool:
        """Whether a policy can drop a row, so that N cannot be public."""
        return "drop" in (self.unknown, self.missing)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of each column where a file does not give one, as CSV does not."""
        readers = zip(self.columns, self._readers, strict=True)
        return {name: reader.value_type for name, reader in readers}

    def check_column_type(self, column: str, type: pa.DataType) -> None:
        """Refuse a column type that the leaves cannot be read from.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        reader = self._readers[self.columns.index(column)]
        plain = value_type(type)
        if not (pa.types.is_null(plain) or reader.accepts(plain)):
            raise ValueError(
                f"column {column!r} has type {type}, but this hierarchy needs {reader.needed}."
            )

    def leaf_ids(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> Integers:
        """The leaf of every row.

        Args:
            columns: by name, (rows,) each, of types that `check_column_type` accepts; plain or
                dictionary-encoded.

        Returns:
            int64 ids of the leaves of `tree`, (rows,); -1 for a row that a policy drops.

        Raises:
            ValueError: a column's type cannot be used.
        """
        codes = []
        for name, reader in zip(self.columns, self._readers, strict=True):
            self.check_column_type(name, columns[name].type)
            codes.append(reader.codes(columns[name]))
        return self._apply_policies(self._find_leaves(codes), self.tree.leaves - 1)

    def _apply_policies(self, found: Integers, other: int) -> Integers:
        """The leaf of each row; where a row has none, the leaf or the drop that the policies
        assign."""
        lost = np.flatnonzero(found < 0)
        if len(lost):
            replacements = [
                other if policy == OTHER else DROPPED for policy in (self.unknown, self.missing)
            ]
            found[lost] = np.where(found[lost] == MISSING, replacements[1], replacements[0])
        return found

    @property
    def radix(self) -> int:
        """Largest number of children of a parent of leaves, in a universe of digits."""
        return self.universe.level_labels[-1].radix

    def slots(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> Integers:
        """Slot of every row's leaf if each parent had `radix` children.

        Only a row whose parent is not in the universe is seen to be unknown.

        Args:
            columns: as of `leaf_ids`; of a universe of digits.

        Returns:
            int64 parent * radix + number, (rows,); -1 for a row that a policy drops.

        Raises:
            ValueError: a column's type cannot be used.

        >>> from dptrees.dpcore.hierarchy.leaves import universe_from_codes
        >>> universe = universe_from_codes(pa.array(["0101", "0203"]), (2, 2))
        >>> places = HierarchyDomain(universe=universe, columns=("place",), unknown="other")
        >>> places.slots({"place": pa.array(["0203", "0204", None, "0301"])}).tolist()
        [103, 104, -1, 200]
        """
        (name,), (reader,) = self.columns, self._readers
        self.check_column_type(name, columns[name].type)
        codes = reader.codes(columns[name])
        upper, number = np.divmod(codes, self.radix)
        parents = _parent_index(self.universe).positions(upper)
        found = np.where(parents < 0, ABSENT, parents * self.radix + number)
        found = np.where(codes < 0, codes, found)
        return self._apply_policies(found, (self.tree.level_sizes[-2] - 1) * self.radix)

    def row_outcomes(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[RowOutcome]:
        """Rows without a leaf, by cause."""
        codes = [
            reader.codes(columns[name])
            for name, reader in zip(self.columns, self._readers, strict=True)
        ]
        named = zip(self.columns, codes, strict=True)
        outcomes = [
            RowOutcome(name, MISSING_ROWS, self.missing, each == MISSING) for name, each in named
        ]
        unknown = self._find_leaves(codes) == ABSENT
        return [*outcomes, RowOutcome(", ".join(self.columns), "unknown", self.unknown, unknown)]

    def _find_leaves(self, codes: list[Integers]) -> Integers:
        """The leaves of rows by their codes, (rows,): -1 unknown, -2 missing."""
        if self.universe.form not in ("columns", "digits"):
            return codes[0]
        nodes: Integers = np.zeros(len(codes[0]), np.int64)
        for levels, index in _leaf_indices(self.universe):
            for level in levels:
                nodes = nodes * self._radix(level) + codes[level - 1]
            nodes = index.positions(nodes)
        worst = codes[0] if len(codes) == 1 else np.minimum.reduce(codes)
        return np.where(worst < 0, worst, nodes)

    def _radix(self, level: int) -> int:
        # A code of digits comes as one number, whatever its levels are.
        return 1 if self.universe.form == "digits" else self.universe.level_labels[level - 1].radix

    @cached_property
    def _readers(self) -> tuple[ColumnReader, ...]:
        return column_readers(self.universe)


def hierarchy_domain_from_spec(spec: Mapping[str, object], universe: Universe) -> HierarchyDomain:
    """The domain of a specification, as a manifest holds it, over its universe.

    Raises:
        ValueError: another version made the specification, or the universe is another one.
    """
    if spec["universe"] != universe.digest:
        raise ValueError("universe is not the one that the specification names.")
    return HierarchyDomain.from_spec(spec, universe=universe)


@lru_cache(maxsize=4)
def _leaf_indices(universe: Universe) -> list[tuple[list[int], IntegerIndex]]:
    """Runs of levels whose codes make one integer, and where these integers are; made once in a
    process, whatever holds the domain."""
    if universe.form == "digits":
        return [([1], IntegerIndex(_node_keys(universe, 1, universe.height)))]
    runs, first, span = [], 1, 1
    for level in range(1, universe.height + 1):
        radix = universe.level_labels[level - 1].radix
        if level > first and span * radix > _KEY_LIMIT:
            runs.append((first, level - 1))
            first, span = level, universe.level_sizes[level - 1]
        span *= radix
    runs.append((first, universe.height))
    return [
        (list(range(start, end + 1)), IntegerIndex(_node_keys(universe, start, end)))
        for start, end in runs
    ]


@lru_cache(maxsize=4)
def _parent_index(universe: Universe) -> IntegerIndex:
    """Index of the codes of the parents of leaves, in a universe of digits."""
    return IntegerIndex(_node_keys(universe, 1, universe.height - 1))


def _node_keys(universe: Universe, first: int, last: int) -> Integers:
    """One integer for each node of level `last`, (nodes,): its ancestor on the level above `first`
    and the codes since, by mixed radix."""
    keys: Integers = np.arange(universe.level_sizes[first - 1])
    for level in range(first, last + 1):
        labels = universe.level_labels[level - 1]
        keys = np.repeat(keys, np.diff(universe.child_starts[level - 1])) * labels.radix
        keys += labels.codes[:]
    return keys
