"""Tiny tables, their plans and their noise, for tests of wide tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape

SHAPE = TableShape(sizes=(6, 3, 4, 5), ordered=(True, False, False, True))


def count_rows(shape: TableShape, columns: Sequence[Integers]) -> Integers:
    """(length,) all counters of some rows.

    >>> count_rows(TableShape(sizes=(2, 2)), [np.array([0, 1, 1]), np.array([1, 1, 0])]).tolist()
    [1, 2, 1, 2, 0, 1, 1, 1]
    """
    parts = [
        np.bincount(column, minlength=size)
        for column, size in zip(columns, shape.sizes, strict=True)
    ]
    for first, second in shape.pairs:
        width = shape.sizes[second]
        codes = columns[first] * width + columns[second]
        parts.append(np.bincount(codes, minlength=shape.sizes[first] * width))
    return np.concatenate(parts)


def make_plan(
    amount: Fraction | int = 1,
    measure: Measure = Measure.EPSILON,
    shape: TableShape = SHAPE,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> MarginalsPlan:
    """The plan by rule."""
    budget = Budget(measure=measure, amount=Fraction(amount))
    return MarginalsPlan.planned(shape=shape, unit=unit, budget=budget)


def former_plan(plan: MarginalsPlan) -> MarginalsPlan:
    """The plan by the rule of before decision 0063."""
    amount, tree = plan.budget.amount, plan.shape.columns - 1
    further = [(2_000, tree, Fraction(9, 20), 3), (20_000, 2 * tree, Fraction(3, 5), 4)]
    names = ("least_rows", "further_pairs", "further_part", "clique_columns")
    designs = (PairDesign(**dict(zip(names, each, strict=True))) for each in further)
    return replace(
        plan,
        column_amount=amount * Fraction(2, 5) / plan.shape.columns,
        choice_amount=amount / 20,
        pair_amount=amount * Fraction(11, 20),
        designs=(PairDesign(least_rows=0), *designs),
        column_parts=(),
    )


def make_source(number: int = 0, digest: bytes = b"") -> NoiseSource:
    """Noise of a numbered key."""
    key = ReleaseKey(number.to_bytes(32, "big"))
    return NoiseSource(key=key, release="r", spec_digest=b"", global_digest=digest)


def chained_rows(rows: int = 20_000, seed: int = 1) -> list[Integers]:
    """Cells of rows whose columns depend on each other: 0 on 1, 1 on 2, 3 on both 0 and 2."""
    rng = np.random.default_rng(seed)
    third = rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    second = np.where(rng.random(rows) < 0.8, third % 3, rng.integers(0, 3, rows))
    first = np.clip(second * 2 + rng.integers(0, 2, rows), 0, 5)
    last = np.where(rng.random(rows) < 0.6, (first + third) % 5, rng.integers(0, 5, rows))
    return [first, second, third, last]
