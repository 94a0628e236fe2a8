"""A mechanism that is in no package: it measures the root and the leaves, and no level between.

It registers itself and is configured, planned, described and released without an edit of any
existing file: a real mechanism has a line in both tables of `dpcore.mechanisms`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, ClassVar

import pyarrow as pa
import pytest
from pydantic import PlainValidator, create_model

from dptrees.dpcore import mechanisms
from dptrees.dpcore.levels.uniform import UniformAnswerErrors, UniformIntervals
from dptrees.dpcore.levels.workload import OrderedWorkload, Planner
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, Setting
from dptrees.dpcore.specification import INLINE
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.intervals import IntervalWidths, interval_widths
from dptrees.dpcore.uniform.plan import (
    TreePlan,
    UniformForest,
    level_entries,
    moved_counts,
)
from dptrees.pipelines.config import registry as command_kinds
from dptrees.pipelines.kinds.ordered import OrderedTree
from dptrees.pipelines.sections import rules

ROOT_PART = Fraction(1, 5)


@dataclass(frozen=True, kw_only=True)
class ToyMechanism(Mechanism[UniformForest, IntervalWidths]):
    """The root and the leaves of a tree of one level, with their noise."""

    written = ("kind", "plan")
    widths_kind = IntervalWidths

    plan: TreePlan = field(metadata=INLINE)
    kind = "toy"
    public_total = property(lambda self: self.plan.public_total)
    moved_counts = property(lambda self: moved_counts(self.plan))

    def forest(self, layout: ChunkLayout) -> UniformForest:
        return UniformForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> IntervalWidths:
        return interval_widths(self.plan, confidence)

    def intervals(self, forest: UniformForest, widths: IntervalWidths) -> UniformIntervals:
        return UniformIntervals(widths, forest.root_variance)

    def answer_errors(
        self, forest: UniformForest, widths: IntervalWidths, rows: Callable[[range], pa.Table]
    ) -> UniformAnswerErrors:
        return UniformAnswerErrors(self.plan, forest, widths)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        return {"mechanism": self.kind, "levels": level_entries(self.plan)}


class RootAndLeaves(Planner[OrderedWorkload]):
    """A fixed part of the budget for the root, unless it is public; the rest for the leaves."""

    makes = ToyMechanism
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("fanouts", "level_budgets", "estimation", "consistency", "intervals"),
        "the mechanism toy has its own",
    )

    def mechanism(self, workload: OrderedWorkload, setting: Setting) -> ToyMechanism:
        given, amount = workload.tree_setting(setting), setting.budget.amount
        root = Fraction(0) if given.public_total else amount * ROOT_PART
        tree = UniformTree(leaves=given.leaves, fanouts=(given.leaves,))
        return ToyMechanism(plan=TreePlan.from_amounts(given, tree, (root, amount - root)))


def register(patch: pytest.MonkeyPatch) -> None:
    """Add the mechanism to the tables.

    A section reads the names when it is imported, before a test adds one: it is made again here.
    """
    patch.setitem(mechanisms.PLANNERS["ordered"], "toy", "toy_mechanism:RootAndLeaves")
    patch.setitem(mechanisms.MECHANISMS["ordered"], "toy", "toy_mechanism:ToyMechanism")
    patch.setitem(sys.modules, "dptrees.dpcore.toy_mechanism", sys.modules[__name__])
    names = Annotated[str, PlainValidator(rules.choice(*mechanisms.mechanism_names("ordered")))]
    section = create_model("Section", __base__=OrderedTree, mechanism=(names, "planned"))
    handlers = replace(command_kinds.KINDS["ordered"], section=lambda: section)
    patch.setitem(command_kinds.KINDS, "ordered", handlers)
