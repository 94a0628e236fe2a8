"""The laws of a plan's own errors, and the intervals that follow from them, for every estimator.

Coverage is counted over many runs, at each place by itself: it falls below nominal only where the
binomial law says so at a false-alarm rate of 1e-6 over all places. Noise 30 % too large is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.levels.uniform import (
    estimate_errors,
    estimate_widths,
    range_error,
    range_margin,
)
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.ordered.question import Totals, chunk_quantiles
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.papers.plans import independent_mechanism
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.answer_errors import difference_ends
from dptrees.dpcore.trees.error_laws import BLUR_VARIANCE, SMOOTHING, prefix_margin
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.plan import Estimator, TreePlan
from tests.dpcore.tree_runs import forest_of_runs, solve_runs
from tests.dpcore.tree_settings import KEYED, PUBLIC, ROWS, scaled, tree_plan, tree_setting

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]

CONFIDENCES = (0.9, 0.95, 0.99)
FALSE_ALARM, RUNS = 1e-6, 3000
LEAVES = 22
QUANTILES = (0.1, 0.5, 0.9)
SETTINGS = {"add_remove": ROWS, "N public": PUBLIC, "keyed": KEYED}
NAMES = [*(each.value for each in Estimator), "independent"]
# A lattice step of the noise is far finer than 1 % at these.
AMOUNTS = {Measure.EPSILON: Fraction(1, 5), Measure.RHO: Fraction(1, 300)}
CASES = [
    (name, setting)
    for name in NAMES
    for setting in SETTINGS
    if name != "refined" or setting == "N public"
]


def make_plan(
    name: str,
    setting: str,
    measure: Measure = Measure.EPSILON,
    *,
    tree: UniformTree | None = None,
    units: tuple[int, ...] = (2, 3, 0, 4),
) -> TreePlan:
    """Unequal levels, one not measured; a private root that is; or independent prefixes."""
    case, amount = SETTINGS[setting], AMOUNTS[measure]
    tree = tree or UniformTree(leaves=LEAVES, fanouts=(3, 2, 4))
    if name == "independent":
        return independent_mechanism(tree_setting(tree.leaves, case, measure, amount))
    units = (0, *units[1:]) if case is PUBLIC else units
    amounts = [amount * Fraction(unit, sum(units)) for unit in units]
    return tree_plan(
        tree.leaves, tree.fanouts, amounts, case, measure, amount, estimator=Estimator(name)
    )


# --- laws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize(("name", "setting"), CASES)
def test_the_variance_of_a_law_is_that_stated_beside_the_estimate(
    name: str, setting: str, measure: Measure
) -> None:
    plan = make_plan(name, setting, measure)
    levels, prefixes, _ = solve_runs(PapersForest, plan, np.zeros((1, LEAVES), np.int64))
    errors = estimate_errors(plan)
    for level, solution in enumerate(levels):
        stated = [errors.node(level, node).variance for node in range(plan.tree.level_sizes[level])]
        np.testing.assert_allclose(solution.variance[0], stated, rtol=1e-9, atol=1e-8)
    stated = [errors.prefix(leaf).variance for leaf in range(LEAVES)]
    np.testing.assert_allclose(prefixes.variance[0], stated, rtol=1e-9, atol=1e-8)
    for start, stop in [(0, 5), (4, 19), (7, LEAVES), (0, LEAVES)]:
        law = errors.range(start, stop)
        assert range_error(plan, start, stop).variance == pytest.approx(
            law.variance, rel=1e-9, abs=1e-8
        )
    assert range_error(plan, 3, 3).variance == 0.0


def test_the_laws_of_a_plan_are_those_of_its_own_estimator() -> None:
    full = make_plan("full", "add_remove")
    assert isinstance(estimate_errors(full), UniformErrors)
    variances = {
        name: estimate_errors(make_plan(name, "N public")).prefix(12).variance for name in NAMES
    }
    assert variances["full"] == pytest.approx(variances["above"])
    assert variances["full"] < variances["refined"] < variances["none"] < variances["independent"]
    assert variances["full"] < variances["below"] < variances["none"]
    alone = independent_mechanism(tree_setting(1, PUBLIC))
    assert estimate_errors(alone).prefix(0).variance == 0.0
    widths = estimate_widths(alone, 0.95)
    assert (widths.levels, widths.prefix) == ((0.0,), 0.0)


# --- widths follow the widest law ---------------------------------------------------------


def random_plans(rng: np.random.Generator, count: int) -> Iterator[TreePlan]:
    """Trimmed trees with very unequal levels."""
    for _ in range(count):
        fanouts = tuple(int(n) for n in rng.integers(2, 6, rng.integers(1, 4)))
        cells = math.prod(fanouts)
        tree = UniformTree(
            leaves=int(rng.integers(cells // fanouts[0] + 1, cells + 1)), fanouts=fanouts
        )
        units = rng.integers(1, 100, tree.height + 1) ** int(rng.integers(1, 3))
        units[:-1][rng.random(tree.height) < 0.3] = 0
        name = str(rng.choice([each for each in NAMES if each != "full"]))
        public = name == "refined" or units[0] == 0
        yield make_plan(
            name,
            "N public" if public else "add_remove",
            tree=tree,
            units=tuple(units.tolist()),
        )


def test_no_law_is_wider_than_its_interval() -> None:
    """Nodes: none. Prefixes: by no more than what the inversion's smoothing allows."""
    rng = np.random.default_rng(11)
    for plan in random_plans(rng, 14):
        confidence = float(rng.choice(CONFIDENCES))
        widths, errors = estimate_widths(plan, confidence), estimate_errors(plan)
        for level, size in enumerate(plan.tree.level_sizes):
            for node in {0, size // 3, *range(max(0, size - 7), size)}:
                law = errors.node(level, node)
                margin = widths.levels[level] * math.sqrt(law.variance)
                assert law.half_width(confidence) <= margin * (1 + 1e-5) + 1e-9
        shares = (0.0,) if plan.public_total else (0.0, 0.3, 1.0)
        for leaf in range(0, plan.tree.leaves, 1 + plan.tree.leaves // 20):
            for share in shares:
                law = errors.prefix(leaf, less_total=share)
                deviation = math.sqrt(law.variance + BLUR_VARIANCE)
                if law.variance > 1e-9:
                    wanted = law.blurred_half_width(confidence) - SMOOTHING * deviation
                    assert wanted <= widths.prefix * deviation


EDGE = UniformTree(leaves=110, fanouts=(5, 5, 5))


def draws(law: NoiseLaw, rng: np.random.Generator, size: int) -> Array:
    """Draw from a Laplace law, fast and in bulk."""
    assert isinstance(law, DiscreteLaplace)
    success = -math.expm1(-1 / float(law.scale))
    drawn: Array = rng.geometric(success, size) - rng.geometric(success, size)
    return drawn


def test_refined_prefixes_at_the_trimmed_edge_are_covered() -> None:
    plan = make_plan("refined", "N public", tree=EDGE, units=(0, 50, 5, 2))
    law = estimate_errors(plan).prefix(104)
    confidence, runs = 0.99, 100_000
    width = estimate_widths(plan, confidence).sloped
    rng, error = np.random.default_rng(0), np.zeros(runs)
    for noise, coefficient, count in law.terms:
        error += coefficient * sum(draws(noise, rng, runs) for _ in range(count))
    covered = int((np.abs(error) <= prefix_margin(width, np.array(law.variance))).sum())
    assert covered >= stats.binom.ppf(FALSE_ALARM, runs, confidence)


def test_refuses_a_confidence_out_of_range() -> None:
    for name in ("none", "independent", "full"):
        for confidence in (0.0, 1.0, 0.99999, math.nan):
            with pytest.raises(ValueError, match=r"^confidence: "):
                estimate_widths(make_plan(name, "N public"), confidence)


# --- measured coverage --------------------------------------------------------------------------

RANGES = [(0, 4), (3, 5), (0, 17), (7, 8), (11, 20), (18, 22), (20, 22)]


class Coverage:
    """Estimates of many runs and the truth they speak of."""

    def __init__(self, plan: TreePlan, run: TreePlan) -> None:
        self.plan = plan
        self.counts = np.random.default_rng(3).poisson(40, (RUNS, LEAVES))
        self.levels, self.prefixes, self.roots = solve_runs(PapersForest, run, self.counts)
        # What is stated is the plan's, whatever noise it got.
        stated, prefixes, _ = solve_runs(PapersForest, plan, np.zeros((1, LEAVES), np.int64))
        self.variances = [level.variance for level in stated]
        self.prefixes = replace(self.prefixes, variance=prefixes.variance, alpha=prefixes.alpha)
        self.cdf = np.cumsum(self.counts, axis=1)

    def of(self, confidence: float) -> dict[str, Array]:
        """What -> (runs, places) whether its interval holds the truth."""
        plan, widths = self.plan, estimate_widths(self.plan, confidence)
        found = {}
        for level, truth in enumerate(plan.tree.level_counts(self.counts)):
            margin = widths.levels[level] * np.sqrt(np.maximum(self.variances[level], 0))
            found[f"level {level}"] = np.abs(self.levels[level].estimate - truth) <= margin
        error = self.prefixes.estimate - self.cdf
        margin = prefix_margin(widths.sloped, self.prefixes.variance)
        found["prefixes"] = np.abs(error) <= margin + 1e-9
        before = np.pad(error, ((0, 0), (1, 0)))
        found["ranges"] = np.stack(
            [
                np.abs(before[:, stop] - before[:, start])
                <= range_margin(range_error(plan, start, stop), confidence) + 1e-9
                for start, stop in RANGES
            ],
            axis=1,
        )
        found["quantiles"] = self._quantiles(widths.sloped)
        return found

    def _quantiles(self, width: tuple[float, float]) -> Array:
        roots, forest = self.roots, forest_of_runs(PapersForest, self.plan, 1)
        cells = chunk_quantiles(
            QUANTILES,
            self.prefixes.count,
            Totals(count=roots.total_count, before_count=roots.before_count),
            first_leaf=0,
            leaves=LEAVES,
            ends=difference_ends(self.prefixes, roots.total, forest.root_variance, width),
        )
        wanted = np.ceil(np.array(QUANTILES) * self.cdf[:, -1:] - 1e-9)
        exact = (self.cdf[:, None, :] >= wanted[:, :, None]).argmax(axis=2)
        inside: Array = (cells.low <= exact) & (exact <= cells.high)
        return inside


def falls_short(inside: Array, confidence: float) -> bool:
    """Some column is covered too rarely: false alarms below 1e-6 in all."""
    runs, places = inside.shape
    least = stats.binom.ppf(FALSE_ALARM / places, runs, confidence)
    return bool((inside.sum(axis=0) < least).any())


@pytest.fixture(scope="module")
def covered(replace_laws: Make) -> Callable[..., Coverage]:
    @cache
    def made(name: str, setting: str, measure: Measure, factor: Fraction) -> Coverage:
        plan = make_plan(name, setting, measure)
        estimate_widths(plan, 0.95)  # remembered laws belong to the plan as stated
        run = replace_laws(plan, lambda law: scaled(law, factor))
        return Coverage(plan, run if factor != 1 else replace(plan))

    return made


# Of normal noise one setting is enough: the laws' shapes are alike.
@pytest.mark.parametrize(
    ("name", "setting", "measure"),
    [
        (*case, measure)
        for case in CASES
        for measure in Measure
        if measure is Measure.EPSILON or case[1] == "N public"
    ],
)
def test_every_interval_covers_as_often_as_stated(
    covered: Callable[..., Coverage], name: str, setting: str, measure: Measure
) -> None:
    """At 95 %; at other confidences in one setting of each estimator."""
    coverage = covered(name, setting, measure, Fraction(1))
    every = measure is Measure.EPSILON and setting == ("N public" if name == "refined" else "keyed")
    for confidence in CONFIDENCES if every else (0.95,):
        for what, inside in coverage.of(confidence).items():
            assert not falls_short(inside, confidence), (what, confidence)
            # No wider than need be: the least covered place is within 1.5 % of nominal.
            if what in ("prefixes", "ranges") and confidence == 0.95:
                share = inside.mean(axis=0).min()
                assert share < 0.965 + 4.9 * math.sqrt(0.95 * 0.05 / RUNS), what


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_noise_that_is_too_large_is_noticed_in_every_interval(
    covered: Callable[..., Coverage], name: str, setting: str
) -> None:
    found = covered(name, setting, Measure.EPSILON, Fraction(13, 10)).of(0.95)
    if SETTINGS[setting][1]:
        assert found.pop("level 0").all()  # N is public
    # Intervals of quantiles consist of whole cells, and the papers' intervals are the worst case.
    del found["quantiles"]
    for what, inside in found.items():
        assert falls_short(inside, 0.95), what
