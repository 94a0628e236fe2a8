"""How often intervals of differences and ratios hold, with laws of noise that are known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.questions.answer_errors import Compared

# Of a standard Laplace law, the half width of 95 %; of a standard normal law.
LAPLACE, NORMAL = float(np.log(20)), 1.959964
SIZES = (0.0, 0.2, 1.0, 5.0)


def laplace_pairs(size: float, limit: float = 60.0, parts: int = 24_000) -> tuple[float, float]:
    """Return how often the difference of two Laplace laws of sizes 1 and `size` is within bounds.

    By the midpoint rule over the first; the second by its distribution function.
    """
    half = float(np.hypot(LAPLACE, size * LAPLACE))
    x = (np.arange(parts) + 0.5) / parts * 2 * limit - limit
    weights = np.exp(-np.abs(x)) / 2 * (2 * limit / parts)
    below, above = x - half, x + half
    if size == 0:
        return float(weights[np.abs(x) <= half].sum()), half

    def share(at: Floats) -> Floats:
        tail = np.exp(-np.abs(at) / size) / 2
        return np.asarray(np.where(at < 0, tail, 1 - tail))

    return float(weights @ (share(above) - share(below))), half


def test_differences_of_laplace_noise_hold_as_often_as_stated() -> None:
    held = {size: laplace_pairs(size)[0] for size in SIZES}
    assert min(held.values()) > 0.9499
    assert held[1.0] == pytest.approx(0.955, abs=5e-4)
    assert held[0.2] == pytest.approx(held[5.0], abs=1e-4)


def test_half_widths_are_the_root_of_their_squares() -> None:
    for one, other in product(SIZES, SIZES):
        first, second = Compared(10, one, 2 * one), Compared(4, other, 3 * other)
        low, value, high = first.less(second)
        assert value == 6
        assert (value - low) ** 2 == pytest.approx(one**2 + (3 * other) ** 2)
        assert (high - value) ** 2 == pytest.approx((2 * one) ** 2 + other**2)


@pytest.mark.parametrize("within", [(0.0, 0.0), (0.5, 0.0), (0.5, 0.25)])
def test_a_ratio_is_in_its_interval_exactly_where_the_difference_is_small(
    within: tuple[float, float],
) -> None:
    """By search over t, and over all that both are off: the ends are the first and the last."""
    first, second = Compared(9, 2, 2, within[0]), Compared(5, 1, 1, within[1])
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
        low, _, high = Compared(x, half, half).over(Compared(y, 2 * half, 2 * half))
        return low is None or high is None or low <= 1.5 <= high

    def held(part: float) -> float:
        return sum(holds(x, y, part * NORMAL) for x, y in zip(a, b, strict=True)) / pairs

    assert abs(held(1.0) - 0.95) < allowed
    assert held(0.9) < 0.95 - allowed


@pytest.mark.parametrize(
    ("other", "ratio"),
    [
        (Compared(0, 1, 1), (None, None, None)),
        (Compared(2, 1, 1), (None, 4.5, None)),
        (Compared(-9, 1, 1), (None, -1.0, None)),
        (Compared(3, float("inf"), 1), (None, 3.0, None)),
    ],
)
def test_a_ratio_to_almost_nothing_has_no_interval(
    other: Compared, ratio: tuple[float | None, ...]
) -> None:
    assert Compared(9, 1, 1).over(other) == ratio
