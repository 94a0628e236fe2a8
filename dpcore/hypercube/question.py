"""A question about a box of columns: a partition that grows where rows are.

Places hold exact counts, of codes or of levels (`dpcore.hypercube.held`); all are gathered where
the partition grows, which looks at noisy counts alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import coded
from dptrees.dpcore.hypercube.code_counts import HeldCodes
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.held import HeldCounts
from dptrees.dpcore.hypercube.intervals import interval, standard_margin
from dptrees.dpcore.hypercube.level_tables import HeldTables
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.partitions.measurement import Measurement, measured_variance
from dptrees.dpcore.partitions.mechanism import EstimatedTree, PartitionMechanism
from dptrees.dpcore.partitions.mechanisms import mechanism_from_spec
from dptrees.dpcore.partitions.plan import Holding, PartitionPlan
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.accumulated import AccumulatedTree, Measured
from dptrees.dpcore.questions.entry import budget_entry
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import (
    Counter,
    Counts,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.tables import NODES, NODES_SCHEMA, number_column
from dptrees.dpcore.rows.row_outcomes import RowOutcome


@dataclass(frozen=True, kw_only=True)
class HypercubeQuestion(AccumulatedTree):
    """The partition of a box.

    Args:
        domain: the columns, and how their box is divided.
        plan: how counts are measured and which parts are divided.

    Raises:
        ValueError: parts that do not fit each other, or a budget whose noise is out of range.
    """

    kind = "hypercube"
    written = ("name", "domain", "plan", "confidence", "weight")
    output_only = ("confidence", "weight")

    domain: HypercubeDomain
    plan: PartitionMechanism = field(metadata=coded(read=mechanism_from_spec))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a hypercube has none; make the key one of its columns")
        if self.plan.depths[-1] > self.domain.bits:
            raise ValueError(
                f"plan: it is {self.plan.depths[-1]} bits deep, the domain {self.domain.bits}"
            )
        if self.plan.public_total and self.domain.drops_rows:
            raise ValueError("plan: the total is not public where rows may be dropped")
        try:
            _ = self.plan.laws
        except ValueError as error:
            raise ValueError(f"plan: no noise fits the budget of a level, as the {error}") from None

    @cached_property
    def held(self) -> HeldCounts:
        """The form in which exact counts are held."""
        if isinstance(self.plan, PartitionPlan) and self.plan.holding is Holding.SKETCH:
            return HeldTables(tree=self.name, plan=self.plan, bits=self.domain.bits)
        return HeldCodes(tree=self.name, plan=self.plan, bits=self.domain.bits)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.domain.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_types(types)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        return self.domain.row_outcomes(columns)

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return Increments(pa.array(self.domain.codes(columns)))

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        codes, rows = self.domain.row_codes(columns)
        return RowIncrements(Increments(pa.array(codes)), rows)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return self.held.counter(dense=dense, choices=choices)

    @property
    def dense_cells(self) -> int:
        return (self.plan.state_bytes or 0) // 8

    @property
    def places(self) -> list[Place]:
        return self.held.places

    def place_balance(self, place: Place) -> int:
        """The level's: a row counts in each, and in a sketch once a hash row."""
        return place.group

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        return self.held.merge(place, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of codes, as `HypercubeDomain.leaf_counts` gives them, into partial
        counts.

        Raises:
            ValueError: they are no counts of codes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of codes")
        return self.held.split_counts(counts, choices)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        return Drawn(sent=self.held.draw(place, counts, noise), kept=None)

    def gathered_by(self, place: Place) -> int:
        """All together: the partition grows level by level over the whole box."""
        return 0

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        return Gathered({}, self._released(self.held.measurement(sent, noise)))

    def _released(self, measurement: Measurement) -> list[ReleasedPart]:
        """Parts of the partition that grows from noisy counts."""
        found = self.plan.estimated(self.domain, measurement)
        tables = zip(self.parts(), partition_tables(self, found), strict=True)
        return [ReleasedPart(part, table) for part, table in tables]

    @property
    def accumulates(self) -> bool:
        """Whether it is a partition of whole levels: nodes that end are measured again in an
        adaptive one, and PrivTree's noise hides the path to a node and no more."""
        return isinstance(self.plan, PartitionPlan)

    @property
    def node_variance(self) -> float:
        law = self.plan.laws[-1]
        assert law is not None
        return measured_variance(law.variance)

    def with_budget(self, budget: Budget) -> HypercubeQuestion:
        assert isinstance(self.plan, PartitionPlan)
        return replace(self, plan=self.plan.with_budget(budget))

    def together(self, trees: Sequence[HypercubeQuestion]) -> HypercubeQuestion:
        assert isinstance(self.plan, PartitionPlan)
        plans = [tree.plan for tree in trees if isinstance(tree.plan, PartitionPlan)]
        return replace(self, plan=self.plan.together(plans))

    def gather_together(self, measured: Sequence[Measured]) -> Sequence[ReleasedPart]:
        own = [each.tree.held.measurement(each.sent, each.noise) for each in measured]
        return self._released(self.held.together(own))

    def parts(self) -> Iterator[Part]:
        for depth in self.plan.depths:
            yield Part(kind=NODES, tree=self.name, key=0, index=depth)

    @property
    def unit(self) -> PrivacyUnit:
        return self.plan.unit

    @property
    def spending(self) -> Spending:
        return self.plan.spending

    @property
    def budget(self) -> Budget | None:
        spent = self.plan.spending
        amount = spent.epsilon if self.plan.measure is Measure.EPSILON else spent.rho
        return Budget(measure=self.plan.measure, amount=amount)

    def entry(self) -> dict[str, object]:
        """The mechanism, each level's noise, and the policies."""
        spec = self.plan.spec()
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": spec["mechanism"],
            "levels": self.plan.levels,
            "plan": {name: value for name, value in spec.items() if name != "levels"},
            "policies": {
                axis.column: {
                    name: axis.spec()[name]
                    for name in ("outside", "missing", "unknown")
                    if name in axis.spec()
                }
                for axis in self.domain.axes
            },
        }


def partition_tables(question: HypercubeQuestion, found: EstimatedTree) -> list[pa.Table]:
    """Return the released rows of each depth of the plan, root first, as `NODES_SCHEMA`; empty
    where the partition did not come so deep.

    ``level`` is the depth, in halvings of the box; ``node`` the number of the node among the
    2^level of its depth, as a signed 64-bit integer. Standard errors and intervals are null where a
    mechanism states none.

    Args:
        question: the tree.
        found: what was estimated.
    """
    margin = standard_margin(question.plan.measure, question.confidence)
    most = float(found.counts[0][0]) if question.plan.public_total else math.inf
    tables = []
    for place, depth in enumerate(question.plan.depths):
        if place >= len(found.tree.levels):
            tables.append(NODES_SCHEMA.empty_table())
            continue
        level, running = found.tree.levels[place], found.estimates[place]
        filled = question.domain.has_cells(depth, level.nodes)
        spread = np.sqrt(running.variance)
        low, high = interval(running.estimate, spread, margin, most)
        if np.isnan(spread).all():
            # Of counts that were shared out the error is not known; of those measured it is.
            low, high = interval(level.value, np.sqrt(level.variance), margin, most)
        if not question.plan.states_errors:
            spread, low, high = (np.where(spread > 0, np.nan, own) for own in (spread, low, high))
        columns: list[Floats] = [running.estimate, spread, low, high]
        table = pa.Table.from_arrays(
            [
                pa.DictionaryArray.from_arrays(
                    pa.array(np.zeros(len(level), np.int32)), pa.array([question.name])
                ),
                pa.nulls(len(level), NODES_SCHEMA.field("key").type),
                pa.array(np.full(len(level), depth, np.int32)),
                pa.array(level.nodes.view(np.int64)),
                question.domain.labels(depth, level.nodes),
                *map(number_column, columns),
                pa.array(found.counts[place]),
            ],
            schema=NODES_SCHEMA,
        )
        tables.append(table if filled.all() else table.filter(pa.array(filled)))
    return tables
