"""This project's mechanisms, each by what a configuration says of its tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.accuracy.cases import (
    ANY_TREE,
    LEVELS,
    PROJECT,
    QUANTILES,
    Absent,
    Answers,
    Case,
    DataSet,
    Method,
    Origin,
    Tree,
)
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.pipelines.config.configuration import checked_configuration
from dptrees.pipelines.python.config import plain
from dptrees.pipelines.sections.document import ConfigurationError

_TREE = "x"
_KEY = ReleaseKey(b"accuracy: a public constant key.")
Section = Callable[[Case], Mapping[str, Any]]


def plan_tree(tree: Mapping[str, Any], privacy: Mapping[str, Any]) -> ReleasePlan:
    """The plan of a release of one tree.

    Raises:
        Absent: this version does not support the tree's configuration, or not under this budget.
    """
    values = {
        "release": "accuracy",
        "output": "rows",
        "key": "env:DPTREES_KEY",
        "input": {"format": "parquet", "path": "rows"},
        "privacy": {"neighbors": "add_remove", **privacy},
        "trees": [{"name": _TREE, **tree}],
    }
    try:
        return checked_configuration(plain(values), "configuration", {}).plan()
    except ConfigurationError as error:
        raise Absent(str(error)) from None


def release_nonce(case: Case, number: int) -> bytes:
    """Return the nonce of a release: each has its own noise, and a later run the same."""
    return f"{case.data.name} {case.rows} {case.privacy} {case.quantile_count} {number}".encode()


@lru_cache(maxsize=64)
def _planned(tree: str, measure: str, amount: str) -> ReleasePlan:
    return plan_tree(json.loads(tree, parse_float=Decimal), {measure: Decimal(amount)})


def _answers(release: ReleaseReader, cells: int, levels: Sequence[str]) -> Mapping[str, Answers]:
    quantiles: dict[Fraction, int] = {}
    if release.quantiles is not None:
        for row in release.quantiles.select(["q", "value"]).to_pylist():
            quantiles[Fraction(row["q"]).limit_denominator(100)] = min(int(row["value"]), cells - 1)
    if levels:
        return _node_answers(release, levels)
    try:
        rows = release.part("cdf", _TREE, 0, 0)
    except KeyError:  # a mechanism that answers quantiles alone
        return {"": Answers(quantiles=quantiles)}
    read = {name: rows[name].to_numpy().astype(float) for name in ("count", "estimate")}
    return {
        "count": Answers(prefixes=read["count"], quantiles=quantiles),
        "estimate": Answers(prefixes=read["estimate"]),
    }


def _node_answers(release: ReleaseReader, levels: Sequence[str]) -> Mapping[str, Answers]:
    """Return the node answers of a hierarchy in one chunk."""
    rows = release.part("nodes", _TREE, 0, 0)
    level, node = rows["level"].to_numpy(), rows["node"].to_numpy()
    found = {}
    for name in ("count", "estimate"):
        numbers, nodes = rows[name].to_numpy().astype(float), {}
        for place, each in enumerate(levels, 1):
            here = level == place
            nodes[each] = numbers[here][np.argsort(node[here])]
        found[name] = Answers(nodes=nodes)
    return found


def _hierarchy(data: DataSet) -> Mapping[str, Any]:
    """The domain of a hierarchy of codes, whose table is written beside what is measured."""
    table = PROJECT / "build" / "accuracy" / "blocks.parquet"
    if not table.exists():
        table.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"code": data.codes}), table)
    return {
        "kind": "hierarchy",
        "column": "code",
        "digits": list(LEVELS.values()),
        "levels": list(LEVELS),
        "table": str(table),
    }


def _run(section: Section, case: Case, numbers: Sequence[int]) -> list[Mapping[str, Answers]]:
    cells, levels = case.counts.size, tuple(case.data.levels)
    if levels:
        tree = {"domain": _hierarchy(case.data), **section(case)}
    else:
        domain = {"column": "x", "type": "number", "lower": 0, "upper": cells, "cells": cells}
        quantiles = [float(each) for each in case.quantiles]
        tree = {"domain": domain, "quantiles": quantiles, **section(case)}
    plan = _planned(json.dumps(tree), case.privacy.measure, case.privacy.amount)
    return [
        _answers(
            release_counts(plan, {_TREE: case.counts}, _KEY, nonce=release_nonce(case, number)),
            cells,
            levels,
        )
        for number in numbers
    ]


ORDERED, HIERARCHY = frozenset({Tree.ORDERED}), frozenset({Tree.HIERARCHY})
COUNTS, ESTIMATES = {"optimize_for": "counts"}, {"optimize_for": "estimates"}
ADAPTIVE, FACTORISED = {"mechanism": "adaptive"}, {"mechanism": "factorised"}
RANGES, QUANTILE = {"objective": "ranges"}, {"objective": "quantiles"}
# Whole levels for counts with the other repair.
TOP_DOWN = {**COUNTS, "consistency": "top_down"}
# The keys of a tree's section, whether it has a public guess of the rows, which is right, and the
# trees that it answers. Trees for quantiles are released for each number of them.
METHODS: dict[str, tuple[Mapping[str, Any], bool, frozenset[Tree]]] = {
    "planned": ({}, False, ANY_TREE),
    "planned, guess": ({}, True, ANY_TREE),
    "planned, for counts": (COUNTS, True, ORDERED),
    "planned, ranges, for counts": (RANGES | COUNTS, True, ORDERED),
    "planned, for counts, top down": ({"objective": "cdf"} | TOP_DOWN, True, ORDERED),
    "planned, ranges, for counts, top down": (RANGES | TOP_DOWN, True, ORDERED),
    "planned, quantiles, for counts": (QUANTILE | COUNTS, True, ORDERED),
    "planned, quantiles, guess": (QUANTILE, True, ORDERED),
    "planned, ranges": (RANGES, False, ORDERED),
    "planned, quantiles": (QUANTILE, False, ORDERED),
    **{f"planned, {x}": ({"level_weights": {x: 1}}, False, HIERARCHY) for x in LEVELS},
    **{f"planned, guess, {x}": ({"level_weights": {x: 1}}, True, HIERARCHY) for x in LEVELS},
    **{
        f"adaptive, for counts, {x}": (
            ADAPTIVE | COUNTS | {"level_weights": {x: 1}},
            True,
            HIERARCHY,
        )
        for x in LEVELS
    },
    "tree": ({"mechanism": "tree"}, False, HIERARCHY),
    "adaptive, for counts": (ADAPTIVE | COUNTS, False, ANY_TREE),
    "adaptive, for counts, guess": (ADAPTIVE | COUNTS, True, ANY_TREE),
    "adaptive, for estimates": (ADAPTIVE | ESTIMATES, True, ANY_TREE),
    "exponential": ({"mechanism": "exponential"}, False, ORDERED),
    "factorised": (FACTORISED, False, ORDERED),
    "factorised, ranges": (FACTORISED | RANGES, False, ORDERED),
}


def _method(name: str, keys: Mapping[str, Any], guesses: bool, trees: frozenset[Tree]) -> Method:
    def section(case: Case) -> Mapping[str, Any]:
        return {**keys, "guess": {"rows": case.rows}} if guesses else keys

    numbers = tuple(QUANTILES) if "quantiles" in name else (0,)
    if name == "exponential":
        # Of 99 quantiles it draws for a third of a second, and trees are closer long before.
        numbers = (1, 3, 9)
    return Method(
        name=name,
        origin=Origin.OURS,
        run=partial(_run, section),
        quantile_counts=numbers,
        trees=trees,
    )


OURS = tuple(_method(name, *own) for name, own in METHODS.items())


def by_default(task: str) -> str:
    """Return the method for a user who names the task and guesses nothing.

    >>> by_default("9 quantiles, rank"), by_default("ranges"), by_default("nodes, tract")
    ('planned, quantiles', 'planned, ranges', 'planned, tract')
    """
    return _planned_for(task, "")


def with_guess(task: str) -> str:
    """Return the method for a user who guesses the rows too.

    >>> with_guess("9 quantiles, rank"), with_guess("ranges"), with_guess("nodes, tract")
    ('planned, quantiles, guess', 'planned, ranges, for counts', 'planned, guess, tract')
    """
    if task == "ranges":
        return "planned, ranges, for counts"
    return "planned, for counts" if task == "prefixes" else _planned_for(task, ", guess")


def _planned_for(task: str, guess: str) -> str:
    if task.startswith("nodes, "):
        level = task.removeprefix("nodes, ")
        return f"planned{guess}, {level}" if level in LEVELS else f"planned{guess}"
    if "quantiles" in task:
        return f"planned, quantiles{guess}"
    return f"planned, ranges{guess}" if task == "ranges" else f"planned{guess}"
