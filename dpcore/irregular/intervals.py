"""Confidence intervals of the counts of an irregular tree, from the plan alone.

The variance, the excess kurtosis and the sixth cumulant of every node's error are known exactly
(`dpcore.irregular.error_laws`). The nodes of a level are sorted into cells of close kurtoses, and
the laws of those at the ends of a cell (least and largest kurtosis, sixth cumulant, variance) are
inverted; every node of the cell gets the widest of them, in standard errors. The coverage is
proved for the nodes whose laws are inverted, and for all where a level has few different laws;
for the others, no cumulant up to the sixth lies beyond those inverted, and the smoothing of the
inversion leaves a margin. Where errors are of few rows and of many laws, coverage jumps from one
node to the next with the lattice: there the width is that of the error blurred by half a row
either side, and half a row more covers what the blur took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.specification import Coded
from dptrees.dpcore.trees.error_laws import (
    BLUR_VARIANCE,
    ROUNDING,
    SMOOTHING,
    NodeMoments,
    blurred_excess,
)

# Kurtoses of one cell differ by at most this, unless they would be more cells than the most.
_CELL = 0.4
_MOST_CELLS = 6
# A level of no more different laws has them all inverted.
_FEW = 12
# Cumulants that agree to so many digits belong to one law.
_DIGITS = 9
# Above this variance in rows^2, steps of the lattice are within the smoothing.
_FINE = 1 / (SMOOTHING * SMOOTHING)
# Keeps an atom at the very end of an interval inside after the rounding of a square root.
_OUTWARDS = 1.0 + 1e-9


@dataclass(frozen=True, kw_only=True)
class LevelWidths(Coded):
    """Half-widths of the intervals of one level's counts, on either side.

    Args:
        bounds: (cells - 1,) the excess kurtoses, of the blurred errors, that part the cells.
        widths: (cells,) in standard errors; of the blurred error where there is a blur.
        blur: 1.0 where the width is that of the error blurred by half a row either side, else 0.0.

    Raises:
        ValueError: bounds that do not part the widths.

    >>> level = LevelWidths(bounds=(1.0,), widths=(1.96, 2.1), blur=0.0)
    >>> level.margins(np.array([100.0, 100.0, 0.0]), np.array([0.1, 2.9, 0.0])).round(2).tolist()
    [19.6, 21.0, 0.0]
    """

    bounds: tuple[float, ...]
    widths: tuple[float, ...]
    blur: float

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.bounds) + 1 or list(self.bounds) != sorted(self.bounds):
            raise ValueError(
                f"bounds: {len(self.bounds)} do not part {len(self.widths)} cells in order"
            )

    @property
    def widest(self) -> float:
        """The largest width: one for all nodes of the level."""
        return max(self.widths)

    def margins(self, variance: Floats, excess: Floats | None = None) -> Floats:
        """The half-widths of the intervals of a level's nodes, in rows.

        Args:
            variance: (n,) of the estimates, in rows^2; zero where the count is known.
            excess: (n,) as from `blurred_excess`; None: every node gets the largest width.

        Returns:
            (n,), zero where the count is known exactly.
        """
        if excess is None:
            width = np.full(variance.shape, self.widest)
        else:
            width = np.array(self.widths)[np.searchsorted(self.bounds, excess, side="right")]
        spread = np.sqrt(np.maximum(variance, 0.0) + self.blur * BLUR_VARIANCE)
        margin = (width * spread + 0.5 * self.blur) * _OUTWARDS
        return np.where(variance > ROUNDING, margin, 0.0)


@dataclass(frozen=True, kw_only=True)
class IrregularWidths(Coded):
    """The widths of the intervals of all nodes' counts, at one confidence.

    Args:
        confidence: the coverage.
        levels: (h + 1,) root first.
    """

    confidence: float
    levels: tuple[LevelWidths, ...]


def irregular_widths(
    plan: IrregularPlan, confidence: float, errors: IrregularErrors | None = None
) -> IrregularWidths:
    """The widths of a plan's intervals.

    Args:
        plan: any.
        confidence: above 0 and at most 0.9999.
        errors: the laws of the plan's errors, where they are at hand.

    Raises:
        ValueError: the confidence is not in that range.

    >>> from dptrees.dpcore.irregular.planner import with_best_shares
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from fractions import Fraction
    >>> plan = with_best_shares(IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[2], [3, 1]]), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 200)), public_level=0))
    >>> [round(level.widest, 1) for level in irregular_widths(plan, 0.95).levels]
    [0.0, 2.0, 2.0]
    """
    if not 0 < confidence <= 0.9999:
        raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
    errors = errors or IrregularErrors(plan)
    return IrregularWidths(
        confidence=confidence,
        levels=tuple(
            _level_widths(_Level.from_plan(plan, errors, level), confidence)
            for level in range(plan.tree.height + 1)
        ),
    )


def node_margins(
    plan: IrregularPlan, widths: IrregularWidths, errors: IrregularErrors | None = None
) -> list[Floats]:
    """The half-widths of the intervals of every node, in rows.

    Args:
        plan: the one that the widths are for.
        widths: from `irregular_widths`.
        errors: the laws of the plan's errors, where they are at hand.

    Returns:
        per level (n_l,); of the leaves (n_{h-1},), those below each lowest parent being alike.
    """
    errors = errors or IrregularErrors(plan)
    return [
        level.margins(moments.variance, blurred_excess(moments))
        for level, moments in (
            (each, errors.moments(number)) for number, each in enumerate(widths.levels)
        )
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Level:
    """The uncertain nodes of a level, or of the leaves the first one below each lowest parent."""

    errors: IrregularErrors
    level: int
    nodes: Integers
    moments: NodeMoments

    @classmethod
    def from_plan(cls, plan: IrregularPlan, errors: IrregularErrors, level: int) -> _Level:
        moments, tree = errors.moments(level), plan.tree
        kept = moments.variance > ROUNDING
        nodes = np.arange(kept.size, dtype=np.int64)
        if level == tree.height > 0:
            nodes = tree.child_starts[-1][:-1]
        return cls(
            errors=errors,
            level=level,
            nodes=nodes[kept],
            moments=NodeMoments(
                variance=moments.variance[kept],
                fourth=moments.fourth[kept],
                sixth=moments.sixth[kept],
            ),
        )

    def distinct(self) -> Integers:
        """The place of one node of each law, as far as the cumulants distinguish them."""
        spread = self.moments.variance
        named = log(spread)
        for order, values in ((4, self.moments.fourth), (6, self.moments.sixth)):
            # Irrational weights: sums agree where all cumulants do.
            named = named + math.sqrt(order + 1) * values / integer_power(spread, order // 2)
        return np.unique(np.round(named, _DIGITS), return_index=True)[1].astype(np.int64)

    def ends(self, places: Integers) -> list[int]:
        """Return, among some nodes, the nodes with the least and the largest cumulants."""
        spread = self.moments.variance[places]
        scaled = (
            self.moments.fourth[places] / spread**2,
            self.moments.sixth[places] / integer_power(spread, 3),
            spread,
        )
        results = [each.argmax() for each in scaled] + [each.argmin() for each in scaled]
        return places[sorted(set(results))].tolist()  # type: ignore[no-any-return]

    def width(self, place: int, confidence: float, *, blurred: bool) -> float:
        """Return the half-width of the interval of one node, in standard errors."""
        law = self.errors.node(self.level, int(self.nodes[place]))
        if blurred:
            return law.blurred_half_width(confidence) / math.sqrt(law.variance + BLUR_VARIANCE)
        return law.half_width(confidence) / math.sqrt(law.variance)


def _level_widths(level: _Level, confidence: float) -> LevelWidths:
    if not level.nodes.size:
        return LevelWidths(bounds=(), widths=(0.0,), blur=0.0)
    distinct = level.distinct()
    few = distinct.size <= _FEW
    blurred = not few and float(level.moments.variance.min()) < _FINE
    excess = blurred_excess(level.moments)[distinct]
    low, high = float(excess.min()), float(excess.max())
    cells = min(_MOST_CELLS, 1 + int((high - low) / _CELL))
    bounds = np.linspace(low, high, cells + 1)[1:-1]
    cell = np.searchsorted(bounds, excess, side="right")
    known: dict[int, float] = {}
    widths = []
    for each in range(cells):
        places = distinct[cell == each]
        chosen = places.tolist() if few or not places.size else level.ends(places)
        for place in chosen:
            if place not in known:
                known[place] = level.width(place, confidence, blurred=blurred)
        widths.append(max((known[place] for place in chosen), default=0.0))
    return LevelWidths(
        bounds=tuple(bounds.tolist()), widths=tuple(widths), blur=1.0 if blurred else 0.0
    )
