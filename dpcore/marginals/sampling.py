"""Draws from many discrete laws at once, each in constant time: alias tables.

A law on n cells is cut into n parts of probability 1 / n, each with one or two cells: its own with
a *threshold* probability, else its *alias*. A draw takes 64 bits: the upper 32 choose the part, the
lower 32 are compared with the threshold. So probabilities are rounded by less than 2^-31.

Source: Walker 1977; Vose 1991; in one sweep over light and heavy cells: Huebschle-Schneider and
Sanders 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.arithmetic.sums import row_dots
from dpcore.arrays import Floats, Integers
from dpcore.noise.randomness import RandomStream

_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_UNIT = 2.0**32


@dataclass(frozen=True, kw_only=True, eq=False)
class AliasTable:
    """Laws on cells 0, ..., n - 1, one for each cell of a parent.

    Attributes:
        cells: n.
        thresholds: (laws n,) probabilities of the own cells, in units of 2^-32.
        aliases: (laws n,) the other cells.
    """

    cells: int
    thresholds: npt.NDArray[np.uint64]
    aliases: Integers

    @classmethod
    def from_weights(cls, weights: Floats) -> AliasTable:
        """The laws that are proportional to weights.

        Args:
            weights: (laws, n), at least 0, with a positive sum in every row.

        >>> table = AliasTable.from_weights(np.array([[3.0, 1.0]]))
        >>> table.aliases.tolist(), (table.thresholds / 2**32).tolist()
        ([0, 0], [1.0, 0.5])
        """
        laws, cells = weights.shape
        sums = row_dots(weights, np.ones(cells))
        shares = weights / sums[:, np.newaxis] * cells
        # Light cells first: they are filled up from heavy ones, which then become light.
        order = np.argsort(shares >= 1, axis=1, kind="stable")
        thresholds, aliases = _swept(np.take_along_axis(shares, order, axis=1))
        everywhere = np.arange(laws)[:, np.newaxis]
        own, other = np.empty_like(thresholds), np.empty_like(aliases)
        own[everywhere, order] = thresholds
        other[everywhere, order] = np.take_along_axis(order, aliases, axis=1)
        units = np.minimum(np.rint(own * _UNIT), _UNIT).astype(np.uint64)
        return cls(cells=cells, thresholds=units.reshape(-1), aliases=other.reshape(-1))

    def draw(self, rows: int, stream: RandomStream, given: Integers | None) -> Integers:
        """(rows,) cells.

        Args:
            rows: how many.
            stream: 64 bits of a row are read.
            given: (rows,) which law each row has; None: the first.
        """
        words = stream.uint64(rows)
        parts = ((words >> _HALF) * np.uint64(self.cells) >> _HALF).view(np.int64)
        places = parts if given is None else parts + given * self.cells
        own = (words & _LOW) < self.thresholds[places]
        cells: Integers = np.where(own, parts, self.aliases[places])
        return cells


def _swept(shares: Floats) -> tuple[Floats, Integers]:
    """Thresholds and aliases of laws whose light cells come first, (laws, n) each."""
    laws, cells = shares.shape
    thresholds, aliases = np.ones((laws, cells)), np.tile(np.arange(cells), (laws, 1))
    every = np.arange(laws)
    light, heavy = np.zeros(laws, np.int64), (shares < 1).sum(axis=1)
    first_heavy = heavy.copy()
    rest = shares[every, np.minimum(heavy, cells - 1)]
    for _ in range(cells - 1):
        spent = (rest < 1) & (heavy < cells - 1)
        filled = ~spent & (light < first_heavy) & (heavy < cells)
        now, following = every[spent], heavy[spent]
        thresholds[now, following], aliases[now, following] = rest[spent], following + 1
        rest[spent] += shares[now, following + 1] - 1
        heavy[spent] += 1
        now, place = every[filled], light[filled]
        thresholds[now, place], aliases[now, place] = shares[now, place], heavy[filled]
        rest[filled] += shares[now, place] - 1
        light[filled] += 1
    return np.clip(thresholds, 0.0, 1.0), aliases
