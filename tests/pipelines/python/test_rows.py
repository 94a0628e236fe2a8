"""Rows of every program: the same release of all of them, and one sentence for what is none."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.python.rows import to_batches
from tests.pipelines.python.conftest import fixed, read_files
from tests.pipelines.refusals import not_refused

DAY = datetime.date(2024, 1, 1)
CONFIG = {
    "release": "rows",
    "privacy": {"epsilon": 1.0, "neighbors": "add_remove"},
    "trees": [
        {"name": "age", "domain": {"column": "age", "lower": 0, "upper": 100, "cells": 50}},
        {"name": "work", "domain": {"column": "work", "categories": ["state", "self"]}},
        {
            "name": "day",
            "domain": {
                **{"kind": "hierarchy", "column": "day", "calendar": ["month", "day"]},
                **{"lower": DAY, "upper": datetime.date(2024, 3, 1)},
            },
        },
    ],
}


@pytest.fixture
def table(work: Path) -> pa.Table:
    random = np.random.default_rng(7)
    ages = random.normal(40, 20, 3000)
    return pa.table(
        {
            "age": pa.array(ages, mask=random.random(3000) < 0.1),
            "work": pa.array(random.choice(["state", "self", "none"], 3000)),
            "day": pa.array(np.datetime64(DAY) + random.integers(0, 60, 3000)),
            "unused": pa.array(random.normal(size=3000)),
        }
    )


def as_arrow(table: pa.Table) -> list[Any]:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    views = table.set_column(1, "work", table["work"].cast(pa.string_view()))
    return [
        table,
        views,
        table.to_batches(max_chunksize=700) and table.to_reader(700),
        table.combine_chunks().to_batches()[0],
        {name: table[name] for name in table.column_names},
        table.to_pydict(),
        table.to_pylist(),
        Stream(),
    ]


def as_files(table: pa.Table) -> list[Any]:
    pq.write_table(table, "one.parquet")
    pq.write_table(table.slice(0, 1000), "a-1.parquet")
    pq.write_table(table.slice(1000), "a-2.parquet")
    return ["one.parquet", Path("one.parquet"), "a-*.parquet", ["a-1.parquet", Path("a-2.parquet")]]


def saved(rows: Any, number: int) -> dict[str, bytes]:
    return read_files(Path(fixed(rows, CONFIG).save(f"saved-{number}")))


@pytest.mark.parametrize("given", [as_arrow, as_files])
def test_all_forms_give_the_same_release(table: pa.Table, given: Any) -> None:
    first, *others = [saved(rows, number) for number, rows in enumerate(given(table))]
    for other in others:
        assert other == first


def test_pandas(table: pa.Table) -> None:
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas()
    indexed = frame.set_index("unused", drop=True)
    categories = frame.assign(work=frame["work"].astype("category"))
    moments = frame.assign(day=pandas.to_datetime(frame["day"]))
    first = saved(table, 0)
    for number, rows in enumerate((frame, indexed, categories, moments, frame.iloc[::-1]), 1):
        assert saved(rows, number) == first


def test_polars(table: pa.Table) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(table)
    categories = frame.with_columns(polars.col("work").cast(polars.Categorical))
    first = saved(table, 0)
    assert saved(frame, 1) == first and saved(categories, 2) == first


def test_duckdb(table: pa.Table) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("select * from 'one.parquet'") if as_files(table) else None
    assert saved(relation, 1) == saved(table, 0)


def test_no_rows(work: Path) -> None:
    empty = pa.table({"age": pa.array([], pa.int64())})
    config = CONFIG | {"trees": CONFIG["trees"][:1]}
    release = dptrees.release(empty, config)
    assert abs(release["age"].cdf([100]).estimate) < 200


def test_only_what_is_read_is_held(table: pa.Table) -> None:
    (batch, *_) = to_batches(table, ("age", "work"))
    assert batch.schema.names == ["age", "work"]
    # No copy was made.
    assert batch.column("age").buffers()[1].address == table["age"].chunk(0).buffers()[1].address


def test_a_missing_column_lists_those_that_there_are() -> None:
    columns = {"Age": [1], "sex": ["a"]}
    pandas = pytest.importorskip("pandas")
    words = ": input: rows has no column 'age'; its columns are Age, sex; did you mean Age?"
    forms = (columns, [{"Age": 1, "sex": "a"}], pa.table(columns), pandas.DataFrame(columns))
    rows = [(each, words) for each in forms]
    assert not not_refused(lambda each: dptrees.release(each, CONFIG), rows, dptrees.Error)


def test_odd_frames_of_pandas_name_the_way_out() -> None:
    pandas = pytest.importorskip("pandas")
    age = {"name": "age", "domain": {"column": "age", "lower": 0, "upper": 100, "cells": 50}}
    seven = {"name": "age", "domain": {**age["domain"], "column": "7"}}  # type: ignore[dict-item]
    frame = pandas.DataFrame({"age": [1, 2], "x": [1, 2]})
    levels = pandas.DataFrame({("a", "age"): [1, 2], ("a", "x"): [1, 2]})
    leaves = {"kind": "hierarchy", "columns": ["x"], "table": frame}
    for rows, tree, sentence in (
        (frame.set_index("age"), age, r"'age' is in the index .*: give rows\.reset_index\(\)$"),
        (levels, age, r"of several levels: give one level, as by rows\.droplevel\(0, axis=1\)"),
        (frame.rename(columns={"x": 7}), seven, r"is no text: give rows\.rename\(columns=str\)$"),
        # Not its rows.
        (frame, {"name": "x", "domain": leaves}, r"domain\.table: a DataFrame must be a string$"),
    ):
        with pytest.raises(dptrees.Error, match=sentence):
            dptrees.release(rows, CONFIG | {"trees": [tree]})


def test_a_column_of_texts_says_how_to_convert_it() -> None:
    texts = {name: ["30", "31"] for name in ("age", "work", "day")}
    with pytest.raises(dptrees.Error, match=r"domain needs .* pd\.to_numeric\(rows\['age'\]\)"):
        dptrees.release(texts, CONFIG)


def test_columns_of_different_lengths_are_reported() -> None:
    age = {"column": "age", "type": "integer", "lower": 0, "upper": 9}
    trees = [{"name": name, "domain": age | {"column": name}} for name in ("age", "size")]
    config = {"privacy": {"epsilon": 1.0, "neighbors": "add_remove"}, "trees": trees}
    with pytest.raises(dptrees.Error, match=r"^rows: the columns age, size are not of one length$"):
        dptrees.release({"age": [1, 2], "size": [1]}, config)


def test_what_is_no_table(work: Path) -> None:
    config = CONFIG | {"trees": CONFIG["trees"][:1]}
    rows = [
        (3, "rows: int is no table"),
        (pa.chunked_array([[1, 2]]), "rows: ChunkedArray is no table"),
        (pa.array([1, 2]), "Array is no table"),
        ([3], "rows: a list holds dictionaries or paths, and not int"),
        ([], "rows: an empty list has no columns"),
        ({"age": [1, "kumquat"]}, "column 'age' holds values of several types"),
        ({"aged": [1]}, "input: rows has no column 'age'; its names are not shown"),
        ({"age": ["kumquat"]}, "input: rows: column 'age'"),
        (pa.table([[1], [2]], names=["age", "age"]), "has column 'age' more than once"),
        ("none-*.parquet", "input.path: no file matches none-"),
        (["one.csv"], "input.path: no file matches one.csv"),
    ]

    def attempt(given: Any) -> None:
        try:
            dptrees.release(given, config)
        except dptrees.Error as refused:
            assert "kumquat" not in str(refused)
            raise

    assert not not_refused(attempt, rows, dptrees.Error)


def test_mixed_pandas_column_shows_no_value(work: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": pandas.Series([1, "kumquat"], dtype=object)})
    with pytest.raises(dptrees.Error, match="several types") as reported:
        dptrees.release(frame, CONFIG | {"trees": CONFIG["trees"][:1]})
    assert "kumquat" not in str(reported.value)
    twice = pandas.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(dptrees.Error, match="more than once"):
        dptrees.release(twice, CONFIG | {"trees": CONFIG["trees"][:1]})


def test_how_files_are_read_stays_the_configurations(work: Path) -> None:
    Path("ages.csv").write_text("age\n30\nx,y\n40\n")
    config = CONFIG | {"trees": CONFIG["trees"][:1]}
    with pytest.raises(dptrees.Error, match="has a malformed row"):
        dptrees.release("ages.csv", config | {"input": {"format": "csv", "malformed": "fail"}})
    assert len(dptrees.release("ages.csv", config)["age"].cdf()) == 50


def test_a_spark_frame_is_not_collected() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    with pytest.raises(dptrees.Error, match=r"use dptrees\.spark\.release"):
        dptrees.release(frame, CONFIG)


def test_types_that_arrow_lacks_matter_where_a_tree_reads_them(table: pa.Table) -> None:
    polars = pytest.importorskip("polars")
    wide = polars.Series("unused", range(len(table)), dtype=polars.Int128)
    frame = polars.from_arrow(table).with_columns(wide)
    assert dptrees.release(frame, CONFIG).trees == ("age", "work", "day")
    with pytest.raises(dptrees.Error, match="column 'age' has type Int128, which Arrow cannot"):
        dptrees.release(frame.with_columns(wide.alias("age")), CONFIG)
    assert dptrees.release(frame.lazy(), CONFIG).trees == ("age", "work", "day")
    # In their place Polars sends addresses, which differ where the objects are equal.
    objects = polars.DataFrame({"person": [uuid.UUID(int=7)] * 9})
    with pytest.raises(dptrees.Error, match="column 'person' has type Object"):
        dptrees.of(objects, epsilon=1).distinct("person").release()


@pytest.mark.parametrize("use", [dptrees.release, dptrees.check])
def test_a_call_without_rows_and_input_names_what_is_missing(use: Any) -> None:
    with pytest.raises(dptrees.Error, match=r"^rows: give the rows, or a configuration with an in"):
        use(None, CONFIG)
