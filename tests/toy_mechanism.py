"""A mechanism that is in no package: it measures the root and the leaves, and no level between.

It registers itself and is configured, planned, described and released without an edit of any
existing file: a real mechanism has one line in each table that `register` changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated

import pyarrow as pa
import pytest
from pydantic import PlainValidator, create_model

from dptrees.dpcore.levels.planner import Candidate
from dptrees.dpcore.levels.uniform import UniformAnswerErrors, UniformIntervals
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism
from dptrees.dpcore.release import kinds as release_mechanisms
from dptrees.dpcore.specification import INLINE
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.intervals import IntervalWidths, interval_widths
from dptrees.dpcore.uniform.plan import (
    TreePlan,
    TreeSetting,
    UniformForest,
    level_entries,
    moved_counts,
)
from dptrees.pipelines.config import registry as command_kinds
from dptrees.pipelines.kinds import ordered_mechanisms
from dptrees.pipelines.kinds.ordered import OrderedTree
from dptrees.pipelines.kinds.ordered_mechanisms import MechanismSection, OrderedChoices
from dptrees.pipelines.sections import rules
from dptrees.pipelines.show import mechanisms as described_mechanisms
from dptrees.pipelines.show.description import Description, Table, level_noise, spent_columns

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


@dataclass(frozen=True, kw_only=True)
class RootAndLeaves(Candidate[ToyMechanism]):
    """A fixed part of the budget for the root, unless it is public; the rest for the leaves."""

    def mechanism(self, setting: TreeSetting) -> ToyMechanism:
        amount = setting.budget.amount
        root = Fraction(0) if setting.public_total else amount * ROOT_PART
        tree = UniformTree(leaves=setting.leaves, fanouts=(setting.leaves,))
        return ToyMechanism(plan=TreePlan.from_amounts(setting, tree, (root, amount - root)))


def toy_workload(section: OrderedChoices) -> OrderedWorkload[ToyMechanism]:
    """The workload of a section."""
    shared = ("name", "domain", "keys", "weight", "noise", "quantiles")
    own = {name: getattr(section, name) for name in shared}
    return OrderedWorkload(**own, candidate=RootAndLeaves())


def toy_description(question: OrderedQuestion[ToyMechanism]) -> Description:
    """The description of a plan, for the terminal, the page and JSON."""
    plan = question.mechanism.plan
    noises = [
        level_noise(law, public=plan.public_total and level == 0)
        for level, law in enumerate(plan.laws)
    ]
    sizes, amounts = plan.tree.level_sizes, plan.level_amounts
    return Description(
        entry=lambda: question.mechanism.entry(None),
        method=", measured at the root and the leaves",
        budget=plan.budget,
        table=Table(columns=spent_columns(sizes, amounts, noises, plan.budget, keyed=plan.keyed)),
        level_errors=[law.variance**0.5 if law else 0.0 for law in plan.laws],
    )


def register(patch: pytest.MonkeyPatch) -> None:
    """Adds the mechanism to the three tables.

    A section reads the names when it is imported, before a test adds one: it is made again here.
    """
    patch.setitem(release_mechanisms.MECHANISMS["ordered"], "toy", lambda: ToyMechanism)
    described = described_mechanisms.Described(toy_description)
    patch.setitem(described_mechanisms.MECHANISMS, "ToyMechanism", lambda: described)
    patch.setitem(ordered_mechanisms.MECHANISMS, "toy", MechanismSection(toy_workload))  # type: ignore[arg-type]
    names = Annotated[str, PlainValidator(rules.choice(*ordered_mechanisms.MECHANISMS))]
    section = create_model("Section", __base__=OrderedTree, mechanism=(names, "planned"))
    handlers = replace(command_kinds.KINDS["ordered"], section=lambda: section)
    patch.setitem(command_kinds.KINDS, "ordered", handlers)
