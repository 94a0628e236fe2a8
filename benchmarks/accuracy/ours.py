"""This project's mechanisms, each by what a configuration says of its tree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


def _run(
    keys: Mapping[str, Any], case: Case, numbers: Sequence[int]
) -> list[Mapping[str, Answers]]:
    cells, levels = case.counts.size, tuple(case.data.levels)
    if levels:
        tree = {"domain": _hierarchy(case.data), **keys}
    else:
        domain = {"column": "x", "type": "number", "lower": 0, "upper": cells, "cells": cells}
        quantiles = [float(each) for each in case.quantiles]
        tree = {"domain": domain, "quantiles": quantiles, **keys}
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
# The keys of a tree's section, and the trees that it answers. Trees for quantiles are released for
# each number of them.
METHODS: dict[str, tuple[Mapping[str, Any], frozenset[Tree]]] = {
    "planned": ({}, ANY_TREE),
    "planned, ranges": ({"objective": "ranges"}, ORDERED),
    "planned, quantiles": ({"objective": "quantiles"}, ORDERED),
    **{f"planned, {level}": ({"level_weights": {level: 1}}, HIERARCHY) for level in LEVELS},
}


def _method(name: str, keys: Mapping[str, Any], trees: frozenset[Tree]) -> Method:
    return Method(
        name=name,
        run=partial(_run, keys),
        quantile_counts=tuple(QUANTILES) if "quantiles" in name else (0,),
        trees=trees,
    )


OURS = tuple(_method(name, *own) for name, own in METHODS.items())


def by_default(task: str) -> str:
    """Return the method for a user who names the task alone.

    >>> by_default("9 quantiles, rank"), by_default("ranges"), by_default("nodes, tract")
    ('planned, quantiles', 'planned, ranges', 'planned, tract')
    """
    if task.startswith("nodes, ") and (level := task.removeprefix("nodes, ")) in LEVELS:
        return f"planned, {level}"
    if "quantiles" in task:
        return "planned, quantiles"
    return "planned, ranges" if task == "ranges" else "planned"
