"""Errors have the stated laws: by convolution, by propagation of unit noise, and by variance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.trees.error_laws import ErrorLaw, clipped_intervals, prefix_margin
from dptrees.dpcore.trees.estimation import (
    estimation_weights,
    prefix_weights,
)
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.intervals import interval_widths
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.cases import for_each
from tests.dpcore.tree_runs import unit_responses
from tests.dpcore.tree_settings import PUBLIC, ROWS, planned_tree, tree_plan
from tests.processor import takes_less


def laplace(scale: Fraction | int | str) -> DiscreteLaplace:
    return DiscreteLaplace(scale=Fraction(scale))


def gaussian(sigma_squared: Fraction | int | str) -> DiscreteGaussian:
    return DiscreteGaussian(sigma_squared=Fraction(sigma_squared))


# (law, whole steps of the lattice, multiplicity), steps to a row
LATTICES: list[tuple[list[tuple[NoiseLaw, int, int]], int]] = [
    ([(laplace(1), 1, 2)], 1),
    ([(laplace(3), 1, 5)], 1),
    ([(laplace(4), 3, 1), (laplace(4), -1, 3)], 4),
    ([(laplace("1/2"), 2, 1), (gaussian(2), 1, 2)], 3),
    ([(gaussian("1/4"), 1, 3)], 1),
    ([(gaussian(9), 2, 1), (gaussian(4), 5, 2)], 7),
    ([(laplace(20), 10, 1), (laplace(1), 1, 40)], 10),
    ([(laplace("1/10"), 1, 2)], 1),
]


def exact_pmf(terms: list[tuple[NoiseLaw, int, int]]) -> np.ndarray[Any, Any]:
    """The law on the lattice by convolution, 0 in the middle."""
    total = np.ones(1)
    for law, steps, multiplicity in terms:
        reach = law.bound(1e-15)
        one = np.zeros(2 * reach * abs(steps) + 1)
        one[:: abs(steps)] = law.pmf(np.arange(-reach, reach + 1))
        for _ in range(multiplicity):
            total = np.convolve(total, one)
    return total


def error_law(terms: list[tuple[NoiseLaw, int, int]], unit: int) -> ErrorLaw:
    return ErrorLaw(terms=tuple((law, steps / unit, count) for law, steps, count in terms))


@for_each(("terms", "unit"), LATTICES)
def test_moments_and_transform_equal_those_of_the_convolution(
    terms: list[tuple[NoiseLaw, int, int]], unit: int
) -> None:
    law, pmf = error_law(terms, unit), exact_pmf(terms)
    values = (np.arange(pmf.size) - pmf.size // 2) / unit
    assert law.variance == pytest.approx(float(pmf @ values**2), rel=1e-9)
    t = np.linspace(0, 9, 50)
    np.testing.assert_allclose(
        law.characteristic_function(t), np.cos(np.outer(t, values)) @ pmf, atol=1e-9
    )


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.999, 0.9999])
@pytest.mark.parametrize(("terms", "unit"), LATTICES)
def test_half_widths_cover_and_are_hardly_wider_than_need_be(
    terms: list[tuple[NoiseLaw, int, int]], unit: int, confidence: float
) -> None:
    law, pmf = error_law(terms, unit), exact_pmf(terms)
    middle = pmf.size // 2
    within = pmf[middle] + 2 * np.concatenate([[0.0], np.cumsum(pmf[middle + 1 :])])
    width = law.half_width(confidence)
    assert within[min(math.floor(width * unit + 1e-9), middle)] >= confidence - 1e-12
    if confidence > 0.99:
        return  # the inversion's own error is not small beside 1 - confidence
    # No wider than the exact one at a coverage of 0.0001 more, plus the smoothing on both sides.
    exact = int(np.argmax(within >= confidence + 1e-4)) / unit
    assert width <= exact + 2 * 0.02 * math.sqrt(law.variance) + 1e-6


@for_each("confidence", [0.99, 0.999, 0.9999])
def test_noise_that_is_hardly_ever_there_is_covered(confidence: float) -> None:
    """One step of the lattice is then many standard deviations, beyond the inversion's range."""
    for scale in ("1/6", "1/8", "1/10", "1/14"):
        pmf = exact_pmf([(laplace(scale), 1, 3)])
        width = math.floor(ErrorLaw(terms=((laplace(scale), 1.0, 3),)).half_width(confidence))
        middle = pmf.size // 2
        assert pmf[middle - width : middle + width + 1].sum() >= confidence - 1e-12


def test_one_variable_has_its_own_bound_and_none_has_none() -> None:
    assert ErrorLaw(terms=((laplace(5), -0.5, 1),)).half_width(0.95) == laplace(5).bound(0.05) / 2
    assert ErrorLaw(terms=()).half_width(0.95) == 0.0
    assert ErrorLaw(terms=((ZeroNoise(), 1.0, 9), (laplace(3), 0.0, 2))).half_width(0.9) == 0.0


@for_each("confidence", [0.0, -1.0, 0.99995, 1.0, math.nan])
def test_refuses_a_confidence(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        ErrorLaw(terms=((laplace(5), 1.0, 1),)).half_width(confidence)


def multiset(law: ErrorLaw, plan: TreePlan) -> Counter[tuple[int, float]]:
    """How often each size of coefficient occurs at each level. Laws of levels must differ."""
    levels_by_law = {each: level for level, each in enumerate(plan.laws) if each is not None}
    found: Counter[tuple[int, float]] = Counter()
    for each, coefficient, count in law.terms:
        if abs(coefficient) > 1e-9:
            found[levels_by_law[each], round(abs(coefficient), 7) + 0.0] += count
    return found


def expected_multiset(
    responses: list[tuple[int, np.ndarray[Any, Any]]], mask: np.ndarray[Any, Any]
) -> Counter[tuple[int, float]]:
    found: Counter[tuple[int, float]] = Counter()
    for level, leaves in responses:
        value = abs(float(mask @ leaves))
        if value > 1e-9:
            found[level, round(value, 7) + 0.0] += 1
    return found


@pytest.mark.parametrize("public", [False, True], ids=["N private", "N public"])
@pytest.mark.parametrize("seed", range(6))
def test_the_laws_are_the_coefficients_of_all_measurements(
    random_tree: Callable[..., UniformTree],
    level_matrix: Callable[..., Any],
    public: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        tree = random_tree(rng, height=3)
        units = 3 + rng.permutation(tree.height + 1)  # no two levels alike
        units[:-1][rng.random(tree.height) < 0.25] = 0
        if public:
            units[0] = 0
        amounts = [Fraction(int(each), 100) for each in units]
        plan = tree_plan(tree.leaves, tree.fanouts, amounts, PUBLIC if public else ROWS)
        responses, errors = unit_responses(plan), UniformErrors(plan)
        for level, size in enumerate(tree.level_sizes):
            masks = level_matrix(tree, level)
            for node in range(size):
                assert multiset(errors.node(level, node), plan) == expected_multiset(
                    responses, masks[node]
                )
        for leaf in range(tree.leaves):
            for share in (0.0, 0.3):
                mask = (np.arange(tree.leaves) <= leaf) - share
                found = multiset(errors.prefix(leaf, less_total=share), plan)
                # Sizes that differ in the last rounded digit are the same coefficient.
                assert_close(found, expected_multiset(responses, mask))


def assert_close(found: Counter[tuple[int, float]], expected: Counter[tuple[int, float]]) -> None:
    ours, theirs = sorted(found.elements()), sorted(expected.elements())
    assert [level for level, _ in ours] == [level for level, _ in theirs]
    np.testing.assert_allclose([v for _, v in ours], [v for _, v in theirs], atol=3e-7)


@for_each("seed", range(8))
def test_variances_are_those_of_the_estimation_weights(
    random_plan: Callable[..., TreePlan], seed: int
) -> None:
    rng = np.random.default_rng(50 + seed)
    for measure in Measure:
        plan = random_plan(rng, measure=measure)
        errors, forest = UniformErrors(plan), UniformForest(plan)
        weights, root = forest.weights(forest.chunking[0]), forest.root_variance
        assert errors.root_variance == pytest.approx(root)
        for level, variances in enumerate(weights.variances(root)):
            for node, variance in enumerate(variances):
                found = errors.node(level, node).variance
                assert found == pytest.approx(variance, rel=1e-8, abs=1e-9)
        prefixes = prefix_weights(weights, through=True)
        for share in (0.0, 0.4):
            total = root * (share**2 - 2 * share * prefixes.alpha)
            for leaf, variance in enumerate(prefixes.variance(root) + total):
                found = errors.prefix(leaf, less_total=share).variance
                assert found == pytest.approx(variance, rel=1e-8, abs=1e-7)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize(("leaves", "public"), [(50, False), (64, True), (23, False), (100, True)])
def test_one_width_serves_every_node_and_boundary(
    measure: Measure, leaves: int, public: bool
) -> None:
    """The widths come from a few representatives; no other is more than 1 % wider."""
    plan = planned_tree(leaves, PUBLIC if public else ROWS, measure, Fraction(1, 2))
    errors, widths = UniformErrors(plan), interval_widths(plan, 0.95)
    for level, size in enumerate(plan.tree.level_sizes):
        for node in {0, size // 2, size - 1}:
            law = errors.node(level, node)
            assert (
                law.half_width(0.95) <= 1.01 * widths.levels[level] * math.sqrt(law.variance) + 1e-6
            )
    for leaf in range(0, leaves - 1, 7):
        law = errors.prefix(leaf)
        assert law.half_width(0.95) <= 1.01 * widths.prefix * math.sqrt(law.variance)


def test_what_is_public_has_no_width() -> None:
    plan = planned_tree(64, PUBLIC)
    assert interval_widths(plan, 0.95).levels[0] == 0.0
    assert UniformErrors(plan).prefix(63).variance == pytest.approx(0.0, abs=1e-9)
    alone = estimation_weights(UniformTree(leaves=1, fanouts=()), [3.0])
    assert alone.variances(3.0)[0].tolist() == [3.0]


@pytest.mark.parametrize("leaves", [5, 10, 24, 37])
@pytest.mark.parametrize("epsilon", [Fraction(4, 5), Fraction(6, 5), 2, 4, Fraction(43, 5)])
def test_every_prefix_of_a_flat_tree_is_covered(leaves: int, epsilon: Fraction) -> None:
    """Its error lies on the integers, where coverage jumps from one prefix to the next: exact."""
    amounts = (Fraction(0), Fraction(epsilon))
    plan = tree_plan(leaves, (leaves,), amounts, amount=epsilon)
    widths, law = interval_widths(plan, 0.95), plan.laws[1]
    reach = 400
    one = law.pmf(np.arange(-reach, reach + 1))
    many = np.array([1.0])
    for prefix in range(1, leaves + 1):
        many = np.convolve(many, one)
        middle = len(many) // 2
        many = many[max(0, middle - reach) : middle + reach + 1]
        errors = np.abs(np.arange(len(many)) - len(many) // 2)
        margin = prefix_margin(widths.prefix, np.array(prefix * law.variance))
        assert many[errors <= margin].sum() >= 0.95 - 1e-9


def covered(law: ErrorLaw, *margins: float) -> float:
    """An upper bound of P(|error| <= margin), the least: a finer inversion than the tested one."""
    fine, step, deviation = 0.01, 0.05, math.sqrt(law.variance)
    margin = min(margins)
    if margin > 25 * deviation:
        return 1.0
    t = (np.arange(int(30 / fine / step)) + 0.5) * step
    weight = law.characteristic_function(t / deviation) * np.sinc(t * fine / (3 * np.pi)) ** 3 / t
    return float(np.sin(t * (margin / deviation + fine)) @ weight) * 2 * step / np.pi + 2e-5


@pytest.mark.parametrize("seed", range(12))
def test_random_plans_are_covered_everywhere(
    random_plan: Callable[..., TreePlan], seed: int
) -> None:
    rng = np.random.default_rng(900 + seed)
    plan = random_plan(rng, measure=list(Measure)[seed % 2])
    confidence = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999][seed % 6]
    errors, widths, tree = UniformErrors(plan), interval_widths(plan, confidence), plan.tree
    laws = [
        (errors.node(level, node), widths.levels[level])
        for level, size in enumerate(tree.level_sizes)
        for node in {0, size - 1, max(0, size - 2), int(rng.integers(size))}
    ]
    for law, width in laws:
        if law.variance > 1e-9:
            assert covered(law, width * math.sqrt(law.variance)) >= confidence
    for leaf in {0, tree.leaves - 1, *rng.integers(0, tree.leaves, 5).tolist()}:
        for share in (0.0, float(rng.random())):
            law = errors.prefix(leaf, less_total=share)
            margins = [
                float(prefix_margin(kind, np.array(law.variance)))
                for kind in (widths.sloped, widths.prefix)
            ]
            assert law.variance <= 1e-9 or covered(law, *margins) >= confidence


def test_a_narrower_width_is_seen(random_plan: Callable[..., TreePlan]) -> None:
    """The check above fails with widths 5 % too small."""
    plan = random_plan(np.random.default_rng(4), tree=UniformTree(leaves=16, fanouts=(4, 4)))
    law = UniformErrors(plan).prefix(6)
    assert covered(law, 0.95 * law.half_width(0.95)) < 0.95


@pytest.mark.parametrize("fanouts", [(2,) * 20, (16,) * 5, (1024, 1024)])
@pytest.mark.parametrize("measure", list(Measure))
def test_any_level_of_confidence_is_quick(measure: Measure, fanouts: tuple[int, ...]) -> None:
    levels = len(fanouts) + 1
    plan = tree_plan(700_001, fanouts, [Fraction(1, levels)] * levels, ROWS, measure)
    assert takes_less(10, lambda: interval_widths(plan, 0.9))  # 0.3 to 1.3 measured
    assert interval_widths(plan, 0.9).prefix > 1.6


def test_intervals_of_signed_sums_are_not_clipped_at_zero() -> None:
    estimate, variance = np.array([-30.5, 2.0, -4.0000001]), np.array([4.0, 9.0, 1e-15])
    margin = np.array([4.0, 6.0, 0.5])
    value, error, low, high = clipped_intervals(estimate, variance, margin, np.inf, bottom=-np.inf)
    assert value.tolist() == [-30.5, 2.0, -4.0] and error.tolist() == [2.0, 3.0, 0.0]
    assert low.tolist() == [-34.5, -4.0, -4.0] and high.tolist() == [-26.5, 8.0, -4.0]
    low, high = clipped_intervals(estimate, variance, margin, 7.0)[2:]  # counts keep their clip
    assert low.tolist() == [0.0, 0.0, 0.0] and high.tolist() == [0.0, 7.0, 0.0]
