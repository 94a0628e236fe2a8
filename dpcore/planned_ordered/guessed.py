"""An ordered domain whose mechanism a public guess of the rows chooses, never the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.adaptive_ordered.whole_levels import noise_if_all_split, rows_of_adaptive
from dpcore.adaptive_ordered.workload import AdaptiveWorkload
from dpcore.exponential.better import is_better
from dpcore.exponential.question import ExponentialQuestion
from dpcore.exponential.workload import ExponentialWorkload
from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.levels.uniform import UniformMechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.questions.workload import Share, Terms, Workload
from dpcore.refusal import Refusal
from dpcore.rows.keys import Keys


@dataclass(frozen=True, kw_only=True)
class GuessedWorkload(Workload[OrderedQuestion[Any] | ExponentialQuestion]):
    """What is asked of an ordered domain, by what a guess says is closest at the budget: few
    quantiles by the exponential mechanism, else an adaptive tree, else whole levels.

    Args:
        whole: as it is asked of whole levels; of quantiles, which are read off counts, for these.
        guessed_rows: of a tree, of each key.
        adaptive: as it is asked of an adaptive tree, with the guess; None of quantiles: counts of
            whole levels that are planned for them are at least as close.
        exponential: as quantiles alone are asked for; None where more is read.
    """

    whole: Workload[Any]
    guessed_rows: Fraction
    adaptive: AdaptiveWorkload | None = None
    exponential: ExponentialWorkload | None = None

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[Any] | ExponentialQuestion:
        quantiles = self._quantiles(share, terms)
        if quantiles is not None:
            return quantiles
        if self.adaptive is not None and self.adaptive.is_better(share, terms):
            return self.adaptive.planned(share, terms)
        whole: OrderedQuestion[Any] = self.whole.planned(share, terms)
        return whole

    def _quantiles(self, share: Share, terms: Terms) -> ExponentialQuestion | None:
        """Plan quantiles by the exponential mechanism, where it can choose them and they are more
        accurate; else None."""
        if self.exponential is None:
            return None
        try:
            found = self.exponential.planned(share, terms)
        except Refusal:  # the minimum, too many cells, or too small a budget: a tree can
            return None
        return found if is_better(found.plan, self.guessed_rows) else None

    def predicted(self, question: OrderedQuestion[Any] | ExponentialQuestion) -> float:
        """What the mechanism is for; of an adaptive tree the noise of a CDF point if every node is
        split."""
        if isinstance(question.mechanism, AdaptiveMechanism):
            return noise_if_all_split(question.mechanism.plan)
        return self.settled(question).predicted(question)

    def of_keys(self, keys: Keys) -> GuessedWorkload:
        return replace(
            self,
            keys=keys,
            whole=self.whole.of_keys(keys),
            adaptive=None if self.adaptive is None else replace(self.adaptive, keys=keys),
            exponential=None if self.exponential is None else replace(self.exponential, keys=keys),
        )

    def settled(self, question: OrderedQuestion[Any] | ExponentialQuestion) -> Workload[Any]:
        if isinstance(question, ExponentialQuestion):
            assert self.exponential is not None
            return self.exponential
        if isinstance(question.mechanism, AdaptiveMechanism):
            assert self.adaptive is not None
            return self.adaptive
        return self.whole.settled(question)

    def linear(self) -> Workload[Any]:
        return self.whole.linear()

    def why(self, question: OrderedQuestion[Any] | ExponentialQuestion) -> str:
        return f"chosen for the guess of {float(self.guessed_rows):,.0f} rows: " + self._reason(
            question
        )

    def _reason(self, question: OrderedQuestion[Any] | ExponentialQuestion) -> str:
        if isinstance(question, ExponentialQuestion):
            return (
                "the exponential mechanism, as so few quantiles are expected to be nearer than a "
                "tree's; it gives no CDF and no counts"
            )
        if isinstance(question.mechanism, AdaptiveMechanism):
            return "an adaptive tree, as its estimates are expected to be closer than whole levels'"
        if self.adaptive is None:
            named = "whole levels planned for counts"
            if isinstance(question.mechanism, FactorisedMechanism):
                named = "a strategy past trees (mechanism factorised)"
            return f"{named}, as quantiles are read off counts"
        assert isinstance(question.mechanism, UniformMechanism)
        most = float(f"{rows_of_adaptive(question.mechanism.plan.setting, counts=False):.2g}")
        return f"whole levels, as an adaptive tree is expected to be closer up to {most:,.0f} rows"
