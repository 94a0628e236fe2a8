"""An ordered domain of which counts are read: whole levels planned for them, or a strategy past
trees."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.factorised.planner import MOST_LEAVES, MOST_OPTIMAL
from dpcore.ordered.question import OrderedQuestion
from dpcore.planned_ordered.past_trees import PastTreesWorkload, is_by_rho
from dpcore.questions.workload import Noise, Share, Terms
from dpcore.repair.error import assumed_rows

# From so many cells on, and so many rows, in parts of those assumed without a guess (about 500
# standard deviations of the noise), the counts of a strategy were closer in all that was measured.
_FEWEST_CELLS = 16
_FEWEST_ROWS = Fraction(7, 100)
# Between this and the strategies of a formula the best one takes long to find.
_SOON_OPTIMAL = 2**10


@dataclass(frozen=True, kw_only=True)
class CountsWorkload(PastTreesWorkload):
    """The counts of an ordered domain: under a rho that is stated without a delta, and of more than
    few rows, by a strategy past trees; else of whole levels that are planned for counts.

    Source: of the limit, `benchmarks/factorised.py --counts`, and the same on 64 to 1,024 cells
    (docs/factorised.md): at 1,000 rows and rho 1/2 counts are off by 0.86 to 0.99 times as much as
    those of whole levels, at 10,000 by 0.83 to 0.91, at 300 by 0.87 to 1.04, at 100 by up to 1.07.
    """

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[Any]:
        if self._is_past_trees(share, terms):
            return self.factorised.planned(share, terms)
        return self.whole.planned(share, terms)

    def _is_past_trees(self, share: Share, terms: Terms) -> bool:
        cells = self.whole.domain.cells
        soon = cells <= _SOON_OPTIMAL or cells > MOST_OPTIMAL
        if not (_FEWEST_CELLS <= cells <= MOST_LEAVES and soon):
            return False
        if not is_by_rho(share, terms) or self.noise is Noise.LAPLACE:
            return False
        assumed = assumed_rows(self.whole.setting(share, terms))
        rows = assumed if self.whole.guessed_rows is None else self.whole.guessed_rows
        return rows >= _FEWEST_ROWS * assumed

    def condition(self, question: OrderedQuestion[Any]) -> str | None:
        return self.whole.condition(question)

    def why(self, question: OrderedQuestion[Any]) -> str | None:
        rows = self.whole.guessed_rows
        guess = "counts" if rows is None else f"the guess of {rows:,} rows"
        if isinstance(question.mechanism, FactorisedMechanism):
            return (
                f"chosen for {guess}: a strategy past trees (mechanism factorised), as its counts "
                "are expected to be closer than whole levels'"
            )
        if rows is None:
            return None
        return (
            f"chosen for {guess}: whole levels planned for counts, which are as close as an "
            "adaptive tree's"
        )
