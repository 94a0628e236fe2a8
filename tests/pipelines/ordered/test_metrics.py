"""A tree is planned for its `metrics`, and `describe` has them; what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import Workspace
from tests.pipelines.ordered.test_for_counts import DOMAIN, configured, planned
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

CATEGORIES = {"column": "x", "categories": ["a", "b"]}


def test_metrics_are_planned_as_what_they_choose(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    chosen: list[tuple[list[str], dict[str, Any]]] = [
        (["mean", "total", "count"], {"objective": "mean"}),
        (["median", "p97.5"], {"objective": "quantiles", "quantiles": [0.5, 0.975]}),
        (["count", "p90"], {"objective": "quantiles", "quantiles": [0.9]}),
        (["count", "mean", "median", "p90"], {"objective": "cdf", "quantiles": [0.5, 0.9]}),
        (["std"], {"objective": "cdf"}),
    ]
    for metrics, tree in chosen:
        assert planned(workspace, {"metrics": metrics}) == planned(workspace, tree), metrics
    tree = {"domain": CATEGORIES}
    assert planned(workspace, tree | {"metrics": ["count"]}) == planned(workspace, tree)


def test_what_does_not_go_with_metrics_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"metrics": ["p101"]}, "metrics[0]: 'p101' must be count, mean, total, variance, std"),
        ({"metrics": ["mean", "sum"]}, "metrics[1]: 'sum' must be count, ...; did you mean total?"),
        ({"metrics": ["mean", "mean"]}, "metrics[1]: mean is listed twice"),
        ({"metrics": "mean"}, "metrics: 'mean' must be a list"),
        ({"metrics": ["count"]}, "metrics: count alone needs no values"),
        ({"metrics": ["p90"], "quantiles": [0.5]}, "quantiles: is chosen by metrics"),
        ({"metrics": ["mean"], "domain": CATEGORIES}, "metrics: categories without an order"),
    ]

    def attempt(tree: dict[str, Any]) -> None:
        plan_of({"name": "age", "domain": DOMAIN} | tree)

    assert not not_refused(attempt, rows, ConfigurationError)


@pytest.mark.parametrize(
    ("metrics", "statistics"),
    [
        (["mean", "p90", "median"], ["rows", "mean", "std", "90 %", "50 %"]),
        (["variance"], ["rows", "mean", "std", "25 %", "50 %", "75 %"]),
        (["mean"], ["rows", "mean", "total"]),
    ],
)
def test_describe_has_what_is_listed(
    workspace: Workspace, metrics: list[str], statistics: list[str]
) -> None:
    workspace.succeed("release", workspace.configure(configured({"metrics": metrics})))
    described = workspace.run("query", workspace.output, "describe", "--json")
    assert [each["statistic"] for each in json.loads(described.out)["answers"]] == statistics
