"""The parts of a release: Parquet files whose names follow from the plan and from their bytes.

A part is named by the chunk it holds and the SHA-256 of its bytes, so a retry writes the same file
again and readers can tell a damaged one. Every part of the plan has one receipt; the receipts are
what a commit is made of.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.questions.tables import NODES
from dpcore.release.plan import ReleasePlan

SPINE_INDEX = -1


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


@dataclass(frozen=True, kw_only=True, order=True)
class Part:
    """Which part of a release: the nodes or the CDF points of one chunk (index -1: a spine)."""

    kind: str
    tree: str
    key: int
    index: int

    def file_name(self, sha256: str) -> str:
        """Its path within the release."""
        chunk = "spine" if self.index == SPINE_INDEX else f"{self.index:06d}"
        return f"{self.kind}/{self.tree}-{self.key:06d}-{chunk}-{sha256[:16]}.parquet"


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """That a part has been written.

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
        return self.part.file_name(self.sha256)

    def to_bytes(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Receipt":
        """The inverse of `to_bytes`."""
        fields = json.loads(data)
        return cls(**(fields | {"part": Part(**fields["part"])}))


def universe_name(digest: str) -> str:
    """The file of a universe, within the release."""
    return f"universe-{digest[:16]}.parquet"


def sha256(data: bytes) -> str:
    """The checksum of released bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def planned_parts(plan: ReleasePlan) -> Iterator[Part]:
    """Every part that a complete release has."""
    for question in plan.chunked:
        chunking = question.forest.chunking
        for chunk in chunking:
            for kind in question.tables:
                yield Part(kind=kind, tree=question.name, key=chunk.key, index=chunk.index)
        if chunking.split_level > 0:
            for key in range(question.key_count):
                yield Part(kind=NODES, tree=question.name, key=key, index=SPINE_INDEX)
    for sparse in plan.sparse:
        for level in range(sparse.plan.height + 1):
            yield Part(kind=NODES, tree=sparse.name, key=0, index=level)
