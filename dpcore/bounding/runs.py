"""Rows of units in runs: equal rows of one unit are stored once, with their number.

In flight they are bytes, sorted by unit, cell and value, which add up in any order. A unit with
ten million rows is as many runs as it has cells and values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.bounding.unit_ids import Blocks
from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.rows.columns import fixed_width_values, pack, pack_many, unpack, unpack_many
from dptrees.dpcore.rows.unit_values import UnitValue, unit_amounts

Words = npt.NDArray[np.uint64]


class Form(Enum):
    """The form of the cells of a question."""

    IDS = b"I"  # integers
    CODES = b"C"  # an Arrow array of uint64; as runs the same bits of int64
    LABELS = b"L"  # an Arrow array of strings; as runs their positions on a sorted list


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitRuns:
    """Rows of units, sorted by unit, cell and value.

    Args:
        form: of the cells.
        units: (u, 2) ids, sorted by their first halves, no two alike.
        codes: (n,) the position of each run's unit.
        cells: (n,) the cell of each run.
        values: (n,) what each of its rows adds; None: 1.
        counts: (n,) how many rows it has.
        labels: of cells that are strings, large_string, sorted by bytes, no two alike.
    """

    form: Form
    units: Blocks
    codes: Integers
    cells: Integers
    values: Integers | None
    counts: Integers
    labels: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def rows(self) -> int:
        """Number of rows that the runs represent."""
        return int(self.counts.sum())

    @property
    def rows_of_units(self) -> Integers:
        """(units,) how many rows each has."""
        found = np.bincount(self.codes, weights=self.counts, minlength=len(self.units))
        return found.astype(np.int64)

    @property
    def cells_of_units(self) -> Integers:
        """(units,) how many different cells each has."""
        return np.bincount(self.codes[self._cell_starts], minlength=len(self.units))

    @property
    def _cell_starts(self) -> Integers:
        """Where the runs of each cell of each unit begin."""
        new = np.ones(len(self), np.bool_)
        new[1:] = (np.diff(self.codes) != 0) | (np.diff(self.cells) != 0)
        return np.flatnonzero(new)

    def unit_values(self, value: UnitValue) -> Increments:
        """One value of each unit in each of its cells, from the values of its rows there."""
        assert self.values is not None
        starts = self._cell_starts
        return Increments(self.cells[starts], unit_amounts(value, starts, self.values, self.counts))

    @classmethod
    def from_rows(
        cls, form: Form, units: Blocks, rows: RowArrays, labels: pa.Array | None = None
    ) -> UnitRuns:
        """Make the runs of rows in any order."""
        runs = rows.runs()
        assert runs.counts is not None
        return cls(
            form=form,
            units=units,
            codes=runs.codes,
            cells=runs.cells,
            values=runs.values,
            counts=runs.counts,
            labels=labels,
        )

    def taken(self, kept: Flags) -> UnitRuns:
        """Some of the runs; units without one stay, and reveal nothing."""
        return replace(
            self,
            codes=self.codes[kept],
            cells=self.cells[kept],
            values=None if self.values is None else self.values[kept],
            counts=self.counts[kept],
        )

    def select_units(self, kept: Flags) -> UnitRuns:
        """The runs of some of the units, without the others.

        Args:
            kept: (units,) which.
        """
        if kept.all():
            return self
        result = self.taken(kept[self.codes])
        codes = (np.cumsum(kept) - 1)[result.codes]
        return replace(result, units=self.units[kept], codes=codes)

    def increments(self, counts: Integers) -> Increments:
        """So many rows of each run, row by row."""
        cells: Integers | pa.Array = np.repeat(self.cells, counts)
        if self.form is Form.CODES:
            cells = pa.array(cells.view(np.uint64))
        elif self.form is Form.LABELS:
            assert self.labels is not None
            cells = self.labels.take(pa.array(cells))
        return Increments(cells, None if self.values is None else np.repeat(self.values, counts))

    def to_bytes(self) -> bytes:
        """Write the runs as bytes that `merged` reads."""
        per_unit = np.bincount(self.codes, minlength=len(self.units))
        used = self.units[per_unit > 0]
        alike = bool((self.counts == 1).all())
        return pack_many(
            [
                self.form.value,
                np.ascontiguousarray(used, "<u8").tobytes(),
                pack(per_unit[per_unit > 0]),
                pack(self.cells),
                b"" if self.values is None else pack(self.values),
                b"" if alike else pack(self.counts),
                b"" if self.labels is None else _labels_bytes(self.labels),
            ]
        )


def _from_bytes(data: bytes) -> UnitRuns:
    form, units, per_unit, cells, values, counts, labels = unpack_many(data)
    ids = np.frombuffer(units, "<u8").reshape(-1, 2).astype(np.uint64, copy=False)
    codes = np.repeat(np.arange(len(ids)), unpack(per_unit))
    return UnitRuns(
        form=Form(form),
        units=ids,
        codes=codes,
        cells=unpack(cells),
        values=unpack(values) if values else None,
        counts=unpack(counts) if counts else np.ones(len(codes), np.int64),
        labels=_read_labels(labels) if labels else None,
    )


def _labels_bytes(labels: pa.Array) -> bytes:
    batch = pa.record_batch([labels], names=["label"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read_labels(data: bytes) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch().column(0)


def merged(messages: Iterable[bytes]) -> UnitRuns | None:
    """The runs of several parts of the rows, in any order; None where there are none at all.

    Args:
        messages: from `UnitRuns.to_bytes`; empty bytes are no row.
    """
    parts = [_from_bytes(data) for data in messages if data]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    firsts = np.cumsum([0, *(len(part.units) for part in parts)])
    units, codes = distinct_units(np.concatenate([part.units for part in parts]))
    moved = [codes[part.codes + first] for part, first in zip(parts, firsts, strict=False)]
    labels, cells = None, [part.cells for part in parts]
    if parts[0].form is Form.LABELS:
        labels, places = joined_labels([part.labels for part in parts if part.labels is not None])
        cells = [own[each] for own, each in zip(places, cells, strict=True)]
    values = [part.values for part in parts if part.values is not None]
    rows = RowArrays(
        codes=np.concatenate(moved),
        cells=np.concatenate(cells),
        values=np.concatenate(values) if values else None,
        counts=np.concatenate([part.counts for part in parts]),
    )
    return UnitRuns.from_rows(parts[0].form, units, rows, labels)


def joined_labels(lists: list[pa.Array]) -> tuple[pa.Array, list[Integers]]:
    """Distinct strings of several lists, sorted by their bytes, and the places of each list's.

    >>> labels, places = joined_labels([pa.array(["b", "a"]), pa.array(["c", "b"])])
    >>> labels.to_pylist(), [each.tolist() for each in places]
    (['a', 'b', 'c'], [[1, 0], [2, 1]])
    """
    encoded = pa.concat_arrays(lists).dictionary_encode()
    order = fixed_width_values(pc.array_sort_indices(encoded.dictionary)).astype(np.int64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    places = ranks[fixed_width_values(encoded.indices)]
    edges = np.cumsum([0, *map(len, lists)])
    labels = encoded.dictionary.take(pa.array(order))
    return labels, [places[start:stop] for start, stop in pairwise(edges)]


def distinct_units(ids: Blocks) -> tuple[Blocks, Integers]:
    """The distinct ids, (u, 2), sorted by their first halves, and the position of each, (n,).

    >>> units, codes = distinct_units(np.array([[7, 1], [3, 0], [7, 1]], np.uint64))
    >>> units.tolist(), codes.tolist()
    ([[3, 0], [7, 1]], [1, 0, 1])
    """
    if len(ids) == 0:
        return ids, np.empty(0, np.int64)
    first, second = np.ascontiguousarray(ids[:, 0]), ids[:, 1]
    # One half is sorted many times faster than two; equal ones with other second halves are rare.
    order = _order(first)
    new = _changes(first[order])
    if (_changes(second[order]) & ~new).any():
        order = np.lexsort((second, first))
        new = _changes(first[order]) | _changes(second[order])
    codes = np.empty(len(ids), np.int64)
    codes[order] = np.cumsum(new) - 1
    return ids.take(order[new], axis=0), codes


def _order(first: Words) -> Integers:
    """The places of words in rising order.

    Each word's place is written over its last bits, and the words are sorted, three times faster
    than places are. The words are keyed hashes, whose first bits differ nearly always.
    """
    mask = np.uint64((1 << (len(first) - 1).bit_length()) - 1)
    placed = (first & ~mask) | np.arange(len(first), dtype=np.uint64)
    placed.sort()
    order = (placed & mask).view(np.int64)
    ordered = first[order]
    return np.argsort(first) if (ordered[1:] < ordered[:-1]).any() else order


def _changes(values: npt.NDArray[np.generic]) -> Flags:
    """Whether each of sorted values is another than the one before it."""
    return np.concatenate([np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]])


@dataclass(frozen=True, kw_only=True, eq=False)
class RowArrays:
    """Rows, or runs, in any order: the fields of `UnitRuns`; counts None: each is one row."""

    codes: Integers
    cells: Integers
    values: Integers | None
    counts: Integers | None = None

    def runs(self) -> RowArrays:
        """The same, sorted, those that are alike as one, with their number.

        All fields of a run are packed into one word where they fit, which is sorted some ten times
        faster than by several keys.
        """
        fields = [self.codes, self.cells, *([] if self.values is None else [self.values])]
        packing = _Packing.from_fields(fields)
        if packing is None:
            return self._by_several_keys(fields)
        words, sums = packing.packed(fields), self.counts
        if sums is not None and (sums == 1).all():
            sums = None
        if sums is None:
            words.sort()
        else:
            order = np.argsort(words)
            words, sums = words[order], sums[order]
        starts = np.flatnonzero(_changes(words))
        return _named(packing.unpacked(words[starts]), _sums(starts, sums, len(words)))

    def _by_several_keys(self, fields: list[Integers]) -> RowArrays:
        order = np.lexsort(fields[::-1])
        ordered = [each[order] for each in fields]
        new = np.logical_or.reduce([_changes(each) for each in ordered])
        starts = np.flatnonzero(new)
        sums = None if self.counts is None else self.counts[order]
        return _named([each[starts] for each in ordered], _sums(starts, sums, len(order)))


def _named(fields: list[Integers], counts: Integers) -> RowArrays:
    codes, cells, *values = fields
    return RowArrays(codes=codes, cells=cells, values=values[0] if values else None, counts=counts)


def _sums(starts: Integers, counts: Integers | None, size: int) -> Integers:
    if counts is None:
        return np.diff(starts, append=size)
    return np.add.reduceat(counts, starts) if len(starts) else counts


@dataclass(frozen=True, kw_only=True, eq=False)
class _Packing:
    """Several integers in one word of 64 bits, which is in order where they are, the first first.

    Args:
        lowest: of each field.
        bits: that the differences from it take.
        lists: of a field that is far apart, its values, whose positions are packed.
    """

    lowest: list[int]
    bits: list[int]
    lists: list[Integers | None]

    @classmethod
    def from_fields(cls, fields: list[Integers]) -> _Packing | None:
        """None: they do not fit."""
        lowest = [int(each.min()) if each.size else 0 for each in fields]
        spans = [
            (int(each.max()) if each.size else 0) - low
            for each, low in zip(fields, lowest, strict=True)
        ]
        bits, lists = [span.bit_length() for span in spans], [None for _ in fields]
        made = cls(lowest=lowest, bits=bits, lists=lists)  # type: ignore[arg-type]
        for place in sorted(range(len(fields)), key=lambda each: -bits[each]):
            if sum(made.bits) <= 64:
                return made
            made = made._listed(place, np.unique(fields[place]))
        return made if sum(made.bits) <= 64 else None

    def _listed(self, place: int, values: Integers) -> _Packing:
        bits, lists, lowest = list(self.bits), list(self.lists), list(self.lowest)
        bits[place], lists[place], lowest[place] = (len(values) - 1).bit_length(), values, 0
        return _Packing(lowest=lowest, bits=bits, lists=lists)

    def packed(self, fields: list[Integers]) -> Words:
        """(n,) words."""
        words = np.zeros(len(fields[0]), np.uint64)
        for each, low, bits, listed in zip(fields, self.lowest, self.bits, self.lists, strict=True):
            own = each if listed is None else np.searchsorted(listed, each)
            words = _shifted(words, bits)
            # Differences of 64-bit integers are right as unsigned ones, even where they wrap.
            words |= own.astype(np.int64, copy=False).view(np.uint64) - np.uint64(low % 2**64)
        return words

    def unpacked(self, words: Words) -> list[Integers]:
        """The fields again."""
        fields: list[Integers] = []
        for low, bits, listed in zip(
            self.lowest[::-1], self.bits[::-1], self.lists[::-1], strict=True
        ):
            own = words & np.uint64(2**bits - 1)
            found = (own + np.uint64(low % 2**64)).view(np.int64)
            fields.append(found if listed is None else listed[found])
            words = words >> np.uint64(bits) if bits < 64 else np.zeros_like(words)
        return fields[::-1]


def _shifted(words: Words, bits: int) -> Words:
    # NumPy leaves a shift by all 64 bits undefined.
    return words << np.uint64(bits) if bits < 64 else np.zeros_like(words)


def shard_numbers(ids: Blocks, shards: int) -> npt.NDArray[np.unsignedinteger]:
    """The shard of each unit, (n,), by its id: which is keyed, so shards are even and reveal
    nothing.

    >>> shard_numbers(np.array([[0, 5], [2**63, 1], [2**64 - 1, 0]], np.uint64), 4).tolist()
    [0, 2, 3]
    """
    top = ids[:, 0] >> np.uint64(32)
    numbers = (top * np.uint64(shards)) >> np.uint64(32)
    narrow: npt.NDArray[np.unsignedinteger] = numbers.astype(np.min_scalar_type(shards - 1))
    return narrow
