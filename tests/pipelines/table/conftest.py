"""Tables of columns of all types, released with so little noise that counts are exact."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.hypercube.conftest import AGE, AT, DAY, KIND, rows, write_inputs

X = {"column": "x", "lower": -3, "upper": 3, "cells": 12}
# Noise of this budget is 0 but for one draw of 10^12.
EPSILON = 400


def table(name: str, columns: list[Any], **keys: Any) -> dict[str, Any]:
    """A tree of a configuration."""
    return {"name": name, "domain": {"kind": "table", "columns": columns}, **keys}


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose output holds a table of five columns. Tests only read it."""
    made = Workspace(tmp_path_factory.mktemp("wide"))
    tree = table("wide", [DAY, AT, KIND, AGE, X])
    path = write_inputs(made, rows(), tree)
    outcome = made.succeed("release", path, *NONCE)
    made.summary = outcome.out  # type: ignore[attr-defined]
    return made
