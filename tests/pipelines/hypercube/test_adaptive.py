"""An adaptive box by the commands: its plan, release, answers, page and verification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.hypercube.conftest import rows, write_inputs

COLUMNS = [
    {"column": "age", "type": "integer", "lower": 0, "upper": 100},
    {"column": "x", "lower": -3, "upper": 3, "cells": 64},
]
PRIVACIES: list[dict[str, Any]] = [
    {"epsilon": 1, "neighbors": "add_remove"},
    {"rho": 0.1, "neighbors": "substitute"},
    {"epsilon": 1, "delta": "1e-6", "neighbors": "add_remove"},
]


def adaptive(**keys: Any) -> dict[str, Any]:
    domain = {"kind": "hypercube", "columns": COLUMNS}
    return {"name": "box", "mechanism": "adaptive", "domain": domain, **keys}


def configured(workspace: Workspace, tree: dict[str, Any], **privacy: Any) -> str:
    """The path of a configuration of one tree, with rows beside it."""
    write_inputs(workspace, rows(), tree)
    given = {"neighbors": "add_remove", **(privacy or {"epsilon": 1})}
    return workspace.configure(lambda s: s.update(trees=[tree], privacy=given))


@pytest.mark.parametrize("privacy", PRIVACIES, ids=str)
def test_it_is_released_queried_and_verified(workspace: Workspace, privacy: dict[str, Any]) -> None:
    tree = adaptive(**{"optimize_for": "estimates", "rows": 3000})
    workspace.succeed("release", configured(workspace, tree, **privacy), *NONCE)
    answer = below_64(workspace)
    truth = sum(age < 64 for age in rows()["age"].to_pylist())
    assert abs(answer["count"] - truth) < 400 and answer["ci_low"] < answer["ci_high"]
    workspace.succeed("verify", workspace.output)


def below_64(workspace: Workspace) -> Any:
    requested = ["query", workspace.output, "box", "--tree", "box", "--side", "age", "0", "64"]
    (answer,) = json.loads(workspace.succeed(*requested, "--json").out)["answers"]
    return answer
