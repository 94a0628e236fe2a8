"""The layout of a release's folder: the one owner of its files' names.

    manifest.json       what the release is; it exists once this does
    record.json         of its draw, `transforms.record`
    nonce.json          of the folder, `transforms.nonce`
    plan.json           of the folder, `transforms.kept_plan`
    nodes/*, cdf/*      its parts
    quantiles.parquet   a table of whole trees
    universe-*.parquet  the leaves of a hierarchy, `transforms.universe_file`
    manifest.sig        its signature, where it is signed: by the launcher
    keys-*.parquet      the keys of a group-by that come from a table, likewise
    state/*             parts too: what a run of a series carries on, sealed

The runs of a series lie side by side, period-0001 and so on, in the folder of the series.

A part is named by the chunk it holds and the SHA-256 of its bytes, so a retry writes the same file
again and readers can detect a damaged one. Every part of the plan has one receipt; the receipts are
what a commit is made of.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from dptrees.dpcore.questions.messages import STATE, UNITS, Part
from dptrees.dpcore.questions.released import CDF, NODES
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.trees.chunks import SPINE, branch_index

MANIFEST, RECORD, NONCE = "manifest.json", "record.json", "nonce.json"
PLAN = "plan.json"
SIGNATURE = "manifest.sig"
# The folders of parts.
PART_KINDS = (NODES, CDF, STATE, UNITS)
# Of a run of a series: what only the next run reads.
SEALED_KINDS = (STATE, UNITS)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file; the same table gives the same bytes."""
    import pyarrow.parquet as pq

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


def concluded_file(name: str) -> str:
    """The path of a table of whole trees within a release.

    >>> concluded_file("quantiles")
    'quantiles.parquet'
    """
    return f"{name}.parquet"


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


def period_folder(period: int) -> str:
    """The folder of a run, within that of its series.

    >>> period_folder(3)
    'period-0003'
    """
    return f"period-{period:04d}"


def run_folder(series: str, period: int) -> str:
    """The folder of a run of a series.

    Args:
        series: the folder of the series, on any filesystem.
        period: of the run.

    >>> run_folder("out/daily", 3)
    'out/daily/period-0003'
    """
    return f"{series.rstrip('/')}/{period_folder(period)}"


# Within the folder of a run of a series, beside what its manifest names.
TO_DATE = "to-date"
SHARED_NAMES = re.compile(r"(universe|keys)-[0-9a-f]{16}\.parquet")


def universe_name(digest: str) -> str:
    """The file of a universe, within the release."""
    return f"universe-{digest[:16]}.parquet"


def keys_name(digest: str) -> str:
    """The file of a table of keys, within the release."""
    return f"keys-{digest[:16]}.parquet"


# The list of the input's files, `transforms.readers.sealed_list`: it exists while a job runs.
INPUT_LIST_NAMES = re.compile(r"\.input-[0-9a-f]{32}-\d{6}\.list")


def input_list_name(token: str, shard: int) -> str:
    """The file of a shard of a list of input files, while a job runs.

    >>> bool(INPUT_LIST_NAMES.fullmatch(input_list_name(32 * "0", 7)))
    True
    """
    return f".input-{token}-{shard:06d}.list"


def sha256(data: bytes) -> str:
    """The checksum of released bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def planned_parts(plan: ReleasePlan) -> Iterator[Part]:
    """Every part that a complete release has."""
    for question in plan.questions:
        yield from question.parts()
