"""Private partition selection: the optimal (epsilon, delta) decision about a key, by its units.

A key with n units is released with probability pi(n), independently of all other keys:

    pi(0) = 0,  pi(n + 1) = min(e^eps pi(n) + delta, 1 - e^-eps (1 - pi(n) - delta), 1).

Guarantee. Let p = pi(n) and p' = pi(n + 1), the two neighbors of one unit more. Of the four
inequalities of (eps, delta), p' <= e^eps p + delta is the first term of the minimum and 1 - p <=
e^eps (1 - p') + delta the second, solved for p'; p <= e^eps p' + delta and 1 - p' <= e^eps (1 -
p) + delta hold since pi never falls: each term is at least pi(n) where pi(n) <= 1. By induction a
larger pi(n + 1) breaks the first, the second or is no probability, so no rule releases any key
with a larger probability. In closed form, up to n_1 = 1 + floor(ln((e^eps + 2 delta - 1) /
((e^eps + 1) delta)) / eps) the first term is the least, then the second up to n_2, and pi is 1
beyond:

    pi(n) = delta (e^(n eps) - 1) / (e^eps - 1)                                  n <= n_1
    pi(n) = (1 - e^-(n - n_1) eps) (1 + delta / (e^eps - 1)) + e^-(n - n_1) eps pi(n_1)
                                                                                 n_1 < n <= n_2

A public threshold k releases only keys of at least k units, with pi(n - k + 1). A unit that
changes the counts of m keys spends m eps and m delta (basic composition). Decisions are exact:
the recursion runs in integers that enclose pi(n), 64 random bits are compared with pi(n) 2^64,
and more bits break a tie.

Source: Desfontaines, Voss, Gipson, Mandayam, "Differentially private partition selection" (PoPETs
2022), theorem 1 (optimality) and definition 6 (the recursion); corollary 1 for several keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, expm1, log, log1p
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.exact_sampling import Bounds, exp_bounds
from dptrees.dpcore.noise.randomness import Bits
from dptrees.dpcore.specification import Refusal

# A larger epsilon decides as this one: 1 - pi(n) then falls below 2^-92 a unit.
MOST_EPSILON = 64
# The longest list of probabilities below 1.
MOST_UNITS = 2**18
_WORD = 64
_FIRST_BITS = 192
_MOST_BITS = 2**13


@dataclass(frozen=True, kw_only=True)
class SelectionLaw:
    """Whether a key is released, from the number of units that have it.

    Args:
        epsilon: of the decision about one key, above 0.
        delta: of it, above 0 and below 1.
        threshold: k, public: a key of fewer units is never released; at least 1.

    Raises:
        Refusal: an argument out of range, or an epsilon and a delta so small that more than 2^18
            units are needed for a key to be released for certain.

    Source: the docstring of this module.

    >>> law = SelectionLaw(epsilon=Fraction(1), delta=Fraction(1, 10**5))
    >>> law.probability([0, 1, 5, 11, 12, 22]).round(5).tolist()
    [0.0, 1e-05, 0.00086, 0.34845, 0.76031, 0.99999]
    >>> law.least_units(0.5), law.least_units(0.99), law.certain_units
    (12, 16, 23)
    """

    epsilon: Fraction
    delta: Fraction
    threshold: int = 1

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise Refusal("epsilon", f"{self.epsilon} is not above 0")
        if not 0 < self.delta < 1:
            raise Refusal("delta", f"{self.delta} is not above 0 and below 1")
        known = isinstance(self.threshold, int) and not isinstance(self.threshold, bool)
        if not known or not 1 <= self.threshold <= 2**40:
            raise Refusal("threshold", f"{self.threshold!r} is not a whole number from 1 to 2^40")
        if _certain_units(self._epsilon, self.delta) > MOST_UNITS:
            raise Refusal(
                "epsilon",
                f"{float(self.epsilon):.3g} with a delta of {float(self.delta):.3g} for each key "
                f"is so little that a key would need more than {MOST_UNITS} units to be released "
                "for certain",
            )

    @property
    def _epsilon(self) -> Fraction:
        return min(self.epsilon, Fraction(MOST_EPSILON))

    @property
    def certain_units(self) -> int:
        """The least number of units with which a key is released for certain."""
        return self.threshold - 1 + len(self._floors)

    def probability(self, units: npt.ArrayLike) -> Floats:
        """pi of numbers of units, (...) at least 0; correct to about 2^-60."""
        rank = np.asarray(units, np.int64) - (self.threshold - 1)
        inside = np.clip(rank, 0, len(self._floors) - 1)
        known = self._floors[inside] * math.ldexp(1.0, -_WORD)
        return np.where(rank >= len(self._floors), 1.0, known)

    def least_units(self, probability: float) -> int:
        """The least number of units with which a key is released with at least this probability.

        Args:
            probability: above 0 and at most 1.
        """
        if not 0 < probability <= 1:
            raise ValueError(f"probability is {probability}; it must be above 0 and at most 1")
        listed = self._floors * math.ldexp(1.0, -_WORD)
        # pi rises, but for the last bits of its float64.
        return self.threshold - 1 + int(np.argmax(np.append(listed >= probability, True)))

    def released(self, units: Integers, stream: Bits) -> Flags:
        """Decide about every key, exactly with probability pi of its units.

        Args:
            units: int64, (n,), at least 0.
            stream: uniform bits; the result is a pure function of law, units and stream.

        Returns:
            (n,) whether the key is released.
        """
        rank = units - (self.threshold - 1)
        word = stream.uint64(units.size)
        possible, certain = rank >= 1, rank >= len(self._floors)
        floor = self._floors[np.clip(rank, 0, len(self._floors) - 1)]
        chosen: Flags = certain | (possible & (word < floor))
        for place in np.flatnonzero(possible & ~certain & (word == floor)).tolist():
            own = stream.select(np.array([place]))
            chosen[place] = self._is_below(int(rank[place]), own, int(word[place]))
        return chosen

    def _is_below(self, rank: int, stream: Bits, word: int) -> bool:
        """Whether a U that begins with the 64 bits `word` is below pi(rank)."""
        bits = _WORD
        while True:
            word, bits = (word << _WORD) | int(stream.uint64(1)[0]), bits + _WORD
            low, high = _probabilities(self._epsilon, self.delta, bits + _FIRST_BITS)[rank]
            if (word + 1) << _FIRST_BITS <= low:
                return True
            if word << _FIRST_BITS >= high:
                return False

    @cached_property
    def _floors(self) -> npt.NDArray[np.uint64]:
        """floor(pi(n) 2^64) for n = 0, 1, ... below the first n of probability 1, certain to the
        last bit."""
        bits = _FIRST_BITS
        while bits <= _MOST_BITS:
            excess, one = bits - _WORD, 1 << bits
            bounds = _probabilities(self._epsilon, self.delta, bits)
            if all(high < one and low >> excess == high >> excess for low, high in bounds):
                return np.array([low >> excess for low, _ in bounds], np.uint64)
            bits *= 2
        raise Refusal("delta", f"{self.delta} leaves a probability undecided")  # pragma: no cover

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_floors"}


def _certain_units(epsilon: Fraction, delta: Fraction) -> float:
    """n_2 + 1 about, by the closed form in floating point."""
    e, d = float(epsilon), float(delta)
    if d == 0 or e == 0:
        return math.inf
    grown = expm1(e)
    first = 1 + math.floor(log((grown + 2 * d) / ((exp(e) + 1) * d)) / e)
    reached = min(1.0, expm1(min(first * e, 700.0)) * d / grown)
    return first + 1 + log1p(grown / d * (1 - reached)) / e


def _probabilities(epsilon: Fraction, delta: Fraction, bits: int) -> list[Bounds]:
    """Integers that enclose pi(n) 2^bits for n = 0, 1, ..., up to the last n where it may be
    below 1."""
    result = []
    for bounds in _recursion(epsilon, delta, bits):
        if bounds[0] >= 1 << bits:
            break
        result.append(bounds)
    return result


def _recursion(epsilon: Fraction, delta: Fraction, bits: int) -> Iterator[Bounds]:
    # Of e^-epsilon with as many bits more as e^epsilon has before its point.
    wide = bits + 2 * MOST_EPSILON
    one, shrink = 1 << bits, exp_bounds(epsilon, wide)
    grow = (1 << (bits + wide)) // shrink[1], -(-(1 << (bits + wide)) // shrink[0])
    added = (
        (delta.numerator << bits) // delta.denominator,
        -(-(delta.numerator << bits) // delta.denominator),
    )
    low = high = 0
    while True:
        yield low, high
        # 1 - pi - delta, enclosed; below 0 the second term of the minimum is above 1.
        rest = max(0, one - high - added[1]), max(0, one - low - added[0])
        low = min((grow[0] * low >> bits) + added[0], one - -(-shrink[1] * rest[1] >> wide), one)
        high = min(-(-grow[1] * high >> bits) + added[1], one - (shrink[0] * rest[0] >> wide), one)
