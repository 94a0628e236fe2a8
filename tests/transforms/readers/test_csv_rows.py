"""CSV files: what a text means, and what is refused."""

import gzip
import logging
from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import (
    NullUnits,
)
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import csv_rows
from dptrees.transforms.readers.file_columns import column_types
from tests.transforms.readers.read_files import column_unit, make_plan, read_batches, text_plan

SECRET = "Miriam-4711"
DOMAINS = [
    NumberDomain(column="n", lower=0, upper=10, cells=10),
    StepDomain(kind="integer", column="i", lower=0, upper=10),
    StepDomain(kind="date", column="d", lower=date(2013, 1, 1), upper=date(2014, 1, 1)),
    StepDomain(
        kind="timestamp",
        column="t",
        lower=datetime(2013, 1, 1),
        upper=datetime(2013, 1, 2),
        cells=24,
    ),
    StepDomain(
        kind="timestamp",
        column="z",
        lower=datetime(2013, 1, 1, tzinfo=timezone.utc),
        upper=datetime(2013, 1, 2, tzinfo=timezone.utc),
        cells=24,
    ),
    CategoryDomain(column="c", categories=("UA", "AA")),
]


def number(column: str = "value") -> NumberDomain:
    return NumberDomain(column=column, lower=0, upper=10, cells=10)


def read(path: Path, plan: ReleasePlan) -> pa.Table:
    assert csv_rows.splits(str(path), str(path), plan) == ([(0, 0)], 0)
    types = column_types(plan)
    schema = pa.schema([(name, types[name]) for name in plan.columns])
    return pa.Table.from_batches(read_batches("csv", str(path), plan), schema)


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_each_domain_reads_its_type(tmp_path) -> None:
    """A text column keeps what it does not know; what is no value is missing in the others."""
    path = written(
        tmp_path,
        "n,i,d,t,z,c\n"
        "2.5, -2,2013-02-28,2013-01-01T10:11:12.5,2013-01-01T10:11:12+02:00,UA\n"
        "1e2,9223372036854775807,2012-02-29,2013-01-01,2013-01-01 10:11:12Z,B6\n"
        "oops,9223372036854775808,2013-02-29,2013-01-01 25:00,2013-01-01 10:11:12, UA\n"
        '1_000,1.5,2013-1-1,x,,""\n',
    )
    table = read(path, make_plan(*DOMAINS))
    assert table.schema.types == [domain.value_type for domain in DOMAINS]
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (
            *(2.5, -2, date(2013, 2, 28), datetime(2013, 1, 1, 10, 11, 12, 500000)),
            *(datetime(2013, 1, 1, 8, 11, 12, tzinfo=timezone.utc), "UA"),
        ),
        (
            *(100.0, 2**63 - 1, date(2012, 2, 29), datetime(2013, 1, 1)),
            *(datetime(2013, 1, 1, 10, 11, 12, tzinfo=timezone.utc), "B6"),
        ),
        (*[None] * 5, " UA"),
        (*[None] * 5, ""),
    ]
    for domain in DOMAINS:  # whatever it holds, it has a cell or is dropped
        domain.cell_ids(table[domain.column])


def test_a_policy_decides_about_texts_that_are_no_numbers(tmp_path) -> None:
    table = read(written(tmp_path, "value\n1\noops\n2\n"), make_plan(number()))
    last = NumberDomain(column="value", lower=0, upper=10, cells=10, missing="last")
    assert number().cell_ids(table["value"]).tolist() == [1, -1, 2]
    assert last.cell_ids(table["value"]).tolist() == [1, 9, 2]


def test_compressed_with_a_byte_order_mark_and_without_rows(tmp_path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfvalue,b\r\n1,2\r\n3,4\r\n"))
    assert read(path, make_plan(number())).to_pydict() == {"value": [1.0, 3.0]}
    path = written(tmp_path, "value,other\n")
    assert read(path, make_plan(number())).num_rows == 0
    with path.open("rb") as file:
        assert csv_rows.splits(file, "memory", make_plan(number())) == ([(0, 0)], 0)


MALFORMED = {
    "more fields": f"value,b\n1,2\n3,4,{SECRET}\n",
    "fewer fields": f"value,b\n1,2\n{SECRET}\n",
    "ragged far below": "value,b\n" + "1,2\n" * 50 + f"{SECRET}\n",
    "not UTF-8": b"value,b\n1,2\n\xff" + SECRET.encode() + b",3\n",
    "an open quote": f'value,b\n1,2\n3,"{SECRET}\n',
}


def test_malformed_rows_are_no_error_and_not_shown(tmp_path, caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    for kind, text in MALFORMED.items():
        table = read(written(tmp_path, text), text_plan("value"))
        assert set(table["value"].to_pylist()) == {"1"}, kind
    assert caplog.text + "".join(capfd.readouterr()) == ""


NOT_CSV = {
    "empty": "",
    "blank": "\n\n",
    "an open header": f'value,"b\n1,{SECRET}\n',
    "a header not UTF-8": b"value,\xff\n1," + SECRET.encode(),
}


def test_files_that_are_refused_without_showing_them(tmp_path, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    for kind, text in NOT_CSV.items():
        path = written(tmp_path, text)
        with pytest.raises(InputError) as caught:
            read(path, text_plan("value"))
        assert str(path) in caught.value.sentence
        fault = "is empty" if kind in ("empty", "blank") else "in UTF-8 that begins with a header"
        assert fault in caught.value.sentence
        assert SECRET not in str(caught.value) + caplog.text
        assert caught.value.__suppress_context__


def test_a_missing_column(tmp_path) -> None:
    path = written(tmp_path, f"value,b\n1,{SECRET}\n")
    with pytest.raises(InputError) as caught:
        read(path, make_plan(number(), number("other")))
    assert caught.value.sentence == (
        f"input: {path} has no column 'other'; its columns are value, b"
    )


def test_a_column_twice_and_files_that_are_none(tmp_path) -> None:
    path = written(tmp_path, '"value",b,value\n1,2,3\n')
    with pytest.raises(InputError, match="has the column 'value' twice"):
        read(path, make_plan(number()))
    path = written(tmp_path, "value,b,b\n1,2,3\n")
    assert read(path, make_plan(number())).num_rows == 1
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        csv_rows.splits("nothing.csv", "nothing.csv", make_plan(number()))
    with pytest.raises(InputError, match="is not a CSV file"):
        csv_rows.splits(str(tmp_path), str(tmp_path), make_plan(number()))


def test_whole_numbers_and_numbers_of_one_column(tmp_path) -> None:
    """Both trees read what a Parquet column of doubles would hold."""
    plan = make_plan(number(), StepDomain(kind="integer", column="value", lower=0, upper=10))
    assert column_types(plan) == {"value": pa.float64()}
    texts = ["7", "7.9", "-0.5", "10", "x", "", '" 3 "', "9007199254740993"]
    path = written(tmp_path, "value\n" + "".join(f"{text}\n" for text in texts))
    domain = StepDomain(kind="integer", column="value", lower=0, upper=10)
    together, alone = (
        domain.leaf_ids({"value": read(path, each).column("value").combine_chunks()}).tolist()
        for each in (plan, make_plan(domain))
    )
    assert together == alone


@pytest.mark.parametrize(
    "other",
    [
        StepDomain(kind="integer", column="value", lower=2**53 - 5, upper=2**53 + 5),
        StepDomain(kind="date", column="value", lower=date(2024, 1, 1), upper=date(2025, 1, 1)),
    ],
)
def test_one_column_as_two_types(other) -> None:
    plan = make_plan(number(), other)
    first, last = (question.name for question in plan.questions)
    sentence = (
        rf"'value' is read as double by tree {first} and as [\w\[\]0-9]+ by tree {last}: give both "
        "trees one type, or write Parquet"
    )
    with pytest.raises(InputError, match=sentence):
        column_types(plan)


@pytest.mark.parametrize("nulls", NullUnits)
def test_units_are_distinguished_as_strings(nulls: NullUnits) -> None:
    """Read as integers two strings would be one unit; a text that is none would be null."""
    domain = StepDomain(kind="integer", column="value", lower=0, upper=10)
    with pytest.raises(InputError, match=r"privacy\.unit: the CSV column 'value' names the unit"):
        column_types(make_plan(domain, unit=column_unit("value", nulls=nulls)))
    plan = make_plan(domain, unit=column_unit("name", nulls=nulls))
    assert column_types(plan) == {"name": pa.string(), "value": pa.int64()}
