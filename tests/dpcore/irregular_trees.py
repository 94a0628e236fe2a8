"""What the tests of irregular trees share: random shapes and plans, and the Rhode Island blocks."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree

EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))


def make_plan(
    tree: IrregularTree | Sequence[Sequence[int]], *amounts: Fraction | int, **fields: Any
) -> IrregularPlan:
    """The plan of a tree, or of fan-outs, with these parts of epsilon 1 for its levels."""
    if not isinstance(tree, IrregularTree):
        tree = IrregularTree.from_fanouts(tree)
    given: dict[str, Any] = {"unit": ADD_REMOVE_ROW, "budget": EPSILON}
    if amounts:
        given["level_amounts"] = tuple(map(Fraction, amounts))
    return IrregularPlan(tree=tree, **given | fields)


def random_irregular_tree(
    rng: np.random.Generator, *, height: int = 4, fanout: int = 4, roots: int = 1
) -> IrregularTree:
    """Return a random tree of 1 to ``height`` levels below the root, with single children and
    leaves above the lowest level."""
    sizes, listed = [], roots
    for level in range(int(rng.integers(1, height + 1))):
        children = rng.integers(1, fanout + 1, listed)
        children[rng.random(listed) < 0.3] = 1
        if level > 0:
            children[rng.random(listed) < 0.2] = 0
        sizes.append(children)
        listed = int(children.sum())
    return IrregularTree.from_fanouts(sizes, roots=roots)


def irregular(tree: UniformTree) -> IrregularTree:
    """Return the same tree as an irregular one."""
    return IrregularTree.from_fanouts(
        [
            [len(tree.children(level, node)) for node in range(tree.level_sizes[level])]
            for level in range(tree.height)
        ]
    )


def random_irregular_plan(
    rng: np.random.Generator,
    *,
    tree: IrregularTree | None = None,
    public: bool | None = None,
    budget: Budget = EPSILON,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> IrregularPlan:
    """Unequal levels, some of them not measured; with ``public`` some upper levels are public."""
    tree = tree or random_irregular_tree(rng)
    public_level = int(rng.integers(tree.height)) if public else None
    units = rng.integers(1, 15, tree.height + 1)
    units[:-1][rng.random(tree.height) < 0.3] = 0
    units[: 0 if public_level is None else public_level + 1] = 0
    return IrregularPlan(
        tree=tree,
        unit=SUBSTITUTE_ROW if public else unit,
        budget=budget,
        level_amounts=tuple(budget.amount * Fraction(int(unit), 100) for unit in units),
        public_level=public_level,
    )


def node_variances(plan: IrregularPlan) -> list[np.ndarray[Any, Any]]:
    """The variance of the measurement of every node, one by one from the definition."""
    tree, chains = plan.tree, node_chains(plan.tree)
    spread = []
    for level, size in enumerate(tree.level_sizes):
        row = np.empty(size)
        for node in range(size):
            chain = chains[level][node]
            pooled = range(level - chain, level + 1)
            law = plan.law(level, chain)
            if plan.public_level is not None and pooled[0] <= plan.public_level:
                row[node] = 0
            elif level < tree.height and len(tree.children(level, node)) == 1:
                row[node] = np.inf
            else:
                row[node] = law.variance if law else np.inf
        spread.append(row)
    return spread


def node_chains(tree: IrregularTree) -> list[list[int]]:
    """How many nodes directly above each node have a single child."""
    chains = [[0] * tree.roots]
    for level in range(tree.height):
        row = []
        for node in range(tree.level_sizes[level]):
            children = tree.children(level, node)
            row += [chains[level][node] + 1] if len(children) == 1 else [0] * len(children)
        chains.append(row)
    return chains


@lru_cache
def rhode_island(folder: Path) -> tuple[IrregularTree, np.ndarray[Any, Any]]:
    """The tree of state, county, tract, block group and block; and the blocks' populations."""
    with (folder / "ri_2010_blocks.csv").open(encoding="utf-8") as lines:
        rows = sorted((row["GEOID"], int(row["pop"])) for row in csv.DictReader(lines))
    codes, fanouts = [code for code, _ in rows], []
    for digits in (12, 11, 5, 2):
        codes, sizes = np.unique([code[:digits] for code in codes], return_counts=True)
        fanouts.insert(0, sizes)
    return IrregularTree.from_fanouts(fanouts), np.array([count for _, count in rows])
