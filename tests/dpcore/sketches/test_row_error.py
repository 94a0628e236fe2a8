"""Predicted errors of estimators: order statistics by brute force, variances by simulation, and
the choice of the best estimator against the errors that are found."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.source import add_noise
from dptrees.dpcore.sketches.estimates import (
    RowError,
    SketchEstimator,
    code_cells,
    combined,
    estimates,
    kind_estimators,
    row_estimates,
    row_variance,
)
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape, update

Z = 4.9
DISTINCT = 1000
CODES = np.arange(1, DISTINCT + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
ABSENT = ~CODES
ZIPF = np.round(20_000 / np.arange(1, DISTINCT + 1)).astype(np.int64)
FLAT = np.full(DISTINCT, 100)
DATA = {"zipf": ZIPF, "flat": FLAT}
NONE, SOME = Fraction(1, 10**6), Fraction(80)


def noisy_table(shape: SketchShape, counts: np.ndarray, scale: Fraction, draw: int) -> tuple:
    hashes, table = shape.hashes(public_stream("row error", draw)), shape.empty()
    update(hashes, table, CODES, counts)
    law = DiscreteLaplace(scale=scale)
    return add_noise(law, table, public_stream("row error noise", draw)), hashes


def make_shape(kind: SketchKind, rows: int = 1, width: int = 64) -> SketchShape:
    return SketchShape(kind=kind, rows=rows, width=width)


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("scale", [NONE, SOME])
def test_the_variance_of_a_row(kind: SketchKind, data: str, scale: Fraction) -> None:
    """Check the variance of the estimate for a code that was never counted."""
    shape, counts, draws = make_shape(kind), DATA[data], 1000
    f2, noise = float((counts**2).sum()), DiscreteLaplace(scale=scale).variance
    squares = np.empty(draws)
    for draw in range(draws):
        table, hashes = noisy_table(shape, counts, scale, draw)
        squares[draw] = (row_estimates(table, hashes, ABSENT[:50]) ** 2).mean()
    predicted = row_variance(shape, f2=f2, noise_variance=noise)
    margin = Z * squares.std(ddof=1) / np.sqrt(draws)
    assert abs(squares.mean() - predicted) <= margin
    assert abs(squares.mean() - 1.3 * predicted) > margin


def brute_force(atoms: np.ndarray, rows: int, statistic: object) -> tuple[float, float]:
    """The mean and the variance of a statistic over all outcomes of independent draws."""
    found = [statistic(each) for each in itertools.product(atoms, repeat=rows)]  # type: ignore[operator]
    return float(np.mean(found)), float(np.var(found))


def test_order_statistics_by_brute_force() -> None:
    for rows in (1, 2, 3, 4, 5):
        atoms = np.array([-4.0, -1.0, -1.0, 0.5, 2.0, 9.0])
        law = RowError(
            shape=make_shape(SketchKind.COUNT_MIN, rows), unbiased=atoms, counted=atoms + 3
        )
        expected = {
            SketchEstimator.MEAN: brute_force(atoms, rows, np.mean),
            SketchEstimator.MINIMUM: brute_force(atoms + 3, rows, min),
        }
        if rows % 2:
            expected[SketchEstimator.MEDIAN] = brute_force(atoms, rows, np.median)
        for estimator, (bias, variance) in expected.items():
            moments = law.moments(estimator)
            assert (moments.bias, moments.variance) == pytest.approx((bias, variance))
            assert moments.mean_square == pytest.approx(bias**2 + variance)


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_codes_own_rows_are_left_out_of_its_law(kind: SketchKind, rows: int) -> None:
    """Check each end and moment against all draws of the other cells, in a sketch with ties."""
    shape, rng = make_shape(kind, rows, width=4), np.random.default_rng(rows)
    for _ in range(5):
        table = rng.integers(-3, 4, (rows, 4)) + rng.integers(0, 2, (rows, 4)) * 40
        table[:, -1] = table[0, 0] + 3 - table[:, :-1].sum(axis=1)  # one center
        law, columns = RowError.from_table(shape, table), rng.integers(0, 4, rows)
        own = table[np.arange(rows), columns].astype(float)
        others = np.array([np.delete(*each) for each in zip(table, columns, strict=True)])
        for estimator in (SketchEstimator.MINIMUM, SketchEstimator.MEDIAN):
            if estimator is SketchEstimator.MINIMUM and shape.signed:
                continue
            atoms, combine = others.ravel(), np.min
            if estimator is SketchEstimator.MEDIAN:
                combine = np.median
                means = own - row_estimate(shape, own, table)
                # Of each row the other cells less their mean; their pooled law has one center.
                atoms = others.ravel() - np.median(means)
            atoms = np.concatenate([atoms, -atoms]) if shape.signed else atoms
            draws = np.array([combine(each) for each in itertools.product(atoms, repeat=rows)])
            totals = table.sum(axis=1).astype(float)
            bias, variance, low, high = (
                float(each[0]) for each in law.code_errors(estimator, own[:, None], totals, 0.8)
            )
            assert bias == pytest.approx(draws.mean())
            if rows % 2:
                assert variance == pytest.approx(draws.var())
            assert (draws < low - 1e-9).mean() <= 0.1 + 1e-9
            assert (draws > high + 1e-9).mean() <= 0.1 + 1e-9


def row_estimate(shape: SketchShape, own: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Cells less the mean of the others of their rows; of a count sketch as they are."""
    return own if shape.signed else own - (table.sum(axis=1) - own) / (shape.width - 1)


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize(
    ("rows", "width", "scale"), [(1, 64, 5), (2, 64, 5), (3, 16, 5), (5, 1024, 500), (5, 1024, 5)]
)
def test_the_error_of_a_code_with_most_rows(
    kind: SketchKind, rows: int, width: int, scale: int
) -> None:
    """The estimate is right in the mean, and its interval holds; so for a code without rows."""
    shape, draws, counts = make_shape(kind, rows, width), 300, np.full(DISTINCT, 1)
    counts[0], truth = 10**6, np.array([10**6, 0])
    errors, reach, holds = np.empty((draws, 2)), np.empty((draws, 2)), np.empty((draws, 2), bool)
    for draw in range(draws):
        table, hashes = noisy_table(shape, counts, Fraction(scale), draw)
        law, totals = RowError.from_table(shape, table), table.sum(axis=1).astype(float)
        both = (SketchEstimator.MINIMUM, SketchEstimator.MEDIAN)[shape.signed :]
        estimator = min(both, key=lambda each: law.moments(each).variance)
        cells = code_cells(table, hashes, np.array([CODES[0], ABSENT[0]]))
        found = combined(estimator, cells, totals, hashes)
        bias, variance, low, high = law.code_errors(estimator, cells, totals, 0.95)
        errors[draw] = found - bias - truth
        reach[draw] = np.sqrt(variance)
        holds[draw] = (found - high <= truth) & (truth <= found - low)
    assert holds.sum(axis=0).min() >= stats.binom.ppf(5e-7, draws, 0.95)
    error, margin = errors[:, 0], Z * errors[:, 0].std(ddof=1) / np.sqrt(draws)
    assert abs(error.mean()) < margin + 0.01 * error.std()
    assert abs(error.mean() + 10**6 / width) > margin + 0.01 * error.std()  # the rows in the law
    if rows % 2:
        assert np.mean(reach[:, 0]) == pytest.approx(error.std(), rel=0.35)


@pytest.mark.parametrize("rows", [2, 4, 6])
def test_the_middle_two_of_an_even_number(rows: int) -> None:
    """Check medians of many atoms by simulation, and for two rows against the mean itself."""
    rng = np.random.default_rng(rows)
    atoms = np.sort(rng.exponential(size=4000))
    law = RowError(shape=make_shape(SketchKind.COUNT_MIN, rows), unbiased=atoms, counted=atoms)
    found = law.moments(SketchEstimator.MEDIAN)
    medians = np.median(rng.choice(atoms, (200_000, rows)), axis=1)
    assert found.bias == pytest.approx(medians.mean(), abs=Z * medians.std() / 447)
    squares = (medians - medians.mean()) ** 2
    assert found.variance == pytest.approx(squares.mean(), abs=Z * squares.std() / 447)
    if rows == 2:
        assert found.variance == pytest.approx(law.moments(SketchEstimator.MEAN).variance, rel=1e-3)


def mean_squares(
    shape: SketchShape, counts: np.ndarray, scale: Fraction
) -> dict[SketchEstimator, float]:
    """The mean square errors that are found, over codes that were never counted."""
    found: dict[SketchEstimator, list[float]] = {each: [] for each in kind_estimators(shape.kind)}
    for draw in range(60):
        table, hashes = noisy_table(shape, counts, scale, draw)
        for estimator, errors in found.items():
            errors.append(float((estimates(estimator, table, hashes, ABSENT) ** 2).mean()))
    return {estimator: float(np.mean(errors)) for estimator, errors in found.items()}


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("scale", [NONE, SOME, Fraction(2000)])
@pytest.mark.parametrize("rows", [2, 3, 5])
def test_the_errors_that_a_table_predicts(kind: SketchKind, scale: Fraction, rows: int) -> None:
    """They are those found; and the best estimator by them is the best, or within 10 %."""
    for data in DATA:
        shape = make_shape(kind, rows)
        found = mean_squares(shape, DATA[data], scale)
        laws = [
            RowError.from_table(shape, noisy_table(shape, DATA[data], scale, draw)[0])
            for draw in range(60)
        ]
        for estimator, value in found.items():
            predicted = np.mean([law.moments(estimator).mean_square for law in laws])
            assert predicted == pytest.approx(value, rel=0.15)
        chosen = np.mean([found[law.best_estimator()] for law in laws])
        assert chosen <= 1.1 * min(found.values())


@pytest.mark.parametrize("kind", SketchKind)
def test_what_is_chosen(kind: SketchKind) -> None:
    shape = make_shape(kind, rows=5)
    exact, _ = noisy_table(shape, ZIPF, NONE, 0)
    drowned, _ = noisy_table(shape, ZIPF, Fraction(10**5), 0)
    skewed = RowError.from_table(shape, exact).best_estimator()
    assert skewed is (SketchEstimator.MEDIAN if shape.signed else SketchEstimator.MINIMUM)
    # Of Laplace noise alone the median of five rows is better than their mean.
    assert RowError.from_table(shape, drowned).best_estimator() is SketchEstimator.MEDIAN
    normal = np.random.default_rng(1).normal(0, 1e5, (2**8, 64)).astype(np.int64)
    assert RowError.from_table(shape, normal).best_estimator() is SketchEstimator.MEAN
