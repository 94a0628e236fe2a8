"""Choice of the rows of a unit that a tree counts: the smallest keyed hashes, within its bounds.

Of each unit's rows in a tree there stay

1. its rows under the m keys with the smallest hash of (tree, unit, key), where the tree has keys;
2. under each key, the r rows with the smallest hash of (tree, unit, cell, occurrence);
3. of all these, the c rows with the smallest such hash.

The occurrence of a row is its rank among the unit's rows of that cell, by value. Rows alike in cell
and value are interchangeable, so which rows stay is a function of the *multiset* of (cell, value)
of the unit's rows, and of the key: of no position, file, batch, bundle, shard or engine. Hashes are
CBC-MAC of AES-256 over three blocks (unit, cell, occurrence), so each set of c rows is retained
about as often as any other: the retained rows are a fair sample of the unit's rows.

*Why the counts of a level move by no more than `PrivacyUnit.moved`.* Write K(U) for the rows that
stay of a unit's rows U. K(U) is a function of U alone: neither the bounds of another unit nor its
rows enter. Without policies that look at other rows, a tree's counts are therefore the sum over
units of the counts of K(U). A unit that is added or removed changes them by the counts of its K(U):
at most c rows, at most r under a key and under at most m keys. A unit that is substituted takes the
counts of K(U) away and adds the counts of K(U'): at most twice as much. None of this rests on the
hash: it holds for every key. The key only ensures that nobody who lacks it can choose rows so that
certain rows are retained.

Source: the design, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.bounding.runs import UnitRuns, Words
from dptrees.dpcore.bounding.unit_ids import Blocks, value_ids
from dptrees.dpcore.noise.source import KeyedChoices

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
        numbers = _numbered(pairs, len(runs))
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
        ends, kept, waiting = np.cumsum(counts), np.zeros(len(over), np.int64), _Rows.empty()
        for start, stop in _slices(int(ends[-1]), max(_SLICE, 2 * self._bounds.rows)):
            run, occurrence = _enumerated(ends, counts, start, stop)
            hashes = self._hashes(runs, over, run, firsts[run] + occurrence)
            rows = waiting.followed(_Rows(codes[run], pairs[run], run, hashes))
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

    def _within(self, rows: _Rows) -> _Rows:
        """The rows within the bounds: also of a part of a unit's rows, when more are to come.

        A row that is left out stays out: a row beyond the c smallest of those within r a key has c
        smaller ones, and a later row replaces one of these only by being smaller still.
        """
        if self._bounds.rows_per_key is not None:
            rows = rows.taken(_smallest(rows.pairs, rows.hashes, self._bounds.rows_per_key))
        return rows.taken(_smallest(rows.codes, rows.hashes, self._bounds.rows))


@dataclass(frozen=True, eq=False)
class _Rows:
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
    def empty(cls) -> _Rows:
        none = np.empty(0, np.int64)
        return cls(none, none, none, none.view(np.uint64))

    def followed(self, other: _Rows) -> _Rows:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Rows(*map(np.concatenate, both))

    def taken(self, places: npt.NDArray[np.generic]) -> _Rows:
        return _Rows(*(each[places] for each in vars(self).values()))


def _group_starts(codes: Integers, within: Integers | None) -> Integers:
    """Starts of the groups: of each unit, or of each value within it."""
    new = np.ones(len(codes), np.bool_)
    new[1:] = codes[1:] != codes[:-1]
    if within is not None:
        new[1:] |= within[1:] != within[:-1]
    return np.flatnonzero(new)


def _numbered(starts: Integers, size: int) -> Integers:
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
    words |= _numbered(starts, len(groups)).view(np.uint64) << _HASH_BITS
    ordered = np.sort(words)  # twice as fast as their order
    if not (ordered[1:] == ordered[:-1]).any():
        last = ordered[starts + np.minimum(sizes, most) - 1]
        return np.flatnonzero(words <= np.repeat(last, sizes))
    order = np.argsort(words, kind="stable")
    # Groups lie where they lay: only their members change places.
    ranks = np.arange(len(groups)) - np.repeat(starts, sizes)
    return np.sort(order[ranks < most])
