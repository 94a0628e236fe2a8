"""Escapes, comments, skipped lines and last separators: a row is read by itself, in any block."""

import csv as python_csv
import io
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.csv_values import CsvTexts
from tests.transforms.readers.read_files import read_csv, text_plan

LIMIT = 24
PLAN = text_plan("a", "b")
LINES = [
    *("1,2", '"1",2', '"1,2', '3,"x', 'y",4', '"', '""', "5,6,", "5,,", '"5",",",', "\\,7,"),
    *("8,\\,", "9,x\\", '9,"x\\', "9\\", "\\", "\\\\", "1,\\\\", '"1,\\\\",2', '1,"\\""'),
    *('é,\\"', '\\",2', "#", "#,", '#,"', '#"', '#"",', '1,"#', "#1,2", '#","', "# #", "1,#\\"),
    *("#,\\", "1," + '\\"' * 9, "#" + "x" * LIMIT, '1,"' + "x" * LIMIT, "1," + "x" * LIMIT),
    *("\\" * LIMIT, '#,"' + '"' * LIMIT, "\\" * (LIMIT + 1), "1," + '"' * LIMIT),
    *('1,"' + "x" * LIMIT + "\\", '1,"' + '\\"' * LIMIT),
]
PARTS = st.lists(st.sampled_from(["\\", '"', '""', ",", "x", "#"]), max_size=7).map("".join)
ENDED = st.tuples(st.sampled_from(LINES) | PARTS, st.sampled_from(["\n", "\n", "\r\n", "\r"]))
TEXTS = st.lists(ENDED.map("".join), max_size=9).map("".join)
SIZES = st.integers(1, LIMIT)
DIALECTS = st.fixed_dictionaries(
    {
        "escape": st.sampled_from([None, "\\"]),
        "comment": st.sampled_from([None, "#"]),
        "newlines": st.booleans(),
        "trailing_separator": st.booleans(),
    }
).filter(lambda rules: not (rules["newlines"] and rules["escape"] and rules["comment"]))
HEAD = b"a,b\n"


def read(data: bytes, block: int = LIMIT, limit: int = LIMIT, **rules: object) -> list[Any]:
    """The rows of a file of two columns."""
    return read_csv(data, PLAN, block=block, limit=limit, **rules)


def dialect(**rules: object) -> dict[str, object]:
    plain = {"escape": None, "comment": None, "newlines": False, "trailing_separator": False}
    return plain | rules


def slow_rows(text: str, rules: dict[str, object]) -> list[tuple[list[str | None], bool, int]]:
    """The fields of each row, whether it ends within a quote or behind an escape, and its bytes;
    character by character."""
    rows, place, escape, comment = [], 0, rules["escape"], rules["comment"]
    while place < len(text):
        start, fields, field = place, [], ""
        quoted = is_open = False
        fresh, broken, bare_end, ended = True, False, False, False
        if text[place] == comment:
            while place < len(text) and text[place] not in "\r\n":
                place += 1
            place += 1
            continue
        while place < len(text):
            letter = text[place]
            place += 1
            if letter == escape:
                if place == len(text) or (text[place] in "\r\n" and not rules["newlines"]):
                    broken, place = True, place + 1
                    break
                field, fresh, bare_end = field + text[place], False, False
                place += 1
            elif is_open and letter == '"' and text[place : place + 1] == '"':
                field, place = field + '"', place + 1
            elif is_open and letter == '"':
                is_open = False
            elif letter in "\r\n" and not (is_open and rules["newlines"]):
                broken, ended = is_open, True
                break
            elif is_open:
                field += letter
            elif fresh and letter == '"':
                is_open, quoted, fresh, bare_end = True, True, False, False
            elif letter == ",":
                fields.append(field if field or quoted else None)
                field, quoted, fresh, bare_end = "", False, True, True
            else:
                field, fresh, bare_end = field + letter, False, False
        else:
            broken = broken or is_open
        if not (rules["trailing_separator"] and bare_end):
            fields.append(field if field or quoted else None)
        rows.append((fields, broken, len(text[start:place].encode()) - ended))
    return rows


@settings(max_examples=600, deadline=None)
@given(text=TEXTS, rules=DIALECTS, block=SIZES)
@example(text='9\\\n"1,2\n1,2\n', rules=dialect(escape="\\"), block=LIMIT)
@example(text='#,"\n1,2\n', rules=dialect(comment="#", newlines=True), block=3)
@example(text='#"\n1,2\n3,"x\n#"\n', rules=dialect(comment="#", newlines=True), block=9)
@example(text=f'#{"x" * 30},"\n1,2\n', rules=dialect(comment="#", newlines=True), block=5)
@example(text="1,\\,\n2,\\\\,\n", rules=dialect(escape="\\", trailing_separator=True), block=LIMIT)
def test_rows_as_a_slow_reader_has_them(text, rules, block) -> None:
    expected = [
        tuple(fields)
        for fields, broken, length in slow_rows(text, rules)
        if len(fields) == 2 and not broken and length <= LIMIT
    ]
    assert read(HEAD + text.encode(), block, **rules) == expected


ESCAPED = ["\\\\", '\\"', "\\,", "\\x", "a"]
FIELDS = st.one_of(
    st.lists(st.sampled_from(ESCAPED)).map("".join),
    st.lists(st.sampled_from([*ESCAPED, ",", '""'])).map(lambda parts: f'"{"".join(parts)}"'),
)


@settings(max_examples=300, deadline=None)
@given(fields=st.tuples(FIELDS, FIELDS), quote=st.sampled_from(['"', "'"]), newlines=st.booleans())
def test_fields_as_the_standard_library_has_them(fields, quote, newlines) -> None:
    line = ",".join(fields).replace('"', quote) + "\n"
    [expected] = python_csv.reader(io.StringIO(line), escapechar="\\", quotechar=quote)
    rules = {"escape": "\\", "quote": quote, "newlines": newlines}
    [found] = read(HEAD + line.encode(), limit=999, **rules)
    assert [each or "" for each in found] == expected


@pytest.mark.parametrize("newlines", [False, True])
def test_what_a_line_with_escapes_means(newlines) -> None:
    lines = ['"say \\"hi\\", ok",1', "a\\,b,2", "\\\\,3", '\\"a,4', '"a\\\\",5', '"x"",y",6']
    values = ['say "hi", ok', "a,b", "\\", '"a', "a\\", 'x",y']
    text = HEAD + "\n".join(lines).encode()
    expected = list(zip(values, "123456", strict=True))
    for block in (1, 7, 100):
        assert read(text, block, 100, escape="\\", newlines=newlines) == expected
    # Without the key an escape is a letter.
    assert ("a\\", "b") not in read(HEAD + b"a\\,b\n", escape="\\", newlines=newlines)
    assert read(HEAD + b"a\\,b\n", newlines=newlines) == [("a\\", "b")]


@pytest.mark.parametrize("block", [1, 2, 5, LIMIT])
def test_lines_before_the_header(block) -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        title = end.join([b'\xef\xbb\xbfA "title, \xff', b"", b"x" * 200, b"a,b", b"1,2", b"3,4"])
        assert read(title, block, skip_lines=3) == [("1", "2"), ("3", "4")]
        assert read(title, block, skip_lines=4, columns=("a", "b")) == [("1", "2"), ("3", "4")]
        assert read(title, block, skip_lines=9, columns=("a", "b")) == []
        with pytest.raises(InputError, match="is empty, without even a header"):
            read(title, block, skip_lines=6)
    notes = b'\n# "note, \xff\n#\n\na,b\n#1,2\n1,"#x"\n #,2\n'
    assert read(notes, block, comment="#") == [("1", "#x"), (" #", "2")]
    assert read(b"# x" * 20 + b"\na,b\n1,2", block, 99, comment="#") == [("1", "2")]
    assert read(b"a,b\n1,2\n#\xff\n", block, comment="#", malformed="fail") == [("1", "2")]


@pytest.mark.parametrize("block", [1, 2, 5, LIMIT])
def test_the_separator_that_a_first_line_states(block) -> None:
    for line in (b"sep=;\n", b'"sep=;"\r\n', b"\xef\xbb\xbfSEP=;\r", b"\nsep=;\n"):
        assert read(line + b'a;b\n1;"2;"\n', block) == [("1", "2;")]
    assert read(b"sep=\t\na\tb\n1\t2\n", block) == [("1", "2")]
    assert read(b"sep=;\na,b\n1,2\n", block, skip_lines=1) == [("1", "2")]
    # In a file without a header the first line is a row, which decides about no other.
    assert read(b"sep=;\n1;2\n1,2\n", block, columns=("a", "b")) == [("1", "2")]
    for line in (b"sep=\xc3\xa9\n", b"sep=x\n", b"sep=;;\n"):
        with pytest.raises(InputError, match="has no column"):
            read(line + b"a;b\n1;2\n", block)


@pytest.mark.parametrize("newlines", [False, True])
def test_a_separator_at_the_end_of_each_row(newlines) -> None:
    rules = {"newlines": newlines, "trailing_separator": True}
    text = b'1,2,\r\n3,,\n4,5\n6,\n,,\n7,8,9,\n"x","y",\n"z",""'
    expected = [("1", "2"), ("3", None), ("4", "5"), (None, None), ("x", "y"), ("z", "")]
    for head in (b"a,b\n", b"a,b,\r\n"):
        for block in (1, 6, LIMIT):
            assert read(head + text, block, **rules) == expected
    assert read(HEAD + b"1,\\,\n2,\\\\,\n", escape="\\", **rules) == [("1", ","), ("2", "\\")]
    columns = {"columns": ("a", "b"), "separator": "|"}
    assert read(b"1|2|\n3|4|\n", **columns, **rules) == [("1", "2"), ("3", "4")]


def test_white_space_and_missing_values_of_escaped_fields() -> None:
    texts = CsvTexts(trim=True, null_values=("N",))
    assert read(HEAD + b'\\N, \\"x \n', escape="\\", texts=texts) == [(None, '"x')]
