"""``objective: mean`` by the command and in Python: plan, release, queries, page, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.numbers import FINEST
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.pipelines.kinds.domains import with_finest_cells
from dptrees.pipelines.sections.document import ConfigurationError
from tests.golden.hashes import said
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

X = {"column": "x", "lower": 0, "upper": 100}
KEYS = {"column": "place", "keys": ["north", "south"]}
TREES = [
    {"name": "all", "domain": X, "objective": "mean"},
    {"name": "places", "domain": X, "objective": "mean", "group_by": KEYS},
]


def configured(workspace: Workspace, *trees: dict[str, Any], **privacy: Any) -> str:
    given = privacy or {"epsilon": 1, "neighbors": "add_remove"}
    return workspace.configure(lambda s: s.update(trees=list(trees), privacy=given))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A release with hardly any noise. Tests only read it."""
    workspace = Workspace(tmp_path_factory.mktemp("means"))
    path = configured(workspace, *TREES, epsilon=10**5, neighbors="add_remove")
    outcome = workspace.succeed("release", path, *NONCE)
    workspace.summary = outcome.out  # type: ignore[attr-defined]
    return workspace


def true_means(workspace: Workspace) -> dict[str | None, float]:
    rows = workspace.values()
    clamped = np.clip(rows["x"].to_numpy(), 0, 100)
    places = rows["place"].to_numpy()
    by = {key: float(clamped[places == key].mean()) for key in KEYS["keys"]}
    return {None: float(clamped.mean())} | by


def test_queries_give_the_mean_and_the_total(made: Workspace) -> None:
    truth = true_means(made)
    found = json.loads(said("query", str(made.output), "mean", "--tree", "all", "--json")[2:])
    (answer,) = found["answers"]
    assert answer["value"] == pytest.approx(truth[None], abs=1e-3)
    by = ("--tree", "places", "--key", "all", "--json")
    answers = json.loads(said("query", str(made.output), "mean", *by)[2:])["answers"]
    assert [each["value"] for each in answers] == pytest.approx(
        [truth["north"], truth["south"]], abs=1e-3
    )
    total = json.loads(said("query", str(made.output), "total", "--tree", "all", "--json")[2:])
    rows = made.values().num_rows
    assert total["answers"][0]["value"] == pytest.approx(truth[None] * rows, rel=1e-4)
    printed = said("query", str(made.output), "mean", "--tree", "all")
    assert "all values" in printed


def test_the_budget_of_a_target(workspace: Workspace) -> None:
    path = configured(workspace, TREES[0])
    target = workspace.run("plan", path, "--target-error", "all=50", "--json")
    (entry,) = json.loads(target.out)["trees"]
    assert entry["target"]["epsilon"] == pytest.approx(2, rel=1e-3)
    assert entry["target"]["unit"] == "x times rows"


def test_bounds_that_nobody_knows_go_with_it(tmp_path: Path) -> None:
    rows = pa.table({"pay": np.random.default_rng(2).lognormal(3, 0.4, 20_000)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    domain = {"column": "pay", "lower": 0, "upper": {"fraction": 0.2, "at_most": 10**6}}
    tree = {"name": "pay", "domain": domain, "objective": "mean"}
    privacy = {"epsilon": 2, "neighbors": "add_remove"}
    # A bound beyond all values is chosen with a probability of up to e^-3, and then 1 of 200 means
    # (4 of 801) is farther off than this: the median of seven once in 10^6 or less.
    config = {"privacy": privacy, "trees": [tree]}
    means = [dptrees.release(rows, config)["pay"].mean()["value"][0] for _ in range(7)]
    assert sorted(means)[3] == pytest.approx(pc.mean(rows["pay"]).as_py(), abs=0.5)


def test_cells_that_nobody_wrote_fit_between_the_bounds() -> None:
    """The domain refuses a number of cells that have no edges of their own."""
    for size in (2.0**power for power in range(-1000, 53, 9)):
        for upper in (size * 2, size + max(1.0, 2 * math.ulp(size)), size * (1 + 1e-9)):
            for lower, end in ((size, upper), (-upper, -size)):
                domain = {"column": "x", "lower": lower, "upper": end}
                chosen = with_finest_cells({"domain": domain}, FINEST)["domain"]
                assert NumberDomain(**chosen).cells >= 2
                assert end - lower < abs(lower) / 2 or chosen["cells"] == FINEST


def test_a_plan_says_how_many_rows_its_sums_hold(workspace: Workspace) -> None:
    for upper, limited in ((2**21, False), (10**9, True)):
        domain = {"column": "x", "type": "integer", "lower": 0, "upper": upper}
        outcome = workspace.run("plan", configured(workspace, TREES[0] | {"domain": domain}))
        assert ("its sums hold 2,305,843,011 rows at a bound" in outcome.out) == limited, (
            outcome.out
        )


def test_bad_input() -> None:
    dates = {"column": "day", "lower": "2020-01-01", "upper": "2021-01-01"}
    places = {"column": "place", "categories": ["north", "south"]}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"mechanism": "tree"}, "trees[0].mechanism: a mean is measured alone"),
        ({"optimize_for": "counts"}, "trees[0].optimize_for: a mean is measured alone"),
        ({"guess": {"rows": 3}}, "trees[0].guess: a mean is measured alone"),
        ({"domain": dates}, "values of type date have no mean"),
        ({"domain": places}, "values of type category have no mean"),
    ]
    assert not not_refused(lambda change: plan_of(TREES[0] | change), rows, ConfigurationError)
