"""Categories without an order: planned for their counts, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

PLACES = ["east", "north", "south", "west", *(f"none {index}" for index in range(12))]
DOMAIN = {"column": "place", "categories": PLACES, "unknown": "drop"}


def nominal(settings: dict[str, Any]) -> None:
    settings["trees"] = [
        {"name": "places", "domain": dict(DOMAIN)},
        {"name": "ranks", "domain": DOMAIN | {"ordered": True}},
    ]


@pytest.mark.parametrize("privacy", [{"epsilon": 1}, {"rho": 0.5}], ids=["epsilon", "rho"])
def test_all_of_the_budget_goes_into_the_counts(
    workspace: Workspace, privacy: dict[str, Any]
) -> None:
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


def test_a_specification_of_before_is_in_order() -> None:
    before = {"kind": "ordered", "type": "category", "map_version": 1, "column": "c"}
    before |= {"categories": ["a", "b"], "unknown": "drop", "missing": "drop"}
    domain = make_domain(before)
    assert domain.is_ordered and domain.spec() == before


def test_what_needs_an_order() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"objective": "cdf"}, "trees[0].objective: cdf needs categories in order; if the list"),
        ({"quantiles": [0.5]}, "trees[0].quantiles: needs categories in order"),
        ({"mechanism": "binary"}, "trees[0].mechanism: binary needs categories in order"),
        ({"estimation": "none"}, "trees[0].estimation: none needs categories in order"),
        ({"consistency": "l2"}, "trees[0].consistency: l2 needs categories in order"),
    ]

    def attempt(choice: dict[str, Any]) -> None:
        plan_of({"name": "places", "domain": DOMAIN} | choice)

    assert not not_refused(attempt, rows, ConfigurationError)
