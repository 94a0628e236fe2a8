"""Estimates of counts: the paper's queries, the bounds of Cormode and Muthukrishnan and of Lemma 4,
and where the minimum is biased, on skewed and on flat data.

A statistical test has a false-alarm probability of at most 1e-6 (4.9 standard deviations). The
streams are fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.source import add_noise
from dptrees.dpcore.sketches.estimates import (
    SketchEstimator,
    estimates,
    kind_estimators,
    row_estimates,
)
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape, update
from tests.dpcore.sketches.reference import SketchReference

FALSE_ALARM = 1e-6
Z = 4.9
DISTINCT = 2000
ROWS = 100_000
LAW = DiscreteLaplace(scale=Fraction(50))


def zipf() -> np.ndarray:
    """(DISTINCT,) counts like 1 / rank."""
    share = 1 / np.arange(1, DISTINCT + 1)
    return np.round(ROWS * share / share.sum()).astype(np.int64)


def flat() -> np.ndarray:
    return np.full(DISTINCT, ROWS // DISTINCT)


DATA = {"zipf": zipf(), "flat": flat()}
# Spread over all 64 bits, and in a row as the prefixes of a dense level are.
CODES = {
    "spread": np.arange(1, DISTINCT + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
    "dense": np.arange(DISTINCT, dtype=np.uint64),
}
CASES = pytest.mark.parametrize(
    ("data", "codes"), [(data, codes) for data in DATA for codes in CODES]
)


def sketched(shape: SketchShape, data: str, codes: str, draw: int, noisy: bool = False) -> tuple:
    """A table, and its hash functions."""
    hashes, table = shape.hashes(public_stream("estimators", draw)), shape.empty()
    update(hashes, table, CODES[codes], DATA[data])
    if noisy:
        table = add_noise(LAW, table, public_stream("estimators", "noise", draw))
    return table, hashes


def errors(
    estimator: SketchEstimator,
    shape: SketchShape,
    data: str,
    codes: str,
    *,
    draws: int,
    noisy: bool,
) -> np.ndarray:
    """(draws, DISTINCT) estimates less the counts, over independent hash functions."""
    found = []
    for draw in range(draws):
        table, hashes = sketched(shape, data, codes, draw, noisy)
        found.append(estimates(estimator, table, hashes, CODES[codes]) - DATA[data])
    return np.array(found)


@pytest.mark.parametrize("kind", SketchKind)
def test_the_paper_s_query_one_code_at_a_time(kind: SketchKind) -> None:
    for rows in (1, 2, 3):
        shape = SketchShape(kind=kind, rows=rows, width=64)
        reference = SketchReference(shape, public_stream("query"))
        table, codes = shape.empty(), CODES["spread"][:100]
        update(reference.hashes, table, codes, DATA["zipf"][:100])
        reference.table = table.tolist()
        estimator = SketchEstimator.MEDIAN if shape.signed else SketchEstimator.MINIMUM
        found = estimates(estimator, table, reference.hashes, codes)
        assert found.tolist() == [reference.query(int(code)) for code in codes]


@pytest.mark.parametrize("kind", SketchKind)
def test_every_estimator_is_exact_where_nothing_collides(kind: SketchKind) -> None:
    shape = SketchShape(kind=kind, rows=3, width=2**20)
    hashes, table = shape.hashes(public_stream("exact")), shape.empty()
    update(hashes, table, CODES["spread"][:3], np.array([5, 0, 7]))
    for estimator in kind_estimators(kind):
        found = estimates(estimator, table, hashes, CODES["spread"][:3])
        assert found == pytest.approx([5, 0, 7], abs=2e-5)
        assert found.dtype == np.float64
        assert estimates(estimator, table, hashes, CODES["spread"][:0]).shape == (0,)


def test_a_count_sketch_has_no_minimum() -> None:
    table, hashes = sketched(
        SketchShape(kind=SketchKind.COUNT_SKETCH, rows=1, width=8), "flat", "dense", 0
    )
    with pytest.raises(ValueError, match="has no minimum"):
        estimates(SketchEstimator.MINIMUM, table, hashes, CODES["dense"])


@CASES
def test_cormode_and_muthukrishnan_s_bound(data: str, codes: str) -> None:
    error, failure, draws = 0.02, 0.05, 60
    # Width >= e / error: a row is beyond with 1 / (error w) = .195, two rows with .038.
    shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=2, width=256)
    found = errors(SketchEstimator.MINIMUM, shape, data, codes, draws=draws, noisy=False)
    assert (found >= 0).all()
    beyond = (found > error * DATA[data].sum()).mean(axis=1)
    # The bound is on a probability; a share lies in 0 to 1, so Hoeffding bounds the mean of draws.
    assert beyond.mean() <= failure + np.sqrt(np.log(1 / FALSE_ALARM) / (2 * draws))
    # Of one code per draw the failures are binomial.
    one = found[np.arange(draws), np.arange(draws) * 7 % DISTINCT] > error * DATA[data].sum()
    assert stats.binom.sf(one.sum() - 1, draws, failure) > FALSE_ALARM


@CASES
def test_the_count_sketch_s_bound(data: str, codes: str) -> None:
    error, failure, draws = 0.2, 0.05, 60
    # Width >= 3 / error^2: a row is beyond with 1 / (error^2 w) = .195, four of seven with .03.
    shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=7, width=128)
    found = errors(SketchEstimator.MEDIAN, shape, data, codes, draws=draws, noisy=False)
    limit = error * np.sqrt((DATA[data].astype(float) ** 2).sum())
    one = np.abs(found[np.arange(draws), np.arange(draws) * 7 % DISTINCT]) > limit
    assert stats.binom.sf(one.sum() - 1, draws, failure) > FALSE_ALARM


@CASES
def test_lemma_4(data: str, codes: str) -> None:
    """E error <= (n - c) / w; of one row it is equal."""
    for rows in (1, 3):
        shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=rows, width=64)
        found = errors(SketchEstimator.MINIMUM, shape, data, codes, draws=300, noisy=False)
        bound = (DATA[data].sum() - DATA[data]) / shape.width
        # Of the mean over codes in each draw; draws are independent.
        excess = (found - bound).mean(axis=1)
        margin = Z * excess.std(ddof=1) / np.sqrt(excess.size)
        assert excess.mean() <= margin
        if rows == 1:
            assert excess.mean() >= -margin
        # And it would be noticed at a width of two thirds.
        assert rows > 1 or (found - bound * 2 / 3).mean() > margin


UNBIASED = [
    (kind, estimator)
    for kind in SketchKind
    for estimator in (SketchEstimator.MEAN, SketchEstimator.MEDIAN)
    if (kind, estimator) != (SketchKind.COUNT_MIN, SketchEstimator.MEDIAN)
]


@CASES
@pytest.mark.parametrize(("kind", "estimator"), UNBIASED)
def test_what_is_unbiased(
    data: str, codes: str, kind: SketchKind, estimator: SketchEstimator
) -> None:
    """The largest code, and the weighted mean of all of them in a draw."""
    for noisy in (False, True):
        shape = SketchShape(kind=kind, rows=3, width=64)
        found = errors(estimator, shape, data, codes, draws=400, noisy=noisy)
        for error in (found[:, 0], found[:, 1], found @ np.linspace(1, 3, DISTINCT)):
            assert abs(error.mean()) <= Z * error.std(ddof=1) / np.sqrt(error.size)
            # A bias of half a standard deviation would show.
            assert abs(error.mean() + error.std() / 2) > Z * error.std(ddof=1) / np.sqrt(error.size)


def test_the_minimum_of_noisy_rows_is_biased_low() -> None:
    """An erratum: the paper's query of a noisy count-min sketch of more than one row."""
    shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=3, width=2**14)
    one_row = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=2**14)

    def bias(estimator: SketchEstimator, of: SketchShape) -> tuple[float, float]:
        means = errors(estimator, of, "flat", "spread", draws=60, noisy=True).mean(axis=1)
        return float(means.mean()), Z * float(means.std(ddof=1)) / np.sqrt(means.size)

    # The expected minimum of three Laplace variables of scale b: -9 b / 8.
    low, margin = bias(SketchEstimator.MINIMUM, shape)
    collisions = ROWS / shape.width
    assert -9 / 8 * 50 - margin <= low <= -9 / 8 * 50 + 3 * collisions + margin
    assert low + 3 * margin < 0
    for estimator, of in ((SketchEstimator.MEAN, shape), (SketchEstimator.MEAN, one_row)):
        mean, margin = bias(estimator, of)
        assert abs(mean) <= margin
    # Its Theorem 3 has one row, where the minimum is the cell itself.
    mean, margin = bias(SketchEstimator.MINIMUM, one_row)
    assert abs(mean - (ROWS - ROWS / DISTINCT) / shape.width) <= margin


def test_rows_estimate_by_themselves() -> None:
    shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=3, width=64)
    table, hashes = sketched(shape, "zipf", "dense", 0)
    found = row_estimates(table, hashes, CODES["dense"])
    assert found.shape == (3, DISTINCT)
    pairs = zip(table, hashes.cells(CODES["dense"]), strict=True)
    cells = np.array([row[columns] for row, (columns, _) in pairs])
    assert found == pytest.approx((64 * cells - DATA["zipf"].sum()) / 63)
