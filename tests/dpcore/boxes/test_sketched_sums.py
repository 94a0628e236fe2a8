"""Errors of sums of sketched counts: the covariance by all hash functions, variances by matrices,
coverage by releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.partition import GrownTree, least_squares, with_variances
from dptrees.dpcore.boxes.parts import ReleasedPartition, box_sums, interval, standard_margin
from dptrees.dpcore.boxes.plan import Holding, PartitionPlan
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.sketches.estimates import SketchEstimator, row_variance
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from tests.dpcore.boxes.boxes import box_domain, covered_shares, plan_question, released, rows_in
from tests.dpcore.boxes.grown_trees import ROOTS, random_tree, sum_variance
from tests.dpcore.boxes.test_sketched import make_plan

FALSE_ALARM = 1e-6


# --- the covariance of the errors in one table ---


def covariance(counts: Floats, *, width: int, signed: bool, noise: float) -> Floats:
    """E of products of two codes' errors, over every choice of columns and signs."""
    codes = len(counts)
    total, many = np.zeros((codes, codes)), 0
    for columns in product(range(width), repeat=codes):
        for signs in product((1.0, -1.0), repeat=codes if signed else 0):
            own = np.array(signs) if signed else np.ones(codes)
            cells = np.zeros((codes, width))  # how each code's estimate reads the table
            cells[np.arange(codes), columns] = own
            if not signed:
                cells = (width * cells - 1) / (width - 1)
            table = np.bincount(columns, own * counts, width)
            error = cells @ table - counts
            total += np.outer(error, error) + noise * cells @ cells.T
            many += 1
    return total / many


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("width", [2, 4])
def test_the_covariance_is_the_one_stated_and_below_the_bound(kind: SketchKind, width: int) -> None:
    counts, noise = np.array([7.0, 1.0, 4.0, 2.0]), 3.0
    signed = kind is SketchKind.COUNT_SKETCH
    found = covariance(counts, width=width, signed=signed, noise=noise)
    over = width if signed else width - 1
    f2, own = counts @ counts, noise if signed else noise * width / (width - 1)
    stated = own * np.eye(4)
    stated += (f2 * np.eye(4) + np.outer(counts, counts) - 2 * np.diag(counts**2)) / over
    assert np.allclose(found, stated)
    shape = SketchShape(kind=kind, rows=1, width=width)
    measured = row_variance(shape, f2=f2, noise_variance=noise)
    plan = make_plan(kind, 1, width=width)
    law = plan.laws[2]
    assert law is not None
    (*_, error) = plan.sketch_errors([0.0, 0.0, measured - own + own * law.variance / noise]) or []
    assert error.noise == pytest.approx(own * law.variance / noise)
    assert error.collisions == pytest.approx(2 * f2 / over)
    bound = own + error.collisions
    assert np.linalg.eigvalsh(found).max() <= bound
    # Planted: what independent errors would have is below the largest sums.
    assert np.linalg.eigvalsh(found).max() > measured


def test_means_of_several_rows_have_a_part_and_medians_have_no_stated_error() -> None:
    for kind in SketchKind:
        plan = make_plan(kind, 3, estimator=SketchEstimator.MEAN)
        one, mean = make_plan(kind, 1).sketch_errors([1e9] * 3), plan.sketch_errors([1e9] * 3)
        assert one and mean
        times = plan.laws[2].variance / make_plan(kind, 1).laws[2].variance  # type: ignore[union-attr]
        assert mean[2].noise == pytest.approx(one[2].noise * times / 3)
        assert make_plan(kind, 3).sketch_errors([1e9] * 3) is None
    median = make_plan(SketchKind.COUNT_MIN, 1, estimator=SketchEstimator.MEDIAN)
    assert median.sketch_errors([1e9] * 3) is None


# --- other variances than the weights have ---


def estimate_weights(tree: GrownTree) -> list[Floats]:
    """Weights (n, measurements) of the least squares estimates of each level, by their values for
    each measurement alone."""
    sizes = [len(level) for level in tree.levels]
    results = [np.zeros((size, sum(sizes))) for size in sizes]
    number = 0
    for place, size in enumerate(sizes):
        for node in range(size):
            levels = [replace(level, value=np.zeros(len(level))) for level in tree.levels]
            if levels[place].variance[node] > 0:
                levels[place].value[node] = 1.0
            found = least_squares(GrownTree(levels=tuple(levels))).estimates
            for result, own in zip(results, found, strict=True):
                result[:, number] = own.estimate
            number += 1
    return results


def measured(tree: GrownTree, variances: Sequence[float]) -> Floats:
    """The variance of each measurement, from one variance a level; 0 of known counts."""
    levels = zip(tree.levels, variances, strict=False)
    return np.concatenate([np.where(level.variance > 0, own, 0.0) for level, own in levels])


@pytest.mark.parametrize("root", ROOTS)
def test_other_variances_are_sums_of_squared_weights(root: str) -> None:
    rng, apart = np.random.default_rng(ROOTS.index(root)), 0
    for _ in range(12):
        tree = random_tree(rng, root)
        found, others = least_squares(tree), rng.uniform(0, 9, len(tree.levels))
        others[0] *= root == "measured"
        spread, weights = with_variances(found, others), estimate_weights(tree)
        flat = measured(tree, others)
        for own, weight in zip(spread.estimates, weights, strict=True):
            assert np.allclose(own.variance, np.square(weight) @ flat)
        leaves = [ends * rng.normal(size=len(ends)) for ends in tree.leaves()]
        summed = sum(each @ weight for each, weight in zip(leaves, weights, strict=True))
        exact = float(np.square(summed) @ flat)
        assert sum_variance(found, leaves, spread) == pytest.approx(exact)
        # Planted: what least squares would have; some trees are known exactly.
        apart += sum_variance(found, leaves) != pytest.approx(exact)
        # The variances that gave the weights are the least squares ones.
        same = with_variances(
            found,
            [
                float(level.variance.max()) if place or root == "measured" else 0.0
                for place, level in enumerate(tree.levels)
            ],
        )
        for own, level in zip(same.estimates, found.estimates, strict=True):
            assert np.allclose(own.variance, level.variance)
    assert apart > 8


def test_boxes_have_the_variance_of_their_weights() -> None:
    """By the covariance matrix of the measurements; a box that cuts parts too."""
    tree = noisy_tree(0, heavy=40)
    partition = tree.partition
    assert partition.squares is not None and partition.errors is not None
    weights = estimate_weights(partition.squares.tree)
    leaves = partition.tree.leaves()
    rng, checked = np.random.default_rng(3), 0
    for _ in range(40):
        ends = np.sort(rng.choice(DOMAIN.axes[0].cells + 1, 2, replace=False))
        sides = [(int(ends[0]), int(ends[1]))]
        shares = covered_shares(partition, sides)
        own = sum(
            (
                share[flags] @ weight[flags]
                for share, flags, weight in zip(shares, leaves, weights, strict=True)
            ),
            np.zeros(weights[0].shape[1]),
        )
        noise, collided = (
            float(np.square(own) @ measured(partition.squares.tree, errors))
            for errors in zip(*partition.errors, strict=True)
        )
        even = box_sums(partition, sides).even
        assert even.std_error == pytest.approx(np.sqrt(noise + collided))
        assert even.collisions == pytest.approx(np.sqrt(collided))
        checked += 0 < collided < noise + collided
    assert checked > 30


def test_old_releases_without_the_column_say_as_little_as_before() -> None:
    tree = noisy_tree(0, heavy=40)
    known = tree.partition
    bare = ReleasedPartition(
        domain=known.domain, depths=known.depths, variances=None, read=known.read
    )
    assert box_sums(bare, [(0, 100)]).even.std_error is None


# --- coverage ---

DOMAIN = box_domain(1024)
WIDTH = 64
SIDES = ((0, 1024), (0, 512), (128, 160), (0, 17), (300, 301))


@cache
def heavy_rows(heavy: int) -> pa.RecordBatch:
    """Rows in some equally heavy values and single ones between: with the width over 9 to 30 of
    them, collisions have the tails that normal margins miss."""
    places = np.linspace(3, 1020, heavy).astype(np.int64)
    return pa.record_batch({"c0": np.concatenate([np.repeat(places, 400), np.arange(1024)])})


def noisy_tree(
    draw: int, *, heavy: int, kind: SketchKind = SketchKind.COUNT_SKETCH, amount: int = 20
) -> ReleasedHypercube:
    question = plan_question(
        DOMAIN, amount=Fraction(amount), depth=10, bits_apart=5, most=2**10, split_errors=0.0,
        holding=Holding.SKETCH, sketch=kind, width=WIDTH,
    )  # fmt: skip
    plan = question.plan
    assert isinstance(plan, PartitionPlan) and plan.sketches is not None
    # Nothing but sketches: what they are wrong by shows.
    plan = replace(plan, sketches=replace(plan.sketches, counters=0))
    question = replace(question, plan=plan)
    rows = heavy_rows(heavy)
    return released(question, rows, ReleaseKey(draw.to_bytes(32, "big")))


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("heavy", [5, 60])
def test_intervals_of_boxes_hold_as_often_as_stated(kind: SketchKind, heavy: int) -> None:
    draws, confidence = 150, 0.9
    held, planted = np.zeros(len(SIDES), np.int64), np.zeros(len(SIDES), np.int64)
    squares = np.zeros((draws, len(SIDES)))
    margin = standard_margin(Measure.EPSILON, confidence)
    for draw in range(draws):
        tree = noisy_tree(draw, heavy=heavy, kind=kind).at_confidence(confidence)
        for place, side in enumerate(SIDES):
            truth, answer = rows_in(heavy_rows(heavy), {"c0": side}), tree.box({"c0": side})
            inner = tree.box_sums([side]).inner if answer.std_error is None else None
            held[place] += answer.ci_low <= truth <= answer.ci_high
            if inner is None and answer.std_error is not None:
                squares[draw, place] = ((answer.estimate - truth) / answer.std_error) ** 2
                noise = np.sqrt(answer.std_error**2 - tree.box_sums([side]).even.collisions ** 2)
                low, high = interval(answer.estimate, noise, margin, np.inf)
                planted[place] += float(low) <= truth <= float(high)
    least = stats.binom.ppf(FALSE_ALARM / len(SIDES), draws, confidence)
    assert held.min() >= least
    # Intervals of the noise alone miss.
    assert planted[0] < least
    # The bound is not exceeded, nor more than twice the mean square.
    margin = 5.5 * squares.std(axis=0) / np.sqrt(draws)
    assert (squares.mean(axis=0) - margin < 1).all()
    assert squares[:, :3].mean() > 0.3
