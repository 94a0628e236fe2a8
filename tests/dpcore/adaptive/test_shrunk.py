"""Shrunk counts of adaptive trees, against a recursion over the released estimates."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dptrees.dpcore.adaptive.drawn_trees import DrawnLevel
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Consistency, TreeSetting


def make_plan(*, public: bool) -> AdaptivePlan:
    setting = TreeSetting(
        leaves=60,
        unit=SUBSTITUTE_ROW if public else ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        public_total=public,
    )
    return plan_adaptive(setting, counts=True, shrunk=True, fanouts=(4, 15))


def drawn(plan: AdaptivePlan, exact: np.ndarray, number: int) -> list[np.ndarray | None]:
    """The noisy numbers of all levels."""
    forest = AdaptiveForest(plan)
    (chunk,) = forest.chunking
    return forest.measure("t", chunk, exact, make_noise(number))


def make_noise(number: int) -> NoiseSource:
    key = ReleaseKey(number.to_bytes(32, "big"))
    return NoiseSource(key=key, release="t", spec_digest=b"", global_digest=b"")


def solved(plan: AdaptivePlan, exact: np.ndarray, number: int) -> list[DrawnLevel]:
    forest, noise = AdaptiveForest(plan), make_noise(number)
    (chunk,) = forest.chunking
    measured = drawn(plan, exact, number)
    roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
    found, _ = forest.solve_spine("t", chunk.key, roots, totals, noise)
    return forest.solve(chunk, measured, found)[0]


@pytest.mark.parametrize("public", [False, True])
def test_shrinking_changes_neither_the_noise_nor_the_estimates(*, public: bool) -> None:
    """It is post-processing: all that is drawn and the estimates are the same bytes."""
    plan, changed = make_plan(public=public), False
    other = replace(plan, consistency=Consistency.TOP_DOWN)
    exact = np.random.default_rng(5).poisson(3.0, 60)
    for number in range(5):
        for mine, theirs in zip(
            drawn(plan, exact, number), drawn(other, exact, number), strict=True
        ):
            assert (mine is None) is (theirs is None)
            assert mine is None or theirs is None or mine.tobytes() == theirs.tobytes()
        for ours, their in zip(
            solved(plan, exact, number), solved(other, exact, number), strict=True
        ):
            assert ours.estimate.tobytes() == their.estimate.tobytes()
            assert ours.variance.tobytes() == their.variance.tobytes()
            assert (ours.ended == their.ended).all()
            changed |= bool((ours.count != their.count).any())
    assert changed


def closest_rising(values: np.ndarray) -> np.ndarray:
    """By the formula of minima and maxima of means, with no pooling."""
    n = len(values)
    means = [
        max(min(values[a : b + 1].mean() for b in range(i, n)) for a in range(i + 1))
        for i in range(n)
    ]
    return np.maximum(np.array(means), 0.0)


@pytest.mark.parametrize("public", [False, True])
def test_counts_follow_the_rule_and_add_up(*, public: bool) -> None:
    """The first level has the closest rising prefixes; below, children alike are drawn to an even
    split by the formula of `dpcore.trees.isotonic`; within the rounding to whole rows."""
    plan, shrunk = make_plan(public=public), 0
    exact = np.zeros(60, dtype=np.int64)
    exact[[3, 4, 20, 40]] = 30, 25, 200, 12
    for number in range(40):
        levels = solved(plan, exact, number)
        counts = [level.count[0] for level in levels]
        assert min(each.min() for each in counts) >= 0
        for above, below in pairwise(counts):
            size = len(below) // len(above)
            assert (below.reshape(-1, size).sum(axis=1) == above).all()
        prefixes = np.cumsum(levels[1].estimate[0])
        rising = closest_rising(prefixes[:-1] if public else prefixes)
        if public:
            rising = np.append(np.minimum(rising, 267), 267)
        assert np.abs(np.cumsum(counts[1]) - rising).max() <= 0.5 + 1e-5
        for node in np.flatnonzero(levels[1].ended[0] < 0):
            own = slice(15 * node, 15 * node + 15)
            total, estimate = counts[1][node], levels[2].estimate[0, own]
            low, high = estimate.min() - total, estimate.max()
            for _ in range(100):  # the share that is taken off, by halving
                middle = (low + high) / 2
                if np.maximum(0, estimate - middle).sum() > total:
                    low = middle
                else:
                    high = middle
            share = np.maximum(0, estimate - low)
            apart = share - total / 15
            noise = 0.5 * (1 + (share > 1e-9).sum()) * plan.class_variances[2][0]
            kept = (apart**2).sum() / ((apart**2).sum() + noise) if total else 0.0
            assert np.abs(counts[2][own] - (total / 15 + kept * apart)).max() < 1 + 1e-6
            shrunk += bool(total)
    assert shrunk > 40  # nodes of many rows were split in most releases


def test_a_plan_says_how_its_counts_are_repaired_and_older_ones_are_top_down() -> None:
    plan = make_plan(public=False)
    mechanism = AdaptiveMechanism(plan=plan)
    spec = mechanism.spec()
    assert spec["consistency"] == "shrunk"
    terms = {"unit": plan.unit, "keyed": False, "measure": Measure.EPSILON}
    assert AdaptiveMechanism.from_spec(spec, **terms) == mechanism
    del spec["consistency"]
    older = AdaptiveMechanism.from_spec(spec, **terms)
    assert older.plan.consistency is Consistency.TOP_DOWN
    assert "consistency" not in older.spec()


def test_other_counts_are_refused() -> None:
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    parts = (Fraction(1, 2), Fraction(1, 2))
    for amounts, consistency in ((parts, Consistency.SHRUNK), ((0, 1), Consistency.L2)):
        with pytest.raises(ValueError, match=r"^consistency: top_down, or shrunk"):
            AdaptivePlan(
                tree=UniformTree(leaves=4, fanouts=(4,)),
                unit=ADD_REMOVE_ROW,
                budget=budget,
                level_amounts=tuple(map(Fraction, amounts)),
                thresholds=(0,),
                consistency=consistency,
            )
