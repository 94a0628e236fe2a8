"""The section of a wide table: every key, and bad input one by one."""

from __future__ import annotations

from typing import Any

import pytest

from dptrees.pipelines.kinds.domains import read_table
from dptrees.pipelines.sections.document import ConfigurationError, RuleBroken
from tests.pipelines.conftest import Workspace
from tests.pipelines.hypercube.conftest import AGE, AT, DAY, KIND, plan_entry_of
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused
from tests.pipelines.table.conftest import X, table


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


def test_missing_values_are_a_category_where_that_is_said(workspace: Workspace) -> None:
    kept = {"column": "z", "lower": 0, "upper": 1, "missing": "first"}
    every = read(KIND, AGE, kept, missing="category")
    assert [axis.missing for axis in every.axes] == ["category", "category", "first"]
    assert every.sizes == (4, 101, 128)
    assert read(KIND | {"missing": "category"}, AGE).sizes == (4, 100)
    plain = read(KIND, AGE)
    assert plain == read(KIND, AGE, missing="drop") and "apart" not in plain.shape.spec()
    for missing, said in ((None, "no value there (domain.missing: category"), ("category", "")):
        tree = table("wide", [KIND, AGE])
        tree["domain"] |= {"missing": missing} if missing else {}
        out = workspace.succeed(
            "plan", workspace.configure(lambda s, t=tree: s.update(trees=[t]))
        ).out
        assert said in out and ("left out if" in out) is (missing is None)


def test_the_plan_says_where_the_other_kind_is_closer(workspace: Workspace) -> None:
    gives = "gives more accurate synthetic rows"
    for kind, columns, closer in (
        ("table", 2, f"box (domain.kind: hypercube) {gives}"),
        ("table", 3, None),
        ("hypercube", 3, None),
        ("hypercube", 4, f"wide table (domain.kind: table) {gives}"),
    ):
        each = [{"column": f"c{n}", "lower": 0, "upper": 1, "cells": 4} for n in range(columns)]
        tree = {"name": "t", "domain": {"kind": kind, "columns": each}}
        out = workspace.succeed(
            "plan", workspace.configure(lambda s, t=tree: s.update(trees=[t]))
        ).out
        assert closer in out if closer else gives not in out, (kind, columns)


def test_the_plan_counts_cells_of_columns_and_pairs(workspace: Workspace) -> None:
    entry = plan_entry_of(workspace, table("wide", [KIND, AGE, X]))
    assert entry["columns"] == {"kind": 3, "age": 100, "x": 12}
    assert entry["counters"] == 3 + 100 + 12 + 300 + 36 + 1200 and entry["std_error"] > 1


def test_pairs_that_are_named_are_measured_unasked(workspace: Workspace) -> None:
    tree = table("wide", [KIND, AGE, X, DAY], target="x", pairs=[["age", "kind"]])
    entry = plan_entry_of(workspace, tree)
    assert entry["plan"]["named"] == [[0, 2], [1, 2], [2, 3], [0, 1]]
    path = workspace.configure(lambda s: s.update(trees=[tree]))
    said = "measured unasked: kind x x, age x x, x x day, kind x age; 2 pairs of columns to choose"
    assert said in " ".join(workspace.succeed("plan", path).out.split())


def test_weights_and_every_measure() -> None:
    plan_of(table("wide", [KIND, AGE, X], weight=2, noise="laplace"))
    for privacy in ({"rho": 0.1}, {"epsilon": 1, "delta": 1e-6}):
        plan_of(table("wide", [KIND, AGE, X]), neighbors="substitute", **privacy)


def test_bad_input() -> None:
    two, lost = {"kind": "table", "columns": [AGE, KIND]}, AGE | {"missing": "category"}
    rows = [
        (table("t", [KIND, AGE], quantiles=[0.5]), "quantiles: belongs to an ordered domain; you"),
        (table("t", [KIND, AGE], depth=3), "depth: belongs to a hypercube"),
        ({"name": "t", "domain": {"kind": "table"}}, "domain.columns: is required"),
        (table("t", [AGE, "x"]), "domain.columns[1]: 'x' must be a section such as {column: age,"),
        (table("t", [AGE, AGE]), "domain.columns: 'age' is there twice"),
        (table("t", [AGE, {"column": "x", "lower": 3}]), "domain.columns[1].upper: is required"),
        ({"name": "t", "domain": two | {"cells": "many"}}, "domain.cells: 'many' must be"),
        ({"name": "t", "domain": two | {"missing": "keep"}}, "domain.missing: 'keep' must be"),
        (
            {"name": "t", "domain": lost},
            "domain.missing: category belongs to the columns of a table (kind: table)",
        ),
        (
            {
                "name": "t",
                "domain": {"kind": "hypercube", "columns": [AGE | {"missing": "category"}]},
            },
            "domain.columns[0].missing: category belongs to the columns of a table",
        ),
        ({"name": "t", "domain": two | {"depths": [3]}}, "domain.depths: unknown key"),
    ]
    ring = [["age", "kind"], ["kind", "day"], ["day", "x"], ["x", "age"]]
    many = [{"column": f"c{n}", "categories": list(range(70))} for n in range(4)]
    triangle = [["c0", "c1"], ["c1", "c2"], ["c0", "c2"], ["c0", "c3"], ["c1", "c3"], ["c2", "c3"]]
    four = [KIND, AGE, X, DAY]
    rows += [
        (table("t", four, target="who"), "target: 'who' is none of the columns"),
        (table("t", four, target=[1]), "target: a list must be a string"),
        (table("t", four, pairs="age"), "pairs: 'age' must be a list"),
        (table("t", four, pairs=[["age"]]), "pairs: each must be a list of two columns"),
        (table("t", four, pairs=[["age", "who"]]), "pairs: 'who' is none of the columns"),
        (table("t", four, pairs=[["age", "age"]]), "pairs: 'age' is no pair with itself"),
        (table("t", four, target="x", pairs=[["age", "x"]]), "pairs: 'age' and 'x' are a named"),
        (table("t", four, pairs=ring), "pairs: they close a ring of four or more columns"),
        (
            table("t", many, pairs=triangle),
            "pairs: all of 4 columns; at most 4, of 2^18 joint cells",
        ),
    ]
    rows = [(tree, f"x.yaml: trees[0].{words}") for tree, words in rows]
    assert not not_refused(plan_of, rows, ConfigurationError)
    with pytest.raises(ConfigurationError, match="is too little for 2 columns"):
        plan_of(table("wide", [KIND, AGE]), epsilon=1e-14, neighbors="add_remove")


def test_no_budget_is_found_for_an_error(workspace: Workspace) -> None:
    path = workspace.configure(lambda s: s.update(trees=[table("wide", [KIND, AGE])]))
    outcome = workspace.run("plan", path, "--target-error", "5")
    assert outcome.code == 2
    assert "is a table, whose error no budget can be found for" in outcome.err
