"""Laws of errors with very many coefficients, merged into few groups with a proven allowance.

Variables of one law with coefficients c_j close together get their root mean square c. The error
differs from the merged one by D = sum (c_j - c) X_j, whose fourth moment is known, so that
P(|error| <= w + d) >= P(|merged| <= w) - E D^4 / d^4. Intervals stay proven.

Source: derived here (Markov's inequality for D^4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.errors.law import ErrorLaw

# What the merging may cost, as a part of the uncovered probability.
_MERGING_SHARE = 1e-3
# The highest confidence that `ErrorLaw.half_width` accepts.
_HIGHEST = 0.9999


@dataclass(frozen=True, kw_only=True)
class MergedLaw:
    """Law of an estimate's error up to a small difference D, from E D^2 and a bound of E D^4.

    Args:
        law: of the merged error; its variance is the error's.
        difference: E D^2 in rows^2: 0 where nothing was merged.
        difference_fourth: a bound of E D^4 in rows^4.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> law = ErrorLaw(terms=((DiscreteLaplace(scale=Fraction(10)), 1.0, 1),))
    >>> MergedLaw(law=law).half_width(0.95) == law.half_width(0.95)
    True
    """

    law: ErrorLaw
    difference: float = 0.0
    difference_fourth: float = 0.0

    @property
    def variance(self) -> float:
        """The error's variance in rows^2."""
        return self.law.variance

    def half_width(self, confidence: float) -> float:
        """A w with P(|error| <= w) >= confidence, in rows.

        Args:
            confidence: above 0 and at most 0.9999.

        Raises:
            ValueError: the confidence is not in that range.
        """
        if not self.difference_fourth:
            return self.law.half_width(confidence)
        stricter, margin = self._allowance(confidence)
        if stricter <= _HIGHEST or confidence > _HIGHEST:
            return self.law.half_width(stricter) + margin
        return self.law.blurred_half_width(stricter) + 0.5 + margin

    def blurred_half_width(self, confidence: float) -> float:
        """A w with P(|error + U| <= w) >= confidence, U uniform on half a row either side."""
        stricter, margin = self._allowance(confidence)
        return self.law.blurred_half_width(stricter) + margin

    def _allowance(self, confidence: float) -> tuple[float, float]:
        """The confidence for the merged error, and a d with P(|D| > d) within the difference."""
        if not self.difference_fourth:
            return confidence, 0.0
        missed = (1.0 - confidence) * _MERGING_SHARE
        return confidence + missed, math.sqrt(math.sqrt(self.difference_fourth / missed))


@dataclass(frozen=True, kw_only=True, eq=False)
class LawTerms:
    """Measurements: the class of each one's noise, the size of its coefficient, how many alike."""

    classes: Integers
    sizes: Floats
    counts: Integers

    def taken(self, places: Integers) -> LawTerms:
        return LawTerms(
            classes=self.classes[places], sizes=self.sizes[places], counts=self.counts[places]
        )


def joined(parts: list[LawTerms]) -> LawTerms:
    """All of the measurements together."""
    return LawTerms(
        classes=np.concatenate([part.classes for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def sum_laws(parts: list[MergedLaw]) -> MergedLaw:
    """The law of a sum of independent errors."""
    difference = ordered_sum(part.difference for part in parts)
    cumulant = ordered_sum(
        part.difference_fourth - 3 * part.difference * part.difference for part in parts
    )
    return MergedLaw(
        law=ErrorLaw(terms=tuple(term for part in parts for term in part.law.terms)),
        difference=difference,
        difference_fourth=3 * difference * difference + max(0.0, cumulant),
    )


def power_sums(terms: LawTerms, groups: Integers, size: int) -> Floats:
    """(3, groups) sums of the counts, and of the first and second powers of the coefficients."""
    first = terms.counts * terms.sizes
    sums: Floats = np.array(
        [
            np.bincount(groups, weights, minlength=size)
            for weights in (terms.counts, first, first * terms.sizes)
        ]
    )
    return sums


def group_widths(sizes: Floats, groups: Integers, size: int) -> Floats:
    """(groups,) the largest less the least coefficient of each."""
    largest, least = np.zeros(size), np.full(size, np.inf)
    np.maximum.at(largest, groups, sizes)
    np.minimum.at(least, groups, sizes)
    widths: Floats = largest - least
    return widths


def distinct(terms: LawTerms, most: int) -> tuple[Integers, Integers] | None:
    """The group of each term, and the class of each group, where groups have one coefficient each;
    None if they are too many."""
    # Coefficients that differ by rounding alone are the same.
    rounded = np.round(log(terms.sizes), 11)
    order = np.lexsort((rounded, terms.classes))
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(rounded[order]) > 0) | (np.diff(terms.classes[order]) > 0)
    if int(new.sum()) > most:
        return None
    group = np.empty(order.size, dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    return group, terms.classes[order[new]]
