"""The error laws are the coefficients with which unit noise comes through the estimators."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.papers.estimator_errors import EstimatorErrors, IndependentErrors
from dptrees.dpcore.papers.forest import independent_estimates
from dptrees.dpcore.papers.honaker import TreeEstimate, estimate_tree
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.error_laws import ErrorLaw
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, TreePlan
from tests.dpcore.conftest import random_plan, random_tree, replace_laws

Coefficients = dict[NoiseLaw, list[float]]


def unit_responses(plan: TreePlan, estimator: Estimator) -> tuple[list[NoiseLaw], TreeEstimate]:
    """The law of every noisy node, and the estimates from one unit in each, a tree for each."""
    tree, sizes = plan.tree, plan.tree.level_sizes
    laws = [law for law, size in zip(plan.laws, sizes, strict=True) if law for _ in range(size)]
    levels: list[Any] = [None] * len(sizes)
    place = 0
    for level, law in enumerate(plan.laws):
        if law:
            levels[level] = np.eye(len(laws))[:, place : place + sizes[level]]
            place += sizes[level]
    total = 0 if plan.public_total else None
    return laws, estimate_tree(estimator, tree, plan.variances, levels, total=total)


def sent_through(laws: list[NoiseLaw], response: Floats) -> Coefficients:
    found: Coefficients = defaultdict(list)
    for law, value in zip(laws, np.abs(response), strict=True):
        if value > 1e-10:
            found[law].append(float(value))
    return {law: sorted(values) for law, values in found.items()}


def law_coefficients(law: ErrorLaw) -> Coefficients:
    found: Coefficients = defaultdict(list)
    for each, value, count in law.terms:
        if abs(value) > 1e-10:
            found[each] += [abs(value)] * count
    return {each: sorted(values) for each, values in found.items()}


def check(law: ErrorLaw, laws: list[NoiseLaw], response: Floats, variance: float | None) -> None:
    found, expected = law_coefficients(law), sent_through(laws, response)
    assert found.keys() == expected.keys()
    for each, values in expected.items():
        np.testing.assert_allclose(found[each], values, atol=1e-9)
    if variance is not None:
        assert law.variance == pytest.approx(variance, rel=1e-8, abs=1e-7)


def check_all(
    errors: EstimatorErrors | IndependentErrors,
    laws: list[NoiseLaw],
    found: TreeEstimate,
    seed: int,
) -> None:
    """The laws of all nodes and prefixes, and of some ranges and sums of ranges."""
    for level, spread in enumerate(found.level_variances):
        for node, variance in enumerate(spread):
            if math.isinf(variance):
                with pytest.raises(ValueError, match="no estimate from above"):
                    errors.node(level, node)
                continue
            check(errors.node(level, node), laws, found.levels[level][:, node], variance)
    for leaf, variance in enumerate(found.prefix_variances):
        response = found.prefixes[:, leaf]
        check(errors.prefix(leaf), laws, response, variance)
        for share in (0.3, 1.0):
            less = response - share * found.prefixes[:, -1]
            check(errors.prefix(leaf, less_total=share), laws, less, None)
    rng, leaves = np.random.default_rng(seed), len(found.prefix_variances)
    before = np.concatenate([np.zeros((len(laws), 1)), found.prefixes], axis=1)
    ends = np.sort(rng.integers(0, leaves + 1, (12, 2))).tolist()
    for start, stop in [*ends, (0, leaves), (0, 0), (leaves, leaves), (0, leaves // 2)]:
        check(errors.range(start, stop), laws, before[:, stop] - before[:, start], None)
    edges = np.unique(rng.integers(0, leaves + 1, 6)).tolist()
    runs = list(zip(edges[::2], edges[1::2], strict=False))
    if runs and isinstance(errors, EstimatorErrors):
        response = sum(before[:, stop] - before[:, start] for start, stop in runs)
        check(errors.sum(runs), laws, np.asarray(response), None)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_errors_are_the_coefficients_of_unit_noise(seed: int, public: bool) -> None:
    rng = np.random.default_rng(seed)
    tree, measure = random_tree(rng, height=3), list(Measure)[seed % 2]
    plan = random_plan(rng, public=public, measure=measure, tree=tree)
    for estimator in Estimator:
        if estimator is Estimator.REFINED and not public:
            continue
        laws, found = unit_responses(plan, estimator)
        check_all(EstimatorErrors(estimator=estimator, plan=plan), laws, found, seed)
    # A range of one node has the node's error where children add up.
    errors = EstimatorErrors(estimator=Estimator.FULL, plan=plan)
    for level, size in enumerate(tree.level_sizes):
        for node in range(size):
            held = tree.leaf_range(level, node)
            variance = errors.range(held.start, held.stop).variance
            expected = errors.node(level, node).variance
            assert variance == pytest.approx(expected, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("public", [False, True])
def test_independent_prefixes(public: bool) -> None:
    rng = np.random.default_rng(2)
    law = DiscreteLaplace(scale=Fraction(7, 2))
    for seed in range(10):
        tree = random_tree(rng, height=3)
        count, total = tree.leaves - public, 0 if public else None
        found = independent_estimates(tree, np.eye(count), law.variance, total=total)
        errors = IndependentErrors(tree=tree, law=law, public_total=public)
        check_all(errors, [law] * count, found, seed)


def binary_plan(height: int, *, leaves: int | None = None) -> TreePlan:
    return TreePlan(
        tree=UniformTree(leaves=leaves or 2**height, fanouts=(2,) * height),
        unit=SUBSTITUTE_ROW,
        budget=Budget(measure=Measure.RHO, amount=Fraction(height)),
        level_amounts=(Fraction(0), *[Fraction(1)] * height),
        public_total=True,
    )


def test_the_largest_tree_has_the_limits_of_the_paper() -> None:
    """2^40 leaves: equation 13's limit, corrected, to twelve digits."""
    plan = binary_plan(40)
    unit = plan.variances[1]
    for estimator, level, limit in [
        (Estimator.NONE, 2, 1.0),
        (Estimator.BELOW, 2, 1 / 2),
        (Estimator.ABOVE, 1, 1 / 3),
        (Estimator.FULL, 2, 5 / 16),
    ]:
        law = EstimatorErrors(estimator=estimator, plan=plan).node(level, 1)
        assert law.variance / unit == pytest.approx(limit, rel=1e-11)


def test_a_wide_trimmed_tree() -> None:
    """A law of the whole is a law of its parts: variances of all prefixes of a larger tree."""
    for estimator in Estimator:
        plan = binary_plan(10, leaves=777)
        errors = EstimatorErrors(estimator=estimator, plan=plan)
        noisy: list[Any] = [None, *[np.zeros(n) for n in plan.tree.level_sizes[1:]]]
        found = estimate_tree(estimator, plan.tree, plan.variances, noisy, total=0)
        for leaf in range(0, 777, 31):
            assert errors.prefix(leaf).variance == pytest.approx(found.prefix_variances[leaf])


def test_intervals_need_no_normal_errors() -> None:
    """A single measurement has its law's own bound; a sum of two, that of the convolution."""
    plan = TreePlan(
        tree=UniformTree(leaves=4, fanouts=(4,)),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        level_amounts=(Fraction(0), Fraction(1)),
    )
    errors, law = EstimatorErrors(estimator=Estimator.NONE, plan=plan), plan.laws[1]
    assert law is not None
    assert errors.node(1, 2).half_width(0.95) == law.bound(0.05)
    one = law.pmf(np.arange(-60, 61))
    both = np.convolve(one, one)
    width = errors.range(1, 3).half_width(0.95)
    within = both[120 - math.floor(width) : 121 + math.floor(width)].sum()
    assert 0.95 <= within < 0.985
    law = DiscreteGaussian(sigma_squared=Fraction(9))
    alone = IndependentErrors(tree=plan.tree, law=law)
    assert alone.prefix(1).half_width(0.95) == law.bound(0.05)


def test_no_noise_no_error() -> None:
    silent = replace_laws(binary_plan(3), lambda law: ZeroNoise())
    for estimator in Estimator:
        errors = EstimatorErrors(estimator=estimator, plan=silent)
        assert errors.node(0, 0).half_width(0.95) == errors.range(2, 7).half_width(0.95) == 0.0
        assert errors.prefix(7).variance == 0.0


def test_refuses() -> None:
    private = TreePlan(
        tree=UniformTree(leaves=4, fanouts=(2, 2)),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        level_amounts=(Fraction(0), Fraction(0), Fraction(1)),
    )
    with pytest.raises(ValueError, match="refined needs a public total"):
        EstimatorErrors(estimator=Estimator.REFINED, plan=private)
    with pytest.raises(ValueError, match="1 of level 1 has no estimate from above"):
        EstimatorErrors(estimator=Estimator.ABOVE, plan=private).node(1, 1)
    law = DiscreteLaplace(scale=Fraction(1))
    for errors in (
        EstimatorErrors(estimator=Estimator.FULL, plan=private),
        IndependentErrors(tree=private.tree, law=law),
    ):
        for level, node in ((-1, 0), (3, 0), (1, -1), (1, 2)):
            with pytest.raises(ValueError, match="is not in the tree"):
                errors.node(level, node)
        for leaf in (-1, 4):
            with pytest.raises(ValueError, match="is not from 0 to 3"):
                errors.prefix(leaf)
        for start, stop in ((-1, 2), (3, 2), (0, 5)):
            with pytest.raises(ValueError, match="is not within 0 to 4"):
                errors.range(start, stop)
