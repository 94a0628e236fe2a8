"""The order in which quantiles are chosen: a balanced tree of them.

The middle one first, among all rows; it parts the rows, and the lower and the upper quantiles are
chosen among those on their side, where they are quantiles of other parts: the q-quantile between
the quantiles of a and b is the (q - a) / (b - a)-quantile of the rows between. So a row takes part
in one choice of each depth, and m quantiles cost as much as log2(m + 1) of them.

Source: Kaplan, Schnapp, Stemmer, "Differentially Private Approximate Quantiles", ICML 2022
(algorithm 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

# The largest denominators of parts. Of last ones 2^40 rows times them fit in 64 bits; of places
# distances do up to where they weigh nothing (`dpcore.exponential.plan`).
LARGEST_LAST, LARGEST_OF_PLACES = 2**22, 2**16


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A quantile, to be chosen among the rows between two others.

    Attributes:
        place: of the quantile among all, in rising order.
        part: of the rows between that lie below it, as near to the exact one as denominators allow.
        missed: the share of all rows by which its rank is thus off.
        lower, upper: what is chosen among the rows below it, and above it.
        height: how many choices the longest path down from here has, this one with it.
    """

    place: int
    part: Fraction
    missed: Fraction
    lower: Rank | None
    upper: Rank | None
    height: int

    @property
    def is_last(self) -> bool:
        """Whether nothing is chosen on either side of it."""
        return self.lower is None and self.upper is None

    def paths(self, above: tuple[Rank, ...] = ()) -> Iterator[tuple[Rank, ...]]:
        """Every rank with those on its path, from the first one down."""
        path = (*above, self)
        yield path
        for side in (self.lower, self.upper):
            if side is not None:
                yield from side.paths(path)


def rank_tree(quantiles: Sequence[Fraction]) -> Rank:
    """The tree of some quantiles.

    Args:
        quantiles: at least one, rising, each above 0 and below 1.

    >>> first = rank_tree([Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
    >>> first.place, str(first.part), str(first.lower.part), first.height
    (1, '1/2', '1/2', 2)
    """
    result = _between(quantiles, 0, len(quantiles), Fraction(0), Fraction(1))
    assert result is not None
    return result


def _between(
    quantiles: Sequence[Fraction], start: int, stop: int, low: Fraction, high: Fraction
) -> Rank | None:
    if start == stop:
        return None
    middle = (start + stop) // 2
    own = quantiles[middle]
    lower = _between(quantiles, start, middle, low, own)
    upper = _between(quantiles, middle + 1, stop, own, high)
    sides = [side.height for side in (lower, upper) if side is not None]
    largest = LARGEST_OF_PLACES if sides else LARGEST_LAST
    part = ((own - low) / (high - low)).limit_denominator(largest)
    return Rank(
        place=middle,
        part=part,
        missed=abs(low + part * (high - low) - own),
        lower=lower,
        upper=upper,
        height=1 + max(sides, default=0),
    )
