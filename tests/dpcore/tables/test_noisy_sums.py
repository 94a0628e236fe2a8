"""Sums of noisy counts: rectangles by brute force, coverage of intervals draw by draw."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.estimates import MeasuredTables, NoisySum, PairTable, margins
from dptrees.dpcore.tables.plan import MarginalsPlan, TableShape

FALSE_ALARM, DRAWS = 1e-6, 500
SHAPE = TableShape(sizes=(6, 4))
# Groups of cells that do not lie side by side.
ROWS, COLUMNS = np.array([0, 0, 1, 2, 1, 2]), np.array([0, 1, 1, 0])
EXACT = np.arange(24).reshape(6, 4)


def plan(measure: Measure, amount: Fraction) -> MarginalsPlan:
    budget = Budget(measure=measure, amount=amount)
    return MarginalsPlan.planned(shape=SHAPE, unit=ADD_REMOVE_ROW, budget=budget)


def grouped(table: np.ndarray) -> np.ndarray:
    sums = np.zeros((3, 2), np.int64)
    np.add.at(sums, (ROWS[:, None], COLUMNS[None]), table)
    return sums


def noisy(made: MarginalsPlan, draw: Callable[[NoiseLaw, int], np.ndarray]) -> MeasuredTables:
    """The tables of `EXACT` with noise."""
    ones, law = (EXACT.sum(1), EXACT.sum(0)), made.law(made.pair_amount)
    pair = PairTable(
        first=0,
        second=1,
        rows=ROWS,
        columns=COLUMNS,
        counts=grouped(EXACT) + draw(law, 6).reshape(3, 2),
        amount=made.pair_amount,
    )
    laws = map(made.law, made.column_amounts(made.designs[0]))
    columns = tuple(counts + draw(law, len(counts)) for counts, law in zip(ones, laws, strict=True))
    return MeasuredTables(plan=made, columns=columns, pairs=(pair,))


def silent(law: NoiseLaw, size: int) -> np.ndarray:
    return np.zeros(size, np.int64)


def test_rectangles_by_brute_force() -> None:
    tables = noisy(plan(Measure.EPSILON, Fraction(1)), silent)
    for start, stop in [(0, 2), (0, 6), (1, 5), (2, 2), (3, 6)]:
        for first, last in [(0, 4), (1, 3), (0, 1)]:
            found = tables.rectangle((0, 1), (start, stop), (first, last))
            assert found is not None
            inside = {(i, j) for i in range(start, stop) for j in range(first, last)}
            groups = {
                (g, h): {
                    (i, j) for i in range(6) for j in range(4) if (ROWS[i], COLUMNS[j]) == (g, h)
                }
                for g in range(3)
                for h in range(2)
            }
            whole = [cells for cells in groups.values() if cells <= inside]
            touched = [cells for cells in groups.values() if cells & inside]
            for found_sum, chosen in ((found.inner, whole), (found.outer, touched)):
                assert found_sum.estimate == sum(EXACT[cell] for cells in chosen for cell in cells)
            assert found.cuts == (len(whole) != len(touched))
    assert tables.rectangle((0, 2), (0, 1), (0, 1)) is None


def covered(measure: Measure, amount: Fraction, *, wrong: float = 1.0) -> dict[str, int]:
    """How often the intervals of a column's range, of a rectangle and of the total hold."""
    made = plan(measure, amount)
    stream = ReleaseKey(bytes(32)).stream("coverage", measure.value, str(amount))
    held = dict.fromkeys(("range", "rectangle", "total"), 0)
    truths = {"range": EXACT.sum(1)[1:4].sum(), "rectangle": 0, "total": EXACT.sum()}
    truths["rectangle"] = EXACT[[0, 1]][:, [0, 3]].sum() + EXACT[[0, 1]][:, [1, 2]].sum()
    halves: dict[str, float] = {}
    for _ in range(DRAWS):
        tables = noisy(made, lambda law, size: law.sample(stream, size))
        rectangle = tables.rectangle((0, 1), (0, 2), (0, 4))
        assert rectangle is not None and not rectangle.cuts
        sums = {"range": tables.column_sum(0, 1, 4), "rectangle": rectangle.inner}
        for name, each in (sums | {"total": tables.total}).items():
            if name not in halves:  # the law is the same in every draw
                halves[name] = each.law.half_width(0.9) * wrong
            held[name] += abs(each.estimate - truths[name]) <= halves[name]
    return held


@pytest.mark.parametrize("measure", Measure)
def test_intervals_hold_as_often_as_they_say(measure: Measure) -> None:
    least, most = stats.binom.ppf([FALSE_ALARM / 3, 1 - FALSE_ALARM / 3], DRAWS, [0.9, 0.94])
    found = covered(measure, Fraction(1, 4))
    assert all(least <= held <= most for held in found.values()), found


def test_intervals_that_are_too_narrow_are_found() -> None:
    least = stats.binom.ppf(FALSE_ALARM / 3, DRAWS, 0.9)
    assert min(covered(Measure.EPSILON, Fraction(1, 4), wrong=0.6).values()) < least


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_margins_of_many_sums_are_no_narrower_than_their_laws(confidence: float) -> None:
    """Weights are equal, or a quantile's; scales are large and small."""
    for measure, amount in [(each, Fraction(1, n)) for each in Measure for n in (4, 100)]:
        law = plan(measure, amount).law(amount / 5)
        for terms in (
            *(((law, 1.0, cells),) for cells in (1, 2, 5, 20)),
            ((law, 0.9, 3), (law, 0.1, 17)),
            ((law, 0.5, 2), (law, 0.5, 5)),
        ):
            found = NoisySum(estimate=0.0, terms=terms)
            own = np.array([found.law.variance])
            assert margins(law, own, confidence)[0] >= found.half_width(confidence) - 1e-9


def test_differences_of_a_quantile_by_hand() -> None:
    made = plan(Measure.EPSILON, Fraction(1))
    tables = noisy(made, silent)
    found, variances = tables.differences(1, 0.25)
    below = np.concatenate([[0], np.cumsum(EXACT.sum(0))])
    np.testing.assert_allclose(found, 0.75 * below - 0.25 * (below[-1] - below))
    parts = [0.0625 * 4, 0.5625 + 0.0625 * 3, 2 * 0.5625 + 2 * 0.0625, 3 * 0.5625 + 0.0625, 2.25]
    np.testing.assert_allclose(variances, tables.column_law(1).variance * np.array(parts))
