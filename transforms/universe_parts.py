"""The file of a universe whose leaves are read in parts: a row group at a time.

It is the file that every universe has, a row a node, level by level; only its row groups are
smaller. So one that an older version wrote whole is read in parts as well.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.leaf_codes import (
    leaf_picture,
    parted_universe,
    universe_from_table,
    universe_tables,
)
from dptrees.dpcore.hierarchy.universe import Universe, read_labels
from dptrees.dpcore.rows.value_lists import PartedIntegers
from dptrees.transforms.errors import UniverseError

_LABEL = "label"
_UNREADABLE = "output: the leaves of a universe cannot be read where the launcher wrote them"


def universe_of_parquet(file: pq.ParquetFile, checksums: Sequence[bytes] = ()) -> Universe:
    """The universe that a Parquet file holds.

    Args:
        file: of a release; of a large universe it stays open, and the leaves are read when needed.
        checksums: of its parts, from `part_checksums`; none: they are not compared.

    Raises:
        ValueError: it holds no universe; or, where a part is read, another one.
    """
    rows = file.metadata.num_rows
    found_picture = leaf_picture(file.schema_arrow, rows)
    if found_picture is None:
        return universe_from_table(file.read(use_threads=False))
    leaves, picture = found_picture
    source = _Leaves(file, rows - leaves, picture, checksums)
    return parted_universe(source.upper_rows(), rows, PartedIntegers(source.bounds, source.read))


class _Leaves:
    """The leaves of a file, by row group.

    Args:
        file: of the universe.
        first: the row of the first leaf.
        picture: how the code of a leaf is written.
        checksums: of the parts.
    """

    def __init__(
        self, file: pq.ParquetFile, first: int, picture: str, checksums: Sequence[bytes]
    ) -> None:
        self._file, self._picture, self._checksums = file, picture, checksums
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = np.cumsum(sizes)
        self._upper = first
        self._first = int(np.searchsorted(ends, first, side="right"))
        self.bounds: Integers = np.append(0, ends[self._first :] - first)

    def upper_rows(self) -> pa.Table:
        """The rows above the leaves."""
        groups = range(min(self._first + 1, self._file.num_row_groups))
        table = self._file.read_row_groups(list(groups), use_threads=False)
        return table.slice(0, self._upper)

    def read(self, part: int) -> Integers:
        """The codes of the leaves of a part."""
        group = self._first + part
        try:
            texts = self._file.read_row_group(group, columns=[_LABEL], use_threads=False)[_LABEL]
        except (pa.ArrowException, OSError):
            raise UniverseError(_UNREADABLE, again=True) from None
        own = texts.slice(len(texts) - int(np.diff(self.bounds)[part])).combine_chunks()
        codes = read_labels(own, self._picture)
        if self._checksums and _checksum(codes) != self._checksums[part]:
            raise UniverseError("output: the leaves of a universe are not those that were written")
        return codes.astype(np.int32) if len(self._picture) <= 9 else codes


def _checksum(codes: Integers) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(codes, "<i8").data).digest()[:16]


def part_checksums(universe: Universe) -> tuple[bytes, ...]:
    """The checksums of the parts of a universe's leaves; reads them all."""
    codes = universe.level_labels[-1].codes
    assert isinstance(codes, PartedIntegers)
    return tuple(_checksum(codes[start:stop]) for start, stop in pairwise(codes.bounds.tolist()))


def write_universe(universe: Universe, file: BinaryIO) -> None:
    """Writes a universe in parts of at most some megabytes.

    Args:
        universe: whose leaves are read in parts.
        file: that is written from its beginning to its end.
    """
    schema = universe.table_schema
    writer = pq.ParquetWriter(
        file, schema, compression="zstd", compression_level=1, use_dictionary=["level"]
    )
    with writer:
        for table in universe_tables(universe):
            writer.write_table(table.cast(schema), row_group_size=2**20)
