"""The parts of a release's folder with their receipts, and the file of its universe.

A part is named by its chunk and the SHA-256 of its bytes, so a retry writes the same file again.
Every part of the plan has one receipt; a commit is made of the receipts. The file of a universe
has a row a node, level by level; where its leaves are read in parts, only its row groups are
smaller.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
)
from dptrees.dpcore.hierarchy.universe import Universe, read_labels
from dptrees.dpcore.questions.messages import STATE, UNITS, Part
from dptrees.dpcore.questions.released import CDF, NODES, SKETCH
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.value_lists import PartedIntegers
from dptrees.dpcore.trees.chunks import SPINE, branch_index
from dptrees.transforms.errors import UniverseError

# The folders of parts.
PART_KINDS = (NODES, CDF, SKETCH, STATE, UNITS)
# Of a run of a series: what only the next run reads.
SEALED_KINDS = (STATE, UNITS)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file; the same table gives the same bytes."""
    sink = io.BytesIO()
    # Dictionaries would only slow floats down: few of them repeat.
    texts = [
        field.name
        for field in table.schema
        if pa.types.is_dictionary(field.type) or field.name in ("level", "std_error")
    ]
    pq.write_table(
        table,
        sink,
        use_dictionary=texts,
        compression="zstd",
        compression_level=1,
        store_schema=True,
    )
    return sink.getvalue()


def part_file(part: Part, sha256: str) -> str:
    """The path of a part within its release.

    >>> part_file(Part(kind="nodes", tree="age", key=0, index=SPINE), 64 * "0")
    'nodes/age-000000-spine-0000000000000000.parquet'
    """
    if part.index < SPINE:
        chunk = f"branch-{branch_index(part.index):06d}"
    else:
        chunk = "spine" if part.index == SPINE else f"{part.index:06d}"
    return f"{part.kind}/{part.tree}-{part.key:06d}-{chunk}-{sha256[:16]}.parquet"


def part_names(trees: Iterable[str] | None) -> re.Pattern[str]:
    """The names, within their folder, of the files of parts.

    Args:
        trees: of these trees; None: of any.

    >>> bool(part_names(["age"]).fullmatch("age-000000-spine-0000000000000000.parquet"))
    True
    """
    named = ".+" if trees is None else "|".join(map(re.escape, trees))
    return re.compile(rf"({named})-\d{{6,}}-(spine|(branch-)?\d{{6,}})-[0-9a-f]{{16}}\.parquet")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Proof that a part has been written.

    Attributes:
        part: which.
        rows: of its table; they follow from the plan.
        sha256: of its bytes.
        note: what concluding the tree needs of the chunk, packed; "" for nothing.
    """

    part: Part
    rows: int
    sha256: str
    note: str = ""

    @property
    def file_name(self) -> str:
        """The part's path within the release."""
        return part_file(self.part, self.sha256)

    def to_bytes(self) -> bytes:
        """Return the bytes in which it travels."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Receipt":
        """The inverse of `to_bytes`."""
        fields = json.loads(data)
        return cls(**(fields | {"part": Part(**fields["part"])}))


def sha256(data: bytes) -> str:
    """The checksum of released bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def planned_parts(plan: ReleasePlan) -> Iterator[Part]:
    """Every part that a complete release has."""
    for question in plan.questions:
        yield from question.parts()


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
        for table in universe.tables():
            writer.write_table(table.cast(schema), row_group_size=2**20)
