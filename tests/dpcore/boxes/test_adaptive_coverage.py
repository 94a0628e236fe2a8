"""Estimates of the adaptive partition, draw by draw: unbiased given the partition where numbers of
their own decide, with the stated variances; and what is read back of a release."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.partition import CodeCounts, NodeNoise, selection_biases
from dptrees.dpcore.boxes.parts import Box, interval, standard_margin
from dptrees.dpcore.boxes.released import CUTS, ReleasedHypercube
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.boxes.boxes import draw_rows, plan_question, released
from tests.dpcore.boxes.test_coverage import BOX, EXACT, FALSE_ALARM, WiderNoise, grown
from tests.dpcore.boxes.test_sketched_sums import estimate_weights

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


@pytest.mark.parametrize("measure", Measure)
def test_the_bias_of_selected_nodes_is_that_of_the_law(measure: Measure) -> None:
    """The mean of the noise beyond the threshold, summed over its law."""
    question = plan_question(
        BOX, "adaptive", depth=8, measure=measure, amount=AMOUNTS[measure], decided_apart=False
    )
    plan = question.plan
    assert isinstance(plan, AdaptivePartitionPlan)
    law, noise = plan.laws[1], np.arange(-4000, 4001)
    assert law is not None
    spread, threshold = np.sqrt(law.variance), plan.thresholds[1]
    exacts, stated = list[float](), list[float]()
    for count in threshold + np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * spread:
        beyond = law.pmf(noise) * (count + noise > threshold)
        exacts.append(float((noise * beyond).sum() / beyond.sum()))
        stated.append(float(plan.selection_bias(1, np.array([count]))[0]) / 1.5)
    # Gaussian noise has a lighter tail, and more of a bias where about half are split.
    close = np.allclose(stated, exacts, rtol=0.25, atol=0.03 * float(spread))
    assert close and np.allclose(stated, exacts, rtol=0.15) == (measure is Measure.EPSILON)


@pytest.mark.parametrize("measure", Measure)
def test_intervals_of_a_box_for_counts_hold(measure: Measure) -> None:
    """Intervals of nodes and of the sum of a level where all nodes hold about as many rows as
    decide, the worst case. Of the nodes that were split alone errors are too small even so, but by
    less than without the bias in them."""
    question = plan_question(
        BOX, "adaptive", depth=8, measure=measure, amount=AMOUNTS[measure], decided_apart=False
    )
    codes = np.arange(256, dtype=np.uint64)
    flat = CodeCounts.from_codes(BOX.bits, codes, np.ones(256, np.int64))
    margin, held, scores = standard_margin(measure, 0.95), list[float](), list[list[float]]()
    for draw in range(DRAWS):
        found = grown(question, draw, counts=flat)
        own, nodes = found.estimates[1], found.tree.levels[1].nodes
        biases = selection_biases(
            found.tree,
            question.plan.selection_bias,
            [each.estimate for each in found.estimates],
        )[1]
        off = own.estimate - flat.at(4, nodes)
        ends = interval(off + 1000, np.sqrt(own.variance + biases**2), margin, np.inf)
        held.append(((ends[0] <= 1000) & (ends[1] >= 1000)).mean())
        split = ~found.tree.leaves()[1]
        alone, total = np.sqrt(own.variance[split].sum()), off[split].sum()
        if split.any():
            ratios = [total / alone, total / np.hypot(alone, biases[split].sum())]
            whole = np.hypot(np.sqrt(own.variance.sum()), biases.sum())
            scores.append([*ratios, off.sum() / whole])
    limit = stats.norm.isf(FALSE_ALARM) / np.sqrt(DRAWS)
    assert np.mean(held) > 0.95 - limit * np.std(held)
    without, stated, level = np.square(scores).T
    assert level.mean() < 1 + limit * level.std()
    assert without.mean() - limit * without.std() > 2
    apart = 0.7 * without - stated
    assert apart.mean() > limit * apart.std()


def test_errors_of_a_box_for_counts_are_read_back_and_of_releases_without_them() -> None:
    question = plan_question(BOX, "adaptive", amount=Fraction(1), decided_apart=False)
    tree = released(question, draw_rows(BOX, 2000))

    def bare(kind: str, name: str, key: int, depth: int) -> pa.Table:
        table = tree._read(kind, name, key, depth)
        for column in ("std_error", "ci_low", "ci_high"):
            place = table.schema.get_field_index(column)
            table = table.set_column(place, column, pa.nulls(len(table), pa.float64()))
        return table

    earlier = ReleasedHypercube(question, bare)
    for depth in question.plan.depths:
        for own, other in zip(tree.top(9, depth), earlier.top(9, depth), strict=True):
            for name in ("estimate", "std_error", "ci_low", "ci_high", "count"):
                assert getattr(own, name) == pytest.approx(getattr(other, name))
    whole, cut = tree.count({0: (0, 8), 1: (4, 16)}), tree.count({0: (1, 15), 1: (1, 15)})
    assert whole.std_error is not None and whole.ci_low < whole.estimate < whole.ci_high
    assert cut.std_error is None and cut.remark == CUTS
    assert cut.ci_low < cut.estimate < cut.ci_high


def test_quantiles_of_a_column_are_between_boundaries_that_are_not_ruled_out() -> None:
    """By every boundary of parts, with the variances of a sum over all parts."""
    question = plan_question(BOX, "adaptive", amount=Fraction(1, 4), decided_apart=True)
    tree = released(question, draw_rows(BOX, 2000))
    for fraction in (0.1, 0.5, 0.8):
        edges, _ = tree.below(0)
        possible = []
        for low, high in pairwise(edges.tolist()):
            too_few = sum_of_parts(tree, [(0, high), (0, 16)], fraction, np.ceil)
            too_many = sum_of_parts(tree, [(0, low), (0, 16)], fraction, np.floor)
            if too_few[1] >= 0 and too_many[0] <= 0:
                possible += [low, high]
        row = tree.select_column("c0").quantile(fraction)
        assert (row["ci_low"], row["ci_high"]) == (min(possible), max(possible) - 1)


def sum_of_parts(
    tree: ReleasedHypercube, sides: Box, fraction: float, rounded: Callable[[Floats], Floats]
) -> tuple[float, float]:
    """The interval of the rows of a box less a fraction of all, by dense least squares."""
    partition, estimate, weight = tree.partition, 0.0, 0.0
    assert partition.squares is not None
    weights = estimate_weights(partition.squares.tree)
    for place, ends in enumerate(partition.tree.leaves()):
        own = rounded(partition.covered(place, np.arange(len(ends)), sides)) - fraction
        estimate += float((own * ends) @ partition.estimates[place])
        weight = weight + (own * ends) @ weights[place]
    flat = np.concatenate([level.variance for level in partition.squares.tree.levels])
    error = np.sqrt(np.square(weight) @ np.where(np.isinf(flat), 0.0, flat) + 1 / 6)
    half = standard_margin(Measure.EPSILON, 0.95) * error + 0.5
    return estimate - half, estimate + half
