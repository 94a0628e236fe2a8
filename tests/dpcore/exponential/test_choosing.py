from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.exponential.plan import margins, rank_errors
from dptrees.dpcore.exponential.quantiles import chosen_quantiles
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.exponential.plans import make_plan

THREE = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
NINE = tuple(Fraction(each, 10) for each in range(1, 10))


def ranks_off(counts: np.ndarray, quantiles: tuple[Fraction, ...], cells: np.ndarray) -> np.ndarray:
    """(quantiles,) how far the wanted ranks are from the ranks of the cells."""
    upto = np.cumsum(counts)
    ranks = np.array([float(each) for each in quantiles]) * upto[-1]
    return np.maximum(np.maximum((upto - counts)[cells] - ranks, ranks - upto[cells]), 0)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12),
    st.lists(st.fractions(0, 1), min_size=1, max_size=7, unique=True),
    st.sampled_from(Measure),
    st.integers(),
)
def test_quantiles_rise(
    counts: list[int], quantiles: list[Fraction], measure: Measure, seed: int
) -> None:
    inner = tuple(sorted(each for each in quantiles if 0 < each < 1)) or (Fraction(1, 2),)
    plan = make_plan(len(counts), inner, Fraction(1), measure)
    found = chosen_quantiles(np.array(counts), plan, public_stream("rise", seed))
    values = found.cells + found.shares
    assert np.all(np.diff(values) >= 0)
    assert found.cells.min() >= 0 and found.cells.max() < len(counts)
    assert np.all((found.shares >= 0) & (found.shares <= 1))


@pytest.mark.parametrize("measure", Measure)
def test_with_much_budget_they_are_the_quantiles(measure: Measure) -> None:
    """Also where a cell holds most rows, and where a quantile lies between two cells."""
    counts = np.array([0, 3, 700, 1, 0, 0, 200, 0, 96, 0])
    plan = make_plan(10, NINE, Fraction(2000), measure)
    found = chosen_quantiles(counts, plan, public_stream("much"))
    # A cell is parted in 4,096 steps, of .17 rows here.
    assert ranks_off(counts, NINE, found.cells).max() < 1


@pytest.mark.parametrize("measure", Measure)
def test_ranks_are_off_as_predicted(measure: Measure) -> None:
    """A row to a cell: as densely as the model has it. Permute-and-flip is nearer than it by up to
    a factor of sqrt(2), and so are the middle ones of a few choices."""
    counts = np.ones(4000, np.int64)
    plan = make_plan(4000, NINE, Fraction(1, 2), measure)
    draws = 40
    found = np.array(
        [
            ranks_off(counts, NINE, chosen_quantiles(counts, plan, public_stream(number)).cells)
            for number in range(draws)
        ]
    )
    mean_square = np.sqrt((found**2).mean(axis=0))
    predicted = np.array(rank_errors(plan))
    # A mean of 40 squares of two-sided exponentials, of kurtosis 6: 5 standard errors, a factor
    # of 1.67 in the root.
    assert np.all(mean_square < 1.67 * predicted)
    assert mean_square.mean() > 0.6 * predicted.mean()


@pytest.mark.parametrize("shape", ["dense", "one cell", "few rows"])
def test_margins_hold(shape: str) -> None:
    """At 90 %, in any data; they are bounds, so they hold more often."""
    counts = {
        "dense": np.full(500, 3),
        "one cell": np.bincount([250] * 3000 + [3, 400], minlength=500),
        "few rows": np.bincount([7, 9, 300, 310, 499], minlength=500),
    }[shape]
    plan = make_plan(500, THREE, Fraction(1))
    allowed = margins(plan, 0.9)
    most = np.array([each.rows + each.share * counts.sum() for each in allowed])
    misses = 0
    for number in range(60):
        found = chosen_quantiles(counts, plan, public_stream(shape, number))
        misses += int((ranks_off(counts, THREE, found.cells) > most).sum())
    # 180 in all, dependent within a draw: 18 expected at most.
    assert misses < 18


@pytest.mark.parametrize(
    "fractions",
    [("0.5", "0.99999", "0.999999"), ("0.000005", "0.5", "0.9"), ("0.0000004",), ("1e-7",)],
)
def test_margins_hold_of_quantiles_beyond_the_denominators(fractions: tuple[str, ...]) -> None:
    """Check the margins for 10^9 rows: nearly all in the middle cell, one in each other cell."""
    cells, rows = 100_000, 10**9
    counts = np.ones(cells, np.int64)
    counts[cells // 2] = rows - cells + 1
    quantiles = tuple(map(Fraction, fractions))
    plan = make_plan(cells, quantiles, Fraction(1))
    allowed = [margin.rows + margin.share * rows for margin in margins(plan, 0.95)]
    found = [
        ranks_off(counts, quantiles, chosen_quantiles(counts, plan, public_stream("few", n)).cells)
        for n in range(20)
    ]
    assert np.mean(np.array(found) <= allowed, axis=0).min() >= 0.95


def test_what_a_rounded_part_misses_is_in_its_margin() -> None:
    for fraction, missed in (("1e-7", 1e-7), ("4e-7", 0.0), ("0.3", 0.0)):
        plan = make_plan(100, (Fraction(fraction),), Fraction(1))
        assert margins(plan, 0.95)[0].share == missed


def test_no_rows_and_a_single_cell_give_quantiles_all_the_same() -> None:
    for counts in (np.zeros(5, np.int64), np.array([9])):
        plan = make_plan(len(counts), NINE)
        found = chosen_quantiles(counts, plan, public_stream(1))
        assert len(found.cells) == 9 and found.cells.max() < len(counts)


def test_as_many_rows_as_there_can_be() -> None:
    """Ranks times denominators, and steps inside a cell, do not overflow."""
    counts = np.array([2**38, 2**39, 2**38], np.int64)
    quantiles = tuple(Fraction(each, 999_983) for each in (1, 333_333, 500_000, 999_982))
    found = chosen_quantiles(counts, make_plan(3, quantiles, Fraction(1, 1000)), public_stream(1))
    assert found.cells.tolist() == [0, 1, 1, 2]
