"""What `mechanism: planned` chooses for a guess, for counts, for metrics, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.factorised import strategies
from dptrees.dpcore.specification import ANOTHER_MATRIX, MatrixError
from dptrees.pipelines.run.engine import engine_fault
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

DOMAIN = {"column": "x", "lower": 0, "upper": 64, "cells": 256, "out_of_range": "clamp"}
EPSILON = {"epsilon": 1, "neighbors": "add_remove"}
RHO = {"rho": 0.1, "neighbors": "add_remove"}
MEDIAN = {"objective": "quantiles", "quantiles": [0.5], "guess": {"rows": 10_000}}
FEW = {"guess": {"rows": 1_000}}
# Without a guess.
ALONE = {"optimize_for": "quantiles", "guess": None}
NINE = {"quantiles": [part / 10 for part in range(1, 10)]}
MANY = {"quantiles": [part / 20 for part in range(1, 20)]}


def configured(tree: dict[str, Any], privacy: dict[str, Any] = EPSILON) -> Any:
    def change(settings: dict[str, Any]) -> None:
        keys = {key: value for key, value in tree.items() if value is not None}
        settings["trees"] = [{"name": "age", "domain": DOMAIN} | keys]
        settings["privacy"] = privacy

    return change


COUNTS, ESTIMATES = {"optimize_for": "counts"}, {"optimize_for": "estimates"}
SMALL, LARGE = {"guess": {"rows": 500}}, {"guess": {"rows": 10**8}}
NOTHING: dict[str, Any] = {}
CHOSEN: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    (SMALL, EPSILON, "counts and the guess of 500 rows: an adaptive tree"),
    (SMALL | ESTIMATES, EPSILON, "rows: an adaptive tree, as its es"),
    (LARGE, EPSILON, "000 rows: whole levels planned for counts"),
    (LARGE | ESTIMATES, EPSILON, "whole levels, as an adaptive"),
    (SMALL | COUNTS, EPSILON, "guess of 500 rows: an adaptive tree"),
    ({"guess": {"rows": 10**6}} | COUNTS, EPSILON, "whole levels planned for counts"),
    (MEDIAN, EPSILON, "the exponential mechanism, as so few"),
    (MEDIAN | ALONE, EPSILON, "for quantiles alone: the exponential mechanism, as so few"),
    (MEDIAN | ALONE, RHO, "for quantiles alone: the exponential mechanism, as so few"),
    (MEDIAN | NINE | ALONE, RHO, "for quantiles alone: the exponential mechanism, as so few"),
    (MEDIAN | NINE | ALONE, EPSILON, "for quantiles alone: the exponential mechanism, as so few"),
    (MEDIAN | NINE, EPSILON, "rows: the exponential mechanism, as so few"),
    (MEDIAN | NINE | FEW, EPSILON, "rows: an adaptive tree, as its counts are"),
    (MEDIAN | MANY | ALONE, EPSILON, "for counts: an adaptive tree"),
    (MEDIAN | {"quantiles": [0, 0.5]} | ALONE, EPSILON, "for counts: an adaptive tree"),
    (MEDIAN | {"optimize_for": "quantiles"}, EPSILON, "rows: the exponential mechanism, as so few"),
    (MEDIAN | ESTIMATES, EPSILON, "rows: whole levels, as an adaptive tree"),
    (MEDIAN | MANY, EPSILON, "rows: whole levels planned for counts, as quantiles are read"),
    (MEDIAN | MANY | FEW, EPSILON, "rows: an adaptive tree, as its counts are"),
    (MEDIAN | MANY, RHO, "rows: a strategy past trees (mechanism factorised), as quantiles"),
    (ESTIMATES, RHO, "a strategy past trees"),
    (ESTIMATES, EPSILON, None),
    (NOTHING, RHO, "for counts: a strategy past trees"),
    (NOTHING, EPSILON, "for counts: an adaptive tree"),
    (NOTHING, EPSILON | {"delta": 1e-6}, None),
    (COUNTS, RHO, "for counts: a strategy past trees"),
    (COUNTS | {"guess": {"rows": 100}}, RHO, "whole levels planned for counts"),
    (COUNTS, EPSILON, "whole levels'; guess the number of rows if there are more than 7,700"),
    (MEDIAN | {"consistency": "top_down"}, EPSILON, None),
    (MEDIAN | {"guess": {"rows": 10_000, "below": [[20, 0.5]]}}, EPSILON, None),
]


def test_the_plan_says_what_was_chosen(workspace: Workspace) -> None:
    for tree, privacy, chosen in CHOSEN:
        path = workspace.configure(configured(tree, privacy))
        (entry,) = json.loads(workspace.succeed("plan", path, "--json").out)["trees"]
        assert ("why" in entry) == (chosen is not None), tree
        assert chosen is None or chosen in entry["why"], (tree, privacy, entry["why"])
    text = workspace.run("plan", workspace.configure(configured(SMALL))).out
    assert "\n  chosen for counts and the guess of 500 rows: an adaptive tree" in text


THREE = {"objective": "quantiles", "quantiles": [0.25, 0.5, 0.75]}
# Ranks with a budget of 1: the mechanism's error follows from its rates, the tree's from its model.
CLOSER: list[tuple[dict[str, Any], dict[str, Any], float | None]] = [
    (THREE, EPSILON, 3.055),
    (THREE | {"quantiles": [0.5]}, EPSILON, math.sqrt(2)),
    (THREE | {"quantiles": [0.5]}, RHO, math.sqrt(2) / math.sqrt(8 * 0.1)),
    (THREE | {"domain": {**DOMAIN, "cells": 16}}, EPSILON, None),
    (THREE | NINE, EPSILON, None),
    (THREE | {"quantiles": [0, 0.5]}, EPSILON, None),
    (THREE | {"optimize_for": "quantiles"}, EPSILON, None),
    (THREE | COUNTS, EPSILON, None),
    (THREE | {"guess": {"rows": 10}}, EPSILON, None),
    (THREE | {"guess": {"rows": 10_000, "below": [[20, 0.5]]}}, EPSILON, None),
    (THREE | {"noise": "laplace"}, EPSILON, None),
    (THREE | {"consistency": "top_down"}, EPSILON, None),
    (THREE | {"mechanism": "tree"}, EPSILON, None),
    ({"quantiles": [0.5]}, EPSILON, None),
    ({"metrics": ["median"]}, EPSILON, math.sqrt(2)),
    ({"metrics": ["median", "count"]}, EPSILON, None),
]


def test_the_plan_and_the_release_say_where_quantiles_alone_are_closer(
    workspace: Workspace,
) -> None:
    for tree, privacy, error in CLOSER:
        path = workspace.configure(configured(tree, privacy))
        plan = json.loads(workspace.succeed("plan", path, "--json").out)
        closer = plan["trees"][0].get("closer")
        assert (closer is None) == (error is None), tree
        if closer is None:
            continue
        assert closer["error"] == pytest.approx(error, rel=1e-3), tree
        assert closer["error"] <= 0.6 * closer["tree_error"]
        assert closer["tree_error"] == plan["composition"]["trees"][0]["error"]
        # From there on a guess chooses the mechanism, too.
        for rows, chosen in ((0.99, False), (1.01, True)) if privacy == EPSILON else ():
            guessed = tree | {"guess": {"rows": rows * closer["least_rows"]}}
            if "metrics" not in tree:
                assert (planned(workspace, guessed)["mechanism"] == "exponential") == chosen
    path = workspace.configure(configured(THREE))
    closer = "optimize_for: quantiles would be closer: "
    closer += "with about 33 rows or more, ranks are expected to be off by 3.06 rows instead of "
    assert f"\n  {closer}" in workspace.run("plan", path).out
    remarks = [workspace.succeed("release", path).err for _ in range(2)]
    assert f"tree age: {closer}" in remarks[0]
    assert "would be closer" not in remarks[1]  # it exists


@pytest.mark.parametrize(
    ("tree", "privacy", "kind"),
    [
        (MEDIAN, EPSILON, "exponential"),
        (ESTIMATES, RHO, "factorised"),
        (SMALL, EPSILON, "adaptive"),
    ],
)
def test_what_is_chosen_is_released_and_found_again(
    workspace: Workspace, tree: dict[str, Any], privacy: dict[str, Any], kind: str
) -> None:
    for _ in range(2):
        workspace.make(configured(tree, privacy))
    manifest = json.loads((workspace.output / "manifest.json").read_text(encoding="utf-8"))
    assert [each["kind"] for each in manifest["spec"]["trees"]] == [kind]
    requested = workspace.run("query", str(workspace.output), "cdf", "20")
    assert (requested.code == 0) == (kind != "exponential")
    workspace.succeed("verify", str(workspace.output))


def test_a_target_is_of_the_mechanism_that_was_chosen(workspace: Workspace) -> None:
    path = workspace.configure(configured(MEDIAN))
    outcome = workspace.succeed("plan", path, "--target-error", "age=4", "--json")
    (entry,) = json.loads(outcome.out)["trees"]
    assert entry["mechanism"] == "exponential"
    assert entry["target"]["epsilon"] == pytest.approx(2**0.5 / 4, rel=0.01)


def test_a_series_is_of_whole_levels(workspace: Workspace) -> None:
    for tree, privacy in (
        ({"guess": {"rows": 500}}, EPSILON),
        ({"optimize_for": "estimates"}, RHO),
    ):

        def change(settings: dict[str, Any], tree: Any = tree, privacy: Any = privacy) -> None:
            configured(tree, privacy)(settings)
            settings["series"] = {"periods": 4, "period": 1}

        outcome = workspace.succeed("plan", workspace.configure(change))
        assert "cells in a tree of" in outcome.out and "chosen for" not in outcome.out


def test_a_strategy_past_trees_for_something_else_is_refused(workspace: Workspace) -> None:
    for objective in ("counts", "nodes"):
        tree = {"mechanism": "factorised", "objective": objective}
        outcome = workspace.run("plan", workspace.configure(configured(tree, RHO)))
        assert outcome.code == 2
        assert "trees[0].objective: the mechanism factorised is planned for" in outcome.err


def test_a_machine_that_makes_another_matrix_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(strategy: object) -> None:
        raise MatrixError(ANOTHER_MATRIX)

    monkeypatch.setattr(strategies, "_matrix", another)
    workspace = Workspace(tmp_path)
    path = workspace.configure(configured({"mechanism": "factorised"}, RHO))
    outcome = workspace.run("plan", path)
    assert outcome.code == 2 and strategies.ANOTHER_MATRIX in outcome.err
    assert "Traceback" not in outcome.err
    fault = engine_fault(
        RuntimeError(f"in step 3: {strategies.ANOTHER_MATRIX} [while]"), remote=False
    )
    assert fault is not None and fault.sentence == strategies.ANOTHER_MATRIX


# --- what is planned for counts ---

GUESSED = COUNTS | {"guess": {"rows": 200}}
# Whole levels, whatever is guessed.
SPARSE = GUESSED | {"consistency": "shrunk"}
WHOLE = {"guess": {"rows": 200}, "consistency": "top_down"}


def planned(workspace: Workspace, tree: dict[str, Any]) -> dict[str, Any]:
    outcome = workspace.succeed("plan", workspace.configure(configured(tree)), "--json")
    (entry,) = json.loads(outcome.out)["trees"]
    return dict(entry)


def test_counts_have_a_plan_and_a_prediction_of_their_own(workspace: Workspace) -> None:
    usual = planned(workspace, {"optimize_for": "estimates"})
    guessed = planned(workspace, WHOLE)
    counts, estimates = (
        planned(workspace, SPARSE),
        planned(workspace, WHOLE | {"optimize_for": "estimates"}),
    )
    assert "predicted_counts" not in usual and guessed["levels"] == usual["levels"]
    assert estimates["levels"] == usual["levels"] != counts["levels"]
    assert counts["predicted_counts"]["rows"] == 200
    assert counts["predicted_counts"]["typical"] < 0.9 * guessed["predicted_counts"]["typical"]
    assert counts["predicted"]["cdf_rmse"] > usual["predicted"]["cdf_rmse"]


def test_shrunk_counts_are_predicted_to_be_closer(workspace: Workspace) -> None:
    shrunk, top_down = (
        planned(workspace, GUESSED | {"consistency": each})["predicted_counts"]["typical"]
        for each in ("shrunk", "top_down")
    )
    assert shrunk < 0.97 * top_down


def test_else_counts_are_of_adaptive_trees(workspace: Workspace) -> None:
    """Also without a guess; their errors are predicted, and smaller than whole levels'."""
    guessed, free = planned(workspace, GUESSED), planned(workspace, {"optimize_for": "counts"})
    assert guessed["mechanism"] == free["mechanism"] == "adaptive"
    assert guessed["predicted_prefix_counts"]["rows"] == 200
    assert free["predicted_range_counts"]["rows"] > 9_000
    whole = planned(workspace, SPARSE | {"objective": "ranges"})["predicted_counts"]["typical"]
    assert guessed["predicted_range_counts"]["typical"] < whole


@pytest.mark.parametrize(
    "privacy",
    [{"rho": 0.1}, {"epsilon": 1, "delta": 1e-6}, {"epsilon": 1}],
    ids=["rho", "epsilon and delta", "epsilon"],
)
def test_errors_share_a_budget_where_they_are_known(
    workspace: Workspace, privacy: dict[str, Any]
) -> None:
    def change(settings: dict[str, Any]) -> None:
        domain = DOMAIN | {"cells": 32}
        settings["trees"] = [
            {"name": "a", "domain": domain, "optimize_for": "counts"},
            {"name": "b", "domain": domain, "optimize_for": "estimates"},
        ]
        settings["privacy"] = privacy | {"neighbors": "add_remove", "split": "equal_errors"}

    outcome = workspace.succeed("plan", workspace.configure(change), "--json")
    first, second = (each["error"] for each in json.loads(outcome.out)["composition"]["trees"])
    assert first == pytest.approx(second, rel=0.01)


def test_averaged_counts_of_development_versions_are_refused(workspace: Workspace) -> None:
    """In a configuration, and in a manifest, whose field and value the message names."""
    tree = {"optimize_for": "counts", "consistency": "averaged"}
    outcome = workspace.run("plan", workspace.configure(configured(tree)))
    assert outcome.code == 2
    assert ".consistency: 'averaged' must be top_down, l1, l2, linf or shrunk" in outcome.err
    assert workspace.release(configured(GUESSED)).code == 0
    path = workspace.output / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["spec"]["trees"][0]["consistency"] = "averaged"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    outcome = workspace.run("report", str(workspace.output))
    assert outcome.code == 2
    assert "consistency 'averaged' is of a development version" in outcome.err


def test_what_does_nothing_is_refused_at_its_key() -> None:
    counts = {"optimize_for": "counts"}
    rows = [
        (counts | {"mechanism": "binary"}, ".optimize_for: "),
        ({"optimize_for": "estimates", "mechanism": "independent"}, ".optimize_for: "),
        (counts | {"fanouts": [32, 32], "level_budgets": "equal"}, ".optimize_for: "),
        (counts | {"estimation": "below"}, ".optimize_for: "),
        (counts | {"consistency": "l2"}, ".optimize_for: "),
        (counts | {"domain": {"column": "place", "categories": ["a", "b"]}}, ".optimize_for: "),
        ({"optimize_for": "intervals"}, ".optimize_for: "),
        ({"optimize_for": "quantiles"}, ".optimize_for: "),
        ({"optimize_for": "quantiles", "objective": "ranges"}, ".optimize_for: "),
        ({"guess": {"rows": 200}, "consistency": "l1"}, ".guess: "),
        (
            {"consistency": "shrunk", "mechanism": "tree", "estimation": "below"},
            ".consistency: shrunk goes with cells in order",
        ),
    ]

    def attempt(tree: dict[str, Any]) -> None:
        plan_of({"name": "age", "domain": DOMAIN} | tree)

    assert not not_refused(attempt, rows, ConfigurationError)


# --- metrics ---

CATEGORIES = {"column": "x", "categories": ["a", "b"]}


def test_metrics_are_planned_as_what_they_choose(workspace: Workspace) -> None:
    chosen: list[tuple[list[str], dict[str, Any]]] = [
        (["mean", "total", "count"], {"objective": "mean"}),
        (["median", "p97.5"], {"objective": "quantiles", "quantiles": [0.5, 0.975]}),
        (["count", "p90"], {"objective": "quantiles", "quantiles": [0.9]}),
        (["count", "mean", "median", "p90"], {"objective": "cdf", "quantiles": [0.5, 0.9]}),
        (["std"], {"objective": "cdf"}),
    ]
    for metrics, tree in chosen:
        expected = planned(workspace, tree)
        if "count" in metrics:
            expected.pop("closer", None)  # it would have no count
        assert planned(workspace, {"metrics": metrics}) == expected, metrics
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
