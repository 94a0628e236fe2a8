"""Choice of the rows of each unit that a tree counts: the smallest keyed hashes.

    increments, ids of units -> runs by shard, as bytes -> all runs of a shard -> retained rows

Of each unit's rows in a tree there stay

1. its rows under the m keys with the smallest hash of (tree, unit, key), where the tree has keys;
2. under each key, the r rows with the smallest hash of (tree, unit, cell, occurrence);
3. of all these, the c rows with the smallest such hash.

The occurrence of a row is its rank among the unit's rows of that cell, by value. Rows alike in
cell and value are interchangeable, so the choice is a function of the *multiset* of (cell, value)
of the unit's rows and of the key: of no file, batch, bundle, shard or engine. Hashes are CBC-MAC
of AES-256 over (unit, cell, occurrence), so the retained rows are a fair sample of the unit's
rows.

*Why the counts of a level move by no more than `PrivacyUnit.moved`.* The retained rows K(U) are a
function of the unit's rows U alone. Without policies that look at other rows, a tree's counts are
the sum over units of the counts of K(U). A unit that is added or removed changes them by the
counts of its K(U): at most c rows, at most r under a key and under at most m keys; a unit that is
substituted by at most twice as much. None of this rests on the hash; the key only ensures that
nobody who lacks it can choose rows so that certain rows are retained.

*Series.* A unit is counted in its first p periods in which it has rows, and in no later one. That
is a function of its own earlier periods, of no other unit and of no released number, so it moves
the counts of at most p periods; if it depended on other units, one unit more could move theirs
too. The state holds an id of 16 bytes under the release key and a number for each unit, padded
with zeros to one size for all shards of a tree (`NoiseSource.padded_size`): 64 shards padded one
by one would add up to a precise number of units.

Source: the design, section 4; the sensitivity is
`dpcore.privacy.sensitivity.periods_sensitivity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.bounding.runs import (
    Form,
    RowArrays,
    UnitRuns,
    Words,
    distinct_units,
    joined_labels,
    merged,
    shard_numbers,
)
from dptrees.dpcore.bounding.unit_ids import Blocks, Units, value_ids
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, counts_digest
from dptrees.dpcore.questions.messages import Increments, RowIncrements
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.rows.columns import fixed_width_values, narrowed

# Occurrences that are hashed and sorted at a time: their arrays stay near the processor.
_SLICE = 2**16
_MOST_PACKED = 2**16
_HASH_BITS = np.uint64(48)


@dataclass(frozen=True, kw_only=True)
class RowBounds:
    """Bounds on the number of rows of a unit that a tree counts.

    Args:
        rows: c, over all keys.
        keys: m, the most keys; None: any number.
        rows_per_key: r, the most under one key; None: any number.
    """

    rows: int
    keys: int | None = None
    rows_per_key: int | None = None


class RowChoice:
    """The keyed choice of the rows of a tree that stay.

    Args:
        bounds: how many of each unit.
        choices: under whose key and release it is made.
        tree: its name.

    >>> from dptrees.dpcore.noise.randomness import ReleaseKey
    >>> from dptrees.dpcore.bounding.runs import Form
    >>> choice = RowChoice(RowBounds(rows=3), KeyedChoices(key=ReleaseKey(bytes(32)), release="r"),
    ...                    "delays")
    >>> runs = UnitRuns(
    ...     form=Form.IDS, units=np.array([[1, 0], [2, 0]], np.uint64), codes=np.array([0, 0, 1]),
    ...     cells=np.array([4, 7, 4]), values=None, counts=np.array([10**6, 10, 2]))
    >>> choice.kept(runs, None).tolist()
    [3, 0, 2]
    """

    def __init__(self, bounds: RowBounds, choices: KeyedChoices, tree: str) -> None:
        self._bounds = bounds
        name = (choices.release, tree)
        self._rows = choices.key.blocks("rows that stay", *name)
        self._keys = choices.key.blocks("keys that stay", *name)
        self._labels = choices.key.blocks("labels", *name)

    def select_keys(self, runs: UnitRuns, keys: Integers | None) -> Flags | None:
        """Flags of the runs under one of their unit's m keys; None: all.

        A key that is beyond the m smallest among some of a unit's rows is so among all of them: the
        rows of a part of the data may be left out by it before all are together.

        Args:
            runs: of units.
            keys: (n,) of each run, rising with the cell; None: there are none.
        """
        most = self._bounds.keys
        if keys is None or most is None or len(runs) == 0:
            return None
        pairs = _group_starts(runs.codes, keys)
        codes = runs.codes[pairs]
        if (np.bincount(codes) <= most).all():
            return None
        blocks = runs.units[codes]
        blocks[:, 0] ^= keys[pairs].view(np.uint64)
        kept = np.zeros(len(pairs), np.bool_)
        kept[_smallest(codes, self._keys(blocks)[:, 0], most)] = True
        under: Flags = np.repeat(kept, np.diff(pairs, append=len(runs)))
        return under

    def kept(self, runs: UnitRuns, keys: Integers | None) -> Integers:
        """Number of retained rows of each run, (n,).

        Args:
            runs: all rows of their units.
            keys: (n,) of each run, rising with the cell; None: there are none.
        """
        kept: Integers = runs.counts.copy()
        under = self.select_keys(runs, keys)
        if under is not None:
            kept[~under] = 0
        if len(runs) == 0:
            return kept
        pairs = _group_starts(runs.codes, keys if self._bounds.rows_per_key else None)
        numbers = _group_numbers(pairs, len(runs))
        over = np.flatnonzero(self._surplus(runs.codes, numbers, kept) & (kept > 0))
        if over.size:
            kept[over] = self._chosen(runs, over, numbers[over])
        return kept

    def _surplus(self, codes: Integers, pairs: Integers, counts: Integers) -> Flags:
        """Whether the unit of each run has more rows than a bound."""
        over = np.bincount(codes, counts) > self._bounds.rows
        if self._bounds.rows_per_key is not None:
            crowded = np.bincount(pairs, counts) > self._bounds.rows_per_key
            over[codes[crowded[pairs]]] = True
        result: Flags = over[codes]
        return result

    def _chosen(self, runs: UnitRuns, over: Integers, pairs: Integers) -> Integers:
        """Number of retained rows of some runs, all of units with more rows than may stay."""
        codes, counts = runs.codes[over], runs.counts[over]
        cells = _group_starts(codes, runs.cells[over])
        firsts = _occurrences_before(counts, cells)
        ends, kept, waiting = np.cumsum(counts), np.zeros(len(over), np.int64), _SingleRows.empty()
        for start, stop in _slices(int(ends[-1]), max(_SLICE, 2 * self._bounds.rows)):
            run, occurrence = _enumerated(ends, counts, start, stop)
            hashes = self._hashes(runs, over, run, firsts[run] + occurrence)
            rows = waiting.followed(_SingleRows(codes[run], pairs[run], run, hashes))
            waiting = self._within(rows)
            # A unit whose rows are all there is done.
            done = waiting.codes < codes[run[-1]]
            np.add.at(kept, waiting.runs[done], 1)
            waiting = waiting.taken(~done)
        np.add.at(kept, waiting.runs, 1)
        return kept

    def _hashes(self, runs: UnitRuns, over: Integers, run: Integers, occurrence: Integers) -> Words:
        first, last = int(run[0]), int(run[-1]) + 1
        own = over[first:last]
        units = runs.units.take(runs.codes[own], axis=0)
        blocks = self._rows(units ^ self._cell_blocks(runs, own)).take(run - first, axis=0)
        blocks[:, 0] ^= occurrence.view(np.uint64)
        return self._rows(blocks)[:, 0]

    def _cell_blocks(self, runs: UnitRuns, own: Integers) -> Blocks:
        if runs.labels is not None:
            used, places = np.unique(runs.cells[own], return_inverse=True)
            return value_ids(runs.labels.take(pa.array(used)), self._labels)[0][places]
        blocks = np.zeros((len(own), 2), np.uint64)
        blocks[:, 0] = runs.cells[own].view(np.uint64)
        return blocks

    def _within(self, rows: _SingleRows) -> _SingleRows:
        """The rows within the bounds: also of a part of a unit's rows, when more are to come.

        A row that is left out stays out: a row beyond the c smallest of those within r a key has c
        smaller ones, and a later row replaces one of these only by being smaller still.
        """
        if self._bounds.rows_per_key is not None:
            rows = rows.taken(_smallest(rows.pairs, rows.hashes, self._bounds.rows_per_key))
        return rows.taken(_smallest(rows.codes, rows.hashes, self._bounds.rows))


@dataclass(frozen=True, eq=False)
class _SingleRows:
    """Single rows, by unit, cell and occurrence.

    Attributes:
        codes: (n,) the unit of each.
        pairs: (n,) its unit and key.
        runs: (n,) the run it is of.
        hashes: (n,)
    """

    codes: Integers
    pairs: Integers
    runs: Integers
    hashes: Words

    @classmethod
    def empty(cls) -> _SingleRows:
        none = np.empty(0, np.int64)
        return cls(none, none, none, none.view(np.uint64))

    def followed(self, other: _SingleRows) -> _SingleRows:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return _SingleRows(*map(np.concatenate, both))

    def taken(self, places: npt.NDArray[np.generic]) -> _SingleRows:
        return _SingleRows(*(each[places] for each in vars(self).values()))


def _group_starts(codes: Integers, within: Integers | None) -> Integers:
    """Starts of the groups: of each unit, or of each value within it."""
    new = np.ones(len(codes), np.bool_)
    new[1:] = codes[1:] != codes[:-1]
    if within is not None:
        new[1:] |= within[1:] != within[:-1]
    return np.flatnonzero(new)


def _group_numbers(starts: Integers, size: int) -> Integers:
    """The number of the group of each of so many, from where groups start."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=size))


def _occurrences_before(counts: Integers, cells: Integers) -> Integers:
    """Number of rows of its cell before each run: their values are smaller."""
    before = np.cumsum(counts) - counts
    return before - np.repeat(before[cells], np.diff(cells, append=len(counts)))


def _slices(rows: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, size):
        yield start, min(start + size, rows)


def _enumerated(
    ends: Integers, counts: Integers, start: int, stop: int
) -> tuple[Integers, Integers]:
    """Return, for a slice of all rows in order, the run of each and its rank in the run."""
    low, high = np.searchsorted(ends, [start, stop - 1], side="right")
    touched = slice(low, high + 1)
    begins = ends[touched] - counts[touched]
    sizes = np.minimum(ends[touched], stop) - np.maximum(begins, start)
    run = np.repeat(np.arange(len(sizes)), sizes)
    return low + run, np.arange(start, stop) - begins[run]


def _smallest(groups: Integers, hashes: Words, most: int) -> Integers:
    """The places, rising, of the `most` smallest hashes of each group; of equal ones the first.

    Args:
        groups: (n,) rising.
        hashes: (n,); their first 48 bits decide, and then their places.
    """
    starts = _group_starts(groups, None)
    sizes = np.diff(starts, append=len(groups))
    if (sizes <= most).all():
        return np.arange(len(groups))
    if len(starts) > _MOST_PACKED:
        edges = [*starts[::_MOST_PACKED].tolist(), len(groups)]
        parts = (slice(*edge) for edge in pairwise(edges))
        results = [part.start + _smallest(groups[part], hashes[part], most) for part in parts]
        return np.concatenate(results)
    words = hashes >> (np.uint64(64) - _HASH_BITS)
    words |= _group_numbers(starts, len(groups)).view(np.uint64) << _HASH_BITS
    ordered = np.sort(words)  # twice as fast as their order
    if not (ordered[1:] == ordered[:-1]).any():
        last = ordered[starts + np.minimum(sizes, most) - 1]
        return np.flatnonzero(words <= np.repeat(last, sizes))
    order = np.argsort(words, kind="stable")
    # Groups lie where they lay: only their members change places.
    ranks = np.arange(len(groups)) - np.repeat(starts, sizes)
    return np.sort(order[ranks < most])


_NUMBER = "<u2"
_GROUP = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedUnits:
    """Units of a shard, and the number of periods in which each has been counted.

    Args:
        units: (u, 2) ids, sorted by their first halves, no two alike.
        periods: (u,) from 1 on.

    >>> before = CountedUnits.none()
    >>> ids = np.array([[3, 0], [7, 1]], np.uint64)
    >>> may, first = before.admit(ids, 1)
    >>> may.tolist(), first.admit(np.array([[5, 5], [7, 1]], np.uint64), 1)[0].tolist()
    ([True, True], [True, False])
    """

    units: Blocks
    periods: Integers

    @classmethod
    def none(cls) -> CountedUnits:
        """No unit yet: before the first period."""
        return cls(units=np.empty((0, 2), np.uint64), periods=np.empty(0, np.int64))

    def admit(self, present: Blocks, most: int) -> tuple[Flags, CountedUnits]:
        """Decide which units of a period are counted.

        Args:
            present: (n, 2) ids of units with rows in the period, no two alike.
            most: p, in how many periods a unit is counted at most, from 1 to 2^16.

        Returns:
            (n,) whether each is counted; and what is known once they are.
        """
        units, codes = distinct_units(np.concatenate([self.units, present]))
        periods = np.zeros(len(units), np.int64)
        known = len(self.units)
        periods[codes[:known]] = self.periods
        counted: Flags = periods[codes[known:]] < most
        periods[codes[known:][counted]] += 1
        return counted, CountedUnits(units=units, periods=periods)

    def to_bytes(self, size: int = 0) -> bytes:
        """Write the units and their numbers.

        Args:
            size: the number of units to whose size zeros fill it up.
        """
        size = max(size, len(self.units))
        ids = np.zeros((size, 2), "<u8")
        numbers = np.zeros(size, _NUMBER)
        ids[: len(self.units)], numbers[: len(self.units)] = self.units, self.periods - 1
        used = np.array([len(self.units)], "<u8")
        return used.tobytes() + ids.tobytes() + numbers.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> CountedUnits:
        """The inverse of `to_bytes`."""
        (used,) = np.frombuffer(data, "<u8", count=1)
        size = (len(data) - 8) // 18
        ids = np.frombuffer(data, "<u8", count=2 * size, offset=8).reshape(-1, 2)
        numbers = np.frombuffer(data, _NUMBER, count=size, offset=8 + 16 * size)
        return cls(
            units=ids[: int(used)].astype(np.uint64),
            periods=numbers[: int(used)].astype(np.int64) + 1,
        )

    def digest(self, key: ReleaseKey, release: str, tree: str, shard: int) -> int:
        """A keyed digest, to be summed with the digests of the counts (`dpcore.noise.source`).

        Args:
            key: the release key.
            release: its id.
            tree, shard: whose units these are.
        """
        numbers = np.concatenate([self.units.view(np.int64).ravel(), self.periods])
        # No place of counts has a group below 0.
        return counts_digest(key, release, tree, _GROUP, shard, numbers)


# More shards need less memory where they are bounded; a worker holds the rows of one at a time.
SHARDS = 64
MOST_SHARDS = 2**16
# Of each worker, so that all have work until the end although shards differ.
_SHARDS_OF_WORKER = 4
# Rows that wait to be sorted by unit, over all trees: some 60 bytes each while they are.
WAITING_ROWS = 2**22


class ShardRows(NamedTuple):
    """Rows of a shard, from a part of the data.

    Attributes:
        shard: which.
        data: the runs; none where the bytes are.
        rows: how many rows they represent.
    """

    shard: int
    data: bytes
    rows: int


class BoundedRows(NamedTuple):
    """The retained rows of a shard.

    Attributes:
        increments: of the rows that stay, as the question's counters take them; None: no row came.
        rows: how many came.
        units: in how many periods units have been counted, this one included; None: nothing is
            remembered.
    """

    increments: Increments | None
    rows: int
    units: CountedUnits | None = None


def planned_shards(*, workers: int) -> int:
    """Return the number of shards for so many workers, a power of two from `SHARDS` on.

    No result depends on it: rows of a unit are in one shard, however many there are.

    Args:
        workers: processes that bound rows.

    >>> planned_shards(workers=1), planned_shards(workers=100)
    (64, 512)
    """
    least = max(SHARDS, _SHARDS_OF_WORKER * workers)
    return min(1 << (least - 1).bit_length(), MOST_SHARDS)


class TreeBounding:
    """Bounds the rows of the units of one tree.

    Args:
        question: the tree.
        choices: under whose key and release it is chosen what stays.
        shards: of units; which of their rows stay does not depend on it.
    """

    def __init__(self, question: Question, choices: KeyedChoices, shards: int = SHARDS) -> None:
        unit = question.unit
        bounds = RowBounds(rows=unit.rows, keys=unit.keys, rows_per_key=unit.rows_per_key)
        if not question.is_keyed:
            bounds = RowBounds(rows=unit.rows)
        self._question, self._shards = question, shards
        self._choice = RowChoice(bounds, choices, question.name)
        self._waiting: list[_Batch] = []

    def add(self, rows: RowIncrements, units: Units) -> Increments:
        """Add the rows of a batch that have a unit.

        Args:
            rows: those that a policy keeps, row by row.
            units: of all rows of the batch.

        Returns:
            those without a unit, as the question's counters take them.
        """
        (increments, places), (ids, missing) = rows, units
        if places is not None:
            ids = ids[places]
            missing = None if missing is None else missing[places]
        alone = np.zeros(len(ids), np.bool_) if missing is None else missing
        with_unit = increments.select(~alone) if alone.any() else increments
        ids = ids[~alone] if alone.any() else ids
        if len(ids):
            self._waiting.append(_Batch.from_increments(with_unit, ids, self._shards))
        return self._question.regrouped(increments.select(alone))

    def take(self) -> Iterator[ShardRows]:
        """The rows since the last call, by shards, and start anew: every shard, also those without
        rows, since how many there are must not reveal where rows are."""
        waiting, self._waiting = _with_common_labels(self._waiting), []
        for shard in range(self._shards):
            parts = [part for each in waiting if len((part := each.shard_rows(shard)).ids)]
            if not parts:
                yield ShardRows(shard, b"", 0)
                continue
            runs = self._select_keys(_runs(waiting[0], parts))
            yield ShardRows(shard, runs.to_bytes(), runs.rows)

    def _select_keys(self, runs: UnitRuns) -> UnitRuns:
        kept = self._choice.select_keys(runs, self._question.cell_keys(runs.cells))
        return runs if kept is None else runs.taken(kept)

    def bounded(
        self, messages: Iterable[bytes], earlier: CountedUnits | None = None
    ) -> BoundedRows:
        """The retained rows of a shard.

        Args:
            messages: all `ShardRows.data` of the shard, in any order.
            earlier: in how many periods its units were counted before this one; None: in none.
        """
        most = self._question.counted_periods
        known = None if most is None else earlier or CountedUnits.none()
        runs = merged(messages)
        if runs is None:
            return BoundedRows(None, 0, known)
        came = runs.rows
        if known is not None and most is not None:
            counted, known = known.admit(runs.units, most)
            runs = runs.select_units(counted)
        if (value := self._question.unit_value) is not None:
            values = self._select_keys(runs).unit_values(value)
            return BoundedRows(self._question.regrouped(values), came, known)
        cells = self._question.counts_unit_cells
        numbers = runs.cells_of_units if cells else runs.rows_of_units
        units = self._question.unit_increments(numbers)
        if units is not None:
            return BoundedRows(units, came, known)
        kept = self._choice.kept(runs, self._question.cell_keys(runs.cells))
        return BoundedRows(self._question.regrouped(runs.increments(kept)), came, known)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Batch:
    """Rows of a batch, in the order of shards: made while the batch is near the processor.

    Args:
        form: of their cells.
        ids: (n, 2) of their units.
        cells: (n,)
        values: (n,) or None.
        edges: (shards + 1,) where each shard begins.
        labels: that cells are positions on, if they are strings.
    """

    form: Form
    ids: Blocks
    cells: Integers
    values: Integers | None
    edges: list[int]
    labels: pa.Array | None = None

    @classmethod
    def from_increments(cls, increments: Increments, ids: Blocks, shards: int) -> _Batch:
        form, cells, labels = _numbered_cells(increments.cells)
        numbers = shard_numbers(ids, shards)
        order = np.argsort(numbers, kind="stable")  # of so narrow numbers a radix sort
        return cls(
            form=form,
            ids=ids.take(order, axis=0),  # three times faster than by brackets
            cells=narrowed(cells)[order],
            values=None if increments.values is None else narrowed(increments.values)[order],
            edges=np.cumsum([0, *np.bincount(numbers, minlength=shards)]).tolist(),
            labels=labels,
        )

    def shard_rows(self, shard: int) -> _BatchRows:
        """The rows of a shard."""
        part = slice(self.edges[shard], self.edges[shard + 1])
        values = None if self.values is None else self.values[part]
        return _BatchRows(self.ids[part], self.cells[part], values)


class _BatchRows(NamedTuple):
    """Rows of a shard, from a batch: the fields of `_Batch`."""

    ids: Blocks
    cells: Integers
    values: Integers | None


def _numbered_cells(cells: Integers | pa.Array) -> tuple[Form, Integers, pa.Array | None]:
    """Cells as integers, and the list on which those are positions, if they are."""
    if not isinstance(cells, pa.Array):
        return Form.IDS, cells, None
    if pa.types.is_integer(cells.type):
        return Form.CODES, fixed_width_values(cells).view(np.int64), None
    encoded = cells.dictionary_encode()
    return Form.LABELS, fixed_width_values(encoded.indices).astype(np.int64), encoded.dictionary


def _with_common_labels(batches: list[_Batch]) -> list[_Batch]:
    """The same batches, whose cells are positions on one list, where they are on lists."""
    lists = [each.labels for each in batches if each.labels is not None]
    if not lists:
        return batches
    labels, places = joined_labels(lists)
    return [
        replace(each, cells=own[each.cells], labels=labels)
        for each, own in zip(batches, places, strict=True)
    ]


def _runs(batch: _Batch, parts: list[_BatchRows]) -> UnitRuns:
    """Merge the runs of a shard's rows from all batches, which have the form and labels of one."""
    units, codes = distinct_units(np.concatenate([part.ids for part in parts]))
    cells, labels = _joined([part.cells for part in parts]), batch.labels
    if labels is not None:
        used, cells = np.unique(cells, return_inverse=True)
        labels = labels.take(pa.array(used))
    values = [part.values for part in parts if part.values is not None]
    rows = RowArrays(codes=codes, cells=cells, values=_joined(values) if values else None)
    return UnitRuns.from_rows(batch.form, units, rows, labels)


def _joined(arrays: list[Integers]) -> Integers:
    """The integers of several arrays, however narrow each is."""
    return np.concatenate(arrays, dtype=np.int64)
