"""A file is read exactly, or refused before anything is spent: never with fewer rows."""

import bz2
import gzip
import io
import json
import lzma
import os
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.transforms.beam.release import ReadBatches
from dptrees.transforms.errors import InputError, sentence_in
from dptrees.transforms.readers import read as reading
from dptrees.transforms.readers.formats import START_BYTES, binary_kind, decompressed_start
from dptrees.transforms.readers.read import check_readable
from tests.transforms.conftest import LOCAL_RUNNER
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import make_plan, read_batches

TABLE = pa.table({"x": pa.array(range(100)), "word": ["kumquat"] * 100})
PLAN = make_plan(make_domain({"column": "x", "type": "integer", "lower": 0, "upper": 100}))


def sunk(write: Callable[[pa.BufferOutputStream], object]) -> bytes:
    sink = pa.BufferOutputStream()
    write(sink)
    return bytes(sink.getvalue())


def compressed(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return compress


class Keys(encryption.KmsClient):
    def wrap_key(self, key: bytes, name: str) -> str:
        return key.hex()

    def unwrap_key(self, key: str, name: str) -> bytes:
        return bytes.fromhex(key)


def encrypted() -> bytes:
    factory = encryption.CryptoFactory(lambda _: Keys())
    how = encryption.EncryptionConfiguration("footer", column_keys={"column": ["x"]})
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    return sunk(lambda sink: pq.write_table(TABLE, sink, encryption_properties=properties))


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("rows", data)
    return file.getvalue()


def sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table rows (x)")
        return database.serialize()


def streamed(make: Callable[..., pa.ipc.RecordBatchFileWriter]) -> bytes:
    def write(sink: pa.BufferOutputStream) -> None:
        with make(sink, TABLE.schema) as writer:
            writer.write_table(TABLE)

    return sunk(write)


OBJECTS = TABLE.to_pylist()
LINES = "".join(json.dumps(row) + "\n" for row in OBJECTS).encode()
CSV = sunk(lambda sink: pa_csv.write_csv(TABLE, sink))
TEXTS = {
    "json": LINES,
    "json, CR LF": LINES.replace(b"\n", b"\r\n"),
    "json, CR": LINES.replace(b"\n", b"\r"),
    "json, a mark": b"\xef\xbb\xbf" + LINES,
    "json, blank lines": b"\n \n" + LINES,
    "csv": CSV,
    "csv, CR": CSV.replace(b"\n", b"\r"),
}
OTHERS = {
    "an array": json.dumps(OBJECTS).encode(),
    "an array of lines": b"[\n" + LINES.replace(b"}\n{", b"},\n{") + b"]\n",
    "lines with commas": LINES.replace(b"}\n{", b"},\n{"),
    "pretty-printed": b"".join(json.dumps(row, indent=2).encode() + b"\n" for row in OBJECTS),
    "one pretty object": json.dumps({"rows": OBJECTS}, indent=1).encode(),
    "one object": b'{"rows": [\n' + LINES.replace(b"}\n{", b"},\n{") + b"]}",
    "objects of one line": LINES.replace(b"\n", b""),
    "text sequence": LINES.replace(b"{", b"\x1e{"),
    "events": LINES.replace(b"{", b"data: {"),
    "UTF-16": LINES.decode().encode("utf-16"),
    "UTF-16 without a mark": LINES.decode().encode("utf-16-le"),
    "XML": b"<rows><x>1</x></rows>\n" * 100,
    "key=value": b"x=1 word=kumquat\n" * 100,
    "mail": b"From: kumquat@example.org\n" + b"kumquat: 1\n" * 20,
    "PDF": b"%PDF-1.7\n%\xe2\xe3\n" + b"1 0 obj\n" * 20,
    "parquet": sunk(lambda sink: pq.write_table(TABLE, sink)),
    "encrypted parquet": encrypted(),
    "arrow": streamed(pa.ipc.new_file),
    "arrow stream": streamed(pa.ipc.new_stream),
    "feather 1": b"FEA1\0\0\0\0" + bytes(100) + b"FEA1",
    "orc": sunk(lambda sink: pyarrow.orc.write_table(TABLE, sink)),
    "zip": zipped(CSV),
    "sqlite": sqlite(),
    "deflate": zlib.compress(CSV),
    "xz": lzma.compress(CSV),
    "lzma": lzma.compress(CSV, lzma.FORMAT_ALONE),
    "snappy": b"\xff\x06\0\0sNaPpY" + bytes(range(100)),
}
# A line of bytes may begin as an object does, as in one of many encrypted files.
OTHERS |= {
    f"{name}, a brace": OTHERS[name][:40] + b"\n{\x00\n{"
    for name in ("parquet", "encrypted parquet", "arrow", "orc", "zip", "sqlite", "xz", "snappy")
}
OTHERS |= {
    "compressed twice": gzip.compress(gzip.compress(LINES)),
    "other bytes": b"\x00\n" * 9 + b"{\x00\n",
}
COMPRESSIONS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "none": ("", bytes),
    "gzip": (".gz", gzip.compress),
    "two members": (".gz", lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:])),
    "bz2": (".bz2", bz2.compress),
    "zstd": (".zst", compressed("zstd")),
    "zstd, a frame to skip": (
        ".zst",
        lambda data: b"\x50\x2a\x4d\x18\4\0\0\0kumq" + compressed("zstd")(data),
    ),
    "lz4": (".lz4", compressed("lz4")),
}
IS_OF = {  # what each reader reads
    "csv": {"csv", "csv, CR"},
    "json": {name for name in TEXTS if name.startswith("json")},
    "parquet": {"parquet"},
    "arrow": {"arrow", "arrow stream"},
}


def check_job(path: Path, format: str, rows: int) -> None:
    """Check how many rows a job reads, which nobody looked into before."""
    with beam.Pipeline(LOCAL_RUNNER) as pipeline:
        batches, _ = pipeline | ReadBatches(patterns=(str(path),), format=format, plan=PLAN)
        found = batches | beam.Map(lambda batch: batch.num_rows) | beam.CombineGlobally(sum)
        assert_that(found, equal_to([rows]))


def outcome(path: Path, format: str) -> int | str:
    """The rows that are read of a file, by the reader itself; or the sentence of the refusal."""
    try:
        check_readable([str(path)], format, PLAN, {})
        found = pa.Table.from_batches(read_batches(format, str(path), PLAN))
        assert found["x"].to_pylist() == list(range(100))
        return found.num_rows
    except InputError as error:
        assert "kumquat" not in error.sentence
        return error.sentence


def check_outcome(format: str, compression: str, ending: str, name: str, folder: Path) -> None:
    right, compress = COMPRESSIONS[compression]
    wrong = ".gz" if compression == "none" else ".zst" if right != ".zst" else ".gz"
    path = folder / f"rows{({'right': right, 'none': '', 'wrong': wrong})[ending]}"
    path.write_bytes(compress((TEXTS | OTHERS)[name]))
    is_text, found = format in ("csv", "json"), outcome(path, format)
    is_read = name in IS_OF[format] and (compression == "none" or is_text)
    if is_read and compression == "none" and ending == "wrong" and is_text:
        is_read = False
        assert "is not compressed, although its name" in str(found)
    assert found == 100 if is_read else isinstance(found, str), found


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("format", IS_OF)
def test_a_file_is_read_whole_or_refused(format: str, compression: str, tmp_path: Path) -> None:
    every = product([format], [compression], ["right", "none", "wrong"], TEXTS | OTHERS, [tmp_path])
    check_every_case(check_outcome, every)


@pytest.mark.parametrize("format", IS_OF)
def test_workers_refuse_what_a_launcher_has_not_seen(format: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    kinds = ("json", "csv", "an array", "pretty-printed", "parquet", "XML")
    for name, kind in product(("gzip", "none"), kinds):
        path.write_bytes(COMPRESSIONS[name][1]((TEXTS | OTHERS)[kind]))
        expected = outcome(path, format)
        if isinstance(expected, int):
            check_job(path, format, expected)
            continue
        with pytest.raises(Exception, match="input: ") as caught:
            check_job(path, format, 0)
        assert sentence_in(str(caught.value)) == expected, (kind, name)


KINDS = [
    ("csv", "parquet", "is a Parquet file: say format: parquet"),
    ("csv", "zip", "is a zip archive or an Excel file"),
    ("csv", "mail", "it looks like lines of name: value"),
    ("csv", "XML", "it looks like XML or HTML"),
    ("csv", "an array", "it looks like a JSON array"),
    ("csv", "deflate", "is compressed by deflate, which is not read"),
    ("csv", "UTF-16", "it begins as UTF-16 does: say encoding: utf-16"),
    ("json", "an array", "holds an array, which is not read: write each object on a line"),
    ("json", "an array of lines", "holds an array"),
    ("json", "pretty-printed", "holds objects that go over several lines"),
    ("json", "lines with commas", "end in commas"),
    ("json", "UTF-16", "is in UTF-16: write UTF-8"),
    ("json", "key=value", "none of its first lines is an object; it looks like lines of key="),
    ("json", "snappy", "is compressed by snappy, which is not read"),
    ("parquet", "encrypted parquet", "a Parquet file with an encrypted footer"),
    ("parquet", "arrow", "is an Arrow IPC file or stream: say format: arrow"),
    ("parquet", "orc", "is an ORC file"),
    ("arrow", "feather 1", "is a file of Feather version 1, which is not read"),
    ("arrow", "sqlite", "is a SQLite database"),
]


def test_the_kind_is_named(tmp_path: Path) -> None:
    def check_named(format: str, kind: str, words: str) -> None:
        (tmp_path / "rows").write_bytes(OTHERS[kind])
        assert words in str(outcome(tmp_path / "rows", format))

    check_every_case(check_named, KINDS)


def files_of(format: str, folder: Path, number: int) -> list[str]:
    """Write some files that a format reads; return their paths."""
    good = (TEXTS | OTHERS)[min(IS_OF[format], key=len)]
    for each in range(number):
        (folder / f"{each:02}").write_bytes(good)
    return sorted(map(str, folder.iterdir()))


@pytest.mark.parametrize("format", IS_OF)
def test_one_unreadable_file_among_many(format: str, tmp_path: Path) -> None:
    paths = files_of(format, tmp_path, 40)
    (tmp_path / "23").write_bytes(OTHERS["zip"])
    with pytest.raises(InputError, match="23 is a zip archive"):
        check_readable(paths, format, PLAN, {})


@pytest.mark.parametrize("format", IS_OF)
def test_files_of_a_store_are_known_by_their_first_bytes(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_file(path: str) -> str:
        opened.append(path)
        return path

    monkeypatch.setattr(reading, "is_local", lambda path: False)
    monkeypatch.setattr(reading, "open_file", open_file)
    paths = files_of(format, tmp_path, 5)
    check_readable(paths, format, PLAN, {})
    assert opened == paths[:1]  # the others cost one small request each
    bad = gzip.compress(OTHERS["pretty-printed"] * 20) if format == "json" else OTHERS["zip"]
    (tmp_path / "03").write_bytes(bad)
    with pytest.raises(InputError, match=r"03 (is a zip archive|holds objects that go over)"):
        check_readable(paths, format, PLAN, {})


def test_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.touch()
    refused = {each: str(outcome(path, each)) for each in ("csv", "parquet", "arrow")}
    assert refused["csv"] == f"input: {path} is empty, without even a header"
    assert refused["parquet"] == refused["arrow"] == f"input: {path} is empty"
    check_readable([str(path)], "json", PLAN, {})
    check_job(path, "json", 0)


MALFORMED = [b'{"x": 1, "y', b"oops", b"{", b'{"x": 1} {"x": 2}', b"\xff"]


def test_a_malformed_first_line_is_left_out_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for line in (*MALFORMED, b'le": 5}', b"[1]"):
        if line != b"{":
            path.write_bytes(line + b"\n" + LINES)
            assert outcome(path, "json") == 100, line
    # A long first line is read, whatever lies in it.
    long = json.dumps({"x": 0, "y": "a" * 2 * START_BYTES}).encode() + b"\n"
    path.write_bytes(long + LINES.split(b"\n", 1)[1])
    assert outcome(path, "json") == 100
    # A file of one such line alone reports nothing of it.
    for line in (*MALFORMED, b"null", b'{"x":1},'):
        path.write_bytes(line + b"\n")
        check_readable([str(path)], "json", PLAN, {})


def test_what_begins_as_a_mark_of_a_format_may_be_text() -> None:
    in_rows = [b"ORCID,age\n1\0,41\n", b"PARENT,age\nAnn\x7f\0,41\n", b"x\x01y\n1\x012\n"]
    words = [b"PARENT,age\n1,2", b"ORC,age", b"BZh9,x", b"x^2,y", b"Obj,x", b"FEA1,x", b"PK,x"]
    assert [start for start in (*in_rows, *words) if binary_kind(start)] == []
    assert decompressed_start(gzip.compress(os.urandom(2**18))[:START_BYTES])
