"""The section of a box: every key, both forms of a domain, and bad input one by one."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest

from dptrees.pipelines.kinds.domains import read_hypercube
from dptrees.pipelines.sections.document import ConfigurationError, RuleBroken
from tests.pipelines.conftest import Workspace
from tests.pipelines.hypercube.conftest import AGE, AT, DAY, KIND, box, plan_entry_of
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

SHORT = {"kind": "hypercube", "columns": ["x", "age"], "lower": [0, 0], "upper": [100, 128]}


def short(**keys: Any) -> dict[str, Any]:
    """A tree over two columns of numbers."""
    return {"name": "two", "domain": SHORT, **keys}


def domain(**keys: Any) -> dict[str, Any]:
    """The same with a changed domain; None takes a key away."""
    given = {key: value for key, value in (SHORT | keys).items() if value is not None}
    return {"name": "two", "domain": given}


# What is accepted


def test_short_form_is_the_long_form_of_numbers() -> None:
    long = {
        "kind": "hypercube",
        "columns": [
            {"column": "x", "lower": Decimal("0.5"), "upper": 8, "cells": 2**32},
            {"column": "y", "type": "number", "lower": -1, "upper": 1, "cells": 2**32},
        ],
    }
    names = {"kind": "hypercube", "columns": ["x", "y"]}
    bounds = {"lower": [Decimal("0.5"), -1], "upper": [8, 1]}
    assert read_hypercube(names | bounds) == read_hypercube(long)


def test_every_type_of_column_and_its_halvings() -> None:
    number = {"column": "x", "lower": 0, "upper": 1}
    found = read_hypercube({"kind": "hypercube", "columns": [DAY, AT, KIND, AGE, number]})
    kinds = [axis.kind for axis in found.axes]
    assert kinds == ["date", "timestamp", "category", "integer", "number"]
    # As many as distinguish its cells; five columns share 64 bits, and numbers have no cells.
    assert found.depths == (9, 8, 2, 7, 12)


def test_a_first_and_a_last_value_are_integers_as_in_a_tree_of_one_column() -> None:
    stars = {"column": "stars", "values": [1, 5]}
    found = read_hypercube({"kind": "hypercube", "columns": [stars, DAY]})
    assert (found.axes[0].kind, found.axes[0].cells, found.depths[0]) == ("integer", 5, 3)


def test_numbers_share_the_bits_evenly() -> None:
    for columns, depth in ((1, 32), (2, 32), (3, 21), (4, 16), (64, 1)):
        names = [f"c{place}" for place in range(columns)]
        section = {"kind": "hypercube", "columns": names, "lower": [0] * columns}
        assert read_hypercube(section | {"upper": [1] * columns}).depths == (depth,) * columns


# Golden releases have the other keys.
ACCEPTED: dict[str, dict[str, Any]] = {
    "numbers-with-a-point": domain(lower=[0.5, -1.25], upper=[2.75, 1e2]),
    "depths": domain(depths=[3, 40]),
    "64-bits": domain(depths=[40, 24]),
    "one-bit": box("one", [{**KIND, "categories": ["a", "b"]}]),
    "policies": box("one", [{**AGE, "out_of_range": "drop", "missing": "last"}]),
    "unknown": box("one", [{**KIND, "unknown": "first"}]),
    "rows-with-an-exponent": short(rows=1e6),
    "bits-apart": short(bits_apart=1),
    "bits-apart-most": short(bits_apart=8),
    "k": short(k=1),
    "k-all-cells": short(k=2**10, depth=10),
    "parts": short(mechanism="privhp_paper", parts=100),
    "shares": short(shares="lemma_5"),
    "consistency-of-the-paper": short(mechanism="privhp_paper", consistency="even_shares"),
    "sketch": short(counts="sketch", width=1024, hashes=3, sketch="count_sketch"),
    "split-errors": short(split_errors=2.5),
    "split-errors-none": short(split_errors=0),
    "memory-with-a-unit": short(memory="64 MiB"),
}


def test_accepted() -> None:
    for name, tree in ACCEPTED.items():
        assert plan_of(tree).questions[0].name == tree["name"], name


def test_gaussian_noise() -> None:
    for neighbors in ("add_remove", "substitute"):
        for noise, budget in (("best", {"rho": 0.5}), ("gaussian", {"epsilon": 1, "delta": 1e-6})):
            (tree,) = plan_of(short(noise=noise), neighbors=neighbors, **budget).questions
            assert "sigma_squared" in json.dumps(tree.spec())


ESTIMATES = {"optimize_for": "estimates"}
TAKEN = [
    ({}, "adaptive", "chosen for counts: an adaptive partition, as its counts"),
    (ESTIMATES, "adaptive", "chosen for estimates: an adaptive partition"),
    ({"counts": "sketch"}, "partition", "PrivHP, as only it has that choice"),
    ({"rows": 10**9}, "partition", "PrivHP, as exact counts may not fit memory"),
    ({"mechanism": "privhp"}, "partition", ""),
]


def test_the_plan_says_which_mechanism_was_taken_and_why(workspace: Workspace) -> None:
    for keys, mechanism, why in TAKEN:
        tree = plan_entry_of(workspace, short(**keys))
        assert tree["mechanism"] == mechanism, keys
        assert why in (tree.get("why") or "") and ("why" in tree) == bool(why), keys


def test_beside_a_delta_whole_levels_are_measured_unless_estimates_are_requested(
    workspace: Workspace,
) -> None:
    for keys, mechanism in (({}, "partition"), (ESTIMATES, "adaptive")):
        privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}
        assert plan_entry_of(workspace, short(**keys), **privacy)["mechanism"] == mechanism


# What is refused, each by a sentence at its key

AT_ANY_TIME = {key: AT[key] for key in AT if key != "cells"}
LONG_WITH_BOUNDS = {"name": "b", "domain": {"kind": "hypercube", "columns": [AGE], "lower": [0]}}
DEPTHS_OF_KIND = {"name": "b", "domain": {"kind": "hypercube", "columns": [KIND], "depths": [3]}}
MANY = {"columns": [f"c{n}" for n in range(65)], "lower": [0] * 65, "upper": [1] * 65}
ADAPTIVE: dict[str, Any] = {"mechanism": "adaptive"}
REFUSED = [
    (domain(columns=None), "domain.columns: is required"),
    (domain(columns="x"), "domain.columns: 'x' must be a list"),
    (box("b", [AGE, AGE]), "domain.columns: 'age' is there twice"),
    (domain(columns=["x", AGE]), "domain.columns[1]: a section must be a string"),
    (domain(lower=None), "domain.lower: is required beside names of columns"),
    (domain(lower=0), "domain.lower: 0 must be a list"),
    (domain(lower=[0, "a"]), "domain.lower[1]: 'a' must be a number"),
    (domain(lower=[float("nan"), 0]), "domain.lower[0]: nan must be finite"),
    (LONG_WITH_BOUNDS, "domain.lower: belongs into the section of each column"),
    (domain(cells=4), "domain.cells: unknown key"),
    (box("b", [{**AGE, "zz": 1}]), "domain.columns[0].zz: unknown key"),
    (box("b", [{"lower": 0, "upper": 1}]), "domain.columns[0].column: is required"),
    (box("b", [AGE | {"out_of_range": "x"}]), "domain.columns[0].out_of_range: ...must be one of"),
    (box("b", [AT_ANY_TIME]), "domain.columns[0].cells: is required"),
    (domain(depths=[0, 0]), "domain.depths[0]: 0 must be a whole number above 0"),
    (domain(depths=[3]), "domain.depths: has 1 numbers for 2 columns"),
    (DEPTHS_OF_KIND, "domain.depths: 3 for column 'kind' is not from 1 to 2"),
    (domain(**MANY), "domain.columns: ...65 columns are more than 64 bits"),
    (domain(lower=[1, 0], upper=[1.0000000001, 1]), "domain.columns[0]: ...float64 numbers cannot"),
    (domain(depths=[3, 3]) | {"k": 65}, "k: 65 is above the 2^6 cells of the domain"),
    (short(k=1.5), "k: 1.5 must be a whole number from 1 to 2^50"),
    (short(rows=True), "rows: true must be a whole number from 1 to 2^50"),
    (short(rows_at_most=0), "rows_at_most: 0 must be a whole number from 1 to 2^50"),
    (short(depth=0), "depth: 0 must be a whole number from 1 to 2^50"),
    (domain(depths=[3, 3]) | {"depth": 7}, "depth: 7 is above 6, where parts are one cell"),
    (short(split_errors=1e7), "split_errors: ...must be at most 1000000"),
    (short(consistency="x"), "consistency: 'x' must be "),
    (short(mechanism="privhp", optimize_for="counts"), "optimize_for: ...planned or adaptive alon"),
    (short(counts="sketch", **ESTIMATES), "optimize_for: estimates apart from decisions need an"),
    (short(**ADAPTIVE, optimize_for="x"), "optimize_for: 'x' must be counts or estimates"),
    (short(**ADAPTIVE, parts=5), "parts: an adaptive partition splits by noise, not by a part"),
    (short(**ADAPTIVE, hashes=2), "hashes: ...needs exact counts"),
    (short(noise="gaussian"), "noise: gaussian noise needs rho"),
    (short(hashes=0), "hashes: 0 must be a whole number from 1 to 2^50"),
    (short(sketch="x"), "sketch: 'x' must be count_min or count_sketch"),
    (short(memory=0), "memory: 0 must be a whole number from 1 to 2^50"),
    (short(counts="dense", memory="1 KiB"), "memory: 1024 bytes are below"),
    (short(quantiles=[0.5]), "quantiles: belongs to an ordered domain"),
    (short(measure={}), "measure: belongs to a hierarchy"),
    (short(estimation="full"), "estimation: unknown key"),
]


def test_refused(workspace: Workspace) -> None:
    rows = [(tree, f"trees[0].{words}") for tree, words in REFUSED]
    assert not not_refused(plan_of, rows, ConfigurationError)
    outcome = workspace.run("release", workspace.configure(lambda s: s.update(trees=[short(k=0)])))
    assert (outcome.code, outcome.out) == (2, "") and outcome.err.count("\n") == 1
    assert not workspace.output.exists()


def test_a_refusal_names_the_place_below_the_domain() -> None:
    with pytest.raises(RuleBroken) as refused:
        read_hypercube({"kind": "hypercube", "columns": [AGE, {**AGE, "column": 3}]})
    assert refused.value.at == ".columns[1].column"


LIMITED: list[dict[str, Any]] = [
    {},
    {"k": 100},
    {"k": 2**12, "depth": 16},
    {"mechanism": "pmm", "depth": 8},
    {"mechanism": "privhp_paper"},
    {"counts": "dense"},
    {"counts": "sketch"},
    {"counts": "sketch", "hashes": 5},
    {"bits_apart": 8},
]


def test_a_memory_limit_below_the_least_plan_names_one_that_works() -> None:
    for keys in LIMITED:
        with pytest.raises(ConfigurationError, match="memory: 1 bytes are below the ") as refused:
            plan_of(short(memory=1, **keys))
        (least,) = re.findall(r"below the (\d+)", str(refused.value))
        plan_of(short(memory=int(least), **keys))
        with pytest.raises(ConfigurationError, match=f"below the {least}"):
            plan_of(short(memory=int(least) - 1, **keys))
