"""Estimates of the adaptive partition, draw by draw: unbiased given the partition where numbers of
their own decide, with the stated variances; and what is read back of a release."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.partition import NodeNoise
from dptrees.dpcore.boxes.parts import interval, standard_margin
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.boxes.boxes import draw_rows, plan_question, released
from tests.dpcore.boxes.test_coverage import BOX, EXACT, FALSE_ALARM, WiderNoise, grown

DRAWS = 400
AMOUNTS = {Measure.EPSILON: Fraction(1, 2), Measure.RHO: Fraction(1, 50)}


@cache
def drawn(
    measure: Measure, *, apart: bool, noise_class: type[NodeNoise] = NodeNoise
) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """For each draw the estimates of the nodes below the root, their standard errors, the exact
    counts, and which nodes of the first level are split."""
    question = plan_question(
        BOX, "adaptive", depth=8, measure=measure, amount=AMOUNTS[measure], decided_apart=apart
    )
    draws = []
    for draw in range(DRAWS):
        found = grown(question, draw, noise_class)
        levels = list(zip(found.tree.levels, found.estimates, strict=True))[1:]
        truth = [EXACT.at(level.depth, level.nodes) for level, _ in levels]
        draws.append(
            (
                np.concatenate([own.estimate for _, own in levels]),
                np.concatenate([np.sqrt(own.variance) for _, own in levels]),
                np.concatenate(truth).astype(np.float64),
                ~found.tree.leaves()[1],
            )
        )
    return draws


def scores(measure: Measure, *, apart: bool) -> tuple[Floats, Floats]:
    """(draws,) the mean of the errors of split nodes of the first level, in standard errors; and
    the mean square of the errors of all nodes."""
    means, squares = [], []
    for estimate, error, truth, split in drawn(measure, apart=apart, noise_class=NodeNoise):
        z = (estimate - truth) / error
        means.append(z[: len(split)][split].mean())
        squares.append((z**2).mean())
    return np.array(means), np.array(squares)


@pytest.mark.parametrize("measure", Measure)
def test_decided_apart_estimates_are_unbiased_with_the_variances_reported(measure: Measure) -> None:
    """Where measurements decide the same test finds the bias."""
    limit = stats.norm.isf(FALSE_ALARM / 2)
    means, squares = scores(measure, apart=True)
    assert abs(means.mean()) < limit * means.std() / np.sqrt(DRAWS)
    margin = 1.3 * limit * squares.std() / np.sqrt(DRAWS)
    assert abs(squares.mean() - 1) < margin < 0.3
    means, _ = scores(measure, apart=False)
    assert means.mean() > limit * means.std() / np.sqrt(DRAWS)


@pytest.mark.parametrize("measure", Measure)
def test_intervals_hold(measure: Measure) -> None:
    """Over all nodes of all draws; not so of noise 30 % wider than stated."""
    margin = standard_margin(measure, 0.95)
    for noise_class in (NodeNoise, WiderNoise):
        held = []
        for estimate, error, truth, _ in drawn(measure, apart=True, noise_class=noise_class):
            low, high = interval(estimate, error, margin, np.inf)
            held.append(((low <= truth) & (truth <= high)).mean())
        limit = stats.norm.isf(FALSE_ALARM) * np.std(held) / np.sqrt(DRAWS)
        assert limit < 0.01
        # Noise 30 % narrower than stated would be covered by 98 % or more.
        assert (0.95 - limit < np.mean(held) < 0.97) == (noise_class is NodeNoise)


def test_variances_are_read_back() -> None:
    """Check the variances of the nodes that were split, and of those measured again."""
    question = plan_question(BOX, "adaptive", amount=Fraction(1))
    tree = released(question, draw_rows(BOX, 2000))
    squares = tree.partition.squares
    assert squares is not None and len(squares.estimates) == len(question.plan.depths)
    for depth, level, own in zip(
        question.plan.depths, tree.partition.tree.levels, squares.estimates, strict=True
    ):
        rows = tree._rows(depth)
        reported = dict(zip(rows["node"].to_pylist(), rows["std_error"].to_pylist(), strict=True))
        expected = [reported[node] for node in level.nodes.tolist()]
        assert np.sqrt(own.variance) == pytest.approx(np.array(expected))


def test_a_box_of_whole_nodes_has_an_error_and_one_that_cuts_parts_a_bound() -> None:
    question = plan_question(BOX, "adaptive", amount=Fraction(1, 10))
    tree = released(question, draw_rows(BOX, 2000))
    whole = tree.count({0: (0, 8), 1: (4, 16)})
    assert whole.std_error is not None and whole.ci_low < whole.estimate < whole.ci_high
    cut = tree.count({0: (1, 15), 1: (1, 15)})
    assert cut.std_error is None and cut.ci_low <= cut.estimate <= cut.ci_high


def test_of_a_box_for_counts_no_error_is_stated() -> None:
    question = plan_question(BOX, "adaptive", amount=Fraction(1), decided_apart=False)
    tree = released(question, draw_rows(BOX, 2000))
    for depth in question.plan.depths:
        rows = tree._rows(depth)
        assert rows["estimate"].null_count == 0
        for name in ("std_error", "ci_low", "ci_high"):
            assert rows[name].null_count == len(rows)
    whole, cut = tree.count({0: (0, 8), 1: (4, 16)}), tree.count({0: (1, 15), 1: (1, 15)})
    for answer in (whole, cut, *tree.top(3, question.plan.depths[1])):
        assert answer.std_error is None and answer.remark is not None
        assert (answer.ci_low, answer.ci_high) == (-np.inf, np.inf)
    with pytest.raises(ValueError, match="confidence: "):
        tree.at_confidence(0.5)
