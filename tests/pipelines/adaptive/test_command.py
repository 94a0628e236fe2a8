"""Adaptive trees from a configuration to answers and a page, by the commands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import Workspace
from tests.pipelines.test_verify import edited

TREE: dict[str, Any] = {
    "name": "delay",
    "domain": {"column": "x", "lower": 0, "upper": 512, "cells": 512, "out_of_range": "clamp"},
    "mechanism": "adaptive",
    "quantiles": [0.5, 0.9],
}


def changed(*trees: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    def change(settings: dict[str, Any]) -> None:
        settings["trees"] = list(trees)

    return change


def test_the_plan_says_what_depends_on_the_data(workspace: Workspace) -> None:
    path = workspace.configure(changed(TREE))
    reported = workspace.run("plan", path).out
    assert "if every node is split" in reported and "depends on the data" in reported
    refused = workspace.run("plan", path, "--target-error", "delay=10")
    assert refused.code != 0 and "depends on the data" in refused.err


def test_a_guess_chooses(workspace: Workspace) -> None:
    tree = {name: value for name, value in TREE.items() if name != "mechanism"}
    for rows, kind in ((3_000, "adaptive tree"), (10**9, "cells in a tree of")):
        path = workspace.configure(changed(tree | {"guess": {"rows": rows}}))
        assert kind in workspace.run("plan", path).out


def test_what_it_does_not_have_is_refused_at_its_key(workspace: Workspace) -> None:
    for key, value in (("objective", "counts"), ("level_budgets", "equal")):
        found = workspace.run("plan", workspace.configure(changed(TREE | {key: value})))
        assert found.code != 0 and f"trees[0].{key}: the mechanism adaptive has" in found.err


@pytest.mark.parametrize("read_as", ["counts", "estimates"])
def test_budgets_that_are_too_small(workspace: Workspace, read_as: str) -> None:
    """Whole levels, which may be more, are left out first; in the end there is a sentence."""

    def planned(epsilon: float) -> Any:
        def change(settings: dict[str, Any]) -> None:
            settings["trees"] = [TREE | {"optimize_for": read_as}]
            settings["privacy"] = settings["privacy"] | {"epsilon": epsilon}

        return workspace.run("plan", workspace.configure(change))

    few = planned(1e-10)
    assert few.code == 0 and "whole levels, whatever the data" not in few.out
    assert "whole levels, whatever the data" in planned(1).out
    none = planned(1e-12)
    assert none.code == 2 and "cannot be planned with its fraction of the budget" in none.err


def test_quantiles_of_several_kinds_are_verified(workspace: Workspace) -> None:
    """They share a table, and each of its rows follows from the specification."""
    kinds = ("adaptive", "planned", "exponential")
    trees = [TREE | {"name": kind, "mechanism": kind} for kind in kinds]
    assert workspace.release(changed(*trees)).code == 0
    assert workspace.run("verify", workspace.output).code == 0
    path = workspace.output / "quantiles.parquet"
    table = pq.read_table(path)
    assert table["tree"].to_pylist() == [kind for kind in kinds for _ in TREE["quantiles"]]
    place = table.schema.get_field_index("q")
    for row in range(len(table)):
        q = table["q"].to_numpy().copy()
        q[row] += 0.01
        pq.write_table(table.set_column(place, "q", pa.array(q)), path)
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
        edited(workspace.output, lambda manifest, found=found: manifest["files"].update(found))
        refused = workspace.run("verify", workspace.output)
        assert refused.code == 2 and "q is not that of the specification" in refused.err
