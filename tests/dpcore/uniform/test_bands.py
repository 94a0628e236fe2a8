"""Bands hold all prefixes at once, as often as stated; the bounds they rest on are bounds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform import intervals as bands
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.plan import TreePlan
from tests.dpcore.cases import for_each
from tests.dpcore.tree_runs import released_cdf
from tests.dpcore.tree_settings import PUBLIC, ROWS, planned_tree, scaled
from tests.processor import takes_less

FALSE_ALARM = 1e-6


def planned(
    leaves: int, measure: Measure, public: bool, amount: Fraction | int = Fraction(1, 10)
) -> TreePlan:
    return planned_tree(leaves, PUBLIC if public else ROWS, measure, amount)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("planted", [False, True])
def test_released_cdfs_stay_within_the_band(
    make_question: Callable[..., Any],
    make_release_plan: Callable[..., Any],
    replace_laws: Callable[..., TreePlan],
    measure: Measure,
    planted: bool,
) -> None:
    """With other noise than the simulation's: the release's own. Noise 30 % too large is seen."""
    keys, leaves = 4000, 40
    question = make_question(leaves=leaves, keys=keys, measure=measure, amount=Fraction(1, 10))
    widths = {c: bands.simultaneous_width(question.plan, c) for c in (0.9, 0.95, 0.99)}
    if planted:
        intervals = question.widths
        question = make_question(
            leaves=leaves,
            keys=keys,
            measure=measure,
            plan=replace_laws(question.plan, lambda law: scaled(law, Fraction(13, 10))),
        )
        question.remember_widths(intervals)
    counts = np.random.default_rng(1).poisson(3, (keys, leaves))
    estimate, error = released_cdf(make_release_plan(question), counts)
    off = np.abs(estimate - np.cumsum(counts, axis=1))
    for confidence, width in widths.items():
        within = int((off <= bands.band_margin(width, error**2)).all(axis=1).sum())
        least = stats.binom.ppf(FALSE_ALARM, keys, confidence)
        assert (within < least) if planted else (within >= least)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("leaves", [1, 2, 16, 300])
def test_both_factors_cover_fresh_simulations(
    monkeypatch: pytest.MonkeyPatch, measure: Measure, public: bool, leaves: int
) -> None:
    plan = planned(leaves, measure, public)
    if plan.is_complement:
        plan = plan_tree(plan.setting, fanouts=(2,))
    if leaves == 1 and public:
        assert bands.simultaneous_width(plan, 0.95) == 0.0
        return
    simulated, union = bands.simulated_width(plan, 0.95), bands.union_width(plan, 0.95)
    assert bands.simultaneous_width(plan, 0.95) == min(simulated, union)
    public_stream = bands.public_stream
    monkeypatch.setattr(bands, "public_stream", lambda *parts: public_stream("other", *parts))
    runs = 3000
    maxima = bands.simulated_maxima(plan, runs)
    for width in (simulated, union):
        assert (maxima <= width).sum() >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)
    # The simulated factor wastes little: the mean coverage is not much above the nominal one.
    if leaves > 2:
        assert (maxima <= simulated).mean() < 0.98


def test_the_rank_is_the_exact_binomial_limit() -> None:
    for runs, confidence in [(300, 0.95), (20_000, 0.5), (20_000, 0.99), (2000, 0.9999)]:
        rank = bands._upper_rank(runs, confidence)
        assert stats.binom.sf(rank - 1, runs, confidence) <= FALSE_ALARM
        assert stats.binom.sf(rank - 2, runs, confidence) > FALSE_ALARM
    assert bands._upper_rank(100, 0.95) == 101  # too few


@pytest.mark.parametrize("seed", range(30))
def test_blocks_bound_every_prefix(
    random_plan: Callable[..., TreePlan], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The variance and the kurtosis of each prefix are within the bounds of some block."""
    rng = np.random.default_rng(seed)
    trees = [
        None,
        UniformTree(leaves=int(rng.integers(700, 1024)), fanouts=(2,) * 10),
        UniformTree(leaves=int(rng.integers(800, 900)), fanouts=(30, 30)),
        UniformTree(leaves=int(rng.integers(500, 512)), fanouts=(128, 4)),
    ]
    plan = random_plan(rng, measure=Measure.EPSILON, tree=trees[seed % 4])
    if seed % 3 == 0:  # as if the tree were too large for many blocks
        monkeypatch.setattr(bands, "_MOST_BLOCKS", 40)
    blocks = bands.error_blocks(plan)
    last = plan.tree.leaves - int(plan.public_total)
    variance, fourth = UniformErrors(plan).moments_of_prefixes(np.arange(last), np.zeros(last))
    assert blocks.count.sum() == last
    # Sorted, the k-th least bound is below the k-th least variance; kurtoses likewise.
    bounds = np.repeat(np.sort(blocks.variance), blocks.count[np.argsort(blocks.variance)])
    assert (bounds <= np.sort(variance) * (1 + 1e-9)).all()
    order = np.argsort(blocks.kurtosis)
    highest = np.repeat(blocks.kurtosis[order], blocks.count[order])
    assert (highest >= np.sort(fourth / variance**2) * (1 - 1e-9)).all()


@pytest.mark.parametrize("seed", range(12))
def test_exponents_bound_the_cumulant_functions(
    random_plan: Callable[..., TreePlan], seed: int
) -> None:
    """ln E exp(s error), from the error's own coefficients, is below the bound for each prefix."""
    plan = random_plan(np.random.default_rng(seed), measure=list(Measure)[seed % 2])
    errors = UniformErrors(plan)
    for leaf in range(0, plan.tree.leaves - 1, 3):
        law = errors.prefix(leaf)
        moments = errors.moments_of_prefixes(np.array([leaf]), np.zeros(1))
        assert moments[0][0] == pytest.approx(law.variance, rel=1e-9)
        assert moments[1][0] == pytest.approx(law.fourth_cumulant, rel=1e-8, abs=1e-12)
        slopes, bound = bands._chernoff(
            plan, np.array([law.variance]), np.array([law.excess_kurtosis])
        )
        for place in range(0, slopes.size, 60):
            if not math.isfinite(bound[0, place]):
                continue
            s, exact = float(slopes[place]) / math.sqrt(law.variance), 0.0
            for each, coefficient, count in law.terms:
                x = abs(coefficient) * s
                if isinstance(each, DiscreteLaplace):
                    exact -= count * math.log1p(-2 * each.variance * math.sinh(x / 2) ** 2)
                elif x > 0:
                    reach = np.arange(-each.bound(1e-30) - 2, each.bound(1e-30) + 3)
                    exact += count * math.log(float(each.pmf(reach) @ np.exp(x * reach)))
            assert exact <= bound[0, place] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("leaves", "measure"), [(2**14, Measure.RHO), (2**30, Measure.EPSILON)])
def test_any_size_takes_less_than_a_second_or_so(leaves: int, measure: Measure) -> None:
    plan = planned(leaves, measure, False)
    widths: list[float] = []
    assert takes_less(2, lambda: widths.append(bands.simultaneous_width(plan, 0.95)))
    width = widths[-1]
    assert 3.5 < width < 14
    assert width < bands.simultaneous_width(plan, 0.9999)


def test_more_confidence_is_wider_and_the_same_plan_gives_the_same() -> None:
    plan = planned(200, Measure.EPSILON, True)
    widths = [bands.simultaneous_width(plan, c) for c in (0.5, 0.8, 0.9, 0.95, 0.99, 0.9999)]
    assert widths == sorted(widths)
    assert bands.simultaneous_width(planned(200, Measure.EPSILON, True), 0.95) == widths[3]


@for_each("confidence", [0.0, 1.0, -1.0, 0.99995, math.nan])
def test_refuses_a_confidence(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        bands.simultaneous_width(planned(16, Measure.RHO, True), confidence)


def test_noise_that_is_practically_zero_needs_no_band() -> None:
    plan = planned_tree(10**6, ROWS, Measure.EPSILON, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bands.simultaneous_width(plan, 0.95) == 0.0
