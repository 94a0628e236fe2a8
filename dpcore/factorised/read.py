"""Sums of the cells that a strategy is optimized for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.factorised.optimum import centerd_gram, prefix_gram, range_gram, rank_gram

KINDS = ("cdf", "centred", "quantiles", "ranges")
# The part of all prefixes in what is read else, so that every cell is estimated.
_PREFIXES = 0.01


@dataclass(frozen=True, kw_only=True)
class Read(Coded):
    """The sums of the cells that are read.

    Args:
        kind: "cdf": all prefixes; "centred": the same where the total is public, less their even
            share of it; "quantiles": prefix - q total, over all prefixes; "ranges".
        shares: q of quantiles.
        widths: of ranges, in cells; none for all ranges.

    Raises:
        ValueError: no such kind.

    >>> Read(kind="ranges", widths=(10,)).gram(20).shape
    (20, 20)
    """

    kind: str
    shares: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"read: {self.kind!r} is none of {', '.join(KINDS)}")

    def gram(self, cells: int) -> Floats:
        """G = A'A of so many sums as there are cells, (n, n)."""
        if self.kind == "cdf":
            return prefix_gram(cells)
        if self.kind == "centred":
            return centerd_gram(cells)
        if self.kind == "quantiles":
            own = rank_gram(cells, self.shares)
        else:
            own = range_gram(cells, self.widths)
        return (1 - _PREFIXES) * own + _PREFIXES * prefix_gram(cells)

    def on_fewer(self, cells: int, wanted: int) -> Read:
        """The same on ``wanted`` cells in place of ``cells``."""
        widths = (max(1, round(width * wanted / cells)) for width in self.widths)
        return replace(self, widths=tuple(widths))
