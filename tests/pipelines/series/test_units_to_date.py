"""Different units to date: counted exactly as each has rows for the first time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipelines.series.runs import NewPeople, refused


def to_date(workspace: NewPeople, period: int) -> int:
    """The released number after a period, next to exact."""
    (answer,) = workspace.queried(
        workspace.output, "node", "--path", "", "--tree", "different", "--to-date", period
    )
    count: int = answer["count"]
    return count


def test_the_numbers_are_those_of_different_people(new_people: NewPeople, tmp_path: Path) -> None:
    other, seen = NewPeople(tmp_path), set[int]()
    for period in range(1, NewPeople.periods + 1):
        before = len(seen)
        seen |= set(other.write_period(period)["person"].to_pylist())
        assert to_date(new_people, period) == len(seen)
        assert new_people.counts(period) == [len(seen) - before]
    # People come again, so numbers of periods do not add up to the number of people.
    assert (
        before
        < len(seen)
        < 0.7
        * sum(
            len(set(other.write_period(period)["person"].to_pylist()))
            for period in range(1, NewPeople.periods + 1)
        )
    )


def test_the_release_is_made_again_from_its_rows(new_people: NewPeople, tmp_path: Path) -> None:
    own = new_people.copied(tmp_path / "own", 3)
    own.write_period(3)
    outcome = own.succeed("verify", own.period_folder(3), "--data", own.configured(3))
    assert "FAILED" not in outcome.out
    again = own.period(3)
    assert again.code == 0


def beside(settings: dict[str, Any], *, period: int, most: int) -> None:
    """Count another tree beside the different people."""
    settings["series"] |= {"period": period, "max_periods": most}
    domain = {"column": "x", "lower": 0, "upper": 100, "cells": 4}
    settings["trees"].append({"name": "rows", "domain": domain})


@pytest.mark.parametrize("most", [1, NewPeople.periods])
def test_the_periods_of_other_trees_do_not_matter(tmp_path: Path, most: int) -> None:
    """Units are remembered even if a release counts them in every period."""
    made, seen = NewPeople(tmp_path), set[int]()
    for period in (1, 2, 3):
        seen |= set(made.write_period(period)["person"].to_pylist())
        outcome = made.run("release", made.configure(partial(beside, period=period, most=most)))
        assert outcome.code == 0, outcome.err
        several = "every period" if most == made.periods else "the first period"
        words = f"A unit is counted in {several}"
        if most > 1:
            words += ". Of these periods different counts it in the first alone."
        for name in ("manifest.json", "report.html"):
            assert words in made.period_folder(period).joinpath(name).read_text()
    assert to_date(made, 3) == len(seen)
    assert made.period_folder(2).joinpath("units").exists()


def test_weighted_sums_measure_them_too(tmp_path: Path) -> None:
    made, seen = NewPeople(tmp_path), set[int]()
    for period in range(1, NewPeople.periods + 1):
        seen |= set(made.write_period(period)["person"].to_pylist())

        def change(settings: dict[str, Any], period: int = period) -> None:
            settings["series"]["period"] = period
            del settings["series"]["fanout"]

        outcome = made.run("release", made.configure(change))
        assert outcome.code == 0, outcome.err
        assert to_date(made, period) == len(seen)
    plan = made.succeed("plan", made.configure(change)).out
    assert "each run measures a weighted sum of all periods so far" in plan


def test_texts_say_which_people_are_counted_and_why_they_add_up(tmp_path: Path) -> None:
    made = NewPeople(tmp_path)
    made.released_periods(1)
    made.write_period(2)
    why = (
        "each person counts in the first period with rows of it alone, so the sum of periods 1 to "
        "t is the number of different ones to date"
    )
    new, so_far = "values of person new in this period", "different values of person so far, to"
    plan = made.succeed("plan", made.configured(2)).out
    assert f"different: {new}\n" in plan and f"  E{why[1:]}.\n" in plan
    summary = made.succeed("release", made.configured(2)).out
    one, _, other = summary.partition("to date, periods 1 to 2 of 4")
    assert f"  {new} " in one and why in one
    assert f"  {so_far} period 2 " in other and why in other
    page = made.period_folder(2).joinpath("report.html").read_text()
    assert f"{new}: {why}." in page and f"The unbiased estimate of the true number of {new}" in page
    guarantee = "A unit is counted in the first period in which it has rows, and in no later one."
    assert guarantee in page
    assert guarantee in made.period_folder(2).joinpath("manifest.json").read_text()
    for wrong in ("values of person,", "number of rows:", "in 1 cells", "new_units"):
        assert wrong not in page.partition("The privacy guarantee")[0].partition("<main")[2]

    def words(*options: object) -> object:
        path = ("node", "--path", "", "--tree", "different", *options)
        return made.queried(made.output, *path)[0]["in_words"]

    assert words("--to-date", 2) == words("--window", "1:2") == f"{so_far} period 2"
    assert words("--window", "2:2") == "values of person new in period 2"
    (own,) = made.queried(made.period_folder(2), "node", "--path", "")
    assert own["in_words"] == new


def test_rows_without_a_unit_do_not_count(tmp_path: Path) -> None:
    made = NewPeople(tmp_path)
    made.write_period(1)
    made.write_table(pa.table({"x": [1.0, 2.0, 3.0], "person": pa.array([7, None, None])}))
    assert made.period(1).code == 0
    assert made.counts(1) == [1]


def test_what_cannot_be_counted_to_date_is_refused_with_a_way_out(new_people: NewPeople) -> None:
    def changed(words: str, **sections: Any) -> None:
        def change(settings: dict[str, Any]) -> None:
            for name, values in sections.items():
                if name == "tree":
                    settings["trees"][0] |= values
                elif values is None:
                    del settings[name]
                else:
                    settings[name] |= values

        refused(new_people.run("plan", new_people.configure(change)), "to_date", words)

    changed("needs a series with unit: per_series", series=None)
    changed("needs a series with unit: per_series", series={"unit": "per_period"})
    changed(
        "x is not the unit; leave it out, and the values of each period are counted",
        tree={"domain": {"kind": "distinct", "column": "x"}},
    )
    changed(
        "series.max_periods: has no effect: to_date counts each unit in one period",
        series={"max_periods": 2},
    )
    changed("max_values: has no effect: to_date counts each unit once", tree={"max_values": 2})
    changed(
        "domain.type: has no effect beside to_date",
        tree={"domain": {"kind": "distinct", "column": "person", "type": "integer"}},
    )
