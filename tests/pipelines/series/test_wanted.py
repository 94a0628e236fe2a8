"""What a series is planned for: totals to date, windows or single periods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Workspace
from tests.pipelines.series.runs import refused


class Year(Workspace):
    """A configuration of the days of a year."""

    @property
    def settings(self) -> dict[str, Any]:
        privacy = {"epsilon": 1, "neighbors": "add_remove"}
        return super().settings | {"privacy": privacy, "series": {"periods": 365, "period": 1}}

    def series(self, **values: object) -> str:
        return self.configure(lambda settings: settings["series"].update(values))


def planned(year: Year, **values: object) -> dict[str, Any]:
    plan = json.loads(year.succeed("plan", year.series(**values), "--json").out)
    found: dict[str, Any] = plan["trees"][0]["series"]
    return found


def test_a_plan_states_the_errors_of_windows_and_is_made_for_what_is_wanted(tmp_path: Path) -> None:
    year = Year(tmp_path)
    to_date, windows, periods = (
        planned(year),
        planned(year, optimize_for="windows", window=30),
        planned(year, optimize_for="periods"),
    )
    assert to_date == planned(year, optimize_for="totals")
    assert [each["periods"] for each in to_date["levels"]] == [1, 21]
    assert [each["periods"] for each in windows["levels"]] == [1, 8]
    assert [each["periods"] for each in periods["levels"]] == [1]
    # In errors of a single period, which has less of the budget where others have some.
    shares = [
        each["levels"][0]["epsilon"] / sum(level["epsilon"] for level in each["levels"])
        for each in (to_date, windows)
    ]
    found = [each["window_per_period_rmse"] for each in (to_date, windows, periods)]
    assert found[0].keys() == {"7", "30", "90"}
    assert found[2]["30"] == pytest.approx(30**0.5)
    assert found[0]["30"] / shares[0] == pytest.approx(7.18, abs=0.02)
    assert found[1]["30"] / shares[1] == pytest.approx(5.36, abs=0.02)
    text = year.succeed("plan", year.series()).out
    errors = ", ".join(f"{each:.3g}" for each in found[0].values())
    line = f"the error of windows of 7, 30, 90 periods, when they end, is {errors} times that of"
    assert line in text


def test_a_length_goes_with_windows(tmp_path: Path) -> None:
    year = Year(tmp_path)
    goes = "series.window: goes with optimize_for: windows, and is their length"
    refused(year.run("plan", year.series(window=7)), goes)
    refused(year.run("plan", year.series(optimize_for="periods", window=7)), goes)
    refused(year.run("plan", year.series(optimize_for="windows")), goes)
    refused(
        year.run("plan", year.series(optimize_for="windows", window=366)),
        "series.window: 366 is not from 1 to 365, the series' periods",
    )
    refused(
        year.run("plan", year.series(optimize_for="weeks")),
        "series.optimize_for: 'weeks' must be totals, windows or periods",
    )


def test_a_tree_without_a_tree_over_periods_says_that_nothing_is_optimized(tmp_path: Path) -> None:
    year = Year(tmp_path)
    tree = {"name": "apart", "domain": {"kind": "distinct", "column": "x"}}

    def text(*trees: dict[str, Any], **values: object) -> str:
        def change(settings: dict[str, Any]) -> None:
            settings["series"].update(values)
            settings["trees"] = [tree, *trees]

        return year.succeed("plan", year.configure(change)).out

    line = "  series.optimize_for has no effect on it: it has no tree over periods.\n"
    added = year.settings["trees"][0]
    for wanted in ({"optimize_for": "windows", "window": 7}, {"optimize_for": "periods"}):
        assert text(**wanted).count(line) == 1
        assert text(added, **wanted).count(line) == 1
    assert line not in text()
