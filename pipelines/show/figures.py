"""Numbers for a person, by one rule for terminal, page and Python, and their nouns and titles.

An estimate is rounded at the second digit of its error; an integer has no decimals. Intervals
and half-widths are rounded outwards, so that the shown interval covers the computed one. Only a
number whose error is 0 is exact. Thousands are separated and nothing has an exponent. Programs
get all digits, by --json and --csv.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from dptrees.dpcore.arithmetic.sums import decimal_exponent, power_of_ten

if TYPE_CHECKING:
    from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
    from dptrees.dpcore.questions.question import Question

# The columns of a quantile: its value, and the ends of its interval.
QUANTILE_VALUES = ("value", "ci_low", "ci_high")
# Digits of an error that are shown.
_DIGITS = 2
# Decimals at most, of any number.
_MOST_DECIMALS = 6
# Of the last digit: what rounding outwards passes over, which is the rounding of the ends.
_ROUNDING = 1e-6
# The least error with which no decimals are shown.
_WHOLE = 10.0
# Values of a column below this are written without a separator, as years are.
_SEPARATED = 10_000
# Enough digits for a number without an error: more come from binary fractions.
_ALL_DIGITS = 12
# A fraction is written as such where its denominator is one that a person reads at once.
_LARGEST_DENOMINATOR = 24


def figure(value: float | None, error: float | None = None) -> str:
    """A number that is off by about an error.

    Args:
        value: the number; None where it is not known.
        error: its standard error; None or 0: it is shown as an integer, or to two decimals.

    >>> figure(85518.31, 626.5), figure(49.3837, 0.8713), figure(1360299.7, 12.4)
    ('85,520', '49.38', '1,360,300')
    >>> figure(7.0, 0.0), figure(-0.04, 3.1), figure(4, 3.1), figure(None)
    ('7', '0.0', '4', '-')
    """
    return "-" if value is None else _rounded(value, _place(value, error), round)


def error_figure(error: float | None) -> str:
    """An error, to two digits.

    >>> error_figure(626.5), error_figure(0.09961), error_figure(0.0), error_figure(None)
    ('630', '0.10', '0', '-')
    """
    return figure(error, error)


def with_margin(value: float, low: float, high: float, error: float | None = None) -> str:
    """A number and half its interval; the interval where its sides differ in the digits shown, as
    at a bound; alone where nothing is known of it.

    Only a number without an error is exact, such as an invariant: an interval without a width may
    belong to a number with very little noise.

    Args:
        value: the number.
        low, high: the ends of its interval.
        error: its standard error, if it is known.

    >>> with_margin(85518.31, 84277.2, 86759.42), with_margin(3.2, 0.0, 20.4)
    ('85,500 ± 1,300', '3.2 [0.0 to 20.4]')
    >>> with_margin(7.0, 7.0, 7.0, 0.0), with_margin(7.0, 7.0, 7.0, 0.18)
    ('7, exact', '7 ± 0')
    >>> with_margin(-927.38, 0.0, 0.0, 445.2), with_margin(-927.38, 0.0, 0.0)
    ('-930 [0 to 0]', '-930 [0 to 0]')
    >>> with_margin(7.0, -math.inf, math.inf)
    '7'
    """
    half = max(high - value, value - low)
    if half == 0:
        return f"{figure(value)}, exact" if error == 0 else f"{figure(value)} ± 0"
    if math.isfinite(half):
        place = _place(float(half), half)
        if abs(high + low - 2 * value) <= power_of_ten(place):
            return f"{figure(value, half)} ± {_rounded(half, place, _up)}"
    if math.isinf(low) and math.isinf(high):
        return figure(value)
    if low == high:
        # Noise below the bound of the counts, by more than the interval is wide.
        return f"{figure(value, error or abs(value) / 4)} [{interval(low, high, None)}]"
    error = (high - low) / 4
    return f"{figure(value, error)} [{interval(low, high, error)}]"


def interval(low: float | None, high: float | None, error: float | None) -> str:
    """An interval, rounded outwards.

    Args:
        low, high: its ends; infinite or None where nothing is known.
        error: the standard error; None: what an interval of this width would have; 0: the number is
            exact.

    >>> interval(84277.2, 86758.1, 626.5), interval(0.0, math.inf, None), interval(-3.0, 4.0, None)
    ('84,270 to 86,760', '0 or more', '-3.0 to 4.0')
    >>> interval(None, None, None), interval(7.0, 7.0, 0.0), interval(0.0, 0.0, 445.2)
    ('-', 'exact', '0 to 0')
    """
    low = None if low is None or math.isinf(low) else low
    high = None if high is None or math.isinf(high) else high
    if low is None or high is None:
        if low is not None:
            return f"{_rounded(low, _place(low, error), _down)} or more"
        return "-" if high is None else f"{_rounded(high, _place(high, error), _up)} or less"
    if low == high:
        return "exact" if error == 0 else f"{figure(low)} to {figure(high)}"
    error = (high - low) / 4 if error is None or error == 0 else error
    ends = (
        _rounded(low, _place(low, error), _down),
        _rounded(high, _place(high, error), _up),
    )
    return " to ".join(ends)


def share(fraction: float | None, error: float | None) -> str:
    """A part of a whole in percent.

    >>> share(0.58702, 0.0043), share(0.0, None), share(None, None), share(1.0, 0.004)
    ('58.70 %', '0 %', '-', '100.00 %')
    """
    if fraction is None:
        return "-"
    return f"{figure(100 * fraction, None if error is None else 100 * error)} %"


def column_value(value: object, low: object, high: object) -> tuple[str, str]:
    """A value of a column and its interval, as numbers or as they are written.

    >>> column_value(130492.3, 54000.0, 1968000.0), column_value(2013.0, 2012.0, 2014.0)
    (('130,000', '54,000 to 1,968,000'), ('2013', '2012 to 2014'))
    >>> column_value(2013, 2013, 2013), column_value(7.5, 7.5, 7.5)
    (('2013', '2013'), ('7.50', '7.50'))
    >>> column_value("2024-03-01", "2024-02-28", None), column_value(None, None, None)
    (('2024-03-01', '2024-02-28 or more'), ('-', '-'))
    >>> column_value(2013, 2013, 2013)
    ('2013', '2013')
    """
    known = [each for each in (value, low, high) if each is not None]
    numbers = [float(each) for each in known if isinstance(each, (int, float))]
    if len(numbers) < len(known) or not known:
        shown = ["-" if each is None else str(each) for each in (value, low, high)]
        if low is None or high is None:
            return shown[0], "-" if low is None else f"{shown[1]} or more"
        return shown[0], f"{shown[1]} to {shown[2]}"
    ends = [None if each is None else float(each) for each in (value, low, high)]  # type: ignore[arg-type]
    error = _narrower_side(*ends)
    if all(number.is_integer() for number in numbers):
        error = max(_WHOLE, error or 0.0)
    span = figure(ends[1]) if ends[1] == ends[2] else interval(ends[1], ends[2], error)
    texts = figure(ends[0], error), span
    if max(map(abs, numbers)) >= _SEPARATED:
        return texts
    return texts[0].replace(",", ""), texts[1].replace(",", "")


def quantile_numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of a quantile and the ends of its interval, by name: numbers where the
    domain's values are numbers, else strings."""
    ending = "" if any(row[name] is not None for name in QUANTILE_VALUES) else "_text"
    return {name: row[f"{name}{ending}"] for name in QUANTILE_VALUES}


def quantile_texts(row: Mapping[str, Any]) -> tuple[str, str]:
    """The value of a quantile and its interval, which say where values outside the bounds count.

    >>> texts = {"value_text": "2024-03-01", "ci_low_text": "2024-02-28", "ci_high_text": None}
    >>> quantile_texts(dict.fromkeys(QUANTILE_VALUES) | texts)
    ('2024-03-01', '2024-02-28 or more')
    >>> row = {"value": 566, "ci_low": -60, "ci_high": 599, "ci_high_in_words": "599 and above"}
    >>> quantile_texts(row)
    ('566', '-60 to 599 and above')
    """
    value, span = column_value(*quantile_numbers(row).values())
    low, _, high = span.partition(" to ")
    if "ci_low_in_words" in row or "ci_high_in_words" in row:
        low, high = row.get("ci_low_in_words", low), row.get("ci_high_in_words", high)
        span = low if low == high else f"{low} to {high}"
    return str(row.get("in_words", value)), span


def _narrower_side(value: float | None, low: float | None, high: float | None) -> float | None:
    """Half the way from a value to the nearer end of its interval: of few intervals of values both
    sides are alike."""
    if value is None or low is None or high is None:
        return None
    sides = [side for side in (value - low, high - value) if side > 0]
    return min(sides) / 2 if sides else None


def rank_margin(rows: float, share: float) -> str:
    """How far off a rank is at most: so many rows, and such a share of all.

    >>> rank_margin(33.52, 0.0), rank_margin(94.328, 2.6443e-06)
    ('33.52 rows', '94.33 rows and one of every 378,171')
    """
    of_all = f" and one of every {math.floor(1 / share):,}" if share else ""
    return f"{significant(rows)} rows{of_all}"


def significant(value: float, digits: int = 4) -> str:
    """A number without an error of its own, to some digits.

    >>> significant(784.3123), significant(1360299.7), significant(0.00012346), significant(4092)
    ('784.3', '1,360,000', '0.0001235', '4,092')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    place = decimal_exponent(abs(value)) - digits + 1
    text = _rounded(value, place, round, most=12)
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell_text(name: str, row: Mapping[str, Any]) -> str:
    """A cell of a table in Python.

    Args:
        name: the name of its column.
        row: the cells by column; its standard error or its interval gives the digits.

    >>> row = {"label": "[0, 5)", "estimate": 12345.678, "std_error": 234.1, "ci_low": 11886.85}
    >>> row |= {"ci_high": 12804.51, "count": 12346, "fraction": 0.25123456}
    >>> [cell_text(name, row) for name in row]
    ['[0, 5)', '12,350', '230', '11,880', '12,810', '12,346', '0.2512']
    >>> row = {"upper": 1234567.5, "q": 0.5, "value": 2013.0, "ci_low": 2012.0, "ci_high": None}
    >>> [cell_text(name, row) for name in row]
    ['1,234,567.5', '0.5', '2013', '2012', '-']
    """
    value = row[name]
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    low, high = row.get("ci_low"), row.get("ci_high")
    if "value" in row and name in QUANTILE_VALUES:
        text, span = column_value(row["value"], low, high)
        if name == "value":
            return text
        first, _, last = span.removesuffix(" or more").removesuffix(" or less").partition(" to ")
        return first if name == "ci_low" else last or first
    error = row.get("std_error")
    if error is None and isinstance(low, float) and isinstance(high, float):
        error = (high - low) / 4
    if name in _ROUNDING_BY_COLUMN and error:
        return _rounded(value, _place(value, error), _ROUNDING_BY_COLUMN[name])
    if name == "std_error":
        return error_figure(value)
    if isinstance(value, int):
        return f"{value:,}"
    return significant(value, 4 if name in ("error", "fraction", "within") else _ALL_DIGITS)


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
    """The budget of a tree, as a part of the whole where both have one measure.

    >>> from dptrees.dpcore.privacy.unit import Budget, Measure
    >>> third = Budget(measure=Measure.RHO, amount=Fraction(1, 30))
    >>> budget_share(third, Budget(measure=Measure.RHO, amount=Fraction(1, 10)))
    '1/3 of the budget, rho = 0.03333'
    """
    amount = f"{budget.measure.value} = {float(budget.amount):.4g}"
    if budget.measure is not total.measure or budget.amount > total.amount:
        return amount
    return f"{share_text(budget.amount / total.amount)} of the budget, {amount}"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.95), percent(0.125)
    ('95 %', '12.5 %')
    """
    return f"{100 * share:.6g} %"


def _down(value: float) -> float:
    return math.floor(value + _ROUNDING)


def _up(value: float) -> float:
    return math.ceil(value - _ROUNDING)


_ROUNDING_BY_COLUMN: Mapping[str, Callable[[float], float]] = {
    "estimate": round,
    "ci_low": _down,
    "ci_high": _up,
}


def _place(value: float, error: float | None) -> int:
    """The power of ten of the last digit that is shown, which is none of an integer's decimals."""
    if error is None or not error > 0 or math.isinf(error):
        return 0 if value == round(value) else -2
    first = decimal_exponent(float(f"{error:.{_DIGITS - 1}e}"))
    return max(first - _DIGITS + 1, 0 if isinstance(value, int) else -_MOST_DECIMALS)


def _rounded(
    value: float, place: int, how: Callable[[float], float], *, most: int = _MOST_DECIMALS
) -> str:
    scale = power_of_ten(abs(place))
    number = how(value / scale) * scale if place > 0 else how(value * scale) / scale
    text = f"{number:,.{min(max(0, -place), most)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def counted_noun(question: Question) -> str:
    """Return what a number of a tree counts, for headings and axes.

    "counted rows" where rows beyond the bounds of a unit are left out: such a number is none of all
    rows, and neither is its interval.
    """
    measure = getattr(question, "measure", None)
    if measure is not None:
        return f"sum of {measure.column}"
    noun: str | None = getattr(question, "noun", None)
    noun = getattr(getattr(question, "domain", None), "noun", noun)
    if noun is not None:
        return noun
    unit = _unit(question)
    if unit is None or unit.is_row:
        return "rows"
    return "counted rows" if question.counts_rows else f"values of {unit.name}"


def counted_note(question: Question) -> str | None:
    """Return which rows a tree counts, where it does not count all of them."""
    note: str | None = getattr(getattr(question, "domain", None), "note", None)
    if note is not None:
        return note
    unit = _unit(question)
    if unit is None or unit.is_row:
        return None
    if question.unit_value is not None:
        column, keys = question.domain.column, unit.keys  # type: ignore[attr-defined]
        under = f", in at most {keys:,} group{'s' * (keys > 1)}" if keys else ""
        return f"counts each {unit.name} once{under}: {question.unit_value.in_words(column)}"
    if not question.counts_rows:
        return None
    return f"counts {unit.bounds_in_words} of each {unit.name}"


def _unit(question: Question) -> PrivacyUnit | None:
    unit: PrivacyUnit | None = getattr(question, "unit", None)
    return unit


Q = TypeVar("Q")


def column_titles(manifest: Mapping[str, object]) -> dict[str, str]:
    """The titles of columns, by name, of a release whose configuration gave some.

    Args:
        manifest: of the release.

    >>> column_titles({"report": {"columns": '{"d": {"label": "delay", "unit": "minutes"}}'}})
    {'d': 'delay (minutes)'}
    """
    report = manifest.get("report")
    written = report.get("columns") if isinstance(report, Mapping) else None
    given: dict[str, dict[str, str]] = json.loads(written) if isinstance(written, str) else {}
    return {column: _title(column, each) for column, each in given.items()}


def _title(column: str, given: Mapping[str, str]) -> str:
    label = given.get("label", column)
    return f"{label} ({given['unit']})" if "unit" in given else label


def titled(question: Q, titles: Mapping[str, str]) -> Q:
    """The same question with titles in place of the names of its columns, to be shown.

    Args:
        question: whose column, keys of one column and summed column may have titles.
        titles: of `column_titles`.
    """
    shown: Any = question
    for part in ("domain", "keys", "measure"):
        owner: Any = getattr(shown, part, None)
        column = getattr(owner, "column", None)
        if isinstance(column, str) and column in titles:
            shown = replace(shown, **{part: replace(owner, column=titles[column])})
    result: Q = shown
    return result
