"""The section of a wide table: every key, and bad input one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dptrees.pipelines.kinds.domains import read_table
from dptrees.pipelines.sections.document import RuleBroken
from tests.pipelines.conftest import Workspace
from tests.pipelines.hypercube.conftest import AGE, AT, DAY, KIND
from tests.pipelines.table.conftest import X, table


def planned(workspace: Workspace, tree: Mapping[str, Any], *options: str, **privacy: Any) -> Any:
    """The outcome of `dptrees plan` of one tree."""
    given = privacy or {"epsilon": 1, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(trees=[dict(tree)], privacy=given))
    return workspace.run("plan", path, *options)


def read(*columns: Any, **keys: Any) -> Any:
    return read_table({"kind": "table", "columns": list(columns)} | keys)


def test_cells_of_every_type_of_column() -> None:
    number = {"column": "y", "lower": 0, "upper": 1}
    found = read(DAY, AT, KIND, AGE, X, number)
    assert found.sizes == (122, 120, 3, 100, 12, 128)  # days in groups of 3, hours of 2
    assert read(DAY, KIND, number, cells=10).sizes == (10, 3, 10)


def test_cells_are_fewer_where_all_tables_would_not_fit() -> None:
    columns = [{"column": f"c{place}", "lower": 0, "upper": 1} for place in range(50)]
    found = read(*columns)
    assert set(found.sizes) == {48} and found.shape.length <= 2**22
    assert set(read(*columns[:20]).sizes) == {128}
    many = [{"column": f"c{n}", "categories": list(range(80))} for n in range(40)]
    with pytest.raises(RuleBroken, match=r"cells together; at most 4,194,304") as caught:
        read(*many)
    assert caught.value.at == ".cells"


def test_values_outside_count_in_the_nearest_cell_and_categories_have_no_order() -> None:
    found = read(DAY, AGE, KIND)
    assert [axis.spec().get("outside") for axis in found.axes] == ["clamp", "clamp", None]
    assert [axis.is_ordered for axis in found.axes] == [True, True, False]
    assert read(AGE, KIND | {"ordered": True}).axes[1].is_ordered


@pytest.mark.parametrize(
    ("kind", "columns", "closer"),
    [
        ("table", 2, "box (domain.kind: hypercube) gives more accurate synthetic rows"),
        ("table", 3, None),
        ("hypercube", 3, None),
        ("hypercube", 4, "wide table (domain.kind: table) gives more accurate synthetic rows"),
    ],
)
def test_the_plan_says_where_the_other_kind_is_closer(
    workspace: Workspace, kind: str, columns: int, closer: str | None
) -> None:
    each = [{"column": f"c{place}", "lower": 0, "upper": 1, "cells": 4} for place in range(columns)]
    tree = {"name": "t", "domain": {"kind": kind, "columns": each}}
    outcome = planned(workspace, tree)
    assert outcome.code == 0, outcome.err
    assert ("gives more accurate synthetic rows" in outcome.out) == (closer is not None)
    assert closer is None or closer in outcome.out


def test_the_plan_in_words_and_as_json(workspace: Workspace) -> None:
    tree = table("wide", [KIND, AGE, X])
    outcome = planned(workspace, tree)
    assert outcome.code == 0, outcome.err
    assert "wide: a table of 3 columns, kind 3, age 100, x 12; 3 pairs of columns" in outcome.out
    assert "a cell of a column" in outcome.out and "depends on the data" in outcome.out
    (entry,) = json.loads(planned(workspace, tree, "--json").out)["trees"]
    assert entry["columns"] == {"kind": 3, "age": 100, "x": 12}
    assert entry["counters"] == 3 + 100 + 12 + 300 + 36 + 1200 and entry["std_error"] > 1


def test_weights_and_every_measure(workspace: Workspace) -> None:
    tree = table("wide", [KIND, AGE, X], weight=2, noise="laplace")
    assert planned(workspace, tree).code == 0
    own = table("wide", [KIND, AGE, X])
    for privacy in ({"rho": 0.1}, {"epsilon": 1, "delta": 1e-6}):
        outcome = planned(workspace, own, neighbors="substitute", **privacy)
        assert outcome.code == 0, outcome.err


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "group_by": (
        table("t", [KIND, AGE], group_by={"column": "place", "keys": ["a"]}),
        "trees[0].group_by: a table has no keys; make the key one of its columns, with its "
        "categories",
    ),
    "quantiles": (
        table("t", [KIND, AGE], quantiles=[0.5]),
        "trees[0].quantiles: belongs to an ordered domain; you can query every column of a table",
    ),
    "depth": (table("t", [KIND, AGE], depth=3), "trees[0].depth: belongs to a hypercube"),
    "no columns": (
        {"name": "t", "domain": {"kind": "table"}},
        "trees[0].domain.columns: is required",
    ),
    "one column": (table("t", [AGE]), "trees[0].domain.columns: there are 1; a table has from 2"),
    "a name": (
        table("t", [AGE, "x"]),
        "trees[0].domain.columns[1]: 'x' must be a section such as {column: age, lower: 0",
    ),
    "twice": (table("t", [AGE, AGE]), "trees[0].domain.columns: 'age' is there twice"),
    "a bound": (
        table("t", [AGE, {"column": "x", "lower": 3}]),
        "trees[0].domain.columns[1].upper: is required",
    ),
    "cells": (
        {"name": "t", "domain": {"kind": "table", "columns": [AGE, KIND], "cells": 1}},
        "trees[0].domain.cells: 1 is not from 2 to 1024",
    ),
    "cells as text": (
        {"name": "t", "domain": {"kind": "table", "columns": [AGE, KIND], "cells": "many"}},
        "trees[0].domain.cells: 'many' must be a whole number",
    ),
    "another key": (
        {"name": "t", "domain": {"kind": "table", "columns": [AGE, KIND], "depths": [3]}},
        "trees[0].domain.depths: unknown key",
    ),
}


@pytest.mark.parametrize("why", BAD)
def test_bad_input_is_one_sentence(workspace: Workspace, why: str) -> None:
    tree, sentence = BAD[why]
    outcome = planned(workspace, tree)
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert sentence in outcome.err


def test_no_budget_is_found_for_an_error(workspace: Workspace) -> None:
    outcome = planned(workspace, table("wide", [KIND, AGE]), "--target-error", "5")
    assert outcome.code == 2
    assert "is a table, whose error no budget can be found for" in outcome.err


def test_a_budget_that_is_too_small(workspace: Workspace) -> None:
    tree = table("wide", [KIND, AGE])
    outcome = planned(workspace, tree, epsilon=1e-14, neighbors="add_remove")
    assert outcome.code == 2 and "is too little for 2 columns" in outcome.err
