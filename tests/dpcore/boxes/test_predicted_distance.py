"""W1 that a plan predicts: the distance by brute force, and beside what releases of other shapes
measure."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from benchmarks.synthetic.__main__ import SOURCES, distance, streams
from benchmarks.synthetic.generators import box, real
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.question import (
    MOST_SIMULATED,
    HypercubeQuestion,
    PredictedDistance,
    _distance,
    _grown,
    predicted_distance,
)
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.boxes.boxes import box_domain, plan_question


def predicted(question: HypercubeQuestion, rows: int) -> PredictedDistance:
    found = predicted_distance(question.held, question.domain, rows)
    assert found is not None
    return found


def test_one_column_is_the_integral_of_the_difference() -> None:
    """Beside scipy's distance of samples: many even points in each part have its density."""
    domain = box_domain(2**12)
    question = plan_question(domain, "privhp", amount=Fraction(1, 4), depth=12)
    rng = np.random.default_rng(0)
    codes = np.sort((rng.beta(2, 5, 3000) * 2**12).astype(np.uint64))
    grown = _grown(question.held, domain, codes, 0)
    found = _distance(grown, codes, 12, np.array([1.0]), 1)
    spread = []
    for level, ends, counts in zip(
        grown.tree.levels, grown.tree.leaves(), grown.counts, strict=True
    ):
        for node, count in zip(level.nodes[ends], counts[ends], strict=True):
            spread.append((int(node) / 2**level.depth, 2.0**-level.depth, int(count)))
    inside = (np.arange(64) + 0.5) / 64
    points = np.concatenate([start + width * inside for start, width, _ in spread])
    weights = np.repeat([count for _, _, count in spread], 64)
    exact = stats.wasserstein_distance(codes / 2**12, points, v_weights=weights)
    assert found == pytest.approx(exact, rel=0.02)
    # Planted: rows that lie a tenth of the range further on.
    moved = np.minimum(codes + np.uint64(410), np.uint64(2**12 - 1))
    assert _distance(grown, moved, 12, np.array([1.0]), 1) > 3 * exact


def test_several_columns_have_the_bound_of_their_cells() -> None:
    domain = box_domain(16, 16)
    question = plan_question(domain, "privhp", amount=Fraction(1, 2), depth=6, bits_apart=2)
    rng = np.random.default_rng(1)
    codes = np.sort(rng.integers(0, 60, 400).astype(np.uint64))
    grown = _grown(question.held, domain, codes, 0)
    density = np.zeros(256)
    for level, ends, counts in zip(
        grown.tree.levels, grown.tree.leaves(), grown.counts, strict=True
    ):
        wide = 1 << (8 - level.depth)
        for node, count in zip(level.nodes[ends], counts[ends], strict=True):
            density[int(node) * wide : (int(node) + 1) * wide] += count / wide
    real_density = np.bincount(codes.astype(np.int64), minlength=256)
    sides, total = [1.0, 0.5, 0.25, 0.125, 0.0], 0.0
    for place in range(1, 5):
        cells = [each.reshape(4**place, -1).sum(1) for each in (density, real_density)]
        apart = np.abs(cells[0] / density.sum() - cells[1] / 400).sum() / 2
        total += (sides[place - 1] - sides[place]) * apart
    extents = np.array([1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0])
    assert _distance(grown, codes, 8, extents, 2) == pytest.approx(total)


@pytest.mark.parametrize("mechanism", ["planned", "privhp", "privhp_paper", "privtree", "pmm"])
@pytest.mark.parametrize("columns", [1, 2])
def test_other_shapes_are_as_far_off_as_predicted(mechanism: str, columns: int) -> None:
    """Within a factor of 2.5; at a tenth of the rows it is more than that off."""
    rows, domain = 4000, box(columns)
    generator = real(mechanism, mechanism)
    measured = []
    for name, source in SOURCES.items():
        for run in range(3):
            data, noise = streams("predicted", name, run, columns)
            points = source(data, rows, columns)
            measured.append(distance(points, generator.release(points, 1.0, noise)))
    typical = float(np.exp(np.mean(np.log(measured))))
    depth = {"depth": 12} if mechanism in ("pmm", "privhp_paper") else {}
    question = plan_question(
        domain, mechanism, amount=Fraction(1), **({"depth": None, "rows": rows} | depth)
    )
    found = predicted(question, rows)
    assert found.rows == rows and found.least <= found.typical <= found.most
    assert 1 / 2.5 < found.typical / typical < 2.5
    assert predicted(question, rows // 10).typical / typical > 2.5


def test_it_follows_from_the_plan_alone_and_falls_with_the_budget() -> None:
    domain = box_domain(64, 8, 1000)
    for measure in Measure:
        found = [
            predicted(plan_question(domain, measure=measure, amount=Fraction(each)), 3000).typical
            for each in ("1/100", "1", "100")
        ]
        assert found == sorted(found, reverse=True) and found[0] > 2 * found[-1]
    question = plan_question(domain, amount=Fraction(1))
    first = predicted(question, 3000)
    predicted_distance.cache_clear()
    assert predicted(question, 3000) == first


def test_what_would_take_long_is_not_simulated() -> None:
    domain = box_domain(2**10, 2**10)
    sketched = plan_question(
        domain, amount=Fraction(1), holding=Holding.SKETCH, width=2**20, most=64
    )
    assert predicted_distance(sketched.held, domain, 1000) is None
    small = plan_question(
        domain, amount=Fraction(1), holding=Holding.SKETCH, width=64, memory=2**16
    )
    assert predicted(small, 1000).typical > 0
    whole = plan_question(domain, "pmm", amount=Fraction(1), depth=19)
    assert predicted_distance(whole.held, domain, 1000) is None
    many = predicted(plan_question(domain, amount=Fraction(1)), 10**9)
    assert many.rows == MOST_SIMULATED


def test_one_column_of_few_cells_and_a_single_row() -> None:
    question = plan_question(box_domain(2, 3), amount=Fraction(1))
    assert 0 < predicted(question, 1).typical <= 1
    narrow = plan_question(box_domain(2), amount=Fraction(1))
    assert predicted(replace(narrow, name="narrow"), 50).typical < 0.5
