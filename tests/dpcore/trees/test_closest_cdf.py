"""The closest CDF: against all monotone sequences, and the fast ones against the general one."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from dptrees.dpcore.trees.closest_cdf import (
    closest_cdf,
    closest_cdf_l1,
    closest_cdf_l2,
    closest_cdf_linf,
)
from dptrees.dpcore.trees.isotonic import isotonic_rows
from tests.dpcore.cases import for_each

Array = npt.NDArray[Any]
Distance = Callable[[Array, Array], Any]


def absolute(x: Array, h: Array) -> Any:
    return np.abs(x - h)


def squared(x: Array, h: Array) -> Any:
    return (x - h) ** 2


def hamming(x: Array, h: Array) -> Any:
    return x != h


def uneven(x: Array, h: Array) -> Any:
    """Neither convex nor symmetric; too high is forbidden past 2."""
    return np.where(x > h + 2, np.inf, np.minimum(1.5, np.abs(x - h) * np.where(x < h, 3, 1)))


def mixed(x: Array, h: Array) -> Any:
    """Without any shape: as good as a random table, in quarters."""
    return (np.asarray(x * 7 + h * 8).astype(np.int64) * 2654435761 >> 7) % 9 / 4


FAST = {"l1": (closest_cdf_l1, absolute), "l2": (closest_cdf_l2, squared)}
fast = pytest.mark.parametrize(("closest", "distance"), FAST.values(), ids=FAST)

# Eighths make costs exact, so that ties are ties.
eighths = st.integers(-30, 80).map(lambda n: n / 8)
halves = st.integers(-6, 14).map(lambda n: n / 2)
reals = st.floats(-1e4, 1e4, allow_nan=False)


def problems(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[list[float], int]]:
    return st.tuples(st.lists(values, min_size=1, max_size=6), st.integers(0, 5))


def all_cdfs(cells: int, total: int) -> Array:
    """(CDFs, K) every monotone integer sequence from 0 to N that ends in N."""
    free = itertools.combinations_with_replacement(range(total + 1), cells - 1)
    return np.array([[*chosen, total] for chosen in free])


def all_costs(distance: Distance, cdfs: Array, h: list[float]) -> Any:
    return np.asarray(distance(cdfs, np.broadcast_to(np.array(h), cdfs.shape)), float).sum(axis=1)


def optima(distance: Distance, h: list[float], total: int) -> Any:
    """All optima."""
    cdfs = all_cdfs(len(h), total)
    costs = all_costs(distance, cdfs, h)
    return cdfs[costs == costs.min()]


def check_cdf(cdf: Array, total: int | Array) -> None:
    assert cdf.dtype == np.int64
    assert (np.diff(cdf, axis=-1) >= 0).all()
    assert (cdf >= 0).all()
    np.testing.assert_array_equal(cdf[..., -1], total)


@fast
@given(problem=problems(eighths) | problems(halves))
@settings(max_examples=150, deadline=None)
def test_fast_ones_are_the_midpoint_of_all_optima(
    closest: Any, distance: Distance, problem: tuple[list[float], int]
) -> None:
    best = optima(distance, *problem)
    middle = (best.min(axis=0) + best.max(axis=0)) // 2
    np.testing.assert_array_equal(closest(*problem), middle)
    check_cdf(closest(*problem), problem[1])


@fast
@given(problem=problems(reals))
@settings(max_examples=60, deadline=None)
def test_fast_ones_are_optimal_for_any_reals(
    closest: Any, distance: Distance, problem: tuple[list[float], int]
) -> None:
    h, total = problem
    least = all_costs(distance, all_cdfs(len(h), total), h).min()
    found = all_costs(distance, closest(h, total)[None], h)[0]
    # What the module allows for means near halves and estimates near 2^-30, and float rounding.
    assert found <= least * (1 + 1e-12) + len(h) * 2**-20


def largest_differences(cdfs: Array, h: list[float]) -> Any:
    """The largest differences of all but the last cell, which is no choice."""
    return np.abs(cdfs - np.array(h))[:, :-1].max(axis=1, initial=0)


@given(problem=problems(eighths) | problems(halves) | problems(reals))
@settings(max_examples=300, deadline=None)
def test_no_cdf_has_a_smaller_largest_difference(problem: tuple[list[float], int]) -> None:
    h, total = problem
    least = largest_differences(all_cdfs(len(h), total), h).min()
    found = closest_cdf_linf(h, total)
    check_cdf(found, total)
    assert largest_differences(found[None], h)[0] <= least + 2**-20


def test_the_largest_difference_in_many_cells_is_its_lower_bound() -> None:
    """Half of the largest fall of whole numbers, rounded up."""
    rng = np.random.default_rng(3)
    h = np.sort(rng.integers(0, 10**6, 10**5)) + rng.integers(-500, 500, 10**5)
    found = closest_cdf_linf(h, 2 * 10**6)
    check_cdf(found, 2 * 10**6)
    inner = h[:-1]
    fall = int((np.maximum.accumulate(inner) - inner).max())
    bound = max(-(-fall // 2), -int(inner.min()))
    assert np.abs(found - h)[:-1].max() == bound
    for other in (closest_cdf_l1, closest_cdf_l2):
        assert np.abs(other(h, 2 * 10**6) - h)[:-1].max() > bound


def test_a_metric_is_chosen_by_its_name() -> None:
    h = [6.0, 2.0, 3.0, 3.0, 8.0]
    named = [closest_cdf_l1, closest_cdf_l2, closest_cdf_linf]
    for name, closest in zip(("l1", "l2", "linf"), named, strict=True):
        assert closest_cdf(h, 8, name).tolist() == closest(h, 8).tolist()
    assert closest_cdf(h, 8).tolist() == closest_cdf_l2(h, 8).tolist() != [4, 4, 4, 4, 8]
    for unknown in ("l3", None, 2, ["l2"]):
        with pytest.raises(ValueError, match="metric: must be one of l1, l2, linf, or a function"):
            closest_cdf(h, 8, unknown)


@pytest.mark.parametrize("distance", [absolute, squared, hamming, uneven, mixed])
@given(problem=problems(eighths) | problems(halves))
@settings(max_examples=80, deadline=None)
def test_general_one_is_the_least_of_all_optima(
    distance: Distance, problem: tuple[list[float], int]
) -> None:
    h, total = problem
    # x_K = N is not a choice, so h_K must not forbid it.
    h = [*h[:-1], float(total)]
    least = optima(distance, h, total).min(axis=0)
    if not np.isfinite(all_costs(distance, least[None], h)).all():
        with pytest.raises(ValueError, match="infinite"):
            closest_cdf(h, total, distance)
        return
    np.testing.assert_array_equal(closest_cdf(h, total, distance), least)


@for_each(("closest", "distance"), FAST.values())
@for_each("seed", range(6))
def test_fast_ones_agree_with_the_general_one_on_noisy_cdfs(
    closest: Any, distance: Distance, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    total = [40, 255, 256, 700, 1023, 3][seed]
    h = np.sort(rng.integers(0, total + 1, 300)) + rng.integers(-200, 200, 300) / 8
    least = closest_cdf(h, total, distance)
    # The greatest optimum is the least one seen from the other end.
    mirrored = closest_cdf([*(total - h)[-2::-1].tolist(), 0.0], total, distance)
    greatest = np.append(total - mirrored[-2::-1], total)
    np.testing.assert_array_equal(closest(h, total), (least + greatest) // 2)


def test_general_one_is_optimal_over_many_blocks() -> None:
    """K (N + 1) above one block, and rows whose bits do not fill a byte."""
    rng = np.random.default_rng(1)
    h, total = np.sort(rng.integers(0, 4001, 260)) + rng.integers(-999, 999, 260) / 8, 4001
    found = closest_cdf(h, total, absolute)
    check_cdf(found, total)
    assert absolute(found, h).sum() == absolute(closest_cdf_l1(h, total), h).sum()


def test_general_one_leaves_the_metric_its_own_array() -> None:
    """A cost may be an argument itself, which is read-only: where x does not matter, 0 is least."""
    assert closest_cdf([3.0, 2.0, 4.0], 4, lambda x, h: h).tolist() == [0, 0, 4]


def least_l1_cost(h: Array, total: int) -> Any:
    """The least l1 cost for integers h by the slope trick: one heap, and the cost alone."""
    slopes: list[int] = []
    cost = 0
    for value in np.clip(h, 0, total).tolist():
        heapq.heappush(slopes, -value)
        cost += -slopes[0] - value
        heapq.heapreplace(slopes, -value)
    return cost + np.abs(h - np.clip(h, 0, total)).sum()


@for_each("total", [1000, 2**20, 2**40])
def test_l1_costs_what_the_slope_trick_costs_on_many_cells(total: int) -> None:
    rng = np.random.default_rng(total)
    h = np.sort(rng.integers(0, total, 30_000)) + rng.integers(-total // 9, total // 9, 30_000)
    h[-1] = total
    found = closest_cdf_l1(h, total)
    check_cdf(found, total)
    assert np.abs(found - h).sum() == least_l1_cost(h, total)
    # The cost shows it: one cell moved by one row against its run's median is seen.
    moved = found.copy()
    moved[np.flatnonzero(np.diff(found, prepend=0))[50]] -= 1
    assert np.abs(moved - h).sum() != least_l1_cost(h, total)


def test_l2_of_clipped_estimates_would_be_wrong() -> None:
    """The mean of a pool needs all of an outlier: -8 and 2 pool to -3, not to 1."""
    h = [2.0, -8.0, 4.0]
    assert closest_cdf_l2(h, 4).tolist() == [0, 0, 4]
    clipped = isotonic_regression(np.clip(h, 0, 4)).x
    assert clipped.tolist() == [1, 1, 4]


@for_each("cells", [1, 2, 7, 300])
def test_isotonic_rows_are_those_of_scipy(cells: int) -> None:
    rng = np.random.default_rng(12)
    ramp = 2.0 * np.arange(cells)
    rows = np.array(
        [
            np.cumsum(rng.poisson(2, cells)) + 5 * rng.normal(size=cells),
            rng.integers(0, 3, cells).astype(float),
            -ramp,
            np.where(np.arange(cells) == cells - 1, -9.0 * cells, ramp),  # one pool, block by block
            np.where(np.arange(cells) == 0, 9.0 * cells, ramp),
        ]
    )
    expected = np.array([isotonic_regression(row).x for row in rows])
    assert np.allclose(isotonic_rows(rows), expected, rtol=1e-13, atol=1e-12)
    assert (isotonic_rows(rows[3:]) == isotonic_rows(rows)[3:]).all()
    for empty in (rows[:0], rows[:, :0]):
        assert isotonic_rows(empty).shape == empty.shape


def test_l2_last_bits_of_a_mean_decide_nothing() -> None:
    """Both pools have the mean 1/2, and halves go down; in float64 one mean is above it."""
    above, below = [1.3, 0.1, 0.1], [0.7, 0.6, 0.2]
    assert isotonic_regression(above).x[0] > 0.5 > isotonic_regression(below).x[0]
    for pool in (above, below):
        assert closest_cdf_l2([*pool, 2.0], 2).tolist() == [0, 0, 0, 2]
    assert closest_cdf_l2([0.5 + 1e-5, 2.0], 2).tolist() == [1, 2]


FUNCTIONS = {
    **{name: closest for name, (closest, _) in FAST.items()},
    "linf": closest_cdf_linf,
    "general": lambda estimates, total: closest_cdf(estimates, total, uneven_free),
}
every = pytest.mark.parametrize("closest", FUNCTIONS.values(), ids=FUNCTIONS)


def uneven_free(x: Array, h: Array) -> Any:
    return np.abs(x - h) ** 1.5 * np.where(x < h, 2, 1)


@every
@given(
    rows=st.lists(st.lists(eighths, min_size=4, max_size=4), min_size=1, max_size=6),
    totals=st.lists(st.integers(0, 9), min_size=6, max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_batches_are_their_rows(closest: Any, rows: list[list[float]], totals: list[int]) -> None:
    estimates, total = np.array(rows)[:, None], np.array(totals[: len(rows)])[:, None]
    before = estimates.copy()
    found = closest(estimates, total)
    np.testing.assert_array_equal(estimates, before)
    assert found.shape == estimates.shape
    check_cdf(found, total)
    for row, h, last in zip(found[:, 0], rows, totals, strict=False):
        np.testing.assert_array_equal(row, closest(h, last))
    np.testing.assert_array_equal(closest(estimates, 5)[0, 0], closest(rows[0], 5))


@every
@given(problem=problems(eighths))
@settings(max_examples=40, deadline=None)
def test_a_cdf_is_its_own_closest(closest: Any, problem: tuple[list[float], int]) -> None:
    found = closest(*problem)
    np.testing.assert_array_equal(closest(found, problem[1]), found)


@for_each("closest", FUNCTIONS.values())
def test_the_smallest_problems(closest: Any) -> None:
    assert closest([3.7], 5).tolist() == [5]
    assert closest([3.7, -1.0, 9.0], 0).tolist() == [0, 0, 0]
    assert closest(np.array([9, 9]), np.int64(4)).tolist() == [4, 4]
    assert closest(np.empty((0, 3)), 4).shape == (0, 3)
    assert closest(np.empty((0, 3)), np.empty(0, dtype=np.int64)).shape == (0, 3)


@for_each("closest", [closest_cdf_l1, closest_cdf_l2, closest_cdf_linf])
def test_the_largest_totals_are_exact(closest: Any) -> None:
    h = np.array([-1.0, 2**51 + 1, 2**51 + 1, 2**52 - 3, 5.0])
    assert closest(h, 2**52).tolist() == [0, 2**51 + 1, 2**51 + 1, 2**52 - 3, 2**52]


@for_each("closest", FUNCTIONS.values())
@for_each(
    ("estimates", "total", "sentence"),
    [
        ([1.0, np.nan], 2, "estimates: must be finite"),
        ([1.0, np.inf], 2, "estimates: must be finite"),
        ([1.0, 2.0**53], 2, "estimates: must be finite"),
        ([1.0, 2j], 2, "estimates: must be real numbers"),
        (["1", "2"], 2, "estimates: must be real numbers"),
        ([], 2, "K at least 1"),
        (1.0, 2, "estimates: must be real numbers in the shape"),
        ([1.0, 2.0], -1, "total: must be integers from 0"),
        ([1.0, 2.0], 2.0, "total: must be integers from 0"),
        ([1.0, 2.0], True, "total: must be integers from 0"),
        ([1.0, 2.0], 2**53, "total: must be integers from 0"),
        ([1.0, 2.0], np.array([1, 2]), "total: must be one integer, or one for each CDF"),
        ([[1.0, 2.0]], np.array([1, 2]), "total: must be one integer, or one for each CDF"),
    ],
)
def test_bad_arguments_are_refused(closest: Any, estimates: Any, total: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        closest(estimates, total)


@for_each(
    ("distance", "sentence"),
    [
        (lambda x, h: np.abs(x - h).sum(), "not additive: it must give one cost"),
        (lambda x, h: np.abs(x - h).max(axis=-1), "not additive: it must give one cost"),
        (lambda x, h: np.abs(x - h) / np.abs(x - h).max(), "depends on the other pairs"),
        (lambda x, h: np.abs(x - h) - np.abs(x - h).mean(), "depends on the other pairs"),
        (lambda x, h: np.abs(np.cumsum(x - h, axis=0)), "depends on the other pairs"),
        (lambda x, h: (x - h) * 1j, "must be real"),
        (lambda x, h: np.full(x.shape, "near"), "must be real"),
        (lambda x, h: np.where(x == 1, np.nan, 0.0), "must be finite"),
        (lambda x, h: np.where(x == 1, -np.inf, 0.0), "must be finite"),
        (lambda x, h: np.where(x < 9, np.inf, 0.0), "infinite cost"),
    ],
)
def test_metrics_that_are_not_additive_are_refused(distance: Distance, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        closest_cdf([0.5, 4.0, 1.0, 6.0], 6, distance)


@pytest.mark.parametrize(("cells", "total"), [(2, 2**22 + 1), (2**10, 2**20)])
def test_too_many_costs_are_refused_before_any_is_requested(cells: int, total: int) -> None:
    def never(x: Array, h: Array) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match=r"N of at most 2\^22 and K \(N \+ 1\) of at most 2\^30"):
        closest_cdf(np.zeros(cells), total, never)
