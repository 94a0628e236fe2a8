"""Choice of the mechanism of a tree, where several are open: the one expected to be closest.

A public guess of the rows and predicted errors decide, never the data. An ordered domain tries in
this order: few quantiles by the exponential mechanism, an adaptive tree, a strategy of weighted
sums, else whole levels; a hierarchy an adaptive tree, else whole levels.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import AdaptiveCandidate, if_all_split, rows_of_adaptive
from dptrees.dpcore.exponential.plan import is_better
from dptrees.dpcore.exponential.question import (
    ExponentialMechanism,
    ExponentialQuestion,
    ExponentialWorkload,
)
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism
from dptrees.dpcore.factorised.strategies import MOST_LEAVES, MOST_OPTIMAL
from dptrees.dpcore.levels.planner import TreeWorkload, WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.planning import Noise, ReleaseTerms, Share, Workload
from dptrees.dpcore.repair.planner import assumed_rows
from dptrees.dpcore.rows.keys import Keys
from dptrees.dpcore.specification import Refusal


@dataclass(frozen=True, kw_only=True)
class MechanismChoice(Workload[Any]):
    """A tree whose mechanism is open: an adaptive tree, or whole levels.

    Args:
        whole: the tree by whole levels.
        adaptive: as an adaptive tree, with the guess; None: it is not open.
        guessed_rows: of a tree, of each key; None: there is no guess, or it only serves counts.
    """

    whole: TreeWorkload[Any]
    adaptive: TreeWorkload[Any] | None = None
    guessed_rows: Fraction | float | None = None

    @property
    def error_unit(self) -> str | None:
        if self.guessed_rows is None:
            return self.whole.error_unit
        return None if self.adaptive is None else self.adaptive.error_unit

    def planned(self, share: Share, terms: ReleaseTerms) -> Any:
        adaptive = self._adaptive(share, terms)
        return self.whole.planned(share, terms) if adaptive is None else adaptive

    def _adaptive(self, share: Share, terms: ReleaseTerms) -> Any:
        """Plan an adaptive tree, where it can be had and is expected to be closer; else None."""
        if self.adaptive is None:
            return None
        try:
            is_better = self._tree.is_better(self.adaptive.setting(share, terms))
            return self.adaptive.planned(share, terms) if is_better else None
        except ValueError:  # too large a tree, or too small a budget: whole levels may do
            return None

    def predicted(self, question: Any) -> float:
        return self.resolved(question).predicted(question)

    def error_in_rows(self, question: Any) -> float:
        if isinstance(question.mechanism, AdaptiveMechanism):
            return self.predicted(question)
        return self.resolved(question).error_in_rows(question)

    def condition(self, question: Any) -> str | None:
        return self.resolved(question).condition(question)

    def with_keys(self, keys: Keys) -> MechanismChoice:
        own = ((each.name, getattr(self, each.name)) for each in fields(self))
        changed: dict[str, Any] = {
            name: each.with_keys(keys) for name, each in own if isinstance(each, Workload)
        }
        return replace(self, keys=keys, **changed)

    def resolved(self, question: Any) -> Workload[Any]:
        is_adaptive = isinstance(question.mechanism, AdaptiveMechanism)
        return self.adaptive if self.adaptive and is_adaptive else self.whole

    def linear(self) -> Workload[Any]:
        return self.whole

    def why(self, question: Any) -> str | None:
        if self.guessed_rows is None:
            return None
        rows = f"{float(self.guessed_rows):,.0f} rows"
        return f"chosen for the guess of {rows}: {self._reason(question)}"

    def _reason(self, question: Any) -> str:
        """Why the guess chose the mechanism of a plan, adaptive or of whole levels."""
        tree = self._tree
        if isinstance(question.mechanism, AdaptiveMechanism):
            read = "counts" if tree.counts else "estimates"
            return f"an adaptive tree, as its {read} are expected to be closer than {tree.compared}"
        try:
            reason = tree.why_not(question)
        except ValueError as error:
            rule = error.rule if isinstance(error, Refusal) else error
            reason = f"an adaptive tree cannot be had: {rule}"
        return f"{tree.otherwise}, as {reason}"

    @property
    def _tree(self) -> AdaptiveCandidate:
        assert self.adaptive is not None
        assert isinstance(self.adaptive.candidate, AdaptiveCandidate)
        return self.adaptive.candidate


# From so many cells on, and so many rows, in parts of those assumed without a guess (about 500
# standard deviations of the noise), the counts of a strategy were closer in all that was measured.
_FEWEST_CELLS = 16
_FEWEST_ROWS = Fraction(7, 100)
# A strategy for so many cells is planned within two seconds. Between this and the strategies of a
# formula the best one takes long to find.
_SOON_OPTIMAL = 2**10

_CLOSEST_ESTIMATES = (
    "chosen for estimates: a strategy past trees (mechanism factorised), as its predicted error is "
    "below a planned tree's"
)

# Errors of answers about an adaptive tree take memory in proportion to its cells, 3 GB for 2^24;
# answers about whole levels do not.
_MOST_ADAPTIVE = 2**22

Made = OrderedQuestion[Any] | ExponentialQuestion


@dataclass(frozen=True, kw_only=True)
class OrderedChoice(MechanismChoice):
    """A tree over an ordered domain whose mechanism is open.

    Under a rho that is stated without a delta, a strategy is taken for counts where there are more
    than few rows, and for estimates where its predicted error is below the tree's.

    Source: of the limit for counts, measurements on 64 to 4,096 cells (docs/factorised.md): at
    1,000 rows and rho 1/2 counts are off by 0.86 to 0.99 times as much as the counts of whole
    levels, at 10,000 by 0.83 to 0.91, at 300 by 0.87 to 1.04, at 100 by up to 1.07. Of
    adaptive trees for counts, docs/accuracy.md.

    Args:
        whole: the tree by whole levels.
        for_counts: whether counts are read, and not estimates; quantiles are read off counts.
        adaptive: for estimates None without a guess; for counts also without one, but only under
            an epsilon alone.
        strategy: the tree by weighted sums, or None.
        exponential: quantiles alone; None where more is read.
        quantiles_alone: whether the configuration says that nothing else is read, so that the
            exponential mechanism is open without a guess.
    """

    whole: OrderedWorkload[UniformMechanism]
    for_counts: bool = False
    strategy: OrderedWorkload[FactorizedMechanism] | None = None
    exponential: ExponentialWorkload | None = None
    quantiles_alone: bool = False

    @property
    def error_unit(self) -> str | None:
        return super().error_unit if self.adaptive is None else self.adaptive.error_unit

    def under(self, measure: Measure, *, delta: bool) -> OrderedChoice:
        if not self.for_counts or (measure is Measure.EPSILON and not delta):
            return self
        # Under rho counts of whole levels and strategies were as close; beside a delta nothing was
        # measured.
        return replace(self, adaptive=None)

    def planned(self, share: Share, terms: ReleaseTerms) -> Made:
        quantiles = self._quantiles(share, terms)
        if quantiles is not None:
            return quantiles
        adaptive: Made | None = self._adaptive(share, terms)
        if adaptive is not None:
            return adaptive
        # Beside a delta trees may be better off: their composition is certified, and a strategy's
        # is converted.
        by_rho = share.budget.measure is Measure.RHO and not terms.has_delta
        if self.strategy is None or not by_rho:
            return self.whole.planned(share, terms)
        if self.for_counts:
            sums = self._sums_for_counts(share, terms)
            return (self.strategy if sums else self.whole).planned(share, terms)
        return self._closest_estimates(self.strategy, share, terms)

    def _adaptive(self, share: Share, terms: ReleaseTerms) -> Any:
        if self.whole.domain.cells > _MOST_ADAPTIVE:
            return None
        return super()._adaptive(share, terms)

    def _quantiles(self, share: Share, terms: ReleaseTerms) -> ExponentialQuestion | None:
        """Plan quantiles by the exponential mechanism, where it can choose them and they are more
        accurate; else None."""
        if self.exponential is None or (self.guessed_rows is None and not self.quantiles_alone):
            return None
        try:
            planned = self.exponential.planned(share, terms)
        except Refusal:  # the minimum, too many cells, or too small a budget: a tree can
            return None
        rows = None if self.guessed_rows is None else Fraction(self.guessed_rows)
        return planned if is_better(planned.plan, rows) else None

    def _sums_for_counts(self, share: Share, terms: ReleaseTerms) -> bool:
        """Whether the counts of a strategy are expected to be closer than the counts of whole
        levels."""
        few = self.whole.domain.cells < _FEWEST_CELLS
        if self.noise is Noise.LAPLACE or few or not self._is_soon_planned:
            return False
        assumed = assumed_rows(self.whole.setting(share, terms))
        guessed = self._levels.guessed_rows
        return (assumed if guessed is None else guessed) >= _FEWEST_ROWS * assumed

    @property
    def _is_soon_planned(self) -> bool:
        """Whether a strategy for so many cells is found within two seconds."""
        cells = self.whole.domain.cells
        return cells <= _SOON_OPTIMAL or MOST_OPTIMAL < cells <= MOST_LEAVES

    def _closest_estimates(
        self, strategy: OrderedWorkload[FactorizedMechanism], share: Share, terms: ReleaseTerms
    ) -> OrderedQuestion[Any]:
        tree = self.whole.planned(share, terms)
        if not self._is_soon_planned:
            return tree
        sums = strategy.planned(share, terms)
        return sums if strategy.predicted(sums) < self.whole.predicted(tree) else tree

    def condition(self, question: Made) -> str | None:
        if self.for_counts and isinstance(question.mechanism, FactorizedMechanism):
            return "of the estimates, not of the counts"
        return super().condition(question)

    def resolved(self, question: Made) -> Workload[Any]:
        others: dict[type, Workload[Any] | None] = {
            FactorizedMechanism: self.strategy,
            ExponentialMechanism: self.exponential,
        }
        return others.get(type(question.mechanism)) or super().resolved(question)

    def why(self, question: Made) -> str | None:
        if self.guessed_rows is not None:
            return super().why(question)
        if isinstance(question.mechanism, ExponentialMechanism):
            return f"chosen for quantiles alone: {self._reason(question)}"
        sums = isinstance(question.mechanism, FactorizedMechanism)
        if not self.for_counts:
            return _CLOSEST_ESTIMATES if sums else None
        rows = self._levels.guessed_rows
        if isinstance(question.mechanism, AdaptiveMechanism):
            closer = "an adaptive tree, as its counts are expected to be closer than whole levels'"
            if rows is not None:
                return f"chosen for counts and the guess of {rows:,} rows: {closer}"
            setting = if_all_split(question.mechanism.plan).setting
            most = float(f"{rows_of_adaptive(setting, counts=True):.2g}")
            return (
                f"chosen for counts: {closer}; guess the number of rows if there are more than "
                f"{most:,.0f}"
            )
        if not sums and rows is None:
            return None
        reason = (
            "a strategy past trees (mechanism factorised), as its counts are expected to be closer "
            "than whole levels'"
            if sums
            else "whole levels planned for counts, which are expected to be as close as others"
        )
        guess = "counts" if rows is None else f"the guess of {rows:,} rows"
        return f"chosen for {guess}: {reason}"

    def _reason(self, question: Made) -> str:
        if isinstance(question.mechanism, ExponentialMechanism):
            return (
                "the exponential mechanism, as so few quantiles are expected to be nearer than a "
                "tree's; it gives no CDF and no counts"
            )
        is_adaptive = isinstance(question.mechanism, AdaptiveMechanism)
        if is_adaptive or not self.for_counts:
            return super()._reason(question)
        named = "whole levels planned for counts"
        if isinstance(question.mechanism, FactorizedMechanism):
            named = "a strategy past trees (mechanism factorised)"
        return f"{named}, as quantiles are read off counts"

    @property
    def _levels(self) -> WholeLevels:
        assert isinstance(self.whole.candidate, WholeLevels)
        return self.whole.candidate
