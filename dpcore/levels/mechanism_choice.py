"""Choice of the mechanism of a tree, where several are open: the one expected to be closest.

A public guess of the rows and predicted errors decide, never the data. Each planner that is open
gives its tree if it is expected to be closer than whole levels. An ordered domain tries in this
order: few quantiles by the exponential mechanism, an adaptive tree, a strategy of weighted sums,
else whole levels; a hierarchy an adaptive tree, else whole levels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from dptrees.dpcore.levels.workload import (
    FREE_INTERVALS,
    OrderedWorkload,
    Planner,
    ReadAs,
    Reasons,
    W,
)
from dptrees.dpcore.mechanisms import ADAPTIVE, EXPONENTIAL, FACTORISED, LEVELS
from dptrees.dpcore.questions.planning import CloserQuantiles, Noise, Setting
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.plan import Consistency


class MechanismChoice(Planner[W]):
    """A tree whose mechanism is open."""

    @abstractmethod
    def others(self, workload: W) -> tuple[W, ...]:
        """Return the workloads by the mechanisms that are open beside whole levels, in the order
        in which they are tried."""

    def levels(self, workload: W) -> W:
        """Return the workload by whole levels."""
        return replace(workload, mechanism=LEVELS)

    def guess(self, workload: W) -> Fraction | float | None:
        """Return the guess of the rows that the choice depends on; None: there is none."""
        return workload.guessed_rows

    def tree(self, workload: W, setting: Setting) -> Any:
        whole = self.levels(workload)
        for other in self.others(workload):
            tree = other.planner.if_closer(other, setting, whole)
            if tree is not None:
                return tree
        return whole.planned(setting)

    def mechanism(self, workload: W, setting: Setting) -> Any:
        return self.tree(workload, setting).mechanism

    def resolved(self, workload: W, mechanism: Any) -> W:
        for other in self.others(workload):
            if isinstance(mechanism, other.planner.makes):
                return other
        return self.levels(workload)

    def linear(self, workload: W) -> W:
        return self.levels(workload) if self.others(workload) else workload

    def predicted(self, workload: W, mechanism: Any) -> float:
        own = self.resolved(workload, mechanism)
        return own.planner.predicted(own, mechanism)

    def condition(self, workload: W, mechanism: Any) -> str | None:
        own = self.resolved(workload, mechanism)
        return own.planner.condition(own, mechanism)

    def error_unit(self, workload: W) -> str | None:
        others = self.others(workload)
        for other in others:
            if other.mechanism == ADAPTIVE:
                return other.planner.error_unit(other)
        if others and self.guess(workload) is not None:
            return None
        whole = self.levels(workload)
        return whole.planner.error_unit(whole)

    def why(self, workload: W, question: Any) -> str | None:
        guess = self.guess(workload)
        if guess is None or not self.others(workload):
            return None
        reason = self._reason(workload, question)
        return f"chosen for the guess of {float(guess):,.0f} rows: {reason}"

    def _reason(self, workload: W, question: Any) -> str:
        """Why the guess chose the mechanism of a plan, adaptive or of whole levels."""
        others = self.others(workload)
        adaptive: Any = next(each for each in others if each.mechanism == ADAPTIVE)
        planner = adaptive.planner
        if isinstance(question.mechanism, planner.makes):
            read = "counts" if adaptive.reads_counts else "estimates"
            return (
                f"an adaptive tree, as its {read} are expected to be closer than {planner.compared}"
            )
        try:
            reason = planner.why_not(adaptive, question)
        except ValueError as error:
            rule = error.rule if isinstance(error, Refusal) else error
            reason = f"an adaptive tree cannot be had: {rule}"
        return f"{planner.otherwise}, as {reason}"


_CLOSEST_ESTIMATES = (
    "chosen for estimates: a strategy past trees (mechanism factorised), as its predicted error is "
    "below a planned tree's"
)

# Quantiles alone are clearly closer if their predicted error is at most this part of the tree's:
# `python -m benchmarks.quantiles hint` measures it (docs/decisions/0067).
_CLEARLY = 0.6


class OrderedChoice(MechanismChoice[OrderedWorkload]):
    """The choice of an ordered domain. Quantiles are read off counts.

    Source: of adaptive trees for counts, docs/plans.md; of the others, their planners.
    """

    refused: ClassVar[Reasons] = {"intervals": FREE_INTERVALS}

    def others(self, workload: OrderedWorkload) -> tuple[OrderedWorkload, ...]:
        return tuple(self._open(workload))

    def _open(self, workload: OrderedWorkload) -> Iterator[OrderedWorkload]:
        is_cdf = workload.objective.kind in ("cdf", "ranges", "quantiles")
        if workload.guesses_values or not workload.domain.is_ordered or not is_cdf:
            return
        # An adaptive tree is top_down where consistency is not given (docs/decisions/0058).
        given = replace(workload, consistency=Consistency.TOP_DOWN)
        counts = replace(given, mechanism=ADAPTIVE, read_as=ReadAs.COUNTS)
        strategy = replace(workload, mechanism=FACTORISED)
        if workload.read_as is ReadAs.ESTIMATES:
            if workload.guessed_rows is not None:
                yield replace(workload, mechanism=ADAPTIVE)
            elif workload.noise is not Noise.LAPLACE:
                yield strategy
            return
        if self._alone(workload) and workload.noise is Noise.BEST:
            yield replace(workload, mechanism=EXPONENTIAL)
        if workload.is_pure:
            # Under rho counts of whole levels and strategies were as close; beside a delta nothing
            # was measured.
            yield counts
        yield strategy

    def _alone(self, workload: OrderedWorkload) -> bool:
        """Whether quantiles alone are read, as far as one can say."""
        guessed = workload.guessed_rows is not None and workload.read_as is None
        return workload.read_as is ReadAs.QUANTILES or (
            guessed and workload.objective.kind == "quantiles"
        )

    def levels(self, workload: OrderedWorkload) -> OrderedWorkload:
        counts = self._alone(workload) and not workload.guesses_values
        read_as = ReadAs.COUNTS if counts else workload.read_as
        return replace(workload, mechanism=LEVELS, read_as=read_as)

    def guess(self, workload: OrderedWorkload) -> Fraction | float | None:
        is_used = workload.read_as is ReadAs.ESTIMATES or self._alone(workload)
        return workload.guessed_rows if is_used else None

    def condition(self, workload: OrderedWorkload, mechanism: Any) -> str | None:
        own = self.resolved(workload, mechanism)
        if own.mechanism == FACTORISED and workload.read_as is not ReadAs.ESTIMATES:
            return "of the estimates, not of the counts"
        return own.planner.condition(own, mechanism)

    def why(self, workload: OrderedWorkload, question: Any) -> str | None:
        if self.guess(workload) is not None or not self.others(workload):
            return super().why(workload, question)
        own = self.resolved(workload, question.mechanism)
        if own.mechanism == EXPONENTIAL:
            return f"chosen for quantiles alone: {self._reason(workload, question)}"
        sums = own.mechanism == FACTORISED
        if workload.read_as is ReadAs.ESTIMATES:
            return _CLOSEST_ESTIMATES if sums else None
        rows = self.levels(workload).guess_of_counts
        if own.mechanism == ADAPTIVE:
            closer = "an adaptive tree, as its counts are expected to be closer than whole levels'"
            if rows is not None:
                return f"chosen for counts and the guess of {rows:,} rows: {closer}"
            planner: Any = own.planner
            return (
                f"chosen for counts: {closer}; guess the number of rows if there are more than "
                f"{planner.most_rows(question.mechanism):,.0f}"
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

    def _reason(self, workload: OrderedWorkload, question: Any) -> str:
        own = self.resolved(workload, question.mechanism)
        if own.mechanism == EXPONENTIAL:
            return (
                "the exponential mechanism, as so few quantiles are expected to be nearer than a "
                "tree's; it gives no CDF and no counts"
            )
        if own.mechanism == ADAPTIVE or workload.read_as is ReadAs.ESTIMATES:
            return super()._reason(workload, question)
        named = "whole levels planned for counts"
        if own.mechanism == FACTORISED:
            named = "a strategy past trees (mechanism factorised)"
        return f"{named}, as quantiles are read off counts"

    def closer_quantiles(
        self, workload: OrderedWorkload, question: Any, setting: Setting
    ) -> CloserQuantiles | None:
        """Return the errors of quantiles alone, as `Workload.closer_quantiles`.

        Args:
            workload: of the tree, whose mechanism is open.
            question: its plan.
            setting: as for `mechanism`.
        """
        is_open = workload.read_as is None and workload.noise is Noise.BEST
        if workload.objective.kind != "quantiles" or workload.guesses_values or not is_open:
            return None
        alone = replace(workload, mechanism=EXPONENTIAL, read_as=ReadAs.QUANTILES)
        if isinstance(question.mechanism, alone.planner.makes):
            return None
        other = alone.planner.if_closer(alone, setting, workload)
        if other is None:
            return None
        error, tree_error = alone.predicted(other), workload.predicted(question)
        if error > _CLEARLY * tree_error:
            return None
        return CloserQuantiles(error, tree_error, other.plan.least_rows)
