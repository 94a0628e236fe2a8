"""Rows of earlier days in a series: counted in the period in which they arrive, or left out."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.series.runs import Lateness
from dptrees.dpcore.specification import Refusal
from tests.pipelines.conftest import Outcome, Workspace

START = datetime.date(2024, 2, 27)
# Days of rows after START, in which number, and the missing ones: of the fourth period, 1 March.
DAYS = {0: 5, 1: 30, 2: 40, 3: 50, 4: 70}
MISSING, PERIOD = 11, 4
WITHIN = {0: 50, 1: 90, 2: 120, 3: 125}


class Late(Workspace):
    """A workspace whose rows of one period are of several days."""

    unit: str | None = None

    def write(self, kind: pa.DataType) -> None:
        days = [START + datetime.timedelta(days=day) for day, n in DAYS.items() for _ in range(n)]
        column = pa.array([*days, *[None] * MISSING], pa.date32()).cast(kind)
        if pa.types.is_timestamp(kind):
            noon = pa.array([12 * 3600] * len(column), pa.duration("s"))
            column = pa.compute.add(column, noon)
        number = len(column)
        x = np.random.default_rng(0).uniform(0, 100, number)
        shutil.rmtree(self.rows, ignore_errors=True)
        self.rows.mkdir()
        table = pa.table({"x": x, "day": column, "who": np.arange(number)})
        pq.write_table(table.take(np.random.default_rng(1).permutation(number)), self.file(0))

    @property
    def settings(self) -> dict[str, Any]:
        privacy: dict[str, Any] = {"rho": 10**9, "neighbors": "add_remove"}
        if self.unit:
            privacy |= {"unit": self.unit, "max_rows": 1}
        series = {"periods": 6, "period": 1, "start": START.isoformat()}
        box = {"kind": "hypercube", "columns": [{"column": "x", "lower": 0, "upper": 100}]}
        box["columns"][0]["cells"] = 64  # type: ignore[index]
        trees = [super().settings["trees"][0], {"name": "box", "domain": box}]
        return super().settings | {"privacy": privacy, "series": series, "trees": trees}

    def period(self, late: object) -> Outcome:
        """Release the first four periods, the last of them with the rows."""
        for period in range(1, PERIOD + 1):
            if period < PERIOD:
                shutil.rmtree(self.rows, ignore_errors=True)
                self.rows.mkdir()
                empty = {"x": pa.float64(), "day": pa.date32(), "who": pa.int64()}
                pq.write_table(pa.schema(list(empty.items())).empty_table(), self.file(0))
            else:
                self.write(self.kind)
            outcome = self.run("release", self.configured(late, period))
            assert outcome.code == 0, outcome.err
        return outcome

    kind: pa.DataType = pa.date32()

    def configured(self, late: object, period: int = PERIOD) -> str:
        def change(settings: dict[str, Any]) -> None:
            settings["series"] |= {"period": period} | ({} if late is None else {"lateness": late})

        return self.configure(change)

    def counted(self, tree: str) -> int:
        folder = self.output / f"period-{PERIOD:04d}" / "nodes"
        tables = [pq.read_table(path) for path in folder.glob(f"{tree}-*")]
        roots = [row for row in pa.concat_tables(tables).to_pylist() if row["level"] == 0]
        return int(next(row["count"] for row in roots if row["first"] == PERIOD))


@pytest.mark.parametrize("periods", WITHIN)
def test_rows_on_time_are_counted(tmp_path: Path, periods: int) -> None:
    made = Late(tmp_path)
    outcome = made.period({"column": "day", "periods": periods})
    assert made.counted("all") == made.counted("box") == WITHIN[periods]
    late = sum(DAYS.values()) + MISSING - WITHIN[periods]
    folder = made.output / f"period-{PERIOD:04d}"
    page = (folder / "report.html").read_text()
    assert f"late by more than {periods} periods, or ahead of the period" in page
    assert str(late) not in outcome.out
    configured = made.configured({"column": "day", "periods": periods})
    assert made.run("verify", folder, "--data", configured).code == 0
    plan = made.run("plan", configured)
    assert f"Rows whose day is more than {periods} periods before the period" in plan.out
    check = made.run("check", configured)
    assert check.code == 0 and "late, or of no date" in check.out


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("s"), pa.date64()])
def test_dates_of_every_type_and_units_that_are_people(tmp_path: Path, kind: pa.DataType) -> None:
    made = Late(tmp_path)
    made.unit, made.kind = "who", kind
    made.period({"column": "day", "periods": 1})
    assert made.counted("all") == made.counted("box") == WITHIN[1]


def test_without_a_bound_every_row_is_counted(tmp_path: Path) -> None:
    made = Late(tmp_path)
    made.period(None)
    assert made.counted("all") == sum(DAYS.values()) + MISSING


def nothing(settings: dict[str, Any]) -> None:
    """Change nothing."""


def no_start(settings: dict[str, Any]) -> None:
    del settings["series"]["start"]


def substitute(settings: dict[str, Any]) -> None:
    settings["privacy"]["neighbors"] = "substitute"


@pytest.mark.parametrize(
    ("late", "change", "words"),
    [
        ({"column": "day", "periods": -1}, nothing, "series.lateness.periods: -1 is below 0"),
        ({"column": "day", "periods": 1.5}, nothing, "1.5 must be a whole number"),
        ({"periods": 1}, nothing, "series.lateness.column"),
        ({"column": "day", "periods": 1}, no_start, "series.start: is required with lateness"),
        ({"column": "day", "periods": 1}, substitute, "series.lateness: needs neighbors: add_rem"),
    ],
)
def test_bad_bounds_are_refused(
    tmp_path: Path, late: object, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    made = Late(tmp_path)

    def changed(settings: dict[str, Any]) -> None:
        settings["series"] |= {"lateness": late}
        change(settings)

    outcome = made.run("plan", made.configure(changed))
    assert outcome.code == 2 and words in outcome.err, outcome.err


def test_a_column_of_no_dates_is_refused(tmp_path: Path) -> None:
    made = Late(tmp_path)
    made.write(pa.date32())
    outcome = made.run("release", made.configured({"column": "x", "periods": 1}, 1))
    assert outcome.code == 2 and "it must hold dates, or timestamps" in outcome.err
    with pytest.raises(Refusal, match="'tomorrow' is no date"):
        Lateness(column="day", start="tomorrow", periods=1)
