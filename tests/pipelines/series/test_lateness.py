"""Rows of earlier days in a series: counted in the period in which they arrive, or left out."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.series.runs import Lateness
from dptrees.dpcore.specification import Refusal
from tests.pipelines.conftest import Change, Outcome
from tests.pipelines.series.runs import Runs

START = datetime.date(2024, 2, 27)
# Days of rows after START, in which number, and the missing ones: of the fourth period, 1 March.
DAYS = {0: 5, 1: 30, 2: 40, 3: 50, 4: 70}
MISSING, PERIOD = 11, 4
WITHIN = {0: 50, 1: 90, 3: 125}


class Late(Runs):
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
        table = pa.table({"x": x, "day": column, "who": np.arange(number)})
        self.write_table(table.take(np.random.default_rng(1).permutation(number)))

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

    def four_periods(self, **series: object) -> Outcome:
        """Release the first four periods, the last of them with the rows."""
        for period in range(1, PERIOD + 1):
            if period < PERIOD:
                empty = {"x": pa.float64(), "day": pa.date32(), "who": pa.int64()}
                self.write_table(pa.schema(list(empty.items())).empty_table())
            else:
                self.write(self.kind)
            outcome = self.succeed("release", self.configured(period, **series))
        return outcome

    kind: pa.DataType = pa.date32()

    def counted(self, tree: str) -> int:
        files = (self.period_folder(PERIOD) / "nodes").glob(f"{tree}-*")
        tables = [pq.read_table(path) for path in files]
        roots = [row for row in pa.concat_tables(tables).to_pylist() if row["level"] == 0]
        return int(next(row["count"] for row in roots if row["first"] == PERIOD))


@pytest.mark.parametrize("periods", WITHIN)
def test_rows_on_time_are_counted(tmp_path: Path, periods: int) -> None:
    made = Late(tmp_path)
    outcome = made.four_periods(lateness={"column": "day", "periods": periods})
    assert made.counted("all") == made.counted("box") == WITHIN[periods]
    late = sum(DAYS.values()) + MISSING - WITHIN[periods]
    assert str(late) not in outcome.out
    configured = made.configured(PERIOD, lateness={"column": "day", "periods": periods})
    made.succeed("verify", made.period_folder(PERIOD), "--data", configured)
    assert "late, or of no date" in made.succeed("check", configured).out


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("s"), pa.date64()])
def test_dates_of_every_type_and_units_that_are_people(tmp_path: Path, kind: pa.DataType) -> None:
    made = Late(tmp_path)
    made.unit, made.kind = "who", kind
    made.four_periods(lateness={"column": "day", "periods": 1})
    assert made.counted("all") == made.counted("box") == WITHIN[1]


def test_without_a_bound_every_row_is_counted(tmp_path: Path) -> None:
    made = Late(tmp_path)
    made.four_periods()
    assert made.counted("all") == sum(DAYS.values()) + MISSING


def nothing(settings: dict[str, Any]) -> None:
    """Change nothing."""


def no_start(settings: dict[str, Any]) -> None:
    del settings["series"]["start"]


def substitute(settings: dict[str, Any]) -> None:
    settings["privacy"]["neighbors"] = "substitute"


def test_bad_bounds_are_refused(tmp_path: Path) -> None:
    made = Late(tmp_path)
    for late, change, words in (
        ({"column": "day", "periods": -1}, nothing, "series.lateness.periods: -1 is below 0"),
        ({"column": "day", "periods": 1.5}, nothing, "1.5 must be a whole number"),
        ({"periods": 1}, nothing, "series.lateness.column"),
        ({"column": "day", "periods": 1}, no_start, "series.start: is required with lateness"),
        ({"column": "day", "periods": 1}, substitute, "series.lateness: needs neighbors: add_rem"),
    ):

        def changed(settings: dict[str, Any], late: Any = late, change: Change = change) -> None:
            settings["series"] |= {"lateness": late}
            change(settings)

        outcome = made.run("plan", made.configure(changed))
        assert outcome.code == 2 and words in outcome.err, outcome.err


def test_a_column_of_no_dates_is_refused(tmp_path: Path) -> None:
    made = Late(tmp_path)
    made.write(pa.date32())
    outcome = made.run("release", made.configured(1, lateness={"column": "x", "periods": 1}))
    assert outcome.code == 2 and "it must hold dates, or timestamps" in outcome.err
    with pytest.raises(Refusal, match="'tomorrow' is no date"):
        Lateness(column="day", start="tomorrow", periods=1)
