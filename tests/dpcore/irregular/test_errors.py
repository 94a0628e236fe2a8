"""The laws of irregular trees' errors equal unit noise sent through the estimator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.irregular import error_laws
from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.trees.error_laws import ErrorLaw, MergedLaw, noise_cumulant
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular_trees import (
    EPSILON,
    RHO,
    make_plan,
    node_chains,
    node_variances,
    random_irregular_plan,
    random_irregular_tree,
)

Array = np.ndarray[Any, Any]


def random_plans(count: int, *, seed: int = 0) -> Iterator[IrregularPlan]:
    for trial in range(count):
        rng = np.random.default_rng([seed, trial])
        yield random_irregular_plan(
            rng, public=trial % 2 == 1, budget=(EPSILON, RHO)[trial % 3 > 0]
        )


def responses(plan: IrregularPlan) -> tuple[list[Any], list[Array]]:
    """The laws of all measurements; and per level (measurements, n_l) what noise of one row in each
    adds to the estimates."""
    tree, chains = plan.tree, node_chains(plan.tree)
    variances = node_variances(plan)
    shape: Any = tree
    weights = estimation_weights(shape, variances)
    measured = [
        (level, node)
        for level, row in enumerate(variances)
        for node in range(row.size)
        if 0 < row[node] < np.inf
    ]
    noise = [np.zeros((len(measured), size)) for size in tree.level_sizes]
    for number, (level, node) in enumerate(measured):
        noise[level][number, node] = 1.0
    laws = [plan.law(level, chains[level][node]) for level, node in measured]
    return laws, estimate_down(weights, estimate_up(weights, noise))


def as_rows(laws: Any, coefficients: Array, counts: Array) -> Array:
    """(terms, 2) of a number for the law and the size, sorted, each term once per variable."""
    names = np.array([hash(law) % 2**31 for law in laws], dtype=float)
    rows = np.repeat(np.stack([names, np.abs(coefficients)], axis=1), counts, axis=0)
    rows = rows[rows[:, 1] > 1e-9]
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def level_laws(law: ErrorLaw) -> Array:
    laws, sizes, counts = zip(*law.terms, strict=True) if law.terms else ((), (), ())
    return as_rows(laws, np.array(sizes), np.array(counts, dtype=int))


def test_the_coefficients_are_those_of_unit_noise_sent_through_the_estimator() -> None:
    seen = 0
    for plan in random_plans(40):
        laws, estimates = responses(plan)
        errors = IrregularErrors(plan)
        for level, size in enumerate(plan.tree.level_sizes):
            for node in range(0, size, 1 + size // 12):
                law = errors.node(level, node)
                expected = as_rows(laws, estimates[level][:, node], np.ones(len(laws), dtype=int))
                found = level_laws(law.law)
                assert law.difference == 0
                np.testing.assert_array_equal(found[:, 0], expected[:, 0])
                np.testing.assert_allclose(found[:, 1], expected[:, 1], rtol=1e-9, atol=1e-10)
                seen += expected.shape[0]
    assert seen > 1000


def test_moments_are_those_of_the_laws_and_variances_are_g() -> None:
    for plan in random_plans(60, seed=1):
        tree, shape = plan.tree, plan.tree
        anything: Any = shape
        weights = estimation_weights(anything, node_variances(plan))
        spread = weights.variances(float(weights.below[0][0]))
        errors = IrregularErrors(plan)
        for level, size in enumerate(tree.level_sizes):
            moments = errors.moments(level)
            rows = np.stack([moments.variance, moments.fourth, moments.sixth])
            if level == tree.height:
                rows = np.repeat(rows, tree.fanouts[-1], axis=1)
            np.testing.assert_allclose(rows[0], spread[level], rtol=1e-9, atol=1e-9)
            for node in range(0, size, 1 + size // 12):
                law = errors.node(level, node).law
                assert law.variance == pytest.approx(spread[level][node], rel=1e-9, abs=1e-9)
                for power, value in zip((2, 4, 6), rows[:, node], strict=True):
                    summed = sum(n * c**power * noise_cumulant(x, power) for x, c, n in law.terms)
                    assert value == pytest.approx(summed, rel=1e-9, abs=1e-9)


def test_cumulants_of_the_noise() -> None:
    k = np.arange(-300, 301)
    for law in (
        DiscreteLaplace(scale=Fraction(1, 3)),
        DiscreteLaplace(scale=Fraction(7, 2)),
        DiscreteGaussian(sigma_squared=Fraction(1, 4)),
        DiscreteGaussian(sigma_squared=Fraction(5)),
    ):
        second, fourth, sixth = (float(law.pmf(k) @ k ** float(power)) for power in (2, 4, 6))
        assert noise_cumulant(law, 2) == pytest.approx(second)
        assert noise_cumulant(law, 4) == pytest.approx(fourth - 3 * second**2, rel=1e-7, abs=1e-9)
        expected = sixth - 15 * fourth * second + 30 * second**3
        assert noise_cumulant(law, 6) == pytest.approx(expected, rel=1e-7, abs=1e-6)


# --- merged laws ----------------------------------------------------------------------------------


def wide_plan(seed: int, budget: Any = EPSILON) -> IrregularPlan:
    rng = np.random.default_rng(seed)
    tree = IrregularTree.from_fanouts(
        [np.array([1])] * (seed % 2) + [np.array([6])] + [rng.integers(1, 9, 6)]
    )
    for _ in range(2):
        sizes = [*tree.fanouts, rng.integers(1, 9, tree.leaves)]
        tree = IrregularTree.from_fanouts(sizes)
    return random_irregular_plan(rng, tree=tree, budget=budget)


@pytest.mark.parametrize("seed", range(6))
def test_merged_laws_differ_by_what_they_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, merged, and merged with the first siblings apart; all of one variance; the merged
    transform is within E|D t| of the exact one, and intervals are hardly wider."""
    plan = wide_plan(seed, (EPSILON, RHO)[seed % 2])
    exact = IrregularErrors(plan)
    nodes = [(level, size // 2) for level, size in enumerate(plan.tree.level_sizes)]
    expected = [exact.node(*each) for each in nodes]
    assert all(law.difference == 0 for law in expected)
    monkeypatch.setattr(error_laws, "_MOST_GROUPS", 60)
    monkeypatch.setattr(error_laws, "_COARSE_GROUPS", 12)
    monkeypatch.setattr(error_laws, "_FEW", 0)
    differences = []
    for large in (10**9, 0):
        monkeypatch.setattr(error_laws, "_LARGE", large)
        for each, law in zip(nodes, expected, strict=True):
            merged = IrregularErrors(plan).node(*each)
            assert merged.variance == pytest.approx(law.variance, rel=1e-9)
            assert merged.difference_fourth >= merged.difference**2
            t = np.linspace(0.0, 3.0, 40) / np.sqrt(law.variance)
            apart = merged.law.characteristic_function(t) - law.law.characteristic_function(t)
            # |E cos(t(M + D)) - E cos(tM)| <= t E|D|
            assert (np.abs(apart) <= t * np.sqrt(merged.difference) + 1e-7).all()
            assert merged.half_width(0.95) >= law.half_width(0.95) * 0.99
            assert merged.difference < 0.01 * law.variance
            differences.append(merged.difference)
    assert max(differences) > 0


def test_merging_into_the_usual_groups_changes_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_laws, "_FEW", 0)
    for seed in range(6):
        plan = wide_plan(seed, (EPSILON, RHO)[seed % 2])
        errors = IrregularErrors(plan)
        for level, size in enumerate(plan.tree.level_sizes):
            law = errors.node(level, size // 2)
            assert law.difference < 1e-6 * law.variance


def test_the_allowance_covers_a_difference_that_is_known() -> None:
    """Two variables of coefficients 1.01 and 0.99 merged into one size; exact by convolution."""
    law = DiscreteLaplace(scale=Fraction(30))
    terms = ((law, 1.01, 1), (law, 0.99, 1))
    size = float(np.sqrt((1.01**2 + 0.99**2) / 2))
    off = np.array([1.01 - size, 0.99 - size])
    second = float((off**2).sum()) * law.variance
    fourth = 3 * second**2 + float((off**4).sum()) * noise_cumulant(law, 4)
    merged = MergedLaw(
        law=ErrorLaw(terms=((law, size, 2),)), difference=second, difference_fourth=fourth
    )
    k = np.arange(-900, 901)
    pmf = law.pmf(k)
    error = np.abs(1.01 * k[:, None] + 0.99 * k)
    for confidence in (0.5, 0.9, 0.99, 0.9999):
        width = merged.half_width(confidence)
        assert float((pmf[:, None] * pmf)[error <= width].sum()) >= confidence - 1e-9
        assert width >= ErrorLaw(terms=terms).half_width(confidence) * 0.98
    with pytest.raises(ValueError, match="confidence"):
        merged.half_width(0.99999)


def test_one_node_and_no_node() -> None:
    errors = IrregularErrors(make_plan(IrregularTree(child_starts=()), 1))
    assert errors.node(0, 0).law.terms == ((DiscreteLaplace(scale=Fraction(1)), 1.0, 1),)
    assert errors.moments(0).variance[0] == pytest.approx(errors.node(0, 0).variance)
    for level, node in itertools.product((-1, 0, 1), (-1, 1)):
        with pytest.raises(ValueError, match="has no node"):
            errors.node(level, node)


def test_a_wrong_gain_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance, and so the tests above, move with coefficients that are 1 % off."""
    plan = random_irregular_plan(
        np.random.default_rng(3), tree=random_irregular_tree(np.random.default_rng(5))
    )
    errors = IrregularErrors(plan)
    node = (plan.tree.height, 0)
    before = errors.node(*node).variance
    errors = IrregularErrors(plan)
    errors.__dict__["_gains"] = [0.99 * gain for gain in errors._gains]
    assert errors.node(*node).variance != pytest.approx(before, rel=1e-9)


def test_siblings_taken_apart_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in random_plans(60, seed=2):
        nodes = [(level, size - 1) for level, size in enumerate(plan.tree.level_sizes)]
        monkeypatch.setattr(error_laws, "_LARGE", 10**9)
        whole = [IrregularErrors(plan).node(*each) for each in nodes]
        monkeypatch.setattr(error_laws, "_LARGE", 0)
        for each, law in zip(nodes, whole, strict=True):
            apart = IrregularErrors(plan).node(*each)
            assert apart.variance == pytest.approx(law.variance, rel=1e-9, abs=1e-9)
            kurtosis = law.law.fourth_cumulant
            assert apart.law.fourth_cumulant == pytest.approx(kurtosis, rel=1e-6, abs=1e-8)
