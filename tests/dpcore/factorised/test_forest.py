"""Trees measured by strategies: exact where there is no noise, errors as stated, noise drawn once.

Statistical limits have a false-alarm probability of at most 1e-6, and planted errors are found out:
noise that is 30 % too small, a budget that is counted twice.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.mechanism import FactorizedForest
from dptrees.dpcore.factorised.optimum import Read
from dptrees.dpcore.factorised.plan import FactorizedErrors, FactorizedPlan
from dptrees.dpcore.factorised.strategies import (
    MatrixStrategy,
    ToeplitzStrategy,
    best_strategy,
    listed_tree,
)
from dptrees.dpcore.noise.laws import DiscreteGaussian, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.forests import PrefixSolution
from tests.dpcore.cases import for_each

CELLS, COPIES = 37, 4000
FALSE_ALARM = 1e-6
STRATEGIES = [ToeplitzStrategy.from_size(CELLS), best_strategy(CELLS, Read(kind="cdf"))]
BOTH = pytest.mark.parametrize("strategy", STRATEGIES, ids=["toeplitz", "best"])
PUBLIC = for_each("public", [False, True])


def make_plan(
    strategy: MatrixStrategy, *, public: bool = False, keyed: bool = True
) -> FactorizedPlan:
    return FactorizedPlan(
        tree=listed_tree(strategy.leaves),
        unit=SUBSTITUTE_ROW if public else ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.RHO, amount=Fraction(1, 8)),
        strategy=strategy,
        public_total=public,
        keyed=keyed,
    )


def planted(plan: FactorizedPlan, law: object) -> FactorizedPlan:
    """The plan with noise of another law."""
    made = replace(plan)
    made.__dict__["law"] = law
    return made


def source(number: int = 0) -> NoiseSource:
    return NoiseSource(
        key=ReleaseKey(bytes([number] * 32)),
        release="r",
        spec_digest=b"s",
        global_digest=b"g",
    )


def solved(
    plan: FactorizedPlan, counts: Integers, number: int = 0
) -> tuple[list[Floats], PrefixSolution, list[Integers]]:
    """Estimates and counts per level, and prefixes, of trees that share one chunk."""
    forest = FactorizedForest(plan, keys=len(counts), chunk_leaves=counts.size)
    (chunk,) = forest.chunking
    measured = forest.measure("t", chunk, counts.ravel(), source(number))
    roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, counts.ravel())
    solutions, above = forest.solve_spine("t", 0, roots, totals, source(number))
    assert not above
    levels, prefixes = forest.solve(chunk, measured, solutions)
    return [each.estimate for each in levels], prefixes, [each.count for each in levels]


def some_counts(trees: int) -> Integers:
    return np.random.default_rng(5).integers(0, 500, (trees, CELLS))


@BOTH
@PUBLIC
def test_without_noise_all_is_exact(strategy: MatrixStrategy, public: bool) -> None:
    counts = some_counts(1)
    plan = planted(make_plan(strategy, public=public, keyed=False), ZeroNoise())
    levels, prefixes, whole = solved(plan, counts)
    tree = plan.tree
    for level, (estimate, count) in enumerate(zip(levels, whole, strict=True)):
        expected = tree.level_counts(counts)[level]
        assert np.allclose(estimate, expected, atol=1e-6) and (count == expected).all()
    assert (prefixes.count == np.cumsum(counts, axis=1)).all()


@BOTH
@PUBLIC
def test_counts_are_nonnegative_and_add_up(strategy: MatrixStrategy, public: bool) -> None:
    counts = some_counts(1) // 100
    plan = make_plan(strategy, public=public, keyed=False)
    _, prefixes, whole = solved(plan, counts)
    assert min(each.min() for each in whole) >= 0
    for level in range(plan.tree.height):
        assert (plan.tree.child_sum(level, whole[level + 1]) == whole[level]).all()
    assert (prefixes.count[:, -1:] == whole[0]).all()
    assert not public or whole[0].item() == counts.sum()


@BOTH
def test_a_public_total_is_exact_and_its_errors_are_those_of_dense_algebra(
    strategy: MatrixStrategy,
) -> None:
    plan = make_plan(strategy, public=True, keyed=False)
    errors = FactorizedErrors(plan)
    inverse = np.linalg.inv(strategy.dense().astype(float))
    covariance = inverse @ inverse.T * plan.law.variance
    ones = np.ones(CELLS)
    covariance -= np.outer(covariance @ ones, covariance @ ones) / (ones @ covariance @ ones)
    prefixes = np.tril(np.ones((CELLS, CELLS)))
    expected = np.einsum("ij,jk,ik->i", prefixes, covariance, prefixes)
    assert np.allclose(errors.prefixes, expected, atol=1e-6)
    assert errors.total == 0 and errors.levels[0] == pytest.approx(0, abs=1e-6)
    runs = [(2, 5), (9, 30)]
    weights = prefixes[4] - prefixes[1] + prefixes[29] - prefixes[8]
    assert errors.runs(runs) == pytest.approx(weights @ covariance @ weights)


class Deviations:
    """Errors of many trees in standard errors that the plan states."""

    def __init__(
        self, strategy: MatrixStrategy, *, small: bool = False, twice: bool = False
    ) -> None:
        plan = make_plan(strategy)
        variance = Fraction(plan.law.sigma_squared)  # type: ignore[attr-defined]
        law = DiscreteGaussian(
            sigma_squared=variance * (Fraction(49, 100) if small else 1) / (2 if twice else 1)
        )
        counts = some_counts(1).repeat(COPIES, axis=0)
        levels, prefixes, _ = solved(planted(plan, law), counts)
        errors = FactorizedErrors(plan)
        truth = np.cumsum(counts, axis=1)
        self.prefixes = (prefixes.estimate - truth) / np.sqrt(errors.prefixes)
        self.leaves = (levels[-1] - counts) / np.sqrt(errors.levels[-1])
        self.middle = (levels[1] - plan.tree.level_counts(counts)[1]) / np.sqrt(errors.levels[1])

    def fit(self) -> bool:
        """Whether means, variances and coverage of all of them are as stated."""
        each = [column for kind in (self.prefixes, self.leaves, self.middle) for column in kind.T]
        chance = FALSE_ALARM / len(each) / 3
        far = stats.norm.isf(chance / 2)
        spread = stats.chi2.ppf([chance / 2, 1 - chance / 2], COPIES) / COPIES
        outside = stats.binom.ppf([chance / 2, 1 - chance / 2], COPIES, 0.05)
        return all(
            abs(column.mean()) * COPIES**0.5 < far
            and spread[0] < (column**2).mean() < spread[1]
            and outside[0] <= (abs(column) > stats.norm.ppf(0.975)).sum() <= outside[1]
            for column in each
        )


@BOTH
def test_errors_are_as_stated(strategy: MatrixStrategy) -> None:
    assert Deviations(strategy).fit()


@BOTH
@pytest.mark.parametrize("planted_error", ["small", "twice"])
def test_planted_errors_are_found(strategy: MatrixStrategy, planted_error: str) -> None:
    assert not Deviations(strategy, **{planted_error: True}).fit()


@BOTH
def test_noise_is_drawn_once(strategy: MatrixStrategy) -> None:
    counts, plan = some_counts(3), make_plan(strategy)
    once, again, other = (solved(plan, counts, number)[1].estimate for number in (0, 0, 1))
    assert (once == again).all() and not (once == other).any()


def test_plans_that_cannot_be_are_refused() -> None:
    plan = make_plan(STRATEGIES[0])
    with pytest.raises(ValueError, match="spend a rho"):
        replace(plan, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    with pytest.raises(ValueError, match="cells for"):
        replace(plan, tree=listed_tree(CELLS + 1))
    with pytest.raises(ValueError, match="public only under substitute"):
        replace(plan, public_total=True)
    with pytest.raises(ValueError, match=r"at most 2\^80"):
        _ = replace(plan, budget=Budget(measure=Measure.RHO, amount=Fraction(1, 10**26))).law
