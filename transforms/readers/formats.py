"""The formats and compressions of files that rows are read from, recognized by their first bytes.

The end of a name may be wrong, so the bytes decide; a message names their kind and shows none. A
new format is a module `transforms/readers/NAME_rows.py` with the members of `Reader`.
"""

import codecs
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError, may_pass, not_now
from dptrees.transforms.folder.stores import scheme_of, store_of

START_BYTES = 2**16
_COMPRESSED = {
    "gzip": rb"\x1f\x8b",
    "bz2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "lz4": rb"\x04\x22\x4d\x18",
}
_COMPRESSED_NAMES = (".gz", ".bz2", ".zst", ".zstd", ".lz4", ".xz", ".snappy", ".deflate", ".br")
# Bytes that no text has.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x19\x1c-\x1f]")
_FORMATS = {
    "parquet": (rb"PAR1", "is a Parquet file: say format: parquet"),
    # A stream has the length of its first message next; a Latin text may begin with \xff too.
    "arrow": (
        rb"ARROW1\x00|\xff{4}[\x00-\xff]{3}\x00",
        "is an Arrow IPC file or stream: say format: arrow",
    ),
}
_OTHERS = (
    (rb"PARE", "is a Parquet file with an encrypted footer, which is not read: decrypt it"),
    (rb"FEA1", "is a file of Feather version 1, which is not read: write version 2"),
    (rb"ORC", "is an ORC file, which is not read: write Parquet"),
    (rb"Obj\x01", "is an Avro file, which is not read: write Parquet"),
    (rb"PK(\x03\x04|\x05\x06)", "is a zip archive or an Excel file: unpack it, or write CSV"),
    (rb"\xd0\xcf\x11\xe0", "is an old Excel file: write CSV"),
    (rb"7z\xbc\xaf|Rar!\x1a", "is an archive: unpack it"),
    (
        rb"\xfd7zXZ\x00|\x5d\x00\x00",
        "is compressed by xz or lzma, which is not read: decompress it",
    ),
    (rb"\xff\x06\x00\x00sNaPpY", "is compressed by snappy, which is not read: decompress it"),
    (rb"SQLite format 3\x00", "is a SQLite database: say format: adbc"),
)
_DEFLATE = re.compile(rb"x[\x01\x5e\x9c\xda]")
_TEXTS = (
    (rb"\{", "it looks like JSON lines: say format: json"),
    (rb"\[[\s{\[\"\d-]", "it looks like a JSON array, which is not read: write JSON lines"),
    (rb"<", "it looks like XML or HTML, which is not read"),
    (rb"[\w.-]+:\s|From ", "it looks like lines of name: value, as in a mail or YAML"),
    (rb"[\w.-]+=", "it looks like lines of key=value, which are not read"),
)


def compression_of(start: bytes) -> str | None:
    """The compression of a file that is read; None of others.

    >>> compression_of(b"\\x1f\\x8b\\x08"), compression_of(b"age,city")
    ('gzip', None)
    """
    return next((name for name, mark in _COMPRESSED.items() if re.match(mark, start)), None)


def binary_kind(start: bytes, format: str = "") -> str:
    """Return the kind of a file that is neither text nor of a format, as a sentence's end; "":
    the file may be of the format.

    Args:
        start: the first bytes.
        format: the one that is expected; its own marks are no fault.

    >>> binary_kind(b"PARE\\x00\\x01"), binary_kind(b"PARENT,age")
    ('is a Parquet file with an encrypted footer, which is not read: decrypt it', '')
    """
    if _DEFLATE.match(start) and _is_deflated(start):
        return "is compressed by deflate, which is not read: decompress it"
    others = [each for name, each in _FORMATS.items() if name != format]
    for mark, words in (*others, *_OTHERS):
        found = re.match(mark, start)
        if found is None:
            continue
        # `ORC` and `PARE` also begin names of columns: then no such byte follows at once.
        is_text = format not in _FORMATS and found[0].isalnum()
        if not is_text or _CONTROL.search(start, found.end(), found.end() + 4):
            return words
    return ""


def _is_deflated(start: bytes) -> bool:
    stream = zlib.decompressobj()
    try:
        stream.decompress(start)
    except zlib.error:
        return False
    return stream.eof or len(start) == START_BYTES


def text_kind(start: bytes) -> str:
    """Return the kind of a text that is no table; "": no known kind.

    >>> text_kind(b'{"age": 41}')
    'it looks like JSON lines: say format: json'
    """
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    return next((words for mark, words in _TEXTS if re.match(mark, text)), "")


def is_utf16(start: bytes) -> bool:
    """Whether a file begins as text in UTF-16 does: with its mark, or with a letter of ASCII."""
    return start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or start[:4].count(0) in (2, 3)


def fault_of_start(start: bytes, path: str, format: str) -> str:
    """Return why a file is certainly not of a format, as a sentence's end; "": it may be.

    Args:
        start: the first bytes, as they are stored.
        path: of the file.
        format: one of `FORMATS`.
    """
    compression, is_text = compression_of(start), format not in _FORMATS
    if not start:
        return "" if is_text else "is empty"
    if compression:
        return "" if is_text else f"is compressed by {compression}: decompress it"
    if fault := binary_kind(start, format):
        return fault
    is_called_so = is_text and path.endswith(_COMPRESSED_NAMES)
    return "is not compressed, although its name says so: rename it" if is_called_so else ""


def check_start(start: bytes, path: str, format: str) -> None:
    """Refuse a file that is certainly not of a format; arguments are as of `fault_of_start`.

    Raises:
        InputError: it is of another format, or in a compression that is not read.
    """
    if fault := fault_of_start(start, path, format):
        raise InputError(f"input: {path} {fault}")


def read_start(path: str) -> bytes:
    """The first bytes of a file, at most `START_BYTES`, in one small request to a store.

    Raises:
        Exception: as of the filesystem.
    """
    with store_of(path).open(path) as opened:
        file: Any = opened
        # Beam's buffers would fetch 16 MiB: of S3 around the file, of Google within it.
        if hasattr(file, "_chunk_size"):
            file._chunk_size = START_BYTES
        unbuffered = getattr(file, "raw", file) if scheme_of(path) else file
        return bytes(unbuffered.read(START_BYTES))


def decompressed_start(start: bytes) -> bytes:
    """The first bytes of a text, from the beginning of its file, which may end anywhere.

    >>> decompressed_start(b"age,city")
    b'age,city'
    """
    compression, text = compression_of(start), b""
    if compression is None:
        return start
    stream = pa.CompressedInputStream(pa.BufferReader(start), compression)
    with suppress(OSError, EOFError, pa.ArrowException):
        while len(text) < START_BYTES and (data := stream.read(2**10)):
            text += data
    return text


def text_stream(file: Any, path: str, format: str) -> Any:
    """The bytes of a file of text, decompressed as its first bytes say.

    Args:
        file: a path, or a binary file at its start.
        path: of it, for messages.
        format: of text, one of `FORMATS`.

    Raises:
        InputError: as of `check_start`.
    """
    stream = pa.OSFile(file) if isinstance(file, str) else file
    start = stream.read(START_BYTES)
    stream.seek(0)
    check_start(start, path, format)
    compression = compression_of(start)
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


FORMATS = ("parquet", "csv", "arrow", "json")
# Formats whose files are text and state no types of columns.
OF_TEXT = ("csv", "json")

# Endings of files of a format, where only the name shows it; others are Parquet.
_ENDINGS = {
    "csv": (".csv", ".csv.gz"),
    "arrow": (".arrow", ".arrows", ".feather"),
    "json": (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
}


class Reader(Protocol):
    """The reader of a format. `options` are the format's, by name."""

    # Whether a file states its number of rows before they are read.
    COUNTS_ROWS: int
    # Files of a store of at most so many bytes are one split, (0, 0), and are not opened to see so.
    WHOLE_BYTES: int

    def splits(
        self, file: Any, path: str, plan: ReleasePlan, **options: Any
    ) -> tuple[list[tuple[int, int]], int]:
        """The parts of a file that workers read each by itself, as (start, stop), and its number of
        rows, 0 where it is not stated.

        Raises:
            InputError: not such a file, or a column is missing or of a type that cannot be used.
        """

    def batches(
        self, file: Any, split: Any, plan: ReleasePlan, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split, with the columns that a plan reads.

        Raises:
            InputError: the file is damaged.
        """

    def describe_columns(self, file: Any, path: str, **options: Any) -> dict[str, str]:
        """The columns of a file and the types that they have, as words; for who has the file.

        Raises:
            InputError: it is no such file, or is damaged.
        """


def find_reader(format: str) -> Reader:
    """The reader of one of `FORMATS`.

    >>> find_reader("parquet").COUNTS_ROWS
    1
    """
    return cast(Reader, import_module(f"dptrees.transforms.readers.{format}_rows"))


def format_of_names(paths: Sequence[str]) -> str:
    """The format that all of some files are called by; Parquet where they are not.

    >>> format_of_names(["a.jsonl", "b.jsonl.gz"]), format_of_names(["a.csv", "b"])
    ('json', 'parquet')
    """
    for format, endings in _ENDINGS.items():
        if all(path.endswith(endings) for path in paths):
            return format
    return "parquet"


@contextmanager
def reading(path: str, otherwise: str, format: str = "") -> Iterator[None]:
    """Report faults of the system and of Arrow, while a file is read, as the input's: never in a
    library's words, which may show a value.

    Args:
        path: of the file.
        otherwise: what the file is, where it can be read and is not what it should be.
        format: the one that its first bytes should show; "": they have been looked at.

    Raises:
        InputError: it is not there, may not be read, cannot be read now, or is damaged.

    >>> with reading("a.csv", "is not a CSV file"):
    ...     raise pa.ArrowInvalid("a value")
    Traceback (most recent call last):
    dptrees.transforms.errors.InputError: <dptrees: input: a.csv is not a CSV file, or is ...
    """
    try:
        yield
    except MemoryError:  # Arrow's too; it says nothing about the file
        raise
    except FileNotFoundError:
        raise InputError(f"input: {path} does not exist") from None
    except PermissionError:
        raise InputError(f"input: {path} cannot be read: permission denied") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if may_pass(error):
            raise not_now(path, error) from None
        fault = _kind(path, format) if format else ""
        raise InputError(
            f"input: {path} {fault or f'{otherwise}, or is damaged or cut short'}"
        ) from None


def _kind(path: str, format: str) -> str:
    """Return the kind of a file that is not of a format; "" if its first bytes do not show it."""
    with suppress(Exception):  # every filesystem has errors of its own
        return fault_of_start(read_start(path), path, format)
    return ""
