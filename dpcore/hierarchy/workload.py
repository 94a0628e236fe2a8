"""The workload of a tree over a hierarchy, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.plan import IrregularPlan, Sensitivities, sum_sensitivities
from dptrees.dpcore.levels.candidate import COUNTED, Candidate, TreeWorkload
from dptrees.dpcore.levels.irregular_candidate import IrregularLevels, IrregularSetting
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.sums import MeasureColumn

BEST_LEVELS = IrregularLevels()


@dataclass(frozen=True, kw_only=True)
class HierarchyWorkload(TreeWorkload[HierarchyQuestion[Any]]):
    """The counts, or bounded sums, of all nodes of a public universe, measured by one mechanism.

    Args:
        domain: the universe, and how rows fall into its leaves.
        candidate: the mechanism.
        measure: the column that is summed, None where rows are counted.
        public_level: the lowest level whose counts are declared public, or None.
    """

    domain: HierarchyDomain
    candidate: Candidate[Any] = BEST_LEVELS
    measure: MeasureColumn | None = None
    public_level: int | None = None

    @property
    def error_unit(self) -> str | None:
        unit = self.candidate.error_unit
        if unit != COUNTED:
            return unit
        return "rows" if self.measure is None else f"sums of {self.measure.column}"

    def error_in_rows(self, question: Any) -> float:
        """A sum's error in rows of the largest value."""
        if self.measure is None or self.candidate.error_unit != COUNTED:
            return super().error_in_rows(question)
        largest = max(abs(self.measure.lower), abs(self.measure.upper), 1)
        return self.predicted(question) / largest

    def setting(self, share: Share, terms: ReleaseTerms) -> IrregularSetting:
        shape, keyed = self.domain.tree.shape, self.keys is not None
        sensitivities: Sensitivities = ()
        if (sums := self.measure) is not None:
            sensitivities = sum_sensitivities(
                shape, terms.unit, lower=sums.lower, upper=sums.upper, keyed=keyed
            )
        plan = IrregularPlan(
            tree=shape,
            unit=terms.unit,
            budget=share.budget,
            public_level=self._public_level(terms),
            keyed=keyed,
            sensitivities=sensitivities,
        )
        return IrregularSetting(plan=plan, delta=share.delta)

    def planned(self, share: Share, terms: ReleaseTerms) -> HierarchyQuestion[Any]:
        return HierarchyQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=self.candidate.mechanism(self.setting(share, terms)),
            keys=self.keys,
            confidence=terms.confidence,
            weight=self.weight,
            measure=self.measure,
        )

    def _public_level(self, terms: ReleaseTerms) -> int | None:
        """The lowest level that is public: as declared, else the root where no row can be dropped
        under substitute, by the domain or before it, and no key and no value accompany it.

        Raises:
            Refusal: levels are declared public where the relation or the keys forbid it.
        """
        if self.public_level is not None:
            if not terms.unit.is_row:
                raise Refusal(
                    "invariants", "need a unit that is the row: rows of other units may be left out"
                )
            if not terms.unit.substitutes:
                raise Refusal(
                    "invariants",
                    "under add_remove no count can be public, since neighboring data sets differ "
                    "in it; use substitute",
                )
            if self.keys is not None:
                raise Refusal("invariants", "not possible with group_by: a row may change its key")
            return self.public_level
        total = (
            terms.unit == SUBSTITUTE_ROW
            and not terms.drops_rows
            and self.keys is None
            and self.measure is None
            and not self.domain.drops_rows
        )
        # A tree of one leaf would have nothing left to measure.
        return 0 if total and self.domain.tree.shape.leaves > 1 else None
