"""Measured coverage of intervals, by releases with the real samplers.

Every key of a release is a tree of its own with its own noise, and one interval of each kind is
looked at in each, so what is counted are independent trials. The limits are the binomial law's at a
false-alarm rate of 1e-6: by Hoeffding (1956) trials of unequal chances vary no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.levels.uniform import range_error, range_margin
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.trees.error_laws import prefix_margin
from dptrees.dpcore.uniform.error_laws import UniformErrors
from dptrees.dpcore.uniform.intervals import interval_widths
from dptrees.dpcore.uniform.plan import TreePlan
from tests.dpcore.conftest import make_question, make_release_plan, replace_laws
from tests.dpcore.mechanisms import changed
from tests.dpcore.noise_laws import scaled
from tests.dpcore.released_tables import columns_of

LEAVES, KEYS, REPETITIONS = 48, 2500, 6
CONFIDENCES = (0.9, 0.95, 0.99)
QUANTILES = (0.1, 0.5, 0.9)
FALSE_ALARM = 1e-6
# A lattice step of the noise is far finer than 1 % at these.
AMOUNTS = {Measure.EPSILON: Fraction(1, 10), Measure.RHO: Fraction(1, 400)}

Make = Callable[..., Any]


def limits(trials: int, confidence: float, slack: float = 0.01) -> tuple[int, int]:
    """So few or so many covered show a coverage below nominal, or above it by more than slack."""
    least = int(stats.binom.ppf(FALSE_ALARM, trials, confidence))
    most = stats.binom.isf(FALSE_ALARM, trials, min(1.0, confidence + slack))
    return least, int(most)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was released, and the truth: (trials, positions) each."""

    plan: TreePlan
    truth: np.ndarray[Any, Any]  # (trials, K)
    levels: list[tuple[Any, Any, Any]]  # per level estimate, ci_low, ci_high at 95 %
    prefixes: tuple[Any, Any, Any, Any]  # estimate, standard error, ci_low, ci_high at 95 %
    quantiles: tuple[Any, Any]  # ci_low, ci_high, (trials, quantiles) at 95 %


def data(sparse: bool) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(int(sparse))
    if sparse:
        return rng.poisson(0.05, (KEYS, LEAVES)) * rng.integers(1, 40, (KEYS, LEAVES))
    return rng.poisson(200, (KEYS, LEAVES))


def measure(
    measure: Measure,
    sparse: bool,
    change_laws: Any = None,
) -> Measured:
    question = make_question(
        leaves=LEAVES, keys=KEYS, measure=measure, amount=AMOUNTS[measure], quantiles=QUANTILES
    )
    widths, counts = question.widths, data(sparse)
    if change_laws is not None:
        question = changed(question, plan=change_laws(question.plan))
        question.remember_widths(widths)
    plan, sizes = question.plan, question.plan.tree.level_sizes
    levels: list[list[list[Any]]] = [[[], [], []] for _ in sizes]
    prefixes: list[list[Any]] = [[], [], [], []]
    quantiles: list[list[Any]] = [[], []]
    for repetition in range(REPETITIONS):
        release = release_counts(
            make_release_plan(question, name=f"r{repetition}"),
            {question.name: counts},
            ReleaseKey(bytes(32)),
        )
        at, *nodes = columns_of(release, "nodes", "level", "estimate", "ci_low", "ci_high")
        for level, size in enumerate(sizes):
            for into, column in zip(levels[level], nodes, strict=True):
                into.append(column[at == level].reshape(-1, size))
        names = ("estimate", "std_error", "ci_low", "ci_high")
        for into, column in zip(prefixes, columns_of(release, "cdf", *names), strict=True):
            into.append(column.reshape(-1, LEAVES))
        assert release.quantiles is not None
        for into, name in zip(quantiles, ("ci_low", "ci_high"), strict=True):
            into.append(release.quantiles[name].to_numpy().reshape(-1, len(QUANTILES)))
    stacked = [tuple(np.concatenate(column) for column in level) for level in levels]
    return Measured(
        plan=plan,
        truth=np.tile(counts, (REPETITIONS, 1)),
        levels=stacked,  # type: ignore[arg-type]
        prefixes=tuple(np.concatenate(column) for column in prefixes),  # type: ignore[arg-type]
        quantiles=tuple(np.concatenate(column) for column in quantiles),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def measured() -> Iterator[Callable[..., Measured]]:
    @cache
    def made(noise: Measure, sparse: bool) -> Measured:
        return measure(noise, sparse)

    yield made


def one_of_each(covered: np.ndarray[Any, Any]) -> int:
    """(trials, positions) -> how many are covered, one position of each trial."""
    trials, positions = covered.shape
    return int(covered[np.arange(trials), np.arange(trials) * 7 % positions].sum())


def falls_short(covered: np.ndarray[Any, Any]) -> bool:
    """(trials, positions) -> whether some position, by itself, is covered too rarely at 95 %."""
    trials, positions = covered.shape
    least = stats.binom.ppf(FALSE_ALARM / positions, trials, 0.95)
    return bool((covered.sum(axis=0) < least).any())


CASES = pytest.mark.parametrize(
    ("noise", "sparse"), [(noise, sparse) for noise in Measure for sparse in (False, True)]
)


@CASES
def test_released_intervals_cover_at_least_as_often_as_stated(
    measured: Any, noise: Measure, sparse: bool
) -> None:
    found = measured(noise, sparse)
    trials, confidence = len(found.truth), 0.95
    least, most = limits(trials, confidence)
    # Clipped, an interval that lies below 0 as a whole still holds a true count of 0.
    most = trials if sparse else most
    for level, (_, low, high) in zip(
        found.plan.tree.level_counts(found.truth), found.levels, strict=True
    ):
        exact = np.asarray(level)
        covered = (low <= exact) & (exact <= high)
        assert least <= one_of_each(covered) <= most and not falls_short(covered)
    exact = np.cumsum(found.truth, axis=1)
    _, _, low, high = found.prefixes
    covered = (low <= exact) & (exact <= high)
    assert one_of_each(covered) >= least and not falls_short(covered)


@CASES
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_any_level_of_confidence_holds_and_is_not_wasted(
    measured: Any, noise: Measure, sparse: bool, confidence: float
) -> None:
    """Nodes, prefixes and ranges, at levels of confidence other than the release's."""
    found = measured(noise, sparse)
    plan, widths = found.plan, interval_widths(found.plan, confidence)
    least, most = limits(len(found.truth), confidence)
    errors = UniformErrors(plan)
    for level, (exact, (estimate, _, _)) in enumerate(
        zip(plan.tree.level_counts(found.truth), found.levels, strict=True)
    ):
        variance = [errors.node(level, n).variance for n in range(exact.shape[1])]
        margin = widths.levels[level] * np.sqrt(variance)
        assert least <= one_of_each(np.abs(estimate - exact) <= margin) <= most
    error = np.abs(found.prefixes[0] - np.cumsum(found.truth, axis=1))
    variance = found.prefixes[1] ** 2
    assert least <= one_of_each(error <= prefix_margin(widths.sloped, variance)) <= most
    assert one_of_each(error <= prefix_margin(widths.prefix, variance)) >= least
    before = np.pad(found.prefixes[0] - np.cumsum(found.truth, axis=1), ((0, 0), (1, 0)))
    ranges = [(3, 5), (0, 17), (7, 8), (11, 40), (20, 48), (31, 33)]
    covered = np.stack(
        [
            np.abs(before[:, stop] - before[:, start])
            <= range_margin(range_error(plan, start, stop), confidence) * (1 + 1e-12)
            for start, stop in ranges
        ],
        axis=1,
    )
    assert least <= one_of_each(covered) <= most


@CASES
def test_quantile_intervals_hold_the_true_quantile(
    measured: Any, noise: Measure, sparse: bool
) -> None:
    found = measured(noise, sparse)
    prefixes, (low, high) = np.cumsum(found.truth, axis=1), found.quantiles
    total = prefixes[:, -1:]
    ranks = np.maximum(1, np.ceil(np.asarray(QUANTILES) * total - 1e-9))
    cell = (prefixes[:, None, :] >= ranks[:, :, None]).argmax(axis=2)
    some = np.broadcast_to(total > 0, cell.shape)
    covered = ((low <= cell) & (cell <= high))[some.all(axis=1)]
    assert one_of_each(covered) >= limits(len(covered), 0.95)[0] and not falls_short(covered)


def test_ranges_that_are_requested_are_covered() -> None:
    question = make_question(leaves=LEAVES, keys=300, amount=Fraction(1, 10))
    counts = data(False)[:300]
    release = release_counts(
        make_release_plan(question), {question.name: counts}, ReleaseKey(bytes(32))
    )
    tree, covered = release.tree(question.name), 0
    for key in range(300):
        start = key % 40
        answer = tree.range(start, start + 5, key=f"k{key}")
        covered += answer.ci_low <= counts[key, start : start + 5].sum() <= answer.ci_high
    assert covered >= limits(300, 0.95)[0]


@pytest.mark.parametrize("noise", list(Measure))
def test_noise_that_is_too_large_is_noticed(noise: Measure) -> None:
    found = measure(
        noise,
        False,
        change_laws=lambda plan: replace_laws(plan, lambda law: scaled(law, Fraction(13, 10))),
    )
    least, _ = limits(len(found.truth), 0.95)
    for level, (_, low, high) in zip(
        found.plan.tree.level_counts(found.truth), found.levels, strict=True
    ):
        covered = (low <= level) & (level <= high)
        assert one_of_each(covered) < least and falls_short(covered)
    exact = np.cumsum(found.truth, axis=1)
    _, _, low, high = found.prefixes
    covered = (low <= exact) & (exact <= high)
    assert one_of_each(covered) < least and falls_short(covered)
