"""The section of a box: every key, both forms of a domain, and bad input one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from dptrees.pipelines.kinds.domains import read_hypercube
from dptrees.pipelines.sections.document import RuleBroken
from tests.pipelines.conftest import Workspace
from tests.pipelines.hypercube.conftest import AGE, AT, DAY, KIND, box

SHORT = {"kind": "hypercube", "columns": ["x", "age"], "lower": [0, 0], "upper": [100, 128]}
Change = Callable[[dict[str, Any]], object]


def planned(workspace: Workspace, tree: Mapping[str, Any], **privacy: Any) -> Any:
    """The outcome of `dptrees plan` of one tree."""
    given = privacy or {"epsilon": 1, "neighbors": "add_remove"}
    path = workspace.configure(lambda s: s.update(trees=[dict(tree)], privacy=given))
    return workspace.run("plan", path, "--json")


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
    found = read_hypercube(
        {
            "kind": "hypercube",
            "columns": [
                {"column": "day", "lower": date(2020, 1, 1), "upper": date(2021, 1, 1)},
                {
                    "column": "at",
                    "lower": datetime(2024, 3, 1),
                    "upper": datetime(2024, 3, 2),
                    "cells": 24,
                },
                {"column": "kind", "categories": ["a", "b", "c"]},
                {"column": "age", "type": "integer", "lower": 0, "upper": 100},
                {"column": "x", "lower": 0, "upper": 1},
            ],
        }
    )
    assert [axis.kind for axis in found.axes] == [
        "date",
        "timestamp",
        "category",
        "integer",
        "number",
    ]
    # As many as distinguish its cells; five columns share 64 bits, and numbers have no cells.
    assert found.depths == (9, 5, 2, 7, 12)


@pytest.mark.parametrize(
    ("columns", "depth"), [(1, 32), (2, 32), (3, 21), (4, 16), (64, 1)], ids=str
)
def test_numbers_share_the_bits_evenly(columns: int, depth: int) -> None:
    names = [f"c{place}" for place in range(columns)]
    section = {"kind": "hypercube", "columns": names, "lower": [0] * columns}
    assert read_hypercube(section | {"upper": [1] * columns}).depths == (depth,) * columns


ACCEPTED: dict[str, dict[str, Any]] = {
    "plain": short(),
    "long": box("four", [DAY, AT, KIND, AGE]),
    "numbers-with-a-point": domain(lower=[0.5, -1.25], upper=[2.75, 1e2]),
    "depths": domain(depths=[3, 40]),
    "64-bits": domain(depths=[40, 24]),
    "one-bit": box("one", [{**KIND, "categories": ["a", "b"]}]),
    "policies": box("one", [{**AGE, "out_of_range": "drop", "missing": "last"}]),
    "unknown": box("one", [{**KIND, "unknown": "first"}]),
    "weight": short(weight=2.5),
    "noise": short(noise="laplace"),
    "rows": short(rows=10**6),
    "rows-with-an-exponent": short(rows=1e6),
    "rows-at-most": short(rows_at_most=10**6),
    "depth": short(depth=12),
    "bits-apart": short(bits_apart=1),
    "bits-apart-most": short(bits_apart=8),
    "k": short(k=1),
    "k-all-cells": short(k=2**10, depth=10),
    "parts": short(mechanism="privhp_paper", parts=100),
    "split-errors": short(split_errors=2.5),
    "split-errors-none": short(split_errors=0),
    "shares": short(shares="lemma_5"),
    "consistency": short(consistency="least_squares"),
    "consistency-of-the-paper": short(mechanism="privhp_paper", consistency="even_shares"),
    "dense": short(counts="dense", depth=10),
    "sparse": short(counts="sparse"),
    "sketch": short(counts="sketch", width=1024, hashes=3, sketch="count_sketch"),
    "count-min": short(counts="sketch", sketch="count_min"),
    "memory": short(memory=2**20),
    "memory-with-a-unit": short(memory="64 MiB"),
    "planned": short(mechanism="planned"),
    "planned-for-counts": short(optimize_for="counts"),
    "planned-for-estimates": short(optimize_for="estimates"),
    "the-paper's": short(mechanism="privhp_paper", k=16),
    "pmm": short(mechanism="pmm", depth=10),
}


@pytest.mark.parametrize("tree", ACCEPTED.values(), ids=list(ACCEPTED))
def test_accepted(workspace: Workspace, tree: dict[str, Any]) -> None:
    outcome = planned(workspace, tree)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["trees"][0]["name"] == tree["name"]


@pytest.mark.parametrize("neighbors", ["add_remove", "substitute"])
@pytest.mark.parametrize("budget", [{"rho": 0.5}, {"epsilon": 1, "delta": 1e-6}], ids=str)
def test_gaussian_noise(workspace: Workspace, budget: dict[str, Any], neighbors: str) -> None:
    tree = short(noise="best" if "rho" in budget else "gaussian")
    outcome = planned(workspace, tree, neighbors=neighbors, **budget)
    assert outcome.code == 0, outcome.err
    assert "sigma_squared" in outcome.out


ESTIMATES = {"optimize_for": "estimates"}
TAKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "counts": ({}, "adaptive", "chosen for counts: an adaptive partition, as its counts"),
    "estimates": (
        {"optimize_for": "estimates"},
        "adaptive",
        "chosen for estimates: an adaptive partition",
    ),
    "sketches": ({"counts": "sketch"}, "partition", "PrivHP, as only it has that choice"),
    "rows": ({"rows": 10**9}, "partition", "PrivHP, as exact counts may not fit memory"),
    "named": ({"mechanism": "privhp"}, "partition", ""),
}


@pytest.mark.parametrize(("keys", "mechanism", "why"), TAKEN.values(), ids=list(TAKEN))
def test_the_plan_says_which_mechanism_was_taken_and_why(
    workspace: Workspace, keys: dict[str, Any], mechanism: str, why: str
) -> None:
    (tree,) = json.loads(planned(workspace, short(**keys)).out)["trees"]
    assert tree["mechanism"] == mechanism
    assert why in (tree.get("why") or "") and ("why" in tree) == bool(why)


@pytest.mark.parametrize(("read", "mechanism"), [({}, "partition"), (ESTIMATES, "adaptive")])
def test_beside_a_delta_whole_levels_are_measured_unless_estimates_are_requested(
    workspace: Workspace, read: dict[str, Any], mechanism: str
) -> None:
    outcome = planned(workspace, short(**read), epsilon=1, delta=1e-6, neighbors="add_remove")
    (tree,) = json.loads(outcome.out)["trees"]
    assert tree["mechanism"] == mechanism


# What is refused, each by a sentence at its key

WHOLE = "must be a whole number from 1 to 2^50"
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no-columns": (domain(columns=None), "domain.columns", "is required"),
    "empty-columns": (domain(columns=[]), "domain.columns", "must have at least one value"),
    "columns-a-text": (domain(columns="x"), "domain.columns", "'x' must be a list"),
    "a-column-twice": (domain(columns=["x", "x"]), "domain.columns", "'x' is there twice"),
    "a-section-twice": (box("b", [AGE, AGE]), "domain.columns", "'age' is there twice"),
    "mixed-forms": (domain(columns=["x", AGE]), "domain.columns[1]", "a section must be a string"),
    "no-lower": (domain(lower=None), "domain.lower", "is required beside names of columns"),
    "one-bound": (domain(upper=[1]), "domain.upper", "has 1 bounds for 2 columns"),
    "no-list-of-bounds": (domain(lower=0), "domain.lower", "0 must be a list"),
    "bound-a-text": (domain(lower=[0, "a"]), "domain.lower[1]", "'a' must be a number"),
    "bound-nan": (domain(lower=[float("nan"), 0]), "domain.lower[0]", "nan must be finite"),
    "bounds-crossed": (domain(lower=[200, 0]), "domain.lower[0]", "must be less than upper 100.0"),
    "bounds-in-the-long-form": (
        {"name": "b", "domain": {"kind": "hypercube", "columns": [AGE], "lower": [0]}},
        "domain.lower",
        "belongs into the section of each column",
    ),
    "unknown-key": (domain(cells=4), "domain.cells", "unknown key"),
    "key-of-a-column": (box("b", [{**AGE, "zz": 1}]), "domain.columns[0].zz", "unknown key"),
    "no-name": (box("b", [{"lower": 0, "upper": 1}]), "domain.columns[0].column", "is required"),
    "policy": (
        box("b", [AGE | {"out_of_range": "x"}]),
        "domain.columns[0].out_of_range",
        "'x' must be one of clamp, drop",
    ),
    "no-time-cells": (
        box("b", [{key: AT[key] for key in AT if key != "cells"}]),
        "domain.columns[0].cells",
        "is required",
    ),
    "one-category": (
        box("b", [AGE, {"column": "kind", "categories": ["a"]}]),
        "domain.columns",
        "'kind' has one cell, which nothing divides",
    ),
    "0-bits": (domain(depths=[0, 0]), "domain.depths[0]", "0 must be a whole number above 0"),
    "65-bits": (domain(depths=[33, 32]), "domain.depths", "adds up to 65 bits; at most 64"),
    "41-bits-of-one": (domain(depths=[3, 41]), "domain.depths[1]", "41 is above 40"),
    "depths-too-few": (domain(depths=[3]), "domain.depths", "has 1 numbers for 2 columns"),
    "depths-below-cells": (
        {"name": "b", "domain": {"kind": "hypercube", "columns": [KIND], "depths": [3]}},
        "domain.depths",
        "3 for column 'kind' is not from 1 to 2",
    ),
    "65-columns": (
        domain(columns=[f"c{n}" for n in range(65)], lower=[0] * 65, upper=[1] * 65),
        "domain.columns",
        "65 columns are more than 64 bits",
    ),
    "too-fine": (
        domain(lower=[1, 0], upper=[1.0000000001, 1]),
        "domain.columns[0]",
        "float64 numbers cannot represent distinct edges",
    ),
    "k-0": (short(k=0), "k", f"0 {WHOLE}"),
    "k-above-the-cells": (
        domain(depths=[3, 3]) | {"k": 65},
        "k",
        "65 is above the 2^6 cells of the domain",
    ),
    "k-of-pmm": (short(mechanism="pmm", k=5), "k", "PMM splits every node"),
    "k-a-half": (short(k=1.5), "k", f"1.5 {WHOLE}"),
    "rows": (short(rows=True), "rows", f"true {WHOLE}"),
    "rows-at-most": (short(rows_at_most=0), "rows_at_most", f"0 {WHOLE}"),
    "depth-0": (short(depth=0), "depth", f"0 {WHOLE}"),
    "depth-above-the-bits": (
        domain(depths=[3, 3]) | {"depth": 7},
        "depth",
        "7 is above 6, where parts are one cell",
    ),
    "bits-apart": (short(bits_apart=9), "bits_apart", "9 is above 8, 256 children at once"),
    "parts": (short(parts=0), "parts", f"0 {WHOLE}"),
    "split-errors": (short(split_errors=-1), "split_errors", "-1 must be a number from 0"),
    "split-errors-large": (short(split_errors=1e7), "split_errors", "must be at most 1000000"),
    "shares": (short(shares="x"), "shares", "'x' must be "),
    "consistency": (short(consistency="x"), "consistency", "'x' must be "),
    "counts": (short(counts="x"), "counts", "'x' must be dense, sparse or sketch"),
    "mechanism": (short(mechanism="x"), "mechanism", "'x' must be planned, privhp"),
    "for-of-privhp": (
        short(mechanism="privhp", optimize_for="counts"),
        "optimize_for",
        "is a choice of mechanism planned or adaptive alone",
    ),
    "estimates-in-sketches": (
        short(counts="sketch", optimize_for="estimates"),
        "optimize_for",
        "estimates apart from decisions need an adaptive partition, and here PrivHP is taken",
    ),
    "optimize_for": (
        short(mechanism="adaptive", optimize_for="x"),
        "optimize_for",
        "'x' must be counts or estimates",
    ),
    "parts-of-adaptive": (
        short(mechanism="adaptive", parts=5),
        "parts",
        "an adaptive partition splits by noise, not by a part of all rows",
    ),
    "sketches-of-adaptive": (
        short(mechanism="adaptive", counts="sketch"),
        "counts",
        "an adaptive partition needs exact counts until a node is looked at",
    ),
    "hashes-of-adaptive": (short(mechanism="adaptive", hashes=2), "hashes", "needs exact counts"),
    "consistency-of-adaptive": (
        short(mechanism="adaptive", consistency="even_shares"),
        "consistency",
        "an adaptive partition is estimated by least squares",
    ),
    "noise": (short(noise="gaussian"), "noise", "gaussian noise needs rho"),
    "width": (short(counts="sketch", width=3), "width", "3 is not a power of two"),
    "hashes": (short(hashes=0), "hashes", f"0 {WHOLE}"),
    "sketch": (short(sketch="x"), "sketch", "'x' must be count_min or count_sketch"),
    "memory-0": (short(memory=0), "memory", f"0 {WHOLE}"),
    "memory-unit": (short(memory="64MB"), "memory", "or such as 64 MiB, 2 GiB"),
    "memory-for-dense": (short(counts="dense", memory="1 KiB"), "memory", "1024 bytes are below"),
    "keys": (short(group_by={"column": "kind", "keys": ["a"]}), "group_by", "a box has no keys"),
    "quantiles": (short(quantiles=[0.5]), "quantiles", "belongs to an ordered domain"),
    "measure": (short(measure={}), "measure", "belongs to a hierarchy"),
    "nothing-known": (short(estimation="full"), "estimation", "unknown key"),
}


@pytest.mark.parametrize(("tree", "key", "words"), REFUSED.values(), ids=list(REFUSED))
def test_refused(workspace: Workspace, tree: dict[str, Any], key: str, words: str) -> None:
    path = workspace.configure(lambda settings: settings.update(trees=[tree]))
    outcome = workspace.run("release", path)
    assert outcome.code == 2 and outcome.out == "", outcome
    assert outcome.err.count("\n") == 1 and f"trees[0].{key}: " in outcome.err, outcome.err
    assert words in outcome.err, outcome.err
    assert not workspace.output.exists()


def test_a_refusal_names_the_place_below_the_domain() -> None:
    with pytest.raises(RuleBroken) as refused:
        read_hypercube({"kind": "hypercube", "columns": [AGE, {**AGE, "column": 3}]})
    assert refused.value.at == ".columns[1].column"


LIMITED: dict[str, dict[str, Any]] = {
    "plain": {},
    "k": {"k": 100},
    "large-k": {"k": 2**12, "depth": 16},
    "pmm": {"mechanism": "pmm", "depth": 8},
    "paper": {"mechanism": "privhp_paper"},
    "dense": {"counts": "dense"},
    "sketch": {"counts": "sketch"},
    "hashes": {"counts": "sketch", "hashes": 5},
    "bits-apart": {"bits_apart": 8},
}


@pytest.mark.parametrize("keys", LIMITED.values(), ids=list(LIMITED))
def test_a_memory_limit_below_the_least_plan_names_one_that_works(
    workspace: Workspace, keys: dict[str, Any]
) -> None:
    refused = planned(workspace, short(memory=1, **keys))
    assert refused.code == 2 and "trees[0].memory: 1 bytes are below the " in refused.err
    (least,) = re.findall(r"below the (\d+)", refused.err)
    assert planned(workspace, short(memory=int(least), **keys)).code == 0
    below = planned(workspace, short(memory=int(least) - 1, **keys))
    assert below.code == 2 and f"below the {least}" in below.err
