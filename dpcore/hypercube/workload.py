"""What is asked of a box of columns, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpcore.hypercube.domain import HypercubeDomain
from dpcore.hypercube.question import HypercubeQuestion
from dpcore.partitions.planner import PartitionChoices, PartitionSetting, plan_partition
from dpcore.privacy.budget import Neighbors
from dpcore.questions.workload import Share, Terms, Workload


@dataclass(frozen=True, kw_only=True)
class HypercubeWorkload(Workload[HypercubeQuestion]):
    """A partition of a box, to query and to sample rows from.

    Args:
        domain: the columns.
        choices: of the plan.
    """

    domain: HypercubeDomain
    choices: PartitionChoices = field(default_factory=PartitionChoices)

    def public_total(self, terms: Terms) -> bool:
        """Whether the number of rows that are counted is public: under substitute, where nothing
        drops rows."""
        return (
            terms.neighbors is Neighbors.SUBSTITUTE
            and not self.domain.drops_rows
            and not terms.drops_rows
        )

    def setting(self, share: Share, terms: Terms) -> PartitionSetting:
        """What the plan is made for."""
        return PartitionSetting(
            bits=self.domain.bits,
            diameters=lambda depth: max(self.domain.widths(depth)),
            dimensions=len(self.domain.axes),
            budget=share.budget,
            neighbors=terms.neighbors,
            public_total=self.public_total(terms),
        )

    def planned(self, share: Share, terms: Terms) -> HypercubeQuestion:
        return HypercubeQuestion(
            name=self.name,
            domain=self.domain,
            plan=plan_partition(self.setting(share, terms), self.choices),
            confidence=terms.confidence,
            weight=self.weight,
        )
