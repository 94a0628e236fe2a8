"""In every dialect what becomes of a row of a CSV file depends on that row alone."""

import io
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.csv_format import (
    _KNOWN,
    CsvFormat,
    Marks,
    NoByteOrderMark,
    as_utf8,
    encoding_named,
    line_ends,
)
from dptrees.transforms.readers.csv_values import CsvTexts
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import read_csv

from .test_csv_lines import LIMIT, LINES, PLAN, slow_ends

SEPARATORS = [";", "\t", "|", " ", "\x01", "'"]
QUOTES = ['"', "'", "~", None]
DIALECTS = [(a, b) for a in SEPARATORS for b in QUOTES if a != b]
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])
SIZES = st.integers(1, LIMIT)
WIDE = ["utf-16", "utf-16-le", "utf-16-be"]
NARROW = sorted(_KNOWN - set(WIDE) - {"utf-8"})


def read(data: bytes, block: int = LIMIT, limit: int = LIMIT, **rules: object) -> list[str | None]:
    """The values of a file."""
    return [value for (value,) in read_csv(data, PLAN, block=block, limit=limit, **rules)]


def spoken(line: bytes, separator: str, quote: str | None) -> bytes:
    """A line of commas and double quotes in another dialect, letter by letter."""
    found = line.replace(b",", b"\0\0").replace(b'"', (quote or '"').encode())
    return found.replace(b"\0\0", separator.encode())


@lru_cache(maxsize=100_000)
def alone(head: bytes, row: bytes, separator: str, quote: str | None) -> tuple[str | None, ...]:
    return tuple(read(head + row, separator=separator, quote=quote))


@settings(max_examples=150, deadline=None)
@given(
    dialect=st.sampled_from(DIALECTS),
    lines=st.lists(st.tuples(st.sampled_from(LINES), ENDS), max_size=8),
    block=SIZES,
)
def test_each_line_alone_in_every_dialect(dialect, lines, block) -> None:
    separator, quote = dialect
    head = f"value{separator}other\n".encode()
    rows = [spoken(line, *dialect) + end.encode() for line, end in lines]
    apart = [value for row in rows for value in alone(head, row, *dialect)]
    assert read(head + b"".join(rows), block, separator=separator, quote=quote) == apart


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(st.sampled_from(["'", "''", ";", '"', ",", "a", "\n", "\r\n"]), max_size=30),
    newlines=st.booleans(),
)
def test_ends_inside_other_quotes(parts, newlines) -> None:
    text = "".join(parts)
    swapped = text.translate(str.maketrans({"'": '"', '"': "'", ";": ",", ",": ";"}))
    ends, inside = line_ends(text.encode(), newlines=newlines, marks=Marks(b";", b"'"))
    found = list(zip(ends.tolist(), inside.tolist(), strict=True))
    assert found == slow_ends(swapped.encode(), newlines)
    # Without quotes no line is open.
    assert not line_ends(text.encode(), newlines=False, marks=Marks(b";", None))[1].any()


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.sampled_from(LINES), max_size=6), block=SIZES)
def test_records_of_another_dialect(lines, block) -> None:
    def values(separator: str, quote: str) -> list[str]:
        rows = [spoken(line, separator, quote) + b"\n" for line in lines]
        text = f"value{separator}b\n".encode() + b"".join(rows)
        return list(map(str, read(text, block, newlines=True, separator=separator, quote=quote)))

    # Lines that hold what the dialects swap are other lines there.
    if not any(mark in line for line in lines for mark in (b";", b"'")):
        swapped = [each.replace("'", '"').replace(";", ",") for each in values(";", "'")]
        assert swapped == values(",", '"')


def test_each_mark_of_a_dialect() -> None:
    assert read(b"value;b\n1;'a;b'\n2;\"c\n", separator=";", quote="'") == ["1", "2"]
    assert read(b'value\tb\n"1\t2\n', separator="\t", quote=None) == ['"1']
    assert read(b"a\x01value\nx\x01y\n", separator="\x01") == ["y"]
    assert read(b" a , value \n1, 2 \n3,  \n", texts=CsvTexts(trim=True)) == ["2", None]
    assert read(b'value,b\n1,\nNA,\n"-",\n"",\n', texts=CsvTexts(null_values=("NA", "-"))) == [
        *("1", None, None, "")
    ]


# Without a header.


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.tuples(st.sampled_from(LINES), ENDS), max_size=6), block=SIZES)
def test_each_line_alone_without_a_header(lines, block) -> None:
    rows = [line + end.encode() for line, end in lines]
    head = b"value,other\n"
    # A mark of the file's is no part of its first row.
    first = rows[0].removeprefix(b"\xef\xbb\xbf") if rows else b""
    apart = [value for row in (first, *rows[1:]) for value in alone(head, row, ",", '"') if row]
    assert read(b"".join(rows), block, columns=("value", "other")) == apart


def test_a_byte_order_mark_without_a_header() -> None:
    for block in (1, 2, 3, 4, LIMIT):
        assert read(b"\xef\xbb\xbf1,2\n3,4\n", block, columns=("value", "b")) == ["1", "3"]
        assert read(b"\xef\xbb", block, columns=("value", "b")) == []
        assert read(b"", block, columns=("value", "b")) == []
        assert read(b"1,2,3\n3,4\n", block, columns=("value", "b")) == ["3"]


# In other encodings.

WORDS = ["1", "é", "Ж", "日本", "ﾊ", "€", "ß", "\u201c", ",", '"', "", "x" * 9]


@pytest.mark.parametrize("encoding", NARROW + WIDE)
@settings(max_examples=12, deadline=None)
@given(
    lines=st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map("".join), max_size=6),
    block=st.integers(1, 64),
)
def test_a_file_in_another_encoding_is_that_in_utf_8(encoding, lines, block) -> None:
    known = [line.encode(encoding, "ignore").decode(encoding) for line in lines]
    known = [line.lstrip("\ufeff") for line in known]
    text = "".join(f"{line}\n" for line in ("value,b", *known))
    expected = read(text.encode(), block, 64)
    assert read(text.encode(encoding), block, 64, encoding=encoding) == expected


def check_line_ends(encoding: str) -> None:
    starts = [bytes([first]) for first in range(256)]
    starts += [bytes([0x81, 0x30, first]) for first in range(0x80, 256)]
    for start in starts:
        if start not in (b"\n", b"\r"):
            text = as_utf8(io.BytesIO(b"a" + start + b"\nb\xe9\rc\n"), encoding).read(100)
            assert text.count(b"\n") == 2 and text.count(b"\r") == 1, start
            assert text.startswith(b"a") and text.endswith(b"c\n"), start


def test_a_line_end_ends_what_is_before_it() -> None:
    """Whatever bytes are before it, also the first ones of a character of several."""
    check_every_case(check_line_ends, [(encoding,) for encoding in NARROW])


@pytest.mark.parametrize("encoding", NARROW)
@settings(max_examples=25, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=6).map(lambda each: each.replace(b"\0", b"")), max_size=6),
    block=st.integers(1, 64),
)
def test_each_line_of_any_bytes_alone(encoding, lines, block) -> None:
    rows = [line.replace(b"\n", b"").replace(b"\r", b"") + b",1\n" for line in lines]
    head = b"value,b\n"
    apart = [value for row in rows for value in read(head + row, 64, 64, encoding=encoding)]
    assert read(head + b"".join(rows), block, 64, encoding=encoding) == apart


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(
        st.lists(st.sampled_from(["\ud800", "\udfff", "\U0001f600", "a", "é", ","]), max_size=5),
        max_size=6,
    ),
    block=st.integers(1, 64),
    odd=st.booleans(),
)
def test_lone_surrogates_spoil_their_line_alone(encoding, lines, block, odd) -> None:
    texts = ["".join(line).encode("utf-16-le", "surrogatepass") for line in lines]
    rows = [text.decode("utf-16-le", "surrogatepass") + ",1\n" for text in texts]
    head = "value,b\n"

    def of(*texts: str) -> bytes:
        return "".join(texts).encode(encoding, "surrogatepass")

    apart = [v for row in rows for v in read(of(head, row), 64, 64, encoding=encoding)]
    whole = of(head, *rows)
    assert read(whole, block, 64, encoding=encoding) == apart
    if odd:  # half a character at the end is a line that is malformed
        assert read(whole + b"x", block, 64, encoding=encoding) == apart


def test_what_is_malformed_in_its_encoding_drops_its_line() -> None:
    odd = {"cp1252": b"\x81", "gb18030": b"\xff", "shift_jis": b"\x81", "ascii": b"\xe9"}
    for encoding, letter in odd.items():
        data = b"value,b\n1,x\n2," + letter + b"\n3,x\n" + letter + b",x\n4,x"
        assert read(data, encoding=encoding) == ["1", "3", "4"], encoding
        with pytest.raises(InputError, match=f"every quote closed, {encoding}, and at most"):
            read(data, encoding=encoding, malformed="fail")


def test_a_row_is_as_long_as_it_is_in_utf_8() -> None:
    lines = ["value,b", "1,x", "0," + "é" * 40, "2," + "é" * 31, "4," + "é" * 32, "3,x"]
    data = "\n".join(lines).encode("latin-1")
    for block in (1, 7, 64):
        assert read(data, block, 64, encoding="latin-1") == ["1", "2", "3"]


def test_utf_16_begins_with_its_mark() -> None:
    assert read("value,b\n1,é\n".encode("utf-16"), 3, 64, encoding="utf-16") == ["1"]
    with pytest.raises(NoByteOrderMark):
        as_utf8(io.BytesIO(b"value,b\n"), "utf-16").read(10)
    with pytest.raises(InputError, match="is not in utf-16, which begins with a byte order"):
        read(b"value,b\n1,2\n", encoding="utf-16")
    with pytest.raises(InputError, match="it begins as UTF-16 does: say encoding: utf-16"):
        read("value,b\n1,é\n".encode("utf-16"))
    assert read(b"", columns=("value",), encoding="utf-16") == []


def test_names_of_encodings() -> None:
    for name, found in (("Latin1", "iso8859-1"), ("UTF-8-sig", "utf-8"), ("utf_16", "utf-16")):
        assert encoding_named(name) == found
    for name in ("utf-7", "cp037", "iso2022_jp", "rot13", "base64", "utf-32", "\0", "nonsense"):
        with pytest.raises(ValueError, match="is not an encoding that is read; "):
            encoding_named(name)


def test_what_a_dialect_cannot_be() -> None:
    for rules, rule in (
        ({"separator": ";;"}, "separator: ';;' must be one character of ASCII, and no letter"),
        ({"separator": "é"}, "separator: 'é' must be one character"),
        ({"separator": "1"}, "separator: '1' must be one character"),
        ({"separator": "\n"}, "must be one character"),
        ({"separator": '"'}, "quote: '\"' is the separator too"),
        ({"quote": ""}, "quote: '' must be one character"),
        ({"quote": None, "newlines": True}, "newlines: true needs a quote"),
        ({"columns": ("a", "a")}, "columns: 'a' is listed twice"),
        ({"escape": "é"}, "escape: 'é' must be one character of ASCII"),
        ({"escape": '"'}, "escape: '\"' is the quote too"),
        ({"escape": ","}, "escape: ',' is the separator too"),
        ({"comment": "//"}, "comment: '//' must be one character of ASCII"),
        ({"comment": ","}, "comment: ',' is the separator too"),
        ({"comment": "~", "escape": "~"}, "comment: '~' is the escape too"),
        ({"skip_lines": -1}, "skip_lines: -1 must not be negative"),
        (
            {"newlines": True, "comment": "#", "escape": "~"},
            "comment: does not go with both newlines: true and an escape",
        ),
    ):
        with pytest.raises(ValueError, match=rule.replace(";;", ".*")):
            CsvFormat(**rules)


def test_a_specification_reads_back() -> None:
    texts = CsvTexts(
        decimal=",", thousands=".", trim=True, null_values={"a": ("NA", "")}, date_format="%d.%m.%y"
    )
    csv = CsvFormat(separator="\t", quote=None, columns=("a", "b"), encoding="latin-1", texts=texts)
    assert CsvFormat.from_spec(csv.spec()) == csv
    assert CsvFormat.from_spec({}) == CsvFormat()
    keys = {"escape": "\\", "skip_lines": 2, "comment": "#", "trailing_separator": True}
    assert CsvFormat(**keys).spec() == keys
    assert CsvFormat.from_spec(keys) == CsvFormat(**keys)
    assert CsvFormat(newlines=True, malformed="fail").spec() == {}
    both = CsvFormat(newlines=True, texts=CsvTexts(null_values=("NA",), date_format={"a": "%Y"}))
    assert CsvFormat.from_spec(both.spec()) == both
    with pytest.raises(ValueError, match="colour: is not an option of CSV files"):
        CsvFormat.from_spec({"colour": 1})


def test_a_wide_header_in_another_dialect_is_reported_by_its_separator() -> None:
    names = ["value", *(f"column-{number}" for number in range(30))]
    with pytest.raises(InputError) as caught:
        read(";".join(names).encode() + b"\n", limit=1024)
    reported = caught.value.sentence
    assert 'its first line has 1 field; with separator: ";" it has the column' in reported
    assert "column-" not in reported
