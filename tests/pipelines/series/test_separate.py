"""Series of trees whose periods do not add up: each period is released by itself."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import Outcome
from tests.pipelines.series.runs import Runs

X = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 64}
TREES: dict[str, dict[str, Any]] = {
    "adaptive": {"domain": X, "mechanism": "adaptive"},
    "as published": {"domain": X, "estimation": "none"},
    "nearest counts": {"domain": X, "consistency": "l1"},
    "quantiles": {"domain": X, "mechanism": "exponential", "quantiles": [0.5]},
    "mean": {"domain": X, "objective": "mean"},
    "different values": {"domain": {"kind": "distinct", "column": "place"}},
    "sketch": {"domain": {"kind": "sketch", "column": "place"}, "width": 64, "hashes": 3},
    "box": {
        "domain": {"kind": "hypercube", "columns": [X | {"cells": 64}, AGE]},
        "mechanism": "adaptive",
    },
    "table": {
        "domain": {
            "kind": "table",
            "cells": 8,
            "columns": [
                X | {"cells": 8},
                AGE,
                {"column": "place", "categories": ["north", "south"]},
            ],
        }
    },
    "sparse": {"domain": {"kind": "sparse", "column": "place"}},
    "thresholds": {
        "domain": {"kind": "hierarchy", "columns": ["place"], "leaves": [["north"], ["south"]]},
        "objective": "relative",
        "metric": "alpha_mrmse",
        "alpha": 0.9,
        "mechanism": "thresholds",
        "rows_at_most": 2_000,
    },
}
WITH_DELTA = ("sparse", "thresholds")
PERIODS, MOST = 3, 2


class Separate(Runs):
    """A workspace whose trees do not add up, of the rows of a period."""

    trees: tuple[dict[str, Any], ...]
    whole, delta = True, False

    def write_period(self, period: int, rows: int = 500) -> pa.Table:
        """The rows of a period: everybody comes in every one."""
        random = np.random.default_rng(period)
        table = pa.table(
            {
                "x": random.uniform(0, 100, rows),
                "age": random.integers(0, 64, rows),
                "place": random.choice(["north", "south"], rows),
                "person": np.arange(rows),
            }
        )
        self.write_table(table)
        return table

    @property
    def settings(self) -> dict[str, Any]:
        privacy = {"epsilon": 6, "neighbors": "add_remove", "unit": "person", "max_rows": 1}
        series: dict[str, Any] = {"periods": PERIODS, "period": 1}
        if self.whole:
            series |= {"unit": "per_series", "max_periods": MOST}
        return super().settings | {
            "privacy": privacy | ({"delta": 1e-5} if self.delta else {}),
            "series": series,
            "trees": list(self.trees),
        }

    def period(self, period: int, *options: str, **series: object) -> Outcome:
        """Write the rows of a period and release them."""
        self.write_period(period)
        return super().period(period, *options, **series)


def made(folder: Path, name: str, *, whole: bool) -> Separate:
    workspace = Separate(folder)
    workspace.trees = ({"name": "t"} | TREES[name],)
    workspace.whole, workspace.delta = whole, name in WITH_DELTA
    return workspace


def read_plan(workspace: Separate, period: int) -> ReleasePlan:
    return ReleaseFolder(str(workspace.period_folder(period))).plan


@pytest.mark.parametrize("name", TREES)
def test_each_period_is_released_and_verified_with_its_part_of_the_budget(
    tmp_path: Path, name: str
) -> None:
    workspace = made(tmp_path, name, whole=True)
    for period in (1, 2, 3):
        outcome = workspace.period(period)
        assert outcome.code == 0, outcome.err
    assert "to date" not in outcome.out
    assert not (workspace.period_folder(3) / "to-date").exists()
    # Made once more from the rows and what the run before left: the same bytes.
    workspace.succeed("verify", workspace.period_folder(3), "--data", workspace.configured(3))
    outcome = workspace.run("query", workspace.output, "describe")
    assert outcome.code == 2 and "the periods of tree t do not add up; query one" in outcome.err
    (tmp_path / "each").mkdir()
    each = made(tmp_path / "each", name, whole=False)
    assert each.period(1).code == 0
    budgets = []
    for own, factor in ((each, 1), (workspace, MOST)):
        (question,) = read_plan(own, 1).questions
        spent, level = question.spending, question.measured_trees[0].spending
        assert spent.epsilon + level.rho > 0 and (spent.rho > 0) == (level.rho > 0)
        assert spent.epsilon == factor * level.epsilon and spent.delta == factor * level.delta
        budgets.append(level.epsilon)
    assert budgets[0] == MOST * budgets[1]


def test_everybody_is_counted_in_the_first_periods_alone(tmp_path: Path) -> None:
    workspace = made(tmp_path, "mean", whole=True)
    counted = []
    for period in (1, 2, 3):
        assert workspace.period(period).code == 0
        (path,) = workspace.period_folder(period).glob("nodes/*")
        counted.append(pq.read_table(path)["estimate"][0].as_py())
    # 500 people in each; the noise has a standard error of about one row.
    assert [round(each / 100) for each in counted] == [5, 5, 0]


def test_a_series_has_trees_that_add_up_beside_others(tmp_path: Path) -> None:
    workspace = Separate(tmp_path)
    workspace.trees = ({"name": "sums", "domain": X}, {"name": "mean"} | TREES["mean"])
    for period in (1, 2):
        outcome = workspace.period(period)
        assert outcome.code == 0, outcome.err
    assert "to date, periods 1 to 2 of 3" in outcome.out
    to_date = (workspace.period_folder(2) / "to-date").rglob("*.parquet")
    assert {path.name.split("-")[0] for path in to_date} == {"sums"}
    assert workspace.run("query", workspace.output, "cdf", "50", "--tree", "sums").code == 0
    assert workspace.run("query", workspace.output, "cdf", "50", "--tree", "mean").code == 2
    budgets = [each.spending.epsilon for each in read_plan(workspace, 2).questions]
    assert sum(budgets) == Fraction(6)
    assert workspace.run("verify", workspace.period_folder(2)).code == 0


def test_boxes_of_a_period_are_sampled(tmp_path: Path) -> None:
    workspace = made(tmp_path, "box", whole=False)
    assert workspace.period(1).code == 0
    rows = tmp_path / "rows.parquet"
    workspace.succeed("sample", workspace.period_folder(1), "-n", "200", "--output", rows)
    assert pq.read_table(rows).num_rows == 200
