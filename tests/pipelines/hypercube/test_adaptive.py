"""An adaptive box by the commands: its plan, release, answers, page and verification."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.hypercube.conftest import ROWS, rows, write_inputs

COLUMNS = [
    {"column": "age", "type": "integer", "lower": 0, "upper": 100},
    {"column": "x", "lower": -3, "upper": 3, "cells": 64},
]
PRIVACIES: dict[str, dict[str, Any]] = {
    "epsilon": {"epsilon": 1},
    "rho": {"rho": 0.1},
    "epsilon and delta": {"epsilon": 1, "delta": "1e-6"},
}


def adaptive(**keys: Any) -> dict[str, Any]:
    domain = {"kind": "hypercube", "columns": COLUMNS}
    return {"name": "box", "mechanism": "adaptive", "domain": domain, **keys}


def configured(workspace: Workspace, tree: dict[str, Any], **privacy: Any) -> str:
    """The path of a configuration of one tree, with rows beside it."""
    write_inputs(workspace, rows(), tree)
    given = {"neighbors": "add_remove", **(privacy or {"epsilon": 1})}
    return workspace.configure(lambda s: s.update(trees=[tree], privacy=given))


@pytest.mark.parametrize("privacy", PRIVACIES)
@pytest.mark.parametrize("neighbors", ["add_remove", "substitute"])
def test_it_is_released_queried_and_verified(
    workspace: Workspace, neighbors: str, privacy: str
) -> None:
    tree = adaptive(**{"optimize_for": "estimates", "rows": 3000})
    path = configured(workspace, tree, **PRIVACIES[privacy], neighbors=neighbors)
    outcome = workspace.run("release", path, *NONCE)
    assert outcome.code == 0, outcome.err
    output = str(workspace.output)
    requested = workspace.run(
        "query", output, "box", "--tree", "box", "--side", "age", "0", "64", "--json"
    )
    answer = json.loads(requested.out)["answers"][0]
    truth = sum(age < 64 for age in rows()["age"].to_pylist())
    assert abs(answer["count"] - truth) < 400 and answer["ci_low"] < answer["ci_high"]
    verified = workspace.run("verify", output)
    assert verified.code == 0, verified.out + verified.err


def test_the_plan_says_what_is_not_split_and_on_what_errors_depend(workspace: Workspace) -> None:
    outcome = workspace.run("plan", configured(workspace, adaptive(rows=ROWS)))
    assert outcome.code == 0, outcome.err
    assert re.search(r"level 4 +std error \S+; \S+ if it is not split, at \d+ rows", outcome.out)
    assert re.search(
        r"level 6 +[\d.]+ if it is not split, at \d+ rows or fewer in an even part", outcome.out
    )
    assert "the error of a box depends on the data" in outcome.out


@pytest.mark.parametrize("read_as", ["counts", "estimates"])
def test_the_page_says_how_it_was_measured(workspace: Workspace, read_as: str) -> None:
    outcome = workspace.run("release", configured(workspace, adaptive(optimize_for=read_as)))
    assert outcome.code == 0, outcome.err
    page = (workspace.output / "report.html").read_text()
    assert "was measured a second time" in page
    assert "Noise of a part, measured once more or alone" in page
    apart = read_as == "estimates"
    assert ("separate noisy numbers decided" in page) == apart
    assert ("30 % of the budget above the last level" in page) == apart
    assert ("There is no interval and no standard error" in page) != apart
    assert ("none stated" in page) != apart
    assert "an even part of the one above" in page
    requested = ["query", str(workspace.output), "box", "--tree", "box", "--side", "age", "0", "64"]
    answer = json.loads(workspace.run(*requested, "--json").out)["answers"][0]
    stated = [answer[name] is not None for name in ("ci_low", "ci_high")]
    assert stated == [apart, apart] and ("remark" in answer) != apart
    assert (
        "no error is stated for a box that is planned for counts" in workspace.run(*requested).out
    ) != apart
    for options in ([], ["--csv"]):
        assert workspace.run("query", str(workspace.output), "top", "-n", "2", *options).code == 0
    verified = workspace.run("verify", str(workspace.output))
    assert verified.code == 0, verified.out + verified.err
    entry = json.loads((workspace.output / "manifest.json").read_text())["trees"][0]
    assert entry["mechanism"] == "adaptive"
    assert ("decision_scale" in entry["levels"][1]) == apart
    assert "last_scale" in entry["levels"][1]
