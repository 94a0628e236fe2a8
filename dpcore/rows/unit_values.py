"""One value of each privacy unit: the sum, the mean or another number of the values of its rows.

The values of a unit's rows are added up first, and the result is put into the bounds once. Its
largest effect on a release is then that of one row, however many rows the unit has.

Values are whole numbers of one public step, the *amounts*, so that a result is exact and does not
depend on the order of rows, files or workers. Of a column of numbers the step is the decimal
10^-d, d the largest for which the bounds have at most 10^15 steps: 0.1 + 0.2 is 0.3, as with pen
and paper. A single row counts as at most 2^62 steps.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.specification import Refusal

# The amount of a row without a value.
NO_AMOUNT = -(2**63)
LARGEST_AMOUNT = 2**62
_MOST_STEPS = 10**15
_MOST_DIGITS = 300
# Amounts are added up in two words, so that 2^31 rows of a unit do not overflow.
_WORD = 31
_LOW = 2**_WORD - 1


class UnitValue(Enum):
    """The value of a unit, from the values of its rows."""

    SUM = "sum"
    MEAN = "mean"
    SMALLEST = "smallest"
    LARGEST = "largest"
    ROWS = "rows"  # how many rows with a value it has

    def in_words(self, column: str) -> str:
        """Name the value of a unit.

        >>> UnitValue.SUM.in_words("fare"), UnitValue.ROWS.in_words("fare")
        ('the sum of fare', 'the number of rows with a value of fare')
        """
        name = "number of rows with a value" if self is UnitValue.ROWS else self.value
        return f"the {name} of {column}"

    @property
    def all_in_words(self) -> str:
        """Name the values of all units: "all sums of units"."""
        noun = {"rows": "numbers of rows", "smallest": "smallest values"}
        noun |= {"largest": "largest values"}
        return f"all {noun.get(self.value, f'{self.value}s')} of units"


def unit_value(value: object) -> UnitValue:
    """Read the name of a value.

    Raises:
        Refusal: it is none.
    """
    try:
        return UnitValue(value)
    except ValueError:
        known = ", ".join(each.value for each in UnitValue)
        raise Refusal("per_unit", f"{value!r} must be one of {known}") from None


def decimal_digits(lower: float, upper: float) -> int:
    """Return d, the digits of the step 10^-d of a column of numbers; negative above 10^15.

    Args:
        lower, upper: the bounds, finite.

    >>> decimal_digits(0, 300), decimal_digits(-1e20, 5), decimal_digits(0, 0.001)
    (12, -5, 18)
    """
    largest = max(abs(lower), abs(upper))
    digits = 0
    while digits < _MOST_DIGITS and largest * float(10 ** (digits + 1)) <= _MOST_STEPS:
        digits += 1
    while largest / float(_power(digits) if digits < 0 else 1) > _MOST_STEPS:
        digits -= 1
    return digits


def _power(digits: int) -> int:
    """10^|d|, whose float is the nearest on every machine."""
    places = abs(digits)
    power: int = 10**places
    return power


def amounts_of(numbers: Floats, digits: int) -> Integers:
    """Return numbers as whole steps of 10^-d, the nearest; NaN is `NO_AMOUNT`.

    Args:
        numbers: (rows,).
        digits: d.

    >>> amounts_of(np.array([0.1, -9.99, np.inf, np.nan]), 2).tolist()[:2]
    [10, -999]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        power = float(_power(digits))
        steps = numbers * power if digits >= 0 else numbers / power
        steps = np.rint(np.clip(steps, -LARGEST_AMOUNT, LARGEST_AMOUNT))
    amounts = np.where(np.isnan(steps), 0.0, steps).astype(np.int64)
    amounts[np.isnan(steps)] = NO_AMOUNT
    return amounts


def numbers_of(amounts: Integers, digits: int) -> Floats:
    """Return the numbers nearest to whole steps of 10^-d, the inverse of `amounts_of`."""
    steps = amounts.astype(np.float64)
    power = float(_power(digits))
    return steps / power if digits >= 0 else steps * power


def unit_amounts(
    value: UnitValue, starts: Integers, amounts: Integers, counts: Integers
) -> Integers:
    """Return the value of each unit: a function of the multiset of its amounts alone.

    A sum beyond +-2^62 counts as that. A mean is rounded down to a whole step.

    Args:
        value: which.
        starts: (units,) where the runs of each unit begin, rising from 0.
        amounts: (n,) of a row of each run, rising within a unit.
        counts: (n,) the rows of each run, at least 1.

    Returns:
        (units,) amounts.

    >>> runs = np.array([0, 3]), np.array([-5, 1, 2, 7]), np.array([1, 3, 1, 2])
    >>> for value in UnitValue:
    ...     print(value.value, unit_amounts(value, *runs).tolist())
    sum [0, 14]
    mean [0, 7]
    smallest [-5, 7]
    largest [2, 7]
    rows [5, 2]
    """
    if len(starts) == 0 or value is UnitValue.SMALLEST:
        return amounts[starts]
    result: Integers
    if value is UnitValue.LARGEST:
        result = amounts[np.append(starts[1:], len(amounts)) - 1]
        return result
    rows = np.add.reduceat(counts, starts)
    low = np.add.reduceat((amounts & _LOW) * counts, starts)
    high = np.add.reduceat((amounts >> _WORD) * counts, starts) + (low >> _WORD)
    low &= _LOW
    if value is UnitValue.ROWS:
        result = rows
    elif value is UnitValue.MEAN:
        whole, rest = np.divmod(high, rows)
        result = (whole << _WORD) + ((rest << _WORD) + low) // rows
    else:
        most = LARGEST_AMOUNT >> _WORD
        inside = np.clip(high, -most, most - 1)
        result = np.where(inside == high, (inside << _WORD) + low, np.sign(high) * LARGEST_AMOUNT)
    return result
