"""Estimation: the budget's series, the thresholds, group privacy, and accuracy end to end."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.papers.ghazi import Estimation, estimate, smallest_threshold
from dptrees.dpcore.trees.shapes import UniformTree


def estimation(
    *,
    depth: int = 4,
    alpha: Fraction = Fraction(1, 2),
    epsilon: Fraction = Fraction(1),
    delta: Fraction = Fraction(1, 10**6),
    eta: Fraction = Fraction(1, 400),
    factor: float = 1.0,
) -> Estimation:
    least = smallest_threshold(depth=depth, alpha=alpha, epsilon=epsilon, delta=delta, eta=eta)
    return Estimation(
        depth=depth,
        alpha=alpha,
        epsilon=epsilon,
        delta=delta,
        eta=eta,
        tau_min=Fraction(math.ceil(least * factor)),
    )


CASES = [
    {"alpha": Fraction(1, 20), "depth": 1},
    {"alpha": Fraction(3, 10), "epsilon": Fraction(1, 100), "delta": Fraction(1, 10**12)},
    {"alpha": Fraction(1, 2), "depth": 20},
    {"alpha": Fraction(9, 10), "epsilon": Fraction(10), "delta": Fraction(1, 10)},
    {"alpha": Fraction(99, 100), "epsilon": Fraction(3), "eta": Fraction(2, 5)},
]


@pytest.mark.parametrize("case", CASES)
def test_the_rounds_spend_half_of_the_budget_and_no_more(case: dict) -> None:
    parameters = estimation(**case)
    steps = [parameters.step(i) for i in range(1, 61)]
    # What is left of sum i x^(i-1) / C after n terms, x = 1/r, is x^n (1 + n (1 - x)).
    x = 1 / parameters.ratio
    left = x**60 * (1 + 60 * (1 - x))
    for name in ("epsilon", "delta"):
        half = getattr(parameters, name) / 2
        spent = sum(getattr(step, name) for step in steps)
        assert spent + left * half <= half
        assert spent + left * half > half * (1 - Fraction(1, 10**9))
    assert sum(step.eta for step in steps) < parameters.eta
    noise = parameters.root_noise
    assert noise.scale == 2 / parameters.epsilon
    assert noise.delta(parameters.epsilon / 2) <= parameters.delta / 2


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_threshold_is_enough_and_hardly_too_much(case: dict) -> None:
    parameters = estimation(**case)
    for i in range(1, 40):
        step = parameters.step(i)
        step.check_accuracy()
        assert step.cutoff == 2
        assert step.acceptance > step.noise.radius
    # Nearly sharp where noises are wide; 4 units of rounding else.
    planted = replace(parameters)
    planted.__dict__["tau_min"] = parameters.tau_min * Fraction(9, 10)
    with pytest.raises(ValueError, match="Delta"):
        planted.step(1).check_accuracy()


def test_the_rounds_reach_the_roots_bound() -> None:
    parameters = estimation()
    least = math.floor(parameters.alpha * parameters.tau_min)
    assert parameters.reduction(least).steps == ()
    one = parameters.reduction(least + 1)
    assert len(one.steps) == 1
    many = parameters.reduction(100 * least)
    assert many.steps[-2].root_bound < 100 * least <= many.steps[-1].root_bound
    assert many.epsilon <= parameters.epsilon / 2 and many.delta <= parameters.delta / 2
    for below, step in zip(
        [many.least, *(s.root_bound for s in many.steps)], many.steps, strict=False
    ):
        assert below == (1 + parameters.beta) * step.tau
        assert step.root_bound == (1 + parameters.alpha) * (1 - parameters.beta) * step.tau


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1000)])
def test_estimates_are_within_alpha(epsilon: Fraction) -> None:
    parameters = estimation(epsilon=epsilon, eta=Fraction(1, 10**9))
    tree = UniformTree(leaves=15, fanouts=(2, 2, 4))
    tau = float(parameters.tau_min)
    rng = np.random.default_rng(1)
    for trial in range(4):
        counts = (tau * np.exp(rng.normal(0, 3, tree.leaves))).astype(np.int64)
        counts[rng.random(tree.leaves) < 0.3] = 0
        estimates = estimate(tree, counts, parameters, public_stream("estimate", trial))
        for got, weight in zip(estimates, tree.level_counts(counts), strict=True):
            assert np.all(np.abs(got - weight) <= 0.5 * np.maximum(weight, tau))
    again = estimate(tree, counts, parameters, public_stream("estimate", 3))
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(estimates))
