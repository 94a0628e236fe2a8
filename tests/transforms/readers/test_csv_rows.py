"""CSV files: what a text means, and what is refused."""

import gzip
import logging
from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.dates import DateDomain, TimestampDomain
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    Budget,
    Measure,
    Neighbors,
    NullUnits,
    PrivacyUnit,
)
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.uniform.plan import TreeSetting
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import csv_rows, csv_values
from dptrees.transforms.readers.csv_values import typed
from dptrees.transforms.readers.file_columns import column_types
from dptrees.transforms.readers.read import FileSplit

SECRET = "Miriam-4711"
NUMBER, INTEGER, DAY = pa.float64(), pa.int64(), pa.date32()
TIME, ZONED = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


def make_plan(*domains: OrderedDomain, unit: PrivacyUnit = ADD_REMOVE_ROW) -> ReleasePlan:
    budget = Budget(measure=Measure.EPSILON, amount=1)
    questions = [
        OrderedQuestion(
            name=f"tree{index}",
            domain=domain,
            mechanism=UniformMechanism(
                plan=plan_tree(TreeSetting(leaves=domain.cells, budget=budget.share(1), unit=unit))
            ),
        )
        for index, domain in enumerate(domains)
    ]
    whole = Budget(measure=Measure.EPSILON, amount=len(questions))
    return ReleasePlan(name="csv", unit=unit, budget=whole, questions=tuple(questions))


def number(column: str = "value") -> NumberDomain:
    return NumberDomain(column=column, lower=0, upper=10, cells=10)


def read(path: Path, plan: ReleasePlan) -> pa.Table:
    splits, rows = csv_rows.splits(str(path), str(path), plan)
    assert (splits, rows) == ([(0, 0)], 0)
    split = FileSplit(str(path), 0, 0, path.stat().st_size)
    types = column_types(plan)
    schema = pa.schema([(name, types[name]) for name in plan.columns])
    return pa.Table.from_batches(csv_rows.batches(str(path), split, plan), schema)


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "domain, texts, values",
    [
        (
            number(),
            ["1", "2.5", " 3 ", "oops", "", "1e2", "inf", "-inf", "1_000", "0x10"],
            [1.0, 2.5, 3.0, None, None, 100.0, float("inf"), float("-inf"), None, None],
        ),
        (
            IntegerDomain(column="value", lower=0, upper=10),
            ["1", " -2", "three", "", "9223372036854775807", "9223372036854775808", "1.5"],
            [1, -2, None, None, 2**63 - 1, None, None],
        ),
        (
            DateDomain(column="value", lower=date(2013, 1, 1), upper=date(2014, 1, 1)),
            ["2013-02-28", "2013-02-29", "2012-02-29", "soon", "", "2013-13-01", "2013-1-1"],
            [date(2013, 2, 28), None, date(2012, 2, 29), None, None, None, None],
        ),
        (
            TimestampDomain(
                column="value", lower=datetime(2013, 1, 1), upper=datetime(2013, 1, 2), cells=24
            ),
            ["2013-01-01 10:11:12", "2013-01-01T10:11:12.5", "2013-01-01", "2013-01-01 25:00", "x"],
            [
                datetime(2013, 1, 1, 10, 11, 12),
                datetime(2013, 1, 1, 10, 11, 12, 500000),
                datetime(2013, 1, 1),
                None,
                None,
            ],
        ),
        (
            TimestampDomain(
                column="value",
                lower=datetime(2013, 1, 1, tzinfo=timezone.utc),
                upper=datetime(2013, 1, 2, tzinfo=timezone.utc),
                cells=24,
            ),
            ["2013-01-01 10:11:12Z", "2013-01-01T10:11:12+02:00", "2013-01-01 10:11:12", "x"],
            [
                datetime(2013, 1, 1, 10, 11, 12, tzinfo=timezone.utc),
                datetime(2013, 1, 1, 8, 11, 12, tzinfo=timezone.utc),
                None,
                None,
            ],
        ),
        (
            CategoryDomain(column="value", categories=("UA", "AA")),
            ["UA", "AA", "B6", "", " UA"],
            ["UA", "AA", "B6", "", " UA"],
        ),
    ],
)
def test_what_texts_stand_for(domain, texts, values, tmp_path) -> None:
    lines = "".join(f"{text},{place}\n" for place, text in enumerate(texts))
    table = read(written(tmp_path, "value,place\n" + lines), make_plan(domain))
    assert table.schema.field("value").type == domain.value_type
    found = table["value"].to_pylist()
    # A text column keeps what it does not know; an empty field is missing in the others.
    assert [None if each == "" else each for each in found] == [
        None if each == "" else each for each in values
    ]
    domain.cell_ids(table["value"])  # whatever it holds, it has a cell or is dropped


def test_a_policy_decides_about_texts_that_are_no_numbers(tmp_path) -> None:
    table = read(written(tmp_path, "value\n1\noops\n2\n"), make_plan(number()))
    last = NumberDomain(column="value", lower=0, upper=10, cells=10, missing="last")
    assert number().cell_ids(table["value"]).tolist() == [1, -1, 2]
    assert last.cell_ids(table["value"]).tolist() == [1, 9, 2]


TEXTS = st.one_of(
    st.from_regex(csv_values._PLAIN_NUMBER),
    st.from_regex(csv_values._INTEGER),
    st.from_regex(csv_values._DATE),
    st.from_regex(csv_values._TIME),
    st.from_regex(csv_values._ZONED_TIME),
    st.floats().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.text(max_size=5),
    st.sampled_from(["inf", "nan", "-inf", "0x1F", "1e999", "2013-02-31", " 42", "+5", "1.", "."]),
)


@pytest.mark.parametrize("arrow_type", [NUMBER, INTEGER, DAY, TIME, ZONED], ids=str)
@given(texts=st.lists(st.none() | TEXTS, min_size=1, max_size=8))
@example(texts=["inf", "oops"])
@example(texts=["2013-02-31", "2013-02-28"])
@example(texts=["1234567890123456789", "oops", "0x1F"])
def test_a_row_s_fate_depends_on_that_row_alone(arrow_type: pa.DataType, texts) -> None:
    together = typed(pa.array(texts, pa.string()), arrow_type)
    alone = pa.concat_arrays([typed(pa.array([text], pa.string()), arrow_type) for text in texts])
    # In bits, so that NaN equals NaN.
    assert together.is_null().equals(alone.is_null())
    assert bits(together).equals(bits(alone))


def bits(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        return pc.fill_null(values, 0.0).view(pa.int64())
    return values.view(pa.int32() if values.type == DAY else pa.int64())


@pytest.mark.parametrize(
    "arrow_type, pattern",
    [
        (NUMBER, csv_values._PLAIN_NUMBER),
        (INTEGER, csv_values._INTEGER),
        (DAY, csv_values._DATE),
        (TIME, csv_values._TIME),
        (ZONED, csv_values._ZONED_TIME),
    ],
    ids=str,
)
@given(data=st.data())
def test_a_text_that_is_surely_a_value_is_one(arrow_type, pattern, data) -> None:
    text = data.draw(st.from_regex(pattern)).removesuffix("\n")  # Arrow's $ is the very end
    assert pc.cast(pa.array([text]), arrow_type).null_count == 0


def test_compressed_and_with_a_byte_order_mark(tmp_path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfvalue,b\r\n1,2\r\n3,4\r\n"))
    assert read(path, make_plan(number())).to_pydict() == {"value": [1.0, 3.0]}


def test_a_header_without_rows(tmp_path) -> None:
    path = written(tmp_path, "value,other\n")
    assert read(path, make_plan(number())).num_rows == 0


def test_a_file_object(tmp_path) -> None:
    path = written(tmp_path, "value,other\n1,2\n")
    with path.open("rb") as file:
        assert csv_rows.splits(file, "memory", make_plan(number())) == ([(0, 0)], 0)


MALFORMED = {
    "more fields": f"value,b\n1,2\n3,4,{SECRET}\n",
    "fewer fields": f"value,b\n1,2\n{SECRET}\n",
    "ragged far below": "value,b\n" + "1,2\n" * 50 + f"{SECRET}\n",
    "not UTF-8": b"value,b\n1,2\n\xff" + SECRET.encode() + b",3\n",
    "an open quote": f'value,b\n1,2\n3,"{SECRET}\n',
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_rows_are_no_error_and_not_shown(kind, tmp_path, caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    path = written(tmp_path, MALFORMED[kind])
    table = read(path, make_plan(CategoryDomain(column="value", categories=("1",))))
    assert set(table["value"].to_pylist()) == {"1"}
    assert caplog.text + "".join(capfd.readouterr()) == ""


def test_a_stray_quote_moves_no_other_row(tmp_path) -> None:
    # It took in the lines up to the next quote, which one person more could add or remove.
    others = "".join(f"{place},a\n" for place in range(400))
    plan = make_plan(CategoryDomain(column="value", categories=("1",)))
    rows = [
        read(written(tmp_path, f"value,b\n{first}{others}" + '8,"c"\n'), plan).num_rows
        for first in ("", '9,"b\n')
    ]
    assert rows == [401, 401]


NOT_CSV = {
    "empty": "",
    "blank": "\n\n",
    "an open header": f'value,"b\n1,{SECRET}\n',
    "a header not UTF-8": b"value,\xff\n1," + SECRET.encode(),
}


@pytest.mark.parametrize("kind", NOT_CSV)
def test_files_that_are_refused_without_showing_them(kind, tmp_path, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    path = written(tmp_path, NOT_CSV[kind])
    with pytest.raises(InputError) as caught:
        read(path, make_plan(CategoryDomain(column="value", categories=("1",))))
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


def test_a_column_twice(tmp_path) -> None:
    path = written(tmp_path, '"value",b,value\n1,2,3\n')
    with pytest.raises(InputError, match="has the column 'value' twice"):
        read(path, make_plan(number()))
    path = written(tmp_path, "value,b,b\n1,2,3\n")
    assert read(path, make_plan(number())).num_rows == 1


def test_a_missing_file_and_a_folder(tmp_path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        csv_rows.splits("nothing.csv", "nothing.csv", make_plan(number()))
    with pytest.raises(InputError, match="is not a CSV file"):
        csv_rows.splits(str(tmp_path), str(tmp_path), make_plan(number()))


def test_whole_numbers_and_numbers_of_one_column(tmp_path) -> None:
    """Both trees read what a Parquet column of doubles would hold."""
    plan = make_plan(number(), IntegerDomain(column="value", lower=0, upper=10))
    assert column_types(plan) == {"value": pa.float64()}
    texts = ["7", "7.9", "-0.5", "10", "x", "", '" 3 "', "9007199254740993"]
    path = written(tmp_path, "value\n" + "".join(f"{text}\n" for text in texts))
    domain = IntegerDomain(column="value", lower=0, upper=10)
    together, alone = (
        domain.leaf_ids({"value": read(path, each).column("value").combine_chunks()}).tolist()
        for each in (plan, make_plan(domain))
    )
    assert together == alone


@pytest.mark.parametrize(
    "other",
    [
        IntegerDomain(column="value", lower=2**53 - 5, upper=2**53 + 5),
        DateDomain(column="value", lower=date(2024, 1, 1), upper=date(2025, 1, 1)),
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
    domain = IntegerDomain(column="value", lower=0, upper=10)

    def plan(column: str) -> ReleasePlan:
        unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=(column,), nulls=nulls)
        return make_plan(domain, unit=unit)

    with pytest.raises(InputError, match=r"privacy\.unit: the CSV column 'value' names the unit"):
        column_types(plan("value"))
    assert column_types(plan("name")) == {"name": pa.string(), "value": pa.int64()}


def test_whole_numbers_with_a_decimal_point_are_integers() -> None:
    texts = pa.array(["3", "4.0", "-5.", "6.5", "7.0e1", None])
    assert typed(texts, pa.int64()).to_pylist() == [3, 4, -5, None, 70, None]
