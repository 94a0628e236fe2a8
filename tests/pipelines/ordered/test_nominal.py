"""Categories without an order: planned for their counts, and for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import ROWS, Workspace

PLACES = ["east", "north", "south", "west", *(f"none {index}" for index in range(12))]
DOMAIN = {"column": "place", "categories": PLACES, "unknown": "drop"}


def nominal(settings: dict[str, Any]) -> None:
    settings["trees"] = [
        {"name": "places", "domain": dict(DOMAIN)},
        {"name": "ranks", "domain": DOMAIN | {"ordered": True}},
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Read by the tests."""
    workspace = Workspace(tmp_path_factory.mktemp("nominal"))
    outcome = workspace.release(nominal)
    assert outcome.code == 0, outcome.err
    workspace.said = outcome.out  # type: ignore[attr-defined]
    return workspace


@pytest.mark.parametrize("privacy", [{"epsilon": 1}, {"rho": 0.5}], ids=["epsilon", "rho"])
def test_all_of_the_budget_goes_into_the_counts(tmp_path: Path, privacy: dict[str, Any]) -> None:
    workspace = Workspace(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        nominal(settings)
        settings["trees"][1]["consistency"] = "top_down"
        settings["privacy"] = privacy | {"neighbors": "add_remove"}

    outcome = workspace.run("plan", workspace.configure(change), "--json")
    places, ranks = json.loads(outcome.out)["trees"]
    (measure,) = privacy
    assert [level[measure] for level in places["levels"]] == [0, privacy[measure] / 2]
    assert places["fanouts"] == [16] and len(ranks["levels"]) > 2
    assert set(places["predicted"]) == {"counts_rmse"} and "cdf_rmse" in ranks["predicted"]
    planned = places["candidates"][-1]
    assert all(
        planned["predicted"]["counts_rmse"] <= each["predicted"]["counts_rmse"]
        for each in places["candidates"]
    )


def test_the_plan_and_the_summary_speak_of_categories(made: Workspace) -> None:
    plan = made.run("plan", made.configure(nominal)).out
    assert "places: 16 categories without an order\n" in plan
    assert "predicted error of the count of a category, in rows (root mean square):" in plan
    largest = made.said.split("places (")[1].split("ranks (")[0]  # type: ignore[attr-defined]
    assert "    north " in largest and "    south " in largest


def test_categories_without_an_order_have_counts_alone(made: Workspace) -> None:
    def requested(*question: str) -> Any:
        return made.run("query", made.output, *question, "--tree", "places", "--json")

    for question in (["cdf", "north"], ["quantile", "0.5"], ["range", "east", "south"]):
        outcome = requested(*question)
        assert outcome.code == 2
        assert outcome.err.strip().endswith(
            f"{question[0]}: the categories of tree places have no order; query node or top "
            "(if the order has a meaning, set `ordered: true` in the domain of the tree)"
        )
    (north,) = json.loads(requested("node", "--value", "north").out)["answers"]
    assert north["label"] == "north" and abs(north["estimate"] - 1.5 * ROWS) < 200
    top = json.loads(requested("top", "-n", "2").out)["answers"]
    assert {each["label"] for each in top} == {"north", "south"}
    made.succeed("query", made.output, "cdf", "south", "--tree", "ranks")


def test_the_specification_says_that_there_is_no_order(made: Workspace) -> None:
    places, ranks = ReleaseFolder(str(made.output)).plan.questions
    assert places.spec()["domain"]["ordered"] is False  # type: ignore[index]
    assert "ordered" not in ranks.spec()["domain"]  # type: ignore[operator]
    assert not places.is_ordered and ranks.is_ordered


def test_a_specification_of_before_is_in_order() -> None:
    before = {"kind": "ordered", "type": "category", "map_version": 1, "column": "c"}
    before |= {"categories": ["a", "b"], "unknown": "drop", "missing": "drop"}
    domain = make_domain(before)
    assert domain.is_ordered and domain.spec() == before


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"objective": "cdf"}, ".objective: cdf needs categories in order; if the list is in"),
        ({"quantiles": [0.5]}, ".quantiles: needs categories in order"),
        ({"mechanism": "binary"}, ".mechanism: binary needs categories in order"),
        ({"estimation": "none"}, ".estimation: none needs categories in order"),
        ({"consistency": "l2"}, ".consistency: l2 needs categories in order"),
    ],
)
def test_what_needs_an_order(tmp_path: Path, choice: dict[str, Any], sentence: str) -> None:
    workspace = Workspace(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        settings["trees"] = [{"name": "places", "domain": dict(DOMAIN)} | choice]

    outcome = workspace.run("plan", workspace.configure(change))
    assert outcome.code == 2 and f"trees[0]{sentence}" in outcome.err
