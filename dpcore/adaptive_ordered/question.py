"""A question about an ordered domain whose tree is divided only where rows are.

The answers have the columns of every CDF. Where the tree was divided down to an edge, a number has
a standard error; inside a node that was not split it has none, and an interval from what is known
of the node's two edges: no count there is below 0, so a prefix lies between those of the edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.adaptive.forest import AdaptiveForest
from dpcore.adaptive.plan import AdaptivePlan, adaptive_plan_from_spec
from dpcore.adaptive.roots import ENDED, AdaptiveRoots, DrawnLevel, DrawnPrefixes
from dpcore.adaptive.told_errors import told_of_nodes, told_of_points
from dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dpcore.adaptive_ordered.entry import in_words, levels_of
from dpcore.adaptive_ordered.intervals import (
    node_intervals,
    prefix_intervals,
    quantile_ends,
)
from dpcore.arrays import Floats
from dpcore.ordered.make import make_domain
from dpcore.ordered.quantiles import Ends
from dpcore.ordered.question import CdfQuestion
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.entry import budget_entry, policies_of
from dpcore.questions.tree_question import Intervals, ToldErrors
from dpcore.rows.keys import keys_from_spec
from dpcore.trees.forest import LevelSolution, PrefixSolution, RootSolutions
from dpcore.trees.uniform import Tree


@dataclass(frozen=True, kw_only=True)
class AdaptiveQuestion(CdfQuestion):
    """One tree over an ordered domain that is divided only where rows are.

    Args:
        guessed_rows: what the plan was made for, None where nothing was guessed.

    Raises:
        ValueError: parts that do not fit each other; categories without an order; noise that is
            too small or too large.
    """

    kind = "adaptive"
    output_only = ("quantiles", "confidence", "weight", "guessed_rows")
    widths_kind = AdaptiveWidths
    roots_kind = AdaptiveRoots
    errors_are_known = False
    node_fields = (ENDED,)

    plan: AdaptivePlan
    guessed_rows: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_ordered:
            raise ValueError("domain: categories without an order have no parts to divide")
        self.plan.check_noise()

    @cached_property
    def forest(self) -> AdaptiveForest:
        """The trees in chunks."""
        return AdaptiveForest(self.plan, keys=self.key_count, chunk_leaves=self.chunk_leaves)

    @cached_property
    def widths(self) -> AdaptiveWidths:
        """Half-widths of the confidence intervals, in standard errors."""
        return self.widths_at(self.confidence)

    def widths_at(self, confidence: float) -> AdaptiveWidths:
        """Return the half-widths of intervals of another confidence."""
        plan = self.plan
        return adaptive_widths(plan.budget.measure, confidence, counts=not plan.decision_part)

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    def margins(self, solved: LevelSolution) -> Floats:
        return self.widths.margin(solved.variance)

    def intervals(self, solved: LevelSolution, total: float | None) -> Intervals:
        assert isinstance(solved, DrawnLevel)
        return node_intervals(solved, self.widths, np.inf if total is None else total)

    def node_columns(self, solved: LevelSolution) -> list[pa.Array]:
        assert isinstance(solved, DrawnLevel)
        return [solved.ended_column]

    def prefix_intervals(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        assert isinstance(prefixes, DrawnPrefixes)
        return prefix_intervals(prefixes, self.widths, np.inf if total is None else total)

    def told_errors(
        self, keys: int, nodes: pa.Table, points: pa.Table | None
    ) -> Iterator[ToldErrors]:
        drawn, total, told = told_of_nodes(self.plan, keys, nodes, self.intervals)
        yield from told
        assert points is not None
        yield told_of_points(drawn, points, lambda each: self.prefix_intervals(each, total))

    def difference_ends(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        assert isinstance(prefixes, DrawnPrefixes) and isinstance(roots, AdaptiveRoots)
        return quantile_ends(prefixes, roots.total, roots.total_variance, self.widths)

    def entry(self) -> dict[str, object]:
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": "adaptive",
                "words": in_words(self.plan),
                "levels": levels_of(self.plan),
                "decision_part": str(self.plan.decision_part),
                "consistency": "top_down",
                "policies": policies_of(self),
                "interval_widths": self.widths.spec(),
            }
        )

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values;
        `adaptive_question_from_spec` reads it back."""
        tree = self.plan.tree
        assert isinstance(tree, Tree)
        return {
            "kind": self.kind,
            "name": self.name,
            "domain": self.domain.spec(),
            "keys": None if self.keys is None else self.keys.spec(),
            "leaves": tree.leaves,
            "fanouts": list(tree.fanouts),
            **self.plan.spec(),
            "quantiles": list(self.quantiles),
            "confidence": self.confidence,
            "weight": str(self.weight),
            "guessed_rows": self.guessed_rows,
            "chunk_leaves": self.chunk_leaves,
        }


def adaptive_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> AdaptiveQuestion:
    """The question of a specification, as `AdaptiveQuestion.spec` tells it."""
    domain, keys = make_domain(spec["domain"]), keys_from_spec(spec["keys"])
    return AdaptiveQuestion(
        name=str(spec["name"]),
        domain=domain,
        plan=adaptive_plan_from_spec(
            spec,
            Tree(leaves=int(spec["leaves"]), fanouts=tuple(spec["fanouts"])),
            domain.counted(unit),
            measure,
            keyed=keys is not None,
        ),
        chunk_leaves=int(spec["chunk_leaves"]),
        keys=keys,
        quantiles=tuple(spec["quantiles"]),
        confidence=float(spec["confidence"]),
        weight=Fraction(spec["weight"]),
        guessed_rows=spec["guessed_rows"],
    )
