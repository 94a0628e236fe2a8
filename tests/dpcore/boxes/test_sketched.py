"""Counts of nodes from noisy tables: the stated errors are the errors found."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.boxes.held_counts import SketchedCounts
from dptrees.dpcore.boxes.plan import GrowthRule, Holding, LevelSketches, PartitionPlan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.source import add_noise
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
from dptrees.dpcore.sketches.estimates import SketchEstimator
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape, update

Z = 4.9
DEPTHS = (0, 2, 20)
ROWS = np.round(4000 / np.arange(1, 301)).astype(np.int64)
CODES = np.arange(300, dtype=np.uint64) * np.uint64(3400)


def make_plan(
    kind: SketchKind, rows: int, *, estimator: SketchEstimator | None = None, width: int = 128
) -> PartitionPlan:
    return PartitionPlan(
        depths=DEPTHS,
        amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
        measure=Measure.EPSILON,
        unit=ADD_REMOVE_ROW,
        rule=GrowthRule(most=4),
        holding=Holding.SKETCH,
        sketches=LevelSketches(
            shape=SketchShape(kind=kind, rows=rows, width=width), counters=1, estimator=estimator
        ),
    )


def sketch_counts(plan: PartitionPlan, draw: int, rows: np.ndarray = ROWS) -> SketchedCounts:
    assert plan.sketches is not None
    shape = plan.sketches.shape
    hashes = shape.hashes(public_stream("sketched", draw), DEPTHS[2])
    table = shape.empty()
    update(hashes, table, CODES, rows)
    law = plan.laws[2]
    assert law is not None
    return SketchedCounts(
        plan=plan,
        counters=[np.zeros(1, np.int64), np.array([5, -6, 7, 8])],
        tables={2: add_noise(law, table, public_stream("sketched noise", draw))},
        hashes={2: hashes},
    )


def test_counters_are_reported_as_they_are() -> None:
    counts = sketch_counts(make_plan(SketchKind.COUNT_MIN, 1), 0)
    found = counts.at(1, 2, np.array([3, 1], np.uint64))
    law = DiscreteLaplace(scale=Fraction(2))
    assert found.estimate.tolist() == [8.0, -6.0] and found.variance.tolist() == [law.variance] * 2
    root = counts.at(0, 0, np.zeros(1, np.uint64))
    assert root.estimate.tolist() == [0.0] and root.variance.tolist() == [np.inf]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", SketchKind)
def test_the_error_of_absent_codes_is_the_one_reported(kind: SketchKind, rows: int) -> None:
    """Bias 0 and the variance of the table at hand, over draws of functions and noise; 30 % off in
    scale is seen."""
    plan, draws = make_plan(kind, rows), 300
    absent = np.arange(1, 200, dtype=np.uint64) * np.uint64(5) + np.uint64(2**19)
    means, ratios = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        found = sketch_counts(plan, draw).at(2, 20, absent)
        means[draw] = found.estimate.mean() / np.sqrt(found.variance[0])
        ratios[draw] = (found.estimate**2).mean() / found.variance[0]
    for values, expected, planted in ((means, 0.0, 0.3), (ratios, 1.0, 1.69)):
        margin = Z * values.std(ddof=1) / np.sqrt(draws)
        assert abs(values.mean() - expected) < margin + 0.03
        assert abs(values.mean() - planted) > margin + 0.03


def test_an_estimator_that_is_requested_is_taken() -> None:
    absent = np.arange(400, dtype=np.uint64) + np.uint64(2**19)
    by = {
        each: sketch_counts(make_plan(SketchKind.COUNT_MIN, 5, estimator=each), 1).at(2, 20, absent)
        for each in (None, SketchEstimator.MEAN, SketchEstimator.MEDIAN, SketchEstimator.MINIMUM)
    }
    variances = {each: found.variance[0] for each, found in by.items()}
    assert len({found.estimate.tobytes() for each, found in by.items() if each}) == 3
    least = min(value for each, value in variances.items() if each)
    assert variances[None] == least


def test_a_table_of_zeros_is_no_table_of_known_counts() -> None:
    counts = sketch_counts(make_plan(SketchKind.COUNT_SKETCH, 1), 0, np.zeros(300, np.int64))
    counts.tables[2][:] = 0
    found = counts.at(2, 20, CODES)
    assert not found.estimate.any() and (found.variance > 0).all()
