"""Which totals are remarked upon: widths hold by exact laws; what is reported about each tree."""

import math
from itertools import product

from dptrees.dpcore.questions.released import Total
from dptrees.dpcore.release.released import FALSE_ALARM, error_width, odd_totals


def laplace_tail(scale: float, width: float) -> float:
    """P(X > width) of discrete Laplace noise, exactly."""
    ratio = math.exp(-1 / scale)
    return ratio ** (math.floor(width) + 1) / (1 + ratio)


def test_widths_hold_for_discrete_laplace_noise() -> None:
    for scale, chance in product(
        (0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0, 1e3, 1e6), (1e-2, 1e-6, 1e-9)
    ):
        ratio = math.exp(-1 / scale)
        width = error_width(math.sqrt(2 * ratio) / (1 - ratio), chance)
        assert laplace_tail(scale, width) <= chance
        # And are not far wider than they need be, where the noise is not tiny.
        if scale >= 3 and chance <= FALSE_ALARM:
            assert laplace_tail(scale, width / 2) > chance


def test_widths_hold_for_gaussian_noise() -> None:
    for scale in (1.0, 1e3):
        assert math.erfc(error_width(scale, FALSE_ALARM) / scale / math.sqrt(2)) / 2 < FALSE_ALARM


def odd(*totals: tuple[str, float, float]) -> list[tuple[str, str | None, bool]]:
    return [
        (each.tree.name, each.other and each.other.name, each.is_none)
        for each in odd_totals([Total(*total) for total in totals])
    ]


def test_what_is_reported() -> None:
    for totals, reported in (
        ([], []),
        ([("a", 48_842.0, 20.0)], []),
        ([("a", 30.0, 20.0)], [("a", None, True)]),
        ([("a", 0.0, 0.0)], [("a", None, True)]),
        ([("a", 48_842.0, 20.0), ("b", -31.0, 20.0)], [("b", "a", True)]),
        ([("a", 48_842.0, 20.0), ("b", 20_000.0, 20.0)], [("b", "a", False)]),
        ([("a", 48_842.0, 20.0), ("b", 24_500.0, 20.0)], []),
        ([("a", 48_842.0, 20.0), ("b", 24_300.0, 200.0)], []),
        ([("a", 1000.0, 900.0), ("b", 60_000.0, 900.0)], [("a", "b", True)]),
        ([("a", 100.0, 0.0), ("b", 10.0, 0.0)], [("b", "a", False)]),
    ):
        assert odd(*totals) == reported
