"""JSON lines: what a line and a value mean, and that no line depends on another."""

import gzip
import io
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import NullUnits
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import json_rows
from dptrees.transforms.readers.json_rows import JsonFormat, Objects
from dptrees.transforms.readers.read import FileSplit
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import column_unit, make_plan

PLAN = make_plan(
    make_domain({"column": "number", "lower": 0, "upper": 10, "cells": 10}),
    make_domain({"column": "whole", "type": "integer", "lower": 0, "upper": 10}),
    make_domain({"column": "word", "type": "category", "categories": ["a", "b"]}),
    make_domain({"column": "day", "type": "date", "lower": "2024-01-01", "upper": "2025-01-01"}),
    make_domain({"column": "at.home", "type": "category", "categories": ["a", "b"]}),
)
TYPES = {
    "number": pa.float64(),
    "whole": pa.int64(),
    "word": pa.string(),
    "day": pa.date32(),
    "at.home": pa.string(),
}


def parse_rows(
    text: bytes, json: JsonFormat | None = None, plan: ReleasePlan = PLAN
) -> list[dict[str, object]]:
    split = FileSplit("rows.jsonl", 0, 0, len(text))
    found = json_rows.batches(io.BytesIO(text), split, plan, json or JsonFormat())
    return [row for batch in found for row in batch.to_pylist()]


VALUES: list[tuple[str, str, object]] = [
    ("number", "1.5", 1.5),
    ("number", '"1.5"', 1.5),
    ("number", "1e2", 100.0),
    ("number", "true", 1.0),
    ("number", "null", None),
    ("number", '"many"', None),
    ("number", "[1]", None),
    ("number", "1e400", float("inf")),
    ("whole", "7", 7),
    ("whole", "7.0", 7),
    ("whole", "7.9", None),
    ("whole", "-0", 0),
    ("whole", "9223372036854775808", None),
    ("whole", "false", 0),
    ("word", '"a"', "a"),
    ("word", "12", "12"),
    ("word", "1.50", "1.50"),
    ("word", "true", "true"),
    ("word", '""', ""),
    ("word", "null", None),
    ("word", '{"a": 1}', None),
    ("word", '"\\ud83d\\ude00"', "😀"),
    ("word", '"\\ud83d"', None),
    ("day", '"2024-07-01"', date(2024, 7, 1)),
    ("day", '"07/04/2024"', None),
    ("day", "20240701", None),
]
# What is found at "at.home".
FIELDS = [
    ('{"at": {"home": "b"}}', "b"),
    ('{"at.home": "a", "at": {"home": "b"}}', "a"),
    ('{"at.home": null, "at": {"home": "b"}}', "b"),
    ('{"at": {"home": {"home": "b"}}}', None),
    ('{"at": "home"}', None),
    ('{"at": null}', None),
    ('{"word": "a", "word": "b", "at": {"home": "b"}}', "b"),
]


def check_value(name: str, literal: str, value: object) -> None:
    (row,) = parse_rows(f'{{"{name}": {literal}}}'.encode())
    assert row[name] == value


def check_field(line: str, home: str | None) -> None:
    (row,) = parse_rows(line.encode())
    assert row["at.home"] == home


def test_a_value_becomes_what_its_domain_reads() -> None:
    """A field is found by its name, also by one with dots."""
    check_every_case(check_value, VALUES)
    check_every_case(check_field, FIELDS)


MALFORMED = [
    *(b"[1]", b"1", b"null", b'"{}"', b"{", b"}", b'{"whole": 1} {"whole": 2}', b'{"whole": 1,'),
    *(b'"word": "x"}', b"{'whole': 1}", b'{"whole": 01}', b'{"whole": +1}', b'{"number": .5}'),
    *(b'{"number": Inf}', b'{"whole": 1} // one', b'{"word": "\xff"}', b'{"word": "a\tb"}'),
    *(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"word": "' + b"x" * 300 + b'"}'),
]


def check_malformed(line: bytes) -> None:
    limits = {"row_bytes": 250_000 if len(line) > 1000 else 200, "block_bytes": 64}
    good = b'{"whole": 5}'
    text = b"\n".join([good, line, good, b"", b"  ", good])
    assert [row["whole"] for row in parse_rows(text, JsonFormat(**limits))] == [5, 5, 5]
    with pytest.raises(InputError, match="has a malformed line"):
        parse_rows(text, JsonFormat(malformed="fail", **limits))


def test_a_malformed_line_is_left_out_by_itself() -> None:
    check_every_case(check_malformed, [(line,) for line in MALFORMED])


def test_ends_of_lines_and_of_files() -> None:
    assert len(parse_rows(b'\xef\xbb\xbf{"whole": 1}\r\n{"whole": 2}\r\n\r\n{"whole": 3}')) == 3
    assert parse_rows(b"") == []


LINES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "number": st.one_of(st.floats(), st.integers(), st.text(), st.none()),
                "whole": st.one_of(st.integers(), st.floats(), st.booleans()),
                "word": st.one_of(st.text(), st.integers(), st.none()),
                "day": st.one_of(st.dates().map(str), st.none()),
                "at": st.fixed_dictionaries({}, optional={"home": st.text(), "x": st.none()}),
                "at.home": st.one_of(st.none(), st.text()),
                "other": st.recursive(st.none(), st.lists, max_leaves=3),
            },
        ).map(lambda row: json.dumps(row).encode()),
        st.sampled_from([b"", b"{}", b'{"whole": 1', b"}", b'{"whole": 1, "whole": 2}', b"[{}]"]),
    ),
    max_size=6,
)


@given(LINES, st.integers(1, 40))
def test_a_line_means_the_same_alone_as_among_others(lines: Sequence[bytes], block: int) -> None:
    # A file without any object is refused.
    alone = [row for line in lines for row in parse_rows(b"{}\n" + line)[1:]]
    together = parse_rows(b"\n".join([b"{}", *lines]), JsonFormat(block_bytes=block))
    assert repr(together[1:]) == repr(alone)  # as NaN differs from itself


@given(LINES)
def test_both_roads_say_the_same(lines: Sequence[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines if line)
    objects = Objects(TYPES, fails=False)
    fast = objects._parsed(text) if text else None
    if fast is None:
        return
    rows, slow = objects._line_by_line(text)
    assert fast[0] == rows
    for name, arrow_type in TYPES.items():
        both = [json_rows._read(each[name], arrow_type).to_pylist() for each in (fast[1], slow)]
        assert repr(both[0]) == repr(both[1])


def test_no_line_is_deep_by_its_neighbours() -> None:
    for depth, there in ((99, 1), (100, 0), (2000, 0), (200_000, 0)):
        for opened, closed in (("[", "]"), ('{"a": ', "}")):
            deep = f'{{"number": 1, "z": {opened * depth}1{closed * depth}}}\n'.encode()
            assert len(parse_rows(b"{}\n" + deep)) == there + 1, depth
            assert len(parse_rows(deep + b"{}\n" + b"none\n")) == there + 1, depth
    # Brackets of a text are not deep.
    text = "[" * 300 + '\\"' + "{" * 300
    line = f'{{"number": 1, "z": "{text}"}}\n'.encode()
    assert len(parse_rows(line)) == len(parse_rows(line + b"none\n")) == 1


def test_most_blocks_go_the_fast_road() -> None:
    lines = [{"number": n / 7, "whole": n, "at": {"home": "a"}} for n in range(100)]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert Objects(TYPES, fails=False)._parsed(text) is not None


def test_a_compressed_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    with gzip.open(path, "wb") as file:
        file.write(b'{"whole": 1}\n')
    assert json_rows.splits(path, path, PLAN) == ([(0, 0)], 0)
    (batch,) = json_rows.batches(path, FileSplit(path, 0, 0, 1), PLAN)
    assert batch.num_rows == 1
    with pytest.raises(InputError, match="does not exist"):
        json_rows.splits("none.jsonl", "none.jsonl", PLAN)


@pytest.mark.parametrize("nulls", NullUnits)
def test_units_of_no_plain_value_are_not_one_a_row(nulls: NullUnits) -> None:
    cells = make_domain({"column": "number", "lower": 0, "upper": 10, "cells": 10})
    plan = make_plan(cells, unit=column_unit("who", nulls=nulls))
    lines = (
        *('{"who": ["a", 1]}', '{"who": ["a",1]}', '{"who": {"x": 1, "y": 2}}'),
        *('{"who": {"y": 2, "x": 1}}', r'{"who": "\ud800"}', r'{"who": "\uD800"}'),
        *('{"who": null}', "{}"),
    )
    units = [row["who"] for row in parse_rows("\n".join(lines).encode(), plan=plan)]
    assert units[6:] == [None, None]
    if nulls is NullUnits.OWN:
        assert units[0] == units[1] != units[2] == units[3] != units[4] == units[5] is not None
    else:
        assert units[:6] == [None] * 6


def test_a_column_is_read_as_one_type() -> None:
    two = make_plan(
        make_domain({"column": "x", "type": "integer", "lower": 0, "upper": 10}),
        make_domain({"column": "x", "type": "category", "categories": ["a"]}),
    )
    with pytest.raises(InputError, match="the JSON column 'x' is read as int64 by tree "):
        json_rows.splits(io.BytesIO(), "a", two)
    unit = column_unit("whole", nulls=NullUnits.OWN)
    whole = make_domain({"column": "whole", "type": "integer", "lower": 0, "upper": 10})
    with pytest.raises(InputError, match=r"privacy\.unit: the JSON column"):
        json_rows.splits(io.BytesIO(), "a", make_plan(whole, unit=unit))
