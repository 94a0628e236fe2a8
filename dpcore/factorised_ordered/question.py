"""A question about an ordered domain whose cells are measured by a strategy past trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpcore.arrays import Floats
from dpcore.errors.intervals import clipped_intervals, prefix_margin
from dpcore.factorised.forest import FactorisedForest
from dpcore.factorised.plan import FactorisedPlan
from dpcore.factorised.planner import told_tree
from dpcore.factorised.strategies import strategy_from_spec
from dpcore.factorised.widths import NormalWidths
from dpcore.noise.scales import scale_of
from dpcore.ordered.make import make_domain
from dpcore.ordered.quantiles import Ends, difference_ends
from dpcore.ordered.question import CdfQuestion
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.entry import budget_entry, policies_of
from dpcore.questions.tree_question import Intervals
from dpcore.rows.keys import keys_from_spec
from dpcore.trees.forest import LevelSolution, PrefixSolution, RootSolutions
from dpcore.uniform.plan import Consistency


@dataclass(frozen=True, kw_only=True)
class FactorisedQuestion(CdfQuestion):
    """One tree over an ordered domain: its nodes, CDF and quantiles, from noisy weighted sums.

    Args:
        consistency: which integers stand beside the estimates: ``L2``, or ``TOP_DOWN`` of releases
            from before there was the other.

    Raises:
        ValueError: parts that do not fit each other.
    """

    kind = "factorised"
    output_only = ("quantiles", "confidence", "weight", "consistency")
    widths_kind = NormalWidths

    plan: FactorisedPlan
    consistency: Consistency = Consistency.L2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.consistency not in (Consistency.L2, Consistency.TOP_DOWN):
            raise ValueError("consistency: of a strategy l2 or top_down")

    @cached_property
    def forest(self) -> FactorisedForest:
        """The trees, each within one chunk."""
        return FactorisedForest(
            self.plan,
            keys=self.key_count,
            chunk_leaves=self.chunk_leaves,
            top_down=self.consistency is Consistency.TOP_DOWN,
        )

    @cached_property
    def widths(self) -> NormalWidths:
        """Half-widths of the confidence intervals, in standard errors."""
        return NormalWidths(confidence=self.confidence)

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    def margins(self, solved: LevelSolution) -> Floats:
        return self.widths.width * np.sqrt(solved.variance)

    def prefix_intervals(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        return clipped_intervals(
            prefixes.estimate,
            prefixes.variance,
            prefix_margin((self.widths.width, 0.0), prefixes.variance),
            np.inf if total is None else total,
        )

    def difference_ends(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        width = (self.widths.width, 0.0)
        return difference_ends(prefixes, roots.total, self.forest.root_variance, width)

    def entry(self) -> dict[str, object]:
        plan = self.plan
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": self.kind,
                "strategy": self.strategy_in_words,
                "sums": plan.tree.leaves,
                "largest_weight": plan.strategy.largest,
                "column_norm_squared": plan.strategy.column_norm,
                "column_distance_squared": plan.strategy.column_distance,
                "noise": scale_of(plan.law),
                "policies": policies_of(self),
                "interval_widths": self.widths.spec(),
            }
            | self._repaired
        )

    @property
    def _repaired(self) -> dict[str, object]:
        """How counts are made: of releases that are top down it was not told."""
        if self.consistency is Consistency.TOP_DOWN:
            return {}
        return {"consistency": self.consistency.value}

    @property
    def strategy_in_words(self) -> str:
        """What is measured, for a person."""
        kind = self.plan.strategy.spec()["kind"]
        if kind == "optimum":
            return "weighted sums of cells, those of the least error that there are"
        return "weighted sums of cells, the square root of prefix sums with even columns"

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values;
        `factorised_question_from_spec` reads it back."""
        plan = self.plan
        return {
            "kind": self.kind,
            "name": self.name,
            "domain": self.domain.spec(),
            "keys": None if self.keys is None else self.keys.spec(),
            "leaves": plan.tree.leaves,
            "fanouts": list(plan.tree.fanouts),
            "budget": str(plan.budget.amount),
            "public_total": plan.public_total,
            "strategy": plan.strategy.spec(),
            "quantiles": list(self.quantiles),
            "confidence": self.confidence,
            "weight": str(self.weight),
            "chunk_leaves": self.chunk_leaves,
        } | self._repaired


def factorised_question_from_spec(
    spec: Mapping[str, object], unit: PrivacyUnit, measure: Measure
) -> FactorisedQuestion:
    """The question of a specification, as `FactorisedQuestion.spec` tells it."""
    quantiles, cells, strategy = spec["quantiles"], spec["domain"], spec["strategy"]
    assert isinstance(quantiles, list) and isinstance(cells, dict) and isinstance(strategy, dict)
    domain, keys = make_domain(cells), spec["keys"]
    tree = told_tree(int(str(spec["leaves"])))
    if list(tree.fanouts) != spec["fanouts"]:
        raise ValueError(f"fanouts: {spec['fanouts']} are not {list(tree.fanouts)}")
    return FactorisedQuestion(
        name=str(spec["name"]),
        domain=domain,
        plan=FactorisedPlan(
            tree=tree,
            unit=domain.counted(unit),
            budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
            strategy=strategy_from_spec(strategy),
            public_total=bool(spec["public_total"]),
            keyed=keys is not None,
        ),
        chunk_leaves=int(str(spec["chunk_leaves"])),
        keys=keys_from_spec(keys),
        quantiles=tuple(quantiles),
        confidence=float(str(spec["confidence"])),
        weight=Fraction(str(spec["weight"])),
        consistency=Consistency(spec.get("consistency", "top_down")),
    )
