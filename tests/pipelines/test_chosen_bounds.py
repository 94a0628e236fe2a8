"""Bounds of a unit, and of values, that are chosen: what is chosen, and what cannot be.

`test_first_stages.py` has what all releases of two stages promise.
"""

from __future__ import annotations

import json
import shutil
from datetime import date
from fractions import Fraction
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

import dptrees
from dptrees.dpcore.choices.value_bounds import EarlierBoundsQuestion
from dptrees.dpcore.questions.one_part import ONE_PLACE
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.errors import InputError
from tests.pipelines.conftest import Change, Workspace, assert_refused, both, put, update
from tests.pipelines.first_stages import (
    AUTO,
    DAY,
    INTEGER,
    NUMBER,
    SEEN,
    bounded,
    chosen,
    keyed,
    numbers,
    people,
    privacy_with,
    stage_of,
    valued,
)

CANDIDATES = 18


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """A workspace whose rows have people."""
    workspace.write_table(people())
    return workspace


def test_a_bound_is_chosen_and_trees_are_made_with_it(filled: Workspace) -> None:
    folder = filled.make(bounded())
    bound = chosen(filled)["max_rows"]
    assert folder.plan.unit.rows == bound and 1 <= bound <= 100
    stage = stage_of(filled)
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/10"
    (entry,) = stage.manifest["trees"]  # type: ignore[misc]
    assert entry["epsilon"] == "1/10" and len(entry["sizes"]) == CANDIDATES
    assert folder.plan.spending.epsilon + stage.plan.spending.epsilon == 1
    assert stage.plan.unit.rows == 1


@pytest.mark.parametrize(
    "privacy", [{"epsilon": None, "rho": 0.5}, {"delta": 1e-6}, {"neighbors": "substitute"}]
)
def test_every_guarantee_adds_up(filled: Workspace, privacy: dict[str, Any]) -> None:
    folder = filled.make(bounded(**privacy))
    bounds = folder.plan.bounds
    assert bounds is not None
    guarantee: Any = folder.manifest["guarantee"]
    if "rho" in privacy:
        assert guarantee["rho"] == "1/2" and guarantee["bounds_rho"] == "1/20"
        assert folder.plan.spending.rho + bounds.plan.spending.rho == Fraction(1, 2)
    else:
        assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/10"
    filled.succeed("verify", filled.output, "--data", filled.configure(bounded(**privacy)))


def test_keys_are_bounded_in_the_same_way(filled: Workspace) -> None:
    unit = filled.make(keyed()).plan.unit
    assert unit.rows == 20 and unit.keys in (1, 2, 3)  # three keys are listed
    shutil.rmtree(filled.output)
    bounds = filled.make(keyed(max_rows="auto")).plan.bounds
    assert list(chosen(filled)) == ["max_rows", "max_keys"]
    assert bounds is not None and bounds.plan.budget.amount == Fraction(1, 4)


def test_private_keys_are_selected_with_the_chosen_bounds(filled: Workspace) -> None:
    def private(settings: dict[str, Any]) -> None:
        by = {"column": "shop", "keys": "private", "fraction": 0.5}
        settings["trees"][0] |= {"group_by": by}

    change = both(keyed("auto", delta=1e-4, epsilon=4), private)
    filled.make(change)
    shutil.rmtree(filled.rows)
    again = filled.release(change)
    assert again.code == 0 and "already there" in again.out
    plan = filled.made().plan
    bounds, selection = plan.bounds, plan.selection
    assert bounds is not None and selection is not None
    assert selection.unit.rows == chosen(filled)["max_keys"]
    assert plan.promised is not None and plan.promised[0] == 4
    assert bounds.plan.spending.epsilon == Fraction(3, 5)
    printed = filled.succeed("verify", filled.output).out
    assert "bounds: bounds is complete" in printed and "selection: keys is complete" in printed
    shutil.rmtree(filled.output / "bounds")
    (filled.output / "manifest.json").unlink()
    assert_refused(filled, filled.release(change), "not the choice of the bounds of its unit")


def test_a_bound_as_a_number_is_another_release(filled: Workspace) -> None:
    filled.make(bounded())
    given = filled.release(bounded(chosen(filled)["max_rows"]))
    assert_refused(filled, given, "another configuration")


def test_the_tolerated_units_cost_what_the_noise_costs(filled: Workspace) -> None:
    entries = json.loads(filled.succeed("plan", filled.configure(bounded()), "--json").out)
    (bound,) = entries["bounds"]
    # Half of the rows that are left out, beside the error for one row with the rest of the budget.
    rest = filled.succeed("plan", filled.configure(bounded(1, epsilon=0.9)), "--json").out
    error = json.loads(rest)["total"]["trees"][0]["error"]
    assert bound["bound"] == "max_rows" and bound["epsilon"] == 0.1
    assert bound["tolerated_units"] == pytest.approx(2 * error, rel=1e-3)
    assert not filled.output.exists()


def more_keys(settings: dict[str, Any]) -> None:
    """A second tree, by two columns."""
    by = {"columns": ["shop", "person"], "keys": {"shop": ["x"], "person": [1, 2]}}
    settings["trees"].append(settings["trees"][0] | {"name": "b", "group_by": by})


def one_key(settings: dict[str, Any]) -> None:
    settings["trees"][0]["group_by"]["keys"] = ["x"]


UNIT_ROWS = {"type": "unit_rows", "column": "person", "most": 20}
REFUSED = [
    (bounded("auto", unit=None), "max_rows: has no effect if the unit is the row"),
    (bounded("many"), "max_rows: 'many' must be a whole number from 1 to 1048576, or"),
    (bounded({"fraction": 1}), "max_rows.fraction: 1 must be below 1"),
    (bounded({"at_most": 1}), "max_rows.at_most: 1 must be at least 2"),
    (bounded({"most": 9}), "max_rows.most"),
    (bounded({"fraction": 1e-9}), "max_rows.fraction: the budget is too small"),
    (keyed("auto", max_rows_per_key=None), "max_keys: auto needs max_rows_per_key"),
    (keyed({"fraction": 0.6}, max_rows={"fraction": 0.5}), "max_rows.fraction: all fractions"),
    (both(keyed(), more_keys), "max_keys: auto needs all trees with group_by to have the keys"),
    (both(keyed(), one_key), "max_keys: auto has no choice: one key is listed"),
    (
        both(bounded(), update(trees=[{"name": "rows", "domain": UNIT_ROWS}])),
        "max_rows: has no effect: no tree counts rows",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), REFUSED)
def test_what_cannot_be_chosen_is_refused(
    workspace: Workspace, change: Change, sentence: str
) -> None:
    outcome = workspace.run("plan", workspace.configure(change))
    assert_refused(workspace, outcome, f"privacy.{sentence}")


def test_an_error_cannot_be_wanted_of_a_bound_that_is_not_known(workspace: Workspace) -> None:
    outcome = workspace.run("plan", workspace.configure(bounded()), "--target-error", "5")
    assert_refused(workspace, outcome, "--target-error: needs privacy.max_rows as a number")


def test_python_chooses_bounds_too() -> None:
    domain = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
    privacy = {"epsilon": 1, "neighbors": "add_remove", "unit": "person", "max_rows": "auto"}
    config = {"privacy": privacy, "trees": [{"name": "x", "domain": domain}]}
    assert "epsilon = 1 per person (at most " in dptrees.release(people(), config).guarantee
    assert "per person (max_rows chosen first), neighbors" in dptrees.plan(config).guarantee


def test_the_transform_refuses_a_plan_without_its_bounds(filled: Workspace) -> None:
    configuration = load_configuration(filled.configure(bounded(AUTO)))
    step = ReleaseTrees(configuration.plan(), key=configuration.key, output=str(filled.output))
    with pytest.raises(InputError, match="max_rows of the unit must first be chosen"):
        step.expand((beam.Pipeline() | beam.Create([1]), None))


# --- bounds of values ---


@pytest.fixture
def numbered(workspace: Workspace) -> Workspace:
    """A workspace whose rows have numbers and integers."""
    workspace.write_table(numbers())
    return workspace


def test_an_upper_bound_is_chosen_and_the_tree_is_made_with_it(numbered: Workspace) -> None:
    folder = numbered.make(valued())
    stage, upper = stage_of(numbered), chosen(numbered)["range-0.upper"]
    assert 20 <= upper <= 1000
    domain: Any = folder.plan.questions[0].domain  # type: ignore[attr-defined]
    assert (domain.lower, domain.upper, domain.cells) == (0.0, upper, 16)
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/5"
    (entry,) = stage.manifest["trees"]  # type: ignore[misc]
    assert entry["sensitivity"] == 1 and entry["trees"] == ["tree0"]
    assert len(entry["candidates"]) == 181
    assert folder.plan.spending.epsilon + stage.plan.spending.epsilon == 1

    given = numbered.release(valued(NUMBER | {"upper": 300}))
    assert_refused(numbered, given, "another configuration")
    manifest = numbered.output / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"range-0.upper": {upper}', '"range-0.upper": 7.0'))
    assert manifest.read_text() != text
    assert numbered.run("verify", numbered.output).code == 2


@pytest.mark.parametrize(
    "privacy",
    [
        {"epsilon": None, "rho": 0.5},
        {"delta": 1e-6, "unit": "person", "max_rows": "auto"},
        {"neighbors": "substitute"},
    ],
)
def test_every_guarantee_adds_up_with_bounds_of_values(
    numbered: Workspace, privacy: dict[str, Any]
) -> None:
    change = valued(NUMBER, INTEGER, **privacy)
    guarantee: Any = numbered.make(change).manifest["guarantee"]
    values = chosen(numbered)
    assert values["range-1.lower"] < 30 < values["range-1.upper"]
    parts = 7 if "unit" in privacy else 4
    measure = "rho" if "rho" in privacy else "epsilon"
    assert Fraction(guarantee[f"bounds_{measure}"]) == Fraction(guarantee[measure]) * parts / 20
    numbered.succeed("verify", numbered.output, "--data", numbered.configure(change))
    again = numbered.release(change)
    assert again.code == 0 and "already there" in again.out


def test_without_a_clear_bin_no_tree_is_made_and_nothing_is_drawn_again(
    numbered: Workspace,
) -> None:
    """15 rows at a share of .2: fewer than the noise of a bin."""
    numbered.write_table(numbers().slice(0, 15))
    first = numbered.release(valued())
    assert_refused(numbered, first, "upper of x: no values stood clear above noise, and the budget")
    assert stage_of(numbered).release.tree("range-0").bounds == {"range-0.upper": None}  # type: ignore[attr-defined]
    assert not (numbered.output / "manifest.json").exists()
    before = (numbered.output / "bounds" / "manifest.json").read_bytes()
    assert numbered.release(valued()).err == first.err
    assert (numbered.output / "bounds" / "manifest.json").read_bytes() == before


def test_equal_sections_share_one_choice(workspace: Workspace) -> None:
    """Trees of one column and the same bounds, one with another number of cells."""
    change = valued(NUMBER, NUMBER | {"cells": 8}, NUMBER | {"lower": 1})
    bounds = load_configuration(workspace.configure(change)).bounds
    assert bounds is not None
    assert [(each.name, each.trees) for each in bounds.plan.questions] == [  # type: ignore[attr-defined]
        ("range-0", ("tree0", "tree1")),
        ("range-2", ("tree2",)),
    ]
    assert bounds.plan.budget.amount == Fraction(1, 5)


def test_trees_by_keys_have_chosen_bounds(numbered: Workspace) -> None:
    folder = numbered.make(valued(by={"column": "person", "keys": [1, 2, 3]}))
    assert folder.plan.questions[0].key_count == 3


def test_the_plan_describes_bounds_of_values(workspace: Workspace) -> None:
    path = workspace.configure(valued(NUMBER, INTEGER))
    printed = workspace.succeed("plan", path).out
    assert "upper of x: chosen first, epsilon 0.06667, among 181 values" in printed
    assert "errors of its trees below are for the widest" in printed
    widest = "errors of its means below are for the widest range"
    assert widest not in printed
    entries = json.loads(workspace.succeed("plan", path, "--json").out)
    assert [each["bounds"] for each in entries["bounds"]] == [["upper"], ["lower", "upper"]]
    domain = {name: NUMBER[name] for name in ("column", "lower", "upper")}
    mean = update(trees=[{"name": "m", "objective": "mean", "domain": domain}])
    assert widest in workspace.succeed("plan", workspace.configure(mean)).out
    assert not workspace.output.exists()


def test_python_chooses_the_bounds_that_the_command_does(numbered: Workspace) -> None:
    privacy = {"epsilon": 1, "neighbors": "add_remove"}
    config = {"privacy": privacy, "trees": [{"name": "tree0", "domain": NUMBER}]}
    assert "epsilon = 1 per row, neighbors" in dptrees.release(numbers(), config).guarantee
    assert "(upper of x chosen first)" in dptrees.plan(config).guarantee
    path = numbered.configure(valued())
    release = dptrees.release(numbers(), path, output=numbered.folder / "python", key=numbered.key)
    assert "epsilon = 1 per row" in release.guarantee


def test_what_is_printed_and_answered_names_the_chosen_bound(numbered: Workspace) -> None:
    domain = {name: NUMBER[name] for name in ("column", "lower", "upper")}
    mean = {"name": "mean", "objective": "mean", "domain": domain}
    trees = [{"name": "tree0", "domain": NUMBER}, mean]
    printed = numbered.succeed("release", numbered.configure(put("trees", trees))).out
    upper = chosen(numbered)["range-0.upper"]
    assert f"chosen first: upper of x {upper:,.12g}" in printed
    label = f"all values, counted as [0, {upper:.12g})"
    assert f"mean (x: {label};" in printed
    for name in ("tree0", "mean"):
        for query in ("mean", "describe"):
            assert label in numbered.succeed("query", numbered.output, query, "--tree", name).out
    page = (numbered.output / "report.html").read_text()
    assert f"mean of x: {label}" in page and "epsilon = 0.2 of this, from a noisy histogram" in page
    answer = numbered.succeed("query", numbered.output, "mean", "--tree", "tree0", "--json").out
    (entry,) = json.loads(answer)["answers"]
    assert (entry["label"], entry["in_words"]) == (f"[0, {upper:.12g})", label)
    release = dptrees.open(numbered.output)
    assert f"chosen first: upper of x {upper:,.12g}" in repr(release)
    assert f"chosen first: upper of x {upper:,.12g}" in release._repr_html_()
    assert release["mean"].mean()["label"] == [label]
    assert f"of {label}" in repr(release["tree0"].describe())


def test_a_choice_of_an_earlier_version_is_not_made() -> None:
    folder = ReleaseFolder("tests/releases/made/format-3-bounds/release/bounds")
    question = folder.plan.questions[0]
    assert isinstance(question, EarlierBoundsQuestion)
    with pytest.raises(Refusal, match="bounds: the choice is planned as in an earlier version"):
        _ = question.dense_cells
    with pytest.raises(Refusal, match="an earlier version"):
        question.draw(ONE_PLACE, b"", None)  # type: ignore[arg-type]


def test_python_takes_auto_for_quantiles_and_cdfs() -> None:
    request = dptrees.of(numbers(), epsilon=1)
    cdf = request.cdf("x", (0, "auto"), cells=16)
    assert cdf.config["trees"][0]["domain"] == NUMBER
    assert request.median("x", ("auto", "auto")).plan().guarantee.count("chosen first") == 1
    with pytest.raises(dptrees.Error, match=r"^bounds: auto goes with a number, not '2020-01-01'"):
        request.cdf("x", ("2020-01-01", "auto"))


def test_bounds_of_dates_are_chosen_and_named(numbered: Workspace) -> None:
    folder = numbered.make(valued(DAY, SEEN))
    lower, upper, *times = chosen(numbered).values()
    assert ("1925-01-01" <= str(lower) <= "1935-01-01") and ("1995" < str(upper) < "2010")
    assert times == ["2026-03-04T00:00:00+00:00", "2026-03-06T00:00:00+00:00"]
    days, seen = (question.domain for question in folder.plan.questions)  # type: ignore[attr-defined]
    assert (str(days.lower), str(days.upper), days.outside) == (lower, upper, "drop")
    assert (seen.cells, seen.lower.isoformat(), seen.upper.isoformat()) == (1000, *times)
    table = stage_of(numbered).release.tree("range-0").table  # type: ignore[attr-defined]
    assert table.schema.types == [pa.date32(), pa.date32()]

    release = dptrees.open(numbered.output)
    assert f"chosen first: lower and upper of day {lower} and {upper}, " in repr(release)
    assert "1960" < str(release["tree0"].median()["value"][0]) < "1970"
    assert "2026-03-04 22" < str(release["tree1"].median()["value"][0]) < "2026-03-05 02"
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["bounds_epsilon"] == "1/5" and "a noisy histogram" in guarantee["words"]
    entry = stage_of(numbered).manifest["trees"][0]  # type: ignore[index]
    assert entry["candidates"][:2] == ["1800-01-01", "1801-01-01"] and entry["sensitivity"] == 1
    numbered.succeed("verify", numbered.output, "--data", numbered.configure(valued(DAY, SEEN)))
    again = numbered.release(valued(DAY, SEEN))
    assert again.code == 0 and "already there" in again.out
    assert_refused(
        numbered,
        numbered.release(valued(DAY | {"lower": lower, "upper": upper}, SEEN)),
        "another configuration",
    )


@pytest.mark.parametrize("privacy", [{"epsilon": None, "rho": 0.5}, {"neighbors": "substitute"}])
def test_dates_of_units_and_keys_have_chosen_bounds(
    numbered: Workspace, privacy: dict[str, Any]
) -> None:
    """By one row of each unit; with the lower bound given the bins begin there."""
    upper = DAY | {"lower": "1930-01-01", "upper": {"at_most": "2030-01-01", "fraction": 0.1}}
    change = valued(DAY, upper, by={"column": "person", "keys": [1, 2]}, unit="person", max_rows=2)
    folder = numbered.make(both(change, lambda settings: privacy_with(settings, privacy)))
    assert folder.plan.questions[1].domain.lower.isoformat() == "1930-01-01"  # type: ignore[attr-defined]
    assert "1995" < str(chosen(numbered)["range-1.upper"]) < "2010"
    candidates = stage_of(numbered).manifest["trees"][1]["candidates"]  # type: ignore[index]
    assert (candidates[0], candidates[1]) == ("1930-01-01", "1931-01-01")


def test_every_kind_of_tree_of_dates_is_made_with_chosen_bounds(numbered: Workspace) -> None:
    trees = [
        {"name": "cdf", "domain": DAY},
        {"name": "median", "domain": DAY, "objective": "quantiles", "quantiles": [0.5]},
        {"name": "ranges", "domain": DAY, "objective": "ranges", "mechanism": "tree"},
        {"name": "few", "domain": DAY, "quantiles": [0.5], "mechanism": "exponential"},
        {"name": "counts", "domain": SEEN, "fanouts": [10, 100]},
    ]
    folder = numbered.make(put("trees", trees))
    assert len(chosen(numbered)) == 4  # one choice for four trees
    assert len({str(each.domain.upper) for each in folder.plan.questions}) == 2  # type: ignore[attr-defined]


def test_dates_in_text_are_read_for_the_choice(workspace: Workspace) -> None:
    """CSV, whose columns have no types of their own."""
    write_csv(numbers().select(["day"]), workspace.rows / "rows.csv")
    path = str(workspace.rows / "*.csv")
    workspace.make(both(valued(DAY), put("input", {"format": "csv", "path": path})))
    assert "1995" < str(chosen(workspace)["range-0.upper"]) < "2010"


def test_the_plan_describes_bounds_of_dates(workspace: Workspace) -> None:
    path = workspace.configure(valued(DAY, SEEN))
    printed = workspace.succeed("plan", path).out
    assert "lower and upper of day: chosen first, epsilon 0.1, among 401 values from" in printed
    assert "from 1800-01-01 to 2200-01-01" in printed
    assert printed.count("errors of its trees below are for the widest range") == 1  # of days
    entries = json.loads(workspace.succeed("plan", path, "--json").out)["bounds"]
    assert entries[1]["candidates"][1] == "2026-01-02T00:00:00+00:00"


def test_python_takes_auto_for_dates() -> None:
    rows = numbers()
    request = dptrees.of(rows, epsilon=1)
    limits = (SEEN["lower"], SEEN["upper"])
    trees = request.cdf("day", ("auto", "auto")).cdf("seen", limits, cells=1000).config["trees"]
    assert [each["domain"] for each in trees] == [DAY, SEEN]
    release = request.median("day", ("auto", date(2030, 1, 1))).release()
    assert "1960" < str(release["day"].median()["value"][0]) < "1970"
    for last in (date(2029, 12, 31), "2029-12-31"):  # the last date is included
        domain = request.cdf("day", ("auto", last)).config["trees"][0]["domain"]
        assert str(domain["upper"]) == "2030-01-01"
    days = request.cdf("seen", (date(2026, 1, 1), "auto")).config["trees"][0]["domain"]
    assert days["type"] == "date" and "cells" not in days
    with pytest.raises(dptrees.Error, match=r"domain.cells: does not go with lower: auto"):
        request.cdf("day", ("auto", "auto"), cells=10).plan()
    with pytest.raises(dptrees.Error, match="a timestamp domain needs a column of timestamps"):
        request.cdf("seen", ("auto", "auto")).release()


DATES = {"column": "x", "lower": "auto", "upper": "2013-01-01"}
REFUSED_VALUES: list[tuple[dict[str, Any], str]] = [
    (DATES, "lower: auto is only for a tree of type number or integer"),
    (DAY | {"upper": "2013-01-01T00:00"}, "lower: auto is only for a tree of type number or"),
    (SEEN | {"upper": "2026-02-01T00:00:01Z"}, "lower: auto is only for a tree of type"),
    (DAY | {"lower": {"at_least": 9}}, "lower.at_least: 9 must be a date or a whole minute"),
    (SEEN | {"lower": "auto"}, "lower: 1800-01-01 00:00:00 and 2027-01-01 00:00:00+00:00 must"),
    (DAY | {"lower": "2030-01-01", "upper": {"at_most": "2020-01-01"}}, "upper: no candidate"),
    (DAY | {"lower": "2030-01-01", "upper": {"at_most": "2030-01-02"}}, "upper: auto has no"),
    (DAY | {"days_per_cell": 7}, "days_per_cell: does not go with lower: auto for integers and"),
    (SEEN | {"cells": 7}, "cells: 7 must divide 86,400,000,000 microseconds"),
    (SEEN | {"cells": 0}, "cells: 0"),
    (INTEGER | {"cells": 4}, "cells: does not go with lower: auto for integers"),
    (NUMBER | {"upper": {"fraction": 1}}, "upper.fraction: 1 must be below 1"),
    (NUMBER | {"upper": {"most": 1}}, "upper.most: unknown key"),
    (NUMBER | {"upper": {"at_most": -1}}, "upper: no candidate lies between 0 and -1"),
    (NUMBER | {"upper": {"fraction": 1e-9}}, "upper.fraction: the budget is too small"),
    (NUMBER | {"upper": "autos"}, "upper: 'autos' must be a number"),
    (
        NUMBER | {"lower": {"fraction": 0.6}, "upper": {"fraction": 0.5}},
        "lower.fraction: all fractions",
    ),
]


@pytest.mark.parametrize(("domain", "sentence"), REFUSED_VALUES)
def test_bounds_of_values_that_cannot_be_chosen_are_refused(
    workspace: Workspace, domain: dict[str, Any], sentence: str
) -> None:
    outcome = workspace.run("plan", workspace.configure(valued(domain)))
    assert_refused(workspace, outcome, f"trees[0].domain.{sentence}")
