"""The public list of values that bounds of a column are chosen from: readable decimals."""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.refusal import Refusal

# Each is 1.2 to 1.5 times the one before.
_DIGITS = ("1", "1.5", "2", "3", "4", "5", "6", "8")
LARGEST_NUMBER, LARGEST_INTEGER = 10**12, 10**9
_SMALLEST_POWER, _LARGEST_POWER = -6, 12
MOST_CANDIDATES = 512


def candidate_bounds(
    lowest: float, highest: float, *, integers: bool = False
) -> tuple[float, ...] | tuple[int, ...]:
    """The decimals 0 and +-(1, 1.5, 2, 3, 4, 5, 6, 8) 10^k from a lowest to a highest one.

    Both ends are candidates too. Numbers go down to 10^-6 in absolute value, integers to 1; a
    candidate of numbers is the float64 nearest to its decimal, as the bounds of
    `dpcore.ordered.number.NumberDomain` are.

    Args:
        lowest: the first candidate.
        highest: the last candidate, above the first.
        integers: whether candidates are whole numbers.

    Returns:
        (candidates,) rising, at least two.

    Raises:
        Refusal: the ends are not in order, or too far from 0.

    >>> candidate_bounds(-2, 15, integers=True)
    (-2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 15)
    >>> len(candidate_bounds(-1e12, 1e12)), len(candidate_bounds(-10**6, 10**6, integers=True))
    (291, 97)
    """
    largest = LARGEST_INTEGER if integers else LARGEST_NUMBER
    if not lowest < highest:
        raise Refusal("upper", f"no candidate lies between {lowest:,} and {highest:,}")
    for name, end in (("lower", lowest), ("upper", highest)):
        if not abs(end) <= largest:
            raise Refusal(name, f"{end:,} is farther from 0 than {largest:,}")
    sizes = [
        Fraction(digits) * Fraction(10) ** power
        for power in range(_SMALLEST_POWER, _LARGEST_POWER + 1)
        for digits in _DIGITS
    ]
    if integers:
        whole = {int(size) for size in sizes if size.denominator == 1} | {0}
        inner: set[int] = {sign * each for each in whole for sign in (-1, 1)}
        inside = {each for each in inner if lowest < each < highest}
        return tuple(sorted({int(lowest), int(highest)} | inside))
    floats = {sign * float(size) for size in sizes for sign in (-1, 1)} | {0.0}
    return tuple(
        sorted({float(lowest), float(highest)} | {x for x in floats if lowest < x < highest})
    )
