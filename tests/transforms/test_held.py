"""Files and rows held in the process: what a release needs, and nothing on a disk."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dptrees.transforms.beam.adapter import OnBeam
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import sha256
from dptrees.transforms.held import (
    HELD_FILES,
    KEPT_FILES,
    KEPT_SCHEME,
    SCHEME,
    GivenRows,
    held,
    held_rows,
)

FOLDER = f"{SCHEME}://test/out"


@pytest.fixture(autouse=True)
def forgotten():
    yield
    HELD_FILES.taken(FOLDER)


def test_written_once_and_read_back() -> None:
    path = files.join(FOLDER, "record.json")
    assert not files.exists(path)
    assert files.write_once(path, b"first") and not files.write_once(path, b"second")
    assert files.exists(path) and files.read_bytes(path) == b"first"
    files.write_whole(path, b"third")
    assert files.read_bytes(path) == b"third"
    files.delete([path])
    assert not files.exists(path)
    with pytest.raises(files.OutputError):
        files.read_bytes(path)


def test_of_a_part_the_checksum_is_kept() -> None:
    part, table = (files.join(FOLDER, name) for name in ("nodes/a.parquet", "quantiles.parquet"))
    for path in (part, table):
        files.write_whole(path, b"rows")
    assert [*files.names_below(files.join(FOLDER, "nodes"))] == [part]
    assert [*files.names_below(FOLDER)] == [table]
    assert HELD_FILES.taken(FOLDER) == {
        "nodes/a.parquet": (sha256(b"rows"), b""),
        "quantiles.parquet": (sha256(b"rows"), b"rows"),
    }
    assert HELD_FILES.taken(FOLDER) == {} and not files.exists(part)


def test_kept_files_keep_parts_too() -> None:
    folder = FOLDER.replace(SCHEME, KEPT_SCHEME, 1)
    part = files.join(folder, "nodes", "a.parquet")
    files.write_whole(part, b"rows")
    assert files.read_bytes(part) == b"rows"
    assert HELD_FILES.taken(folder) == {}
    assert KEPT_FILES.taken(folder) == {"nodes/a.parquet": (sha256(b"rows"), b"rows")}


# --- rows that this process holds: read like the rows of files ---

BATCHES = [pa.record_batch({"age": [30, 41]}), pa.record_batch({"age": [7]})]


def test_batches_and_their_balance() -> None:
    with held(BATCHES) as number, beam.Pipeline() as pipeline:
        batches, balance = pipeline | OnBeam(GivenRows(number))
        numbers = batches | beam.Map(lambda batch: batch.column("age").to_pylist())
        assert_that(numbers, equal_to([[30, 41], [7]]), "batches")
        assert_that(balance, equal_to([("rows", 3)]), "balance")


def test_held_no_longer_than_the_block() -> None:
    with held(BATCHES) as number, held(BATCHES[:1]) as other:
        assert number != other and held_rows(number) is BATCHES
    with pytest.raises(InputError, match="memory of the process that started the job"):
        held_rows(number)
