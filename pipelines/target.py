"""The budget at which one tree alone is as far off as ``dptrees plan --target-error`` requests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share, Workload
from dptrees.pipelines.sections.error import to_refusal
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.user_error import UserError


@dataclass(frozen=True, kw_only=True)
class ErrorTarget:
    """An error that one tree alone shall have.

    Args:
        rmse: the error, in the unit of what the tree is for.
        place: of the tree in its configuration.
        section: of the tree.
        question: as it was planned with the others.
        measure: of the budget that is looked for.
        terms: of the release.
        delta: that the release states, None where it states none.
    """

    rmse: float
    place: str
    section: TreeSection
    question: Any
    measure: Measure
    terms: ReleaseTerms
    delta: Fraction | None

    def planned(self, amount: Fraction) -> Any:
        """The tree's question with a budget of its own."""
        share = Share(budget=Budget(measure=self.measure, amount=amount))
        return self._workload.planned(share, self.terms)

    @cached_property
    def _workload(self) -> Workload[Any]:
        """Workload of the mechanism that the tree was planned with."""
        return self.section.workload().resolved(self.question)

    @cached_property
    def amount(self) -> Fraction:
        """The smallest amount at which the predicted error is the wanted one.

        Raises:
            UserError: there is none.
        """
        # Imported here: few plans are for an error.
        from dptrees.dpcore.levels.planner import budget_for_target

        workload = self._workload
        try:
            return budget_for_target(
                self.rmse, lambda amount: workload.predicted(self.planned(amount)), self.measure
            )
        except ValueError as problem:
            refusal = to_refusal(problem)
            reason = refusal.rule if refusal.field == "rmse" else str(problem)
            raise UserError(f"--target-error: {reason}") from None

    def to_entry(self, unit: str = "rows") -> dict[str, Any]:
        """The amount as plain values.

        Args:
            unit: of the error.

        Raises:
            UserError: there is none.
        """
        found: dict[str, Any] = {
            "rmse": self.rmse,
            "unit": unit,
            self.measure.value: float(self.amount),
        }
        condition = self._workload.condition(self.question)
        return found if condition is None else found | {"condition": condition}
