"""Releases by Spark itself, on two local threads: the same bytes, also if tasks fail.

The suite skips them without pyspark or Java. `make test-spark` runs them on both versions of Spark,
and there they must run.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
import dptrees.spark
from tests.optional import table_library
from tests.pipelines.python.conftest import read_config
from tests.pipelines.spark.conftest import UNIT, compare, config

REQUIRED_BY = "DPTREES_REQUIRE_SPARK"
pyspark = table_library("pyspark", REQUIRED_BY)
if shutil.which("java") is None and not os.environ.get(REQUIRED_BY):
    pytest.skip("Spark needs java", allow_module_level=True)

SECRET = "171717"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session whose tasks are tried four times, in a time zone that is not UTC."""
    place = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Local workers find the project as this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(place / "local"),
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = pyspark.sql.SparkSession.builder.master("local[2,4]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def frame(spark: Any, work: Path) -> Any:
    """The rows, in other partitions than the file has."""
    read = spark.read.parquet(str(work / "rows.parquet"))
    # Spark reads unsigned integers of 64 bits as decimal numbers.
    return read.withColumn("address", read.address.cast("bigint")).repartition(3)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("cdf", {}),
        ("quantiles-by", {**UNIT, "max_keys": 2}),
        ("hierarchy", {}),
        ("sparse-paths", UNIT),
        ("box-count-min", {}),
        ("distinct", {}),
        ("sketch", {}),
    ],
)
def test_the_same_bytes(name: str, unit: dict[str, Any], frame: Any, rows: pa.Table) -> None:
    given = read_config(name)
    given["privacy"] |= unit
    compare(frame, rows, given)


@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
def test_no_rows(unit: dict[str, Any], frame: Any, rows: pa.Table) -> None:
    compare(frame.limit(0), rows.slice(0, 0), config(**unit))


_HOURS = [datetime.datetime(2024, 3, 10, hour, 30, 0, 1) for hour in range(24)]
EVENTS = {
    "at": pa.array([*_HOURS, None], pa.timestamp("us", "UTC")),
    "plain": pa.array([*_HOURS, None], pa.timestamp("us")),
    "big": pa.array([2**53 + each // 2 for each in range(25)], pa.int64()),
    "paid": pa.array([Decimal(each) / 8 for each in range(25)], pa.decimal128(20, 3)),
    "flag": pa.array([each % 2 == 0 for each in range(25)]),
    "small.count": pa.array(range(25), pa.int8()),
    "name": pa.array(["é" * each for each in range(24)] + [None]),
}


@pytest.mark.parametrize("unit", [["at"], ["plain", "big", "paid", "flag", "name"]])
def test_units_are_exact_values(unit: list[str], spark: Any, work: Path) -> None:
    """The types of Spark's batches change no value: who is one unit is as for the command."""
    table = pa.table(EVENTS)
    pq.write_table(pa.concat_tables([table] * 20), "events.parquet")
    given = {
        "release": "events",
        "privacy": {"epsilon": 1, "neighbors": "add_remove", "unit": unit, "max_rows": 3},
        "trees": [
            {
                "name": "count",
                "domain": {"column": "small.count", "type": "integer", "lower": 0, "upper": 30},
            },
            {
                "name": "day",
                "domain": {"column": "at", "lower": "2024-03-01", "upper": "2024-04-01"},
            },
        ],
    }
    events = spark.read.parquet(str(work / "events.parquet")).repartition(2)
    compare(events, "events.parquet", given)


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the rows; the first try of each task fails when it has given some of them."""
    context = pyspark.TaskContext.get()
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if context.attemptNumber() == 0:
            raise RuntimeError("this try fails")
        yield batch.slice(batch.num_rows // 2)


@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
def test_tasks_that_fail_once(unit: dict[str, Any], frame: Any, rows: pa.Table) -> None:
    compare(frame.mapInArrow(fail_once, frame.schema), rows, config(**unit))


@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
def test_rows_are_read_once(unit: dict[str, Any], frame: Any, tmp_path: Path) -> None:
    """A DataFrame may give other rows each time that it is computed."""
    seen = str(tmp_path / "seen")

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(seen, "a") as file:
            for batch in batches:
                file.write(f"{batch.num_rows}\n")
                yield batch

    drawn = frame.where("rand() < 0.5").mapInArrow(noted, frame.schema)
    made = dptrees.spark.release(drawn, config(**unit), key="release.key")
    total = sum(map(int, Path(seen).read_text().split()))
    assert 9_000 < total < 11_000
    if not unit:
        estimate = made["minutes"].range(0, 300).estimate
        assert abs(estimate - total) < 200


def test_an_error_of_spark_shows_no_value(frame: Any, spark: Any) -> None:
    bad = frame.selectExpr(f"CAST(raise_error('{SECRET}') AS STRING) AS city", "minutes")
    with pytest.raises(dptrees.Error) as caught:
        dptrees.spark.release(bad, config(**UNIT), key="release.key")
    assert str(caught.value).startswith("spark: the job failed with ")
    assert SECRET not in str(caught.value)


def test_a_column_that_is_missing(frame: Any) -> None:
    with pytest.raises(dptrees.Error, match=r"has no column 'minutes'.*did you mean Minutes"):
        dptrees.spark.release(frame.selectExpr("minutes AS Minutes", "city"), config())


def test_columns_that_differ_in_case(frame: Any, rows: pa.Table) -> None:
    both = frame.selectExpr("minutes", "fine AS Minutes")
    compare(both, rows, config())


def test_a_type_that_nothing_reads(frame: Any) -> None:
    with pytest.raises(dptrees.Error, match=r"'minutes' has the type map<.*cast it first"):
        dptrees.spark.release(frame.selectExpr("map(city, minutes) AS minutes"), config())


def test_executors_without_a_key(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPTREES_TEST_KEY", Path("release.key").read_text())
    with pytest.raises(dptrees.Error, match="DPTREES_TEST_KEY"):
        dptrees.spark.release(frame, config(**UNIT), key="env:DPTREES_TEST_KEY")
