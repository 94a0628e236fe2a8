"""Numbers on the page, with as many digits as their errors deserve."""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.arithmetic.sums import decimal_exponent, power_of_ten
from dpcore.privacy.budget import Budget

# A fraction is written as such where its denominator is one that a person reads at once.
_LARGEST_DENOMINATOR = 24


def rounded(value: float, error: float) -> str:
    """A number, rounded to two digits of its error, or to whole ones where that is above 1.

    >>> rounded(145681.3, 989.6), rounded(3.7, 4.2), rounded(0.123456, 0.0021), rounded(7.0, 0.0)
    ('145,680', '4', '0.1235', '7')
    """
    if not math.isfinite(value):
        return "any number"
    if not (error > 0 and math.isfinite(error)):
        return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"
    place = decimal_exponent(error) - 1
    if error >= 1:
        place = max(0, place)
    decimals = max(0, -place)
    unit = power_of_ten(place)
    return f"{round(value / unit) * unit + 0.0:,.{decimals}f}"


def interval_text(low: float, high: float) -> str:
    """The ends of an interval, with digits of its width.

    >>> interval_text(12.34, 1034.6), interval_text(3, math.inf)
    ('10 to 1,030', 'at least 3')
    """
    if math.isinf(high):
        return f"at least {low:,.0f}"
    half = (high - low) / 2
    return f"{rounded(low, half)} to {rounded(high, half)}"


def with_error(estimate: float, low: float, high: float) -> str:
    """An estimate and half of the width of its interval; the interval, where this is not centered.

    >>> with_error(145681.3, 144690.8, 146671.8), with_error(3.0, 0.0, 20.0)
    ('145,680 ± 990', '3 (0 to 20)')
    """
    half = (high - low) / 2
    if half == 0:
        return f"{rounded(estimate, 0.0)}, exact"
    if math.isfinite(half) and abs((low + high) / 2 - estimate) <= 0.02 * half + 1:
        return f"{rounded(estimate, half)} ± {rounded(half, half)}"
    return f"{rounded(estimate, half)} ({interval_text(low, high)})"


def share_text(part: Fraction) -> str:
    """A part of a whole.

    >>> share_text(Fraction(1, 3)), share_text(Fraction(997, 3001)), share_text(Fraction(1))
    ('1/3', '33.2 %', 'all')
    """
    if part == 1:
        return "all"
    if part == 0:
        return "none"
    if part.denominator <= _LARGEST_DENOMINATOR:
        return str(part)
    return f"{100 * float(part):.3g} %"


def budget_share(budget: Budget, total: Budget) -> str:
    """What a tree has of the budget, as a part where it is one of the whole.

    >>> from dpcore.privacy.budget import Measure
    >>> third = Budget(measure=Measure.RHO, amount=Fraction(1, 30))
    >>> budget_share(third, Budget(measure=Measure.RHO, amount=Fraction(1, 10)))
    '1/3 of the budget, rho = 0.03333'
    """
    amount = f"{budget.measure.value} = {float(budget.amount):.4g}"
    if budget.measure is not total.measure or budget.amount > total.amount:
        return amount
    part = share_text(budget.amount / total.amount)
    return f"{part} of the budget, {amount}"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.95), percent(0.125)
    ('95 %', '12.5 %')
    """
    return f"{100 * share:.6g} %"
