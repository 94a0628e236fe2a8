"""What becomes of a row of a CSV file depends on that row alone."""

import io
import itertools
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import example, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import csv_rows
from dptrees.transforms.readers.csv_format import CsvFormat, is_utf8, line_ends, not_utf8
from dptrees.transforms.readers.csv_rows import MalformedHeader, read_header, well_formed_rows
from dptrees.transforms.readers.read import FileSplit
from tests.memory import stays_below
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import read_csv, text_plan

LIMIT = 24  # of the bytes of a row
LINES = [
    *(b"1,a", b'"2",b', b'3,"c,d"', b'4,"e""f"', b",", b'"",""', b"\xc3\xa9,\xe2\x82\xac", b" "),
    # Quotes that open nothing, or are never closed, or close and are followed by text.
    *(b'"', b'""', b'"""', b'""""', b'5,"', b'"5,x', b'5,"x""', b'6,a"b', b'7,"a"b', b'8,"a"b"c'),
    *(b'9,"a"b"', b'" ,"', b'a","', b'x,"\xff', b'"\xef\xbb\xbf'),
    # Too few and too many fields; other bytes than UTF-8; marks, zeros and other separators.
    *(b"1", b"1,2,3", b"1,2,3,4", b"1,\xff", b"\xe9,1", b"1,\xe2\x80", b"\x80", b"1,\xed\xa0\x80"),
    *(b"\xef\xbb\xbf1,a", b'\xef\xbb\xbf"1",a', b"\xef\xbb\xbf", b"\0,\0", b"1,\xe2\x80\xa8x"),
    *(b"1,\x0b\x0c\x1c", b"", b"1,\xc2\x85"),
    # As long as allowed, and too long.
    *(b"1," + b"x" * (LIMIT - 2), b"1," + b"x" * (LIMIT - 1), b'1,"' + b"x" * LIMIT),
    *(b"\xff" * 40, b'"' * LIMIT, b'"' * (LIMIT + 1), b'"' * 40, b",".join([b'""'] * 30)),
]
LINE = st.sampled_from(LINES) | st.lists(
    st.sampled_from([b'"', b'""', b",", b"a", b"\xc3", b"\xa9"]), max_size=12
).map(b"".join)
ENDED = st.lists(st.tuples(LINE, st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])), max_size=12)
HEADERS = [b"value,other\n", b"\xef\xbb\xbfvalue,other\r\n", b"value\n", b'\n\r\n"value",b,"c,d"\n']
SIZES = st.integers(1, LIMIT)


PLAN = text_plan("value")


def read(text: bytes, block: int = LIMIT, **rules: object) -> list[str | None]:
    """The values of a file."""
    return [value for (value,) in read_csv(text, PLAN, block=block, limit=LIMIT, **rules)]


@lru_cache(maxsize=100_000)
def alone(header: bytes, row: bytes, newlines: bool) -> tuple[str | None, ...]:
    return tuple(read(header + row, newlines=newlines))


def joins(header: bytes, ended: list[tuple[bytes, bytes]], block: int, last: bool) -> bool:
    """Whether a file is read as each of its lines would be alone."""
    text = header + b"".join(line + end for line, end in ended)
    text = text if last or not ended else text.removesuffix(ended[-1][1])
    apart = [value for line, end in ended for value in alone(header, line + end, False)]
    return read(text, block) == apart


@settings(max_examples=400, deadline=None)
@given(header=st.sampled_from(HEADERS), ended=ENDED, block=SIZES, last=st.booleans())
@example(header=HEADERS[0], ended=[(b'"5,x', b"\n"), (b"1,a", b"\n")], block=1, last=False)
@example(
    header=HEADERS[0],
    ended=[(b'9,"b', b"\n"), (b"1,a", b"\n"), (b'8,"c"', b"\n")],
    block=9,
    last=True,
)
@example(header=HEADERS[0], ended=[(LINES[-6], b"\n"), (b"1,a", b"\n")], block=7, last=True)
def test_each_line_alone(header, ended, block, last) -> None:
    assert joins(header, ended, block, last)


@pytest.mark.parametrize("before", LINES)
def test_neighbours_of_every_kind(before) -> None:
    for line, header in product(LINES, HEADERS[:3:2]):
        ended = [(before, b"\n"), (line, b"\r\n"), (before, b"\r"), (b"1,a", b"\n")]
        assert joins(header, ended, LIMIT, True), line


def test_without_the_pass_lines_are_joined(monkeypatch) -> None:
    def off(rest, stream, csv, malformed) -> Iterator[bytes]:
        yield rest + stream.read() + b"\n"

    monkeypatch.setattr(csv_rows, "well_formed_rows", off)
    plain = [b"1,a", b"2,b", b'"5,x', b'3,"y', b'"', b'z"']
    lists = st.lists(st.sampled_from(plain).map(lambda line: (line, b"\n")), max_size=5)
    few = settings(max_examples=400)
    alone.cache_clear()
    find(lists, lambda ended: not joins(HEADERS[0], ended, LIMIT, True), settings=few)
    alone.cache_clear()
    monkeypatch.undo()
    with pytest.raises(NoSuchExample):
        find(lists, lambda ended: not joins(HEADERS[0], ended, LIMIT, True), settings=few)


KEPT = {
    b"1,a": "1",
    b'"2",b': "2",
    b'3,"c,d"': "3",
    b'6,a"b': "6",
    b'"7"x,b': "7x",
    b'"a"b"c"",d': 'ab"c""',
    b'" ""8"" ",x': ' "8" ',
    b"\xef\xbb\xbf1,a": "\ufeff1",
    b"\0,\0": "\0",
    b"1," + b"x" * (LIMIT - 2): "1",
}
DROPPED = [
    *(b'"1,a', b'1,"a', b'1,"a""', b'"', b'"""', b"1", b"1,2,3", b"1,\xff", b"\xe9,1"),
    *(b"1,\xe2\x82", b"1," + b"x" * (LIMIT - 1), b'"1","' + b"x" * LIMIT + b'"', b""),
]


def check_kept(line: bytes, newlines: bool) -> None:
    text = b"value,b\n0,a\n" + line + b"\n9,z\n"
    assert read(text, newlines=newlines) == ["0", KEPT[line], "9"]
    assert read(text, malformed="fail", newlines=newlines) == ["0", KEPT[line], "9"]


def check_dropped(line: bytes) -> None:
    text = b"value,b\n0,a\n" + line + b'\n9,"z"\n'
    assert read(text) == ["0", "9"]
    assert read(text.removesuffix(b'9,"z"\n')) == ["0"]


def check_failing(line: bytes, newlines: bool) -> None:
    with pytest.raises(InputError) as caught:
        read(b"value,b\n0,a\n" + line + b"\n", newlines=newlines, malformed="fail")
    assert caught.value.sentence == (
        "input: x.csv has a malformed row, and input.malformed is fail: as many fields as in the "
        "header, every quote closed, UTF-8, and at most 16 MiB"
    )
    assert caught.value.__suppress_context__


def test_lines_that_are_rows_and_lines_that_are_not(capfd) -> None:
    """The policy to fail reports only that there is one that is not."""
    check_every_case(check_kept, product(KEPT, [False, True]))
    check_every_case(check_dropped, [(line,) for line in DROPPED])
    check_every_case(check_failing, product(filter(None, DROPPED), [False, True]))
    assert capfd.readouterr() == ("", "")


# With newlines in values.


def slow_ends(text: bytes, newlines: bool) -> list[tuple[int, bool]]:
    """The ends of lines and whether they are in a quoted field, byte by byte."""
    ends, is_open, fresh, place = [], False, True, 0
    while place < len(text):
        code = text[place : place + 1]
        if code in b"\r\n":
            ends.append((place, is_open))
            is_open &= newlines
            fresh = not is_open
        elif is_open and text[place : place + 2] == b'""':
            place += 1
        elif is_open:
            is_open = code != b'"'
        else:
            is_open = fresh and code == b'"'
            fresh = code == b","
        place += 1
    return ends


@settings(max_examples=400, deadline=None)
@given(parts=st.lists(st.sampled_from([b'"', b'""', b",", b"a", b"\n", b"\r\n"]), max_size=30))
@pytest.mark.parametrize("newlines", [False, True])
def test_ends_inside_quotes(newlines, parts) -> None:
    text = b"".join(parts)
    ends, inside = line_ends(text, newlines=newlines)
    assert list(zip(ends.tolist(), inside.tolist(), strict=True)) == slow_ends(text, newlines)


def slow_rows(text: bytes) -> list[bytes]:
    """The rows of a file whose quoted values may hold line ends."""
    places = [place + 1 for place, is_open in slow_ends(text, True) if not is_open]
    starts = [0, *places]
    return [text[start:stop] for start, stop in zip(starts, [*places, len(text)], strict=True)]


@settings(max_examples=400, deadline=None)
@given(header=st.sampled_from(HEADERS), ended=ENDED, block=SIZES)
@example(header=HEADERS[0], ended=[(b'"' * n, b"\n") for n in (41, 40, 1)], block=3)
@example(header=HEADERS[0], ended=[(b'1,"' + b"x" * 40 + b'"', b"\n"), (b"1,a", b"\n")], block=5)
def test_each_record_alone(header, ended, block) -> None:
    text = b"".join(line + end for line, end in ended)
    apart = [value for row in slow_rows(text) for value in alone(header, row, True)]
    assert read(header + text, block, newlines=True) == apart


def test_values_with_newlines() -> None:
    text = b'value,"b\nc"\n"1\n2",a\r\n"3\r\n4",b\n5,"open\n6,c\n'
    assert read(text, newlines=True) == ["1\n2", "3\r\n4"]
    with pytest.raises(InputError, match="is not a CSV file in UTF-8 that begins with a header"):
        read(text)
    # A row that is too long ends where its quoted field does.
    long = b'1,"' + b"x\n" * LIMIT + b'"\n2,b\n'
    assert read(b"value,b\n" + long, newlines=True) == ["2"]


# The header, the encoding, and what is no fault of the file.


def check_refused_header(text: bytes, block: int) -> None:
    csv = CsvFormat(row_bytes=LIMIT, block_bytes=block)
    with pytest.raises(MalformedHeader):
        read_header(io.BytesIO(text), csv)
    is_empty = not text.strip(b"\xef\xbb\xbf\r\n")
    fault = "is empty" if is_empty else "is not a CSV file in UTF-8 that begins"
    with pytest.raises(InputError, match=rf"x\.csv {fault}"):
        csv_rows.splits(io.BytesIO(text), "x.csv", PLAN, csv)


def check_header(text: bytes, block: int) -> None:
    assert read(text, block) == []
    assert csv_rows.splits(io.BytesIO(text), "x.csv", PLAN) == ([(0, 0)], 0)


def test_headers() -> None:
    read = [b"value,b", b"\xef\xbb\xbf\n\rvalue,b\n", b'"value"\r']
    refused = [b"", b"\n\r\n", b"\xef\xbb\xbf", b'value,"b\n', b"value,\xff\n"]
    check_every_case(check_header, product(read, [1, 2, 3, 5, LIMIT]))
    check_every_case(check_refused_header, product([*refused, b"value" * 9 + b"\n"], [1, 5, LIMIT]))


def test_every_form_of_bytes_that_are_not_utf8() -> None:
    # Both sides of every bound of table 3-7 of the Unicode standard.
    kinds = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
    lines = [bytes(line) for length in (1, 2, 3, 4) for line in product(kinds, repeat=length)]
    text = b"\n".join(lines) + b"\n"
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    found = np.zeros(len(lines), bool)
    found[np.searchsorted(ends, not_utf8(text))] = True
    assert found.tolist() == [line != line.decode(errors="ignore").encode() for line in lines]
    for line in lines[:: len(lines) // 5000]:
        assert is_utf8(line) == (line == line.decode(errors="ignore").encode())


@pytest.mark.parametrize("newlines", [False, True])
def test_memory_stays_flat_in_the_longest_row(newlines) -> None:
    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            blocks = itertools.cycle([b'"' * 64, b',"' * 32, b"x" * 63])
            self.blocks = itertools.islice(blocks, 6000)

        def read(self, size=-1) -> bytes:
            return next(self.blocks, b"")

    csv = CsvFormat(row_bytes=64, block_bytes=64, newlines=newlines)
    read = []
    assert stays_below(  # of 400,000 bytes
        100_000, lambda: read.append(list(well_formed_rows(b"", Endless(), csv)))
    )
    assert not any(read)


@pytest.mark.parametrize("function", ["read_csv", "OSFile"])
def test_too_little_memory_is_no_fault_of_the_file(function, monkeypatch, tmp_path) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4711 failed")

    monkeypatch.setattr(pa_csv if function == "read_csv" else pa, function, fail)
    path = str(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("value\n1\n")
    with pytest.raises(pa.ArrowMemoryError):
        csv_rows.splits(path, path, PLAN)
    with pytest.raises(pa.ArrowMemoryError):
        list(csv_rows.batches(path, FileSplit(path, 0, 0, 0), PLAN))
