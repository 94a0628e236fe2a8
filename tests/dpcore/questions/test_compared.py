"""How often intervals of differences and ratios hold, with laws of noise that are known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.questions.answer_errors import Compared

NORMAL = 1.959964
SIZES = (0.0, 0.2, 1.0, 5.0)
CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.9999)


def estimate(size: float, confidence: float) -> Compared:
    """Return an estimate of 0 whose noise has a Laplace law of this size, with its interval."""
    half = -size * float(np.log(1 - confidence))
    error = np.sqrt(2) * size
    return Compared.estimated(0.0, half, within=0.0, std_error=error, confidence=confidence)


def held(size: float, half: float, limit: float = 60.0, parts: int = 48_000) -> float:
    """Return how often the difference of two Laplace laws of sizes 1 and `size` is at most `half`.

    By the midpoint rule over the first; the second by its distribution function.
    """
    if size == 0:
        return 1.0 - float(np.exp(-half))
    x = (np.arange(parts) + 0.5) / parts * 2 * limit - limit
    weights = np.exp(-np.abs(x)) / 2 * (2 * limit / parts)

    def share(at: Floats) -> Floats:
        tail = np.exp(-np.abs(at) / size) / 2
        return np.asarray(np.where(at < 0, tail, 1 - tail))

    return float(weights @ (share(x + half) - share(x - half)))


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_differences_of_laplace_noise_hold_as_often_as_stated(confidence: float) -> None:
    for size in SIZES:
        _, _, high = estimate(1.0, confidence).less(estimate(size, confidence))
        assert held(size, high) > confidence - 1e-6
    high = estimate(1.0, 0.95).less(estimate(1.0, 0.95))[2]
    assert held(1.0, high) == pytest.approx(0.955, abs=5e-4)


def test_roots_of_squares_of_laplace_intervals_alone_hold_less_often() -> None:
    """Why a half width is at least that of normal noise."""
    assert held(1.0, float(np.hypot(1, 1) * np.log(2))) < 0.45


def test_half_widths_are_the_root_of_their_squares() -> None:
    for one, other in product(SIZES, SIZES):
        low, value, high = Compared(10, one, 0.5).less(Compared(4, other, 0.25))
        assert value == 6
        half = np.hypot(one, other) + 0.75
        assert (low, high) == pytest.approx((6 - half, 6 + half))


def test_what_may_not_be_noise_is_added() -> None:
    """A difference of values lies in the sum of their intervals, wherever in these they lie."""
    one, other = (
        Compared.estimated(value, half, within=0.0, std_error=None, confidence=0.95)
        for value, half in ((10, 3), (4, 4))
    )
    assert one.less(other) == (-1, 6, 13)


@pytest.mark.parametrize("within", [(0.0, 0.0), (0.5, 0.0), (0.5, 0.25)])
def test_a_ratio_is_in_its_interval_exactly_where_the_difference_is_small(
    within: tuple[float, float],
) -> None:
    """By search over t, and over all that both are off: the ends are the first and the last."""
    first, second = Compared(9, 2, within[0]), Compared(5, 1, within[1])
    low, value, high = first.over(second)
    assert low is not None and high is not None and value == 9 / 5
    offsets = [np.linspace(-each, each, 9) for each in within]
    t = np.linspace(0, 6, 60_001)
    inside = np.zeros(len(t), np.bool_)
    for own, other in product(*offsets):
        inside |= np.abs(9 + own - t * (5 + other)) <= np.hypot(2, t)
    assert t[inside][0] == pytest.approx(low, abs=2e-4)
    assert t[inside][-1] == pytest.approx(high, abs=2e-4)
    assert inside[np.flatnonzero(inside)[0] : np.flatnonzero(inside)[-1]].all()


def test_ratios_of_normal_noise_hold_as_often_as_stated() -> None:
    """100,000 pairs: 4.9 standard deviations are a false alarm of 1e-6. Less width is seen."""
    random, pairs = np.random.default_rng(5), 100_000
    a, b = 30 + random.normal(size=pairs), 20 + 2 * random.normal(size=pairs)
    allowed = 4.9 * np.sqrt(0.95 * 0.05 / pairs)

    def holds(x: float, y: float, half: float) -> bool:
        low, _, high = Compared(x, half).over(Compared(y, 2 * half))
        return low is None or high is None or low <= 1.5 <= high

    def share(part: float) -> float:
        return sum(holds(x, y, part * NORMAL) for x, y in zip(a, b, strict=True)) / pairs

    assert abs(share(1.0) - 0.95) < allowed
    assert share(0.9) < 0.95 - allowed


@pytest.mark.parametrize(
    ("other", "ratio"),
    [
        (Compared(0, 1), (None, None, None)),
        (Compared(1.5, 1), (None, 6.0, None)),
        (Compared(3, 1, 1.5), (None, 3.0, None)),
        (Compared(-9, 1), (None, -1.0, None)),
        (Compared(3, float("inf")), (None, 3.0, None)),
        (Compared(3, 0, float("inf")), (None, 3.0, None)),
    ],
)
def test_a_ratio_to_almost_nothing_has_no_interval(
    other: Compared, ratio: tuple[float | None, ...]
) -> None:
    assert Compared(9, 1).over(other) == ratio


def test_a_ratio_of_what_is_not_known_has_no_interval() -> None:
    assert Compared(9, float("inf")).over(Compared(3, 0)) == (None, 3.0, None)
    assert Compared(9, 0, float("inf")).over(Compared(3, 0)) == (None, 3.0, None)
