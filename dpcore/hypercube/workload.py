"""The workload of a box of columns, and its plan once there is a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.adaptive_planner import plan_adaptive
from dptrees.dpcore.partitions.choices import PartitionChoices, PartitionSetting
from dptrees.dpcore.partitions.closest import plan_closest, privhp_choice, privhp_choices
from dptrees.dpcore.partitions.mechanism import PartitionMechanism
from dptrees.dpcore.partitions.planner import plan_partition, plan_privtree
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.questions.workload import Noise, ReleaseTerms, Share, Way, Workload
from dptrees.dpcore.refusal import Refusal

PLANNERS: Mapping[str, Callable[[PartitionSetting, PartitionChoices], PartitionMechanism]] = {
    "planned": plan_closest,
    "privhp": plan_partition,
    "privtree": plan_privtree,
    "adaptive": plan_adaptive,
}


@dataclass(frozen=True, kw_only=True)
class HypercubeWorkload(Workload[HypercubeQuestion]):
    """A partition of a box, to query and to sample rows from.

    Args:
        domain: the columns.
        mechanism: "planned", "privhp", "privtree" or "adaptive"; what the paper's mechanisms
            choose is in the choices.
        choices: of the plan.
    """

    domain: HypercubeDomain
    mechanism: str = "privhp"
    choices: PartitionChoices = field(default_factory=PartitionChoices)

    @property
    def ways(self) -> frozenset[Way]:
        """PrivTree has Laplace noise."""
        return frozenset({Way.LAPLACE}) if self.mechanism == "privtree" else self.noise.ways

    def check(self, measure: Measure, *, delta: bool) -> None:
        if self.mechanism == "privtree":
            if measure is not Measure.EPSILON:
                raise Refusal("mechanism", "privtree needs epsilon")
            if self.noise is Noise.GAUSSIAN:
                raise Refusal("noise", "privtree has Laplace noise")
        super().check(measure, delta=delta)

    def under(self, measure: Measure, *, delta: bool) -> HypercubeWorkload:
        """Return PrivHP's workload beside a delta, where none is named and no estimates requested:
        its composition is certified, and an adaptive partition's is converted."""
        if not delta or self.mechanism != "planned" or self.choices.decided_apart:
            return self
        return replace(self, mechanism="privhp", choices=privhp_choices(self.choices))

    @property
    def may_accumulate(self) -> bool:
        return self.mechanism == "privhp"

    def linear(self) -> HypercubeWorkload:
        """Return PrivHP's workload where no mechanism is named: the noise of its nodes does not
        depend on the partition. Estimates apart from decisions it has not."""
        if self.mechanism != "planned" or self.choices.decided_apart:
            return self
        return replace(self, mechanism="privhp", choices=privhp_choices(self.choices))

    def public_total(self, terms: ReleaseTerms) -> bool:
        """Whether the number of rows that are counted is public: under substitute, where nothing
        drops rows."""
        return terms.unit == SUBSTITUTE_ROW and not self.domain.drops_rows and not terms.drops_rows

    def setting(self, share: Share, terms: ReleaseTerms) -> PartitionSetting:
        """The setting that the plan is made for."""
        return PartitionSetting(
            bits=self.domain.bits,
            diameters=lambda depth: max(self.domain.widths(depth)),
            dimensions=len(self.domain.axes),
            budget=share.budget,
            unit=terms.unit,
            public_total=self.public_total(terms),
        )

    def planned(self, share: Share, terms: ReleaseTerms) -> HypercubeQuestion:
        return HypercubeQuestion(
            name=self.name,
            domain=self.domain,
            plan=PLANNERS[self.mechanism](self.setting(share, terms), self.choices),
            confidence=terms.confidence,
            weight=self.weight,
        )

    def why(self, question: HypercubeQuestion) -> str | None:
        """Return why a mechanism was taken, where none was named."""
        if self.mechanism != "planned":
            return None
        if isinstance(question.plan, AdaptivePartitionPlan):
            if question.plan.decision_part:
                return "chosen for estimates: an adaptive partition, whose intervals are exact"
            return (
                "chosen for counts: an adaptive partition, as its counts are expected to be the "
                "closest; for intervals use optimize_for: estimates"
            )
        choice = privhp_choice(self.choices)
        because = "only it has that choice"
        if choice is None:
            because = "exact counts may not fit memory, or by the kept plan of an earlier version"
        return f"chosen for counts: PrivHP, as {because}"

    def predicted(self, question: HypercubeQuestion) -> float:
        """About the standard error of a range of cells, in rows, were every node of the plan's
        levels there: of each level half the children of a node at either end."""
        plan, total, above = question.plan, 0.0, 0
        for depth, law in zip(plan.depths[1:], plan.laws[1:], strict=True):
            if law is None:
                continue
            total += ((1 << (depth - above)) - 1) * law.variance
            above = depth
        return math.sqrt(total)

    def error_in_rows(self, question: HypercubeQuestion) -> float:
        return self.predicted(question)
