"""Codes of large estimated counts: of given candidates, and by descending a binary hierarchy.

A code's count is at most that of each of its prefixes, so where estimates are never too low (the
minimum of an exact count-min sketch) no code above the threshold is missed. Noisy or unbiased
estimates miss one if any of its prefixes comes out at the threshold or below it.

A query of noisy tables alone costs no budget, nor does a threshold made from them.

Source: Cormode, Muthukrishnan 2005, section 5.2 (dyadic ranges).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.sketches.sketch import Codes
from dptrees.dpcore.specification import Refusal

Estimate = Callable[[int, Codes], Floats]  # of a level and prefixes of as many bits

# Prefixes whose counts are estimated at once, of the first level and of a step.
MAX_CHILDREN = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class HeavyCodes:
    """Codes of large estimated counts.

    Attributes:
        codes: uint64 (k,), ascending.
        counts: the estimates, float64 (k,).
        complete: whether no code or prefix above the threshold was left out for being too many.
    """

    codes: Codes
    counts: Floats
    complete: bool


def heavy_candidates(codes: Codes, counts: Floats, *, threshold: float, most: int) -> HeavyCodes:
    """Return the given codes whose estimates are above a threshold; the largest if there are too
    many.

    Args:
        codes: uint64 (n,), each once.
        counts: their estimates, float64 (n,).
        threshold: in rows of data.
        most: how many to keep; of equal estimates the smaller codes.

    Raises:
        Refusal: most is not 1 or more.

    >>> found = heavy_candidates(np.arange(4, dtype=np.uint64), np.array([3.0, 1.0, 9.0, 3.0]),
    ...                          threshold=2.0, most=2)
    >>> found.codes.tolist(), found.complete
    ([0, 2], False)
    """
    if most < 1:
        raise Refusal("most", f"{most} is not 1 or more")
    above = np.flatnonzero(counts > threshold)
    complete = above.size <= most
    if not complete:
        above = above[np.lexsort((codes[above], -counts[above]))[:most]]
    above = above[np.argsort(codes[above], kind="stable")]
    return HeavyCodes(codes=codes[above], counts=counts[above], complete=complete)


def heavy_hitters(
    estimate: Estimate, levels: Sequence[int], *, threshold: float, most: int
) -> HeavyCodes:
    """The codes of the last level above a threshold, by descending from the first.

    At most 2^levels[0] + sum of most 2^step estimates are computed.

    Args:
        estimate: counts of a level's prefixes, of sketches or of exact counters plus noise.
        levels: lengths of prefixes, ascending from 1 or more; the last are the codes.
        threshold: in rows of data.
        most: how many prefixes of a level to go on with.

    Raises:
        Refusal: levels do not ascend, or a step would look at more than 2^24 prefixes.

    >>> counts = {1: [6.0, 4.0], 2: [5.0, 1.0, 2.0, 2.0]}
    >>> heavy_hitters(lambda level, codes: np.array(counts[level])[codes], (1, 2),
    ...               threshold=3.0, most=8).codes.tolist()
    [0]
    """
    if not levels or levels[0] < 1 or list(levels) != sorted(set(levels)):
        raise Refusal("levels", f"{tuple(levels)} do not ascend from 1 or more")
    found = HeavyCodes(codes=np.zeros(1, np.uint64), counts=np.zeros(1), complete=True)
    above = 0
    for level in levels:
        children = _children(found.codes, level - above)
        kept = heavy_candidates(children, estimate(level, children), threshold=threshold, most=most)
        found = HeavyCodes(
            codes=kept.codes, counts=kept.counts, complete=found.complete and kept.complete
        )
        above = level
    return found


def _children(codes: Codes, bits: int) -> Codes:
    """All extensions of codes by so many bits, ascending."""
    if codes.size << bits > MAX_CHILDREN:
        raise Refusal("levels", f"a step of {bits} bits asks for more than {MAX_CHILDREN} prefixes")
    ends = np.arange(1 << bits, dtype=np.uint64)
    children: Codes = (codes << np.uint64(bits))[:, None] | ends
    return children.reshape(-1)
