"""`mechanism: planned` from a configuration: what it chooses, what the plan says, a release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.factorised import strategies
from dptrees.dpcore.specification import ANOTHER_MATRIX, MatrixError
from dptrees.pipelines.run.job import engine_fault
from tests.pipelines.conftest import Workspace

DOMAIN = {"column": "x", "lower": 0, "upper": 64, "cells": 256, "out_of_range": "clamp"}
EPSILON = {"epsilon": 1, "neighbors": "add_remove"}
RHO = {"rho": 0.1, "neighbors": "add_remove"}
MEDIAN = {"objective": "quantiles", "quantiles": [0.5], "guess": {"rows": 10_000}}
FEW = {"guess": {"rows": 1_000}}
# Without a guess.
ALONE = {"optimize_for": "quantiles", "guess": None}
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
CHOSEN_FIRST = "chosen for counts and the guess of 500 rows: an adaptive tree"
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
    assert (
        f"\n  {CHOSEN_FIRST}" in workspace.run("plan", workspace.configure(configured(SMALL))).out
    )


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


def test_a_target_is_of_the_mechanism_that_was_chosen(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    path = workspace.configure(configured(MEDIAN))
    outcome = workspace.succeed("plan", path, "--target-error", "age=4", "--json")
    (entry,) = json.loads(outcome.out)["trees"]
    assert entry["mechanism"] == "exponential"
    assert entry["target"]["epsilon"] == pytest.approx(2**0.5 / 4, rel=0.01)


def test_a_series_is_of_whole_levels(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
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
