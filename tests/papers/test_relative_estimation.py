"""Estimation: the budget's series, the thresholds, group privacy, and accuracy end to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from benchmarks.papers.relative_estimation import Estimation, estimate, smallest_threshold
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.truncated_laplace import truncated_laplace
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.units import bounded_unit


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


def test_the_printed_series_overspends() -> None:
    """eps_i = (eps / C) i r^(i-1) with r > 1: a few rounds cost more than the budget."""
    r = float(estimation().ratio)
    printed_c = (1 - r) ** -2  # of the divergent sum
    assert sum(i * r ** (i - 1) / printed_c for i in range(1, 11)) > 10


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


def test_the_papers_closed_form_needs_more() -> None:
    alpha, epsilon, delta, depth, eta = 0.5, 1.0, 1e-6, 20, 1 / 400
    logs = max(8 * math.log(4 * depth / eta), math.log(1 + 2 * math.expm1(epsilon / 4) / delta))
    printed = 324 * (1 + alpha) ** 2 / (alpha**4 * epsilon) * logs
    corrected = printed * (1 + 2 * alpha / 3) ** 2
    least = smallest_threshold(
        depth=20,
        alpha=Fraction(1, 2),
        epsilon=Fraction(1),
        delta=Fraction(1, 10**6),
        eta=Fraction(1, 400),
    )
    assert printed == pytest.approx(967_992, rel=1e-4)
    assert corrected == pytest.approx(1_720_875, rel=1e-4)
    assert least == pytest.approx(497_647, rel=1e-4)
    assert least < corrected


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


def test_the_roots_bound_is_never_below_its_count_and_has_the_stated_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parameters, runs, weight = estimation(epsilon=Fraction(2), delta=Fraction(1, 50)), 4000, 7
    radius = parameters.root_noise.radius
    bounds: list[int] = []
    reduction = Estimation.reduction

    def spy(self: Estimation, root_bound: int) -> object:
        bounds.append(root_bound)
        return reduction(self, root_bound)

    monkeypatch.setattr(Estimation, "reduction", spy)
    for run in range(runs):
        counts = np.array([weight])
        estimate(UniformTree(leaves=1, fanouts=()), counts, parameters, public_stream("root", run))
    assert weight <= min(bounds) and max(bounds) <= weight + 2 * radius
    x = np.arange(-radius, radius + 1)
    observed = np.bincount(np.array(bounds) - weight, minlength=2 * radius + 1)

    def p_value(scale: float) -> float:
        expected = np.exp(-np.abs(x) / scale)
        return float(stats.chisquare(observed, expected * runs / expected.sum()).pvalue)

    assert p_value(1.0) > 1e-6
    assert p_value(0.7) < 1e-6


@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(3)])
def test_group_privacy_by_enumeration(rows: int, unit: PrivacyUnit, epsilon: Fraction) -> None:
    group = GroupPrivacy(epsilon=epsilon, delta=Fraction(1, 10**4), unit=bounded_unit(unit, rows))
    steps = 2 * rows if unit == SUBSTITUTE_ROW else rows
    assert group.row_epsilon * steps == epsilon
    series = sum(math.exp(j * group.row_epsilon) for j in range(steps))
    assert float(group.row_delta) * series == pytest.approx(1e-4, rel=1e-9)
    assert float(group.row_delta) * series <= 1e-4 * (1 + 1e-12)
    # A count that moves by all the rows at once is the worst case, exactly.
    law = truncated_laplace(group.row_epsilon, group.row_delta)
    assert law.delta(epsilon, sensitivity=steps) <= group.delta
    planted = truncated_laplace(group.row_epsilon, 2 * group.row_delta * series)
    if steps > 1:
        assert planted.delta(epsilon, sensitivity=steps) > group.delta


def test_one_row_added_is_the_row_itself() -> None:
    group = GroupPrivacy(epsilon=Fraction(1), delta=Fraction(1, 7), unit=ADD_REMOVE_ROW)
    assert group.row_epsilon == 1
    assert Fraction(1, 7) * (1 - Fraction(1, 2**38)) < group.row_delta <= Fraction(1, 7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: estimation(factor=0.99), "tau_min is .* must be at least"),
        (lambda: estimation(depth=0), "depth is 0"),
        (lambda: estimation(alpha=Fraction(1)), "alpha is 1"),
        (lambda: estimation(alpha=Fraction(0)), "alpha is 0"),
        (lambda: estimation(eta=Fraction(1, 2)), "eta is 1/2"),
        (lambda: estimation(epsilon=Fraction(0)), "epsilon is 0"),
        (lambda: estimation(delta=Fraction(1)), "delta is 1"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
