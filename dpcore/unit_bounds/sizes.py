"""The public list of bounds that one is chosen from."""

from __future__ import annotations

from dptrees.dpcore.privacy.unit import MOST_ROWS
from dptrees.dpcore.refusal import Refusal

# Each is about 2^(1/3) times the one before: the best of them is within 15 % of any bound.
_STEPS = 3
MOST_SIZES = 64


def candidate_sizes(largest: int) -> tuple[int, ...]:
    """The whole numbers nearest to 2^(k/3), from 1 up to the largest, which is the last one.

    Args:
        largest: from 2 to 2^20.

    Raises:
        Refusal: it is not.

    >>> candidate_sizes(10)
    (1, 2, 3, 4, 5, 6, 8, 10)
    >>> len(candidate_sizes(500)), len(candidate_sizes(2**20))
    (25, 58)
    """
    if not 2 <= largest <= MOST_ROWS:
        raise Refusal("at_most", f"{largest} is not from 2 to {MOST_ROWS}")
    sizes = {_nearest_power(power) for power in range(_STEPS * largest.bit_length() + 1)}
    return (*sorted(size for size in sizes if size < largest), largest)


def _nearest_power(power: int) -> int:
    """The whole number nearest to 2^(power/3), without rounding errors: x with
    (2 x - 1)^3 < 2^(power + 3) < (2 x + 1)^3."""
    low, high = 1, 2 << power // _STEPS
    while low < high:
        middle = (low + high) // 2
        odd = 2 * middle + 1
        if odd * odd * odd > 1 << (power + _STEPS):
            high = middle
        else:
            low = middle + 1
    return low
