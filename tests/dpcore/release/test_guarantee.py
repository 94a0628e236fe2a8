"""The guarantee, audited: the error that is stated, the privacy that is claimed.

Every limit is derived from a false alarm rate of 1e-6 or less per test, and every audit is shown
to fail on a planted error. Keys serve as repetitions: the noise of each is independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.levels.planner import predicted_cdf_rmse
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.intervals import IntervalWidths
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.conftest import make_question, make_release_plan, replace_laws
from tests.dpcore.noise_laws import p_value, scaled
from tests.dpcore.released_tables import columns_of
from tests.dpcore.tree_settings import PUBLIC, planned_tree

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]
# Of a standard normal beyond, either side: below 1e-6.
SIGMAS = 4.9
FALSE_ALARM = 1e-6


# --- predicted error = measured error -----------------------------------------------------------


def squared_error_z(plan: TreePlan, keys: int, names: int) -> float:
    """How many standard errors the measured mean squared CDF error is off the predicted one."""
    question = make_question(
        leaves=plan.tree.leaves, plan=plan, keys=keys, public_total=plan.public_total
    )
    # Intervals take time and are not looked at here.
    question.__dict__["widths"] = IntervalWidths(
        confidence=0.95, levels=(2.0,) * (plan.tree.height + 1), prefix=2.0
    )
    release_plan = make_release_plan(question)
    shape = (max(keys, 1), plan.tree.leaves)
    counts = np.random.default_rng(0).poisson(20, shape)
    truth, errors = np.cumsum(counts, axis=1), []
    for repetition in range(names):
        named = replace(release_plan, name=f"r{repetition}")
        release = release_counts(named, {"delay": counts}, ReleaseKey(bytes(32)))
        (estimates,) = columns_of(release, "cdf", "estimate")
        errors.append(((estimates.reshape(shape) - truth) ** 2).mean(axis=1))
    per_tree = np.concatenate(errors)
    standard_error = float(per_tree.std(ddof=1)) / math.sqrt(per_tree.size)
    return (float(per_tree.mean()) - predicted_cdf_rmse(plan) ** 2) / standard_error


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_the_predicted_error_is_the_measured_one(
    measure: Measure,
    unit: PrivacyUnit,
) -> None:
    """Over 6,000 trees, within 4.9 standard errors of their mean (false alarms: 1e-6). Noise 10 %
    or 30 % smaller or larger than planned is seen."""
    plan = planned_tree(50, (unit, False, True), measure, Fraction(1, 2))
    z = squared_error_z(plan, 2000, 3)
    assert abs(z) < SIGMAS
    for factor in (Fraction(7, 10), Fraction(9, 10), Fraction(11, 10)):
        planted = replace_laws(plan, lambda law, factor=factor: scaled(law, factor))
        z = squared_error_z(planted, 2000, 2)
        assert z < -SIGMAS if factor < 1 else z > SIGMAS


def test_the_predicted_error_is_the_measured_one_where_the_total_is_public() -> None:
    """Over 400 releases under names of their own, as above."""
    plan = planned_tree(24, PUBLIC)
    assert abs(squared_error_z(plan, 0, 400)) < SIGMAS
    planted = replace_laws(plan, lambda law: scaled(law, Fraction(7, 10)))
    assert squared_error_z(planted, 0, 400) < -SIGMAS


# --- privacy, seen from outside -----------------------------------------------------------------

RUNS, KEYS = 40_000, 3000
BEFORE = np.array([3, 0, 1, 0, 2, 0])
# One row more in leaf 3; a row of leaf 2 moved to leaf 3 of another node.
ADDED, MOVED = np.array([3, 0, 1, 1, 2, 0]), np.array([3, 0, 0, 1, 2, 0])


def keyed_plan(
    fanouts: tuple[int, ...],
    *,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int = 1,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> TreePlan:
    """A plan of whole levels below the root, which share a budget alike."""
    amount = Fraction(amount)
    return TreePlan(
        tree=UniformTree(leaves=math.prod(fanouts), fanouts=fanouts),
        unit=unit,
        budget=Budget(measure=measure, amount=amount),
        level_amounts=(Fraction(0), *[amount / len(fanouts)] * len(fanouts)),
        keyed=True,
    )


def audit_plan(unit: PrivacyUnit, measure: Measure = Measure.EPSILON) -> TreePlan:
    return keyed_plan((2, 3), unit=unit, measure=measure)


def noisy_runs(plan: TreePlan, counts: Array, name: str) -> list[Array | None]:
    """Everything that is measured, per level (runs, n_l), in independent runs of the mechanism."""
    forest = UniformForest(plan, keys=RUNS, chunk_leaves=RUNS * plan.tree.leaves)
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release=name, spec_digest=b"s", global_digest=b"c"
    )
    return forest.measure("t", forest.chunking[0], np.tile(counts, RUNS), noise)


def log_likelihood_ratio(
    plan: TreePlan, noisy: list[Array | None], one: Array, two: Array
) -> Array:
    """(runs,) log P(noisy | one) / P(noisy | two) under the laws that the plan states."""
    total = np.zeros(RUNS)
    levels = zip(
        plan.laws, noisy, plan.tree.level_counts(one), plan.tree.level_counts(two), strict=True
    )
    for law, values, a, b in levels:
        if law is not None and values is not None:
            total += (np.log(law.pmf(values - a)) - np.log(law.pmf(values - b))).sum(axis=1)
    return total


def limits(hits: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson: each fails with probability 1e-6."""
    low = stats.beta.ppf(FALSE_ALARM, hits, runs - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - FALSE_ALARM, hits + 1, runs - hits) if hits < runs else 1.0
    return float(low), float(high)


def epsilon_seen(likelier: Array, unlikelier: Array) -> float:
    """A lower bound of epsilon from how often an event happened on either data set."""
    low = limits(int(likelier.sum()), likelier.size)[0]
    high = limits(int(unlikelier.sum()), unlikelier.size)[1]
    return math.log(low / high) if low > 0 else -math.inf


@pytest.mark.parametrize(("unit", "after"), [(ADD_REMOVE_ROW, ADDED), (SUBSTITUTE_ROW, MOVED)])
def test_all_measurements_keep_epsilon_and_less_noise_is_found_out(
    unit: PrivacyUnit, after: Array
) -> None:
    """The event is the likelihood ratio at its largest, the most powerful there is."""
    stated = audit_plan(unit)
    seen = {}
    for factor in (Fraction(1), Fraction(7, 10)):
        run = replace_laws(stated, lambda law, factor=factor: scaled(law, factor))
        ratios = [
            log_likelihood_ratio(stated, noisy_runs(run, counts, name), BEFORE, after)
            for counts, name in ((BEFORE, "before"), (after, "after"))
        ]
        assert max(ratio.max() for ratio in ratios) == pytest.approx(1.0)
        in_favour = [ratio > 1 - 1e-9 for ratio in ratios]
        against = [ratio < -1 + 1e-9 for ratio in ratios]
        seen[factor] = max(epsilon_seen(*in_favour), epsilon_seen(*against[::-1]))
    assert 0.7 < seen[Fraction(1)] <= 1.0 < seen[Fraction(7, 10)]


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(7, 10)])
def test_what_is_released_keeps_epsilon(factor: Fraction) -> None:
    """A black box: only the released tables, thresholds chosen on the first half of the runs and
    judged on the second. With one level of 30 % less noise the claim is rejected."""
    keys, epsilon = 12_000, 1.0
    plan = keyed_plan((6,))
    planted = replace_laws(plan, lambda law: scaled(law, factor))
    question = make_question(leaves=6, plan=planted, keys=keys)
    released = {}
    for name, counts in (("before", BEFORE), ("after", ADDED)):
        release = release_counts(
            make_release_plan(question),
            {"delay": np.tile(counts, (keys, 1))},
            ReleaseKey(bytes(32)),
        )
        level, node, estimate, count = columns_of(
            release, "nodes", "level", "node", "estimate", "count"
        )
        mine = (level == 1) & (node == 3)
        released[name] = {"estimate": np.rint(estimate[mine]), "count": count[mine]}
    half, largest = keys // 2, -math.inf
    for column in ("estimate", "count"):
        before, after = released["before"][column], released["after"][column]
        for sign in (1, -1):
            pairs = [(sign * after, sign * before), (sign * before, sign * after)]
            for likelier, unlikelier in pairs:
                thresholds = np.unique(likelier)
                chosen = max(
                    thresholds,
                    key=lambda t: epsilon_seen(likelier[:half] >= t, unlikelier[:half] >= t),
                )
                found = epsilon_seen(likelier[half:] >= chosen, unlikelier[half:] >= chosen)
                largest = max(largest, found)
    assert (largest > epsilon) == (factor < 1)
    assert largest > 0.6  # the audit sees something


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(7, 10)])
def test_gaussian_measurements_keep_their_privacy_profile(factor: Fraction) -> None:
    """rho-zCDP through (epsilon, delta): the chance of an event before, less e^epsilon that after,
    is at most the delta of the Gaussian mechanism of that rho."""
    stated = audit_plan(ADD_REMOVE_ROW, Measure.RHO)
    run = replace_laws(stated, lambda law: scaled(law, factor))
    ratios = [
        log_likelihood_ratio(stated, noisy_runs(run, counts, name), BEFORE, ADDED)
        for counts, name in ((BEFORE, "before"), (ADDED, "after"))
    ]
    rho, epsilon = 1.0, 1.0
    mu = math.sqrt(2 * rho)
    delta = float(
        stats.norm.cdf(mu / 2 - epsilon / mu)
        - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    )
    # Any event will do; the best one against noise that is too small lies below epsilon.
    events = [int((ratio > epsilon / 2).sum()) for ratio in ratios]
    low, high = limits(events[0], RUNS)[0], limits(events[1], RUNS)[1]
    seen = low - math.exp(epsilon) * high
    assert (seen > delta) == (factor < 1)
    assert seen > delta / 2


# --- the law of what comes out ------------------------------------------------------------------


@pytest.mark.parametrize("measure", list(Measure))
def test_a_flat_tree_releases_the_stated_law(measure: Measure) -> None:
    """Chi-squared over 120,000 released estimates less the truth, rejected below p = 1e-6; noise
    5 % too small is rejected."""
    amount = Fraction(1, 2) if measure is Measure.EPSILON else Fraction(1, 8)
    plan = keyed_plan((40,), measure=measure, amount=amount)
    counts = np.random.default_rng(3).poisson(5, (KEYS, 40))
    p_values = []
    for factor in (Fraction(1), Fraction(95, 100)):
        run = replace_laws(plan, lambda law, factor=factor: scaled(law, factor))
        question = make_question(leaves=40, plan=run, keys=KEYS)
        release = release_counts(
            make_release_plan(question), {"delay": counts}, ReleaseKey(bytes(32))
        )
        level, estimate = columns_of(release, "nodes", "level", "estimate")
        noise = np.rint(estimate[level == 1] - counts.reshape(-1)).astype(np.int64)
        law = plan.laws[1]
        assert law is not None
        p_values.append(p_value(noise, law))
    assert p_values[0] > FALSE_ALARM > p_values[1]


@pytest.mark.parametrize("measure", list(Measure))
def test_every_level_and_node_has_independent_noise_of_its_law(measure: Measure) -> None:
    """Chi-squared level by level; no two of the 28 pairs of nodes correlate beyond 5.6 standard
    errors (false alarms: 6e-7 in all)."""
    plan = audit_plan(SUBSTITUTE_ROW, measure)
    exact = plan.tree.level_counts(BEFORE)
    columns = []
    for law, values, counts in zip(plan.laws, noisy_runs(plan, BEFORE, "r"), exact, strict=True):
        if law is None or values is None:
            continue
        noise = values - counts
        assert p_value(noise.reshape(-1), law) > FALSE_ALARM
        columns.append(noise)
    correlation = np.corrcoef(np.concatenate(columns, axis=1).T)
    off_diagonal = correlation[~np.eye(len(correlation), dtype=bool)]
    assert np.abs(off_diagonal).max() < 5.6 / math.sqrt(RUNS)
