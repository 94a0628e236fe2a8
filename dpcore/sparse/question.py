"""A question about a tree too large to list: the heavy nodes of codes, labels or paths.

No list of its leaves is public, so only nodes that pass a threshold are released, under an epsilon
with a delta (`dpcore.sparse.plan`). In flight, each level below the root is handled in as many
shards as the plan says, whatever the data are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dptrees.dpcore.codec import coded
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tables import NODES, NODES_SCHEMA
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.sparse.counter import SparseCounter, merge_shard, shard_partials, shard_places
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.labels import domain_from_spec
from dptrees.dpcore.sparse.plan import SparsePlan
from dptrees.dpcore.sparse.pruning import PrunedLevel, Pruning, solve_levels
from dptrees.dpcore.sparse.publication import publish_shard

SHARDS = 16
EVERY_NODE = Pruning()


@dataclass(frozen=True, kw_only=True)
class SparseQuestion(Question):
    """The heavy nodes of a large tree.

    Args:
        domain: the levels, and how rows fall into nodes.
        plan: the noise and the threshold of each level.
        pruning: which published nodes are folded into their parents.
        shards: in how many parts each level below the root is handled.

    Raises:
        ValueError: parts that do not fit each other, or a budget whose noise is out of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.plan import plan_sparse
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
    >>> question = SparseQuestion(name="addresses", domain=domain, plan=plan)
    >>> question.spending.own, [tuple(place) for place in question.places[:3]]
    ((Fraction(1, 1), Fraction(1, 1000000)), [(0, 0), (1, 0), (1, 1)])
    """

    kind = "sparse"
    written = ("name", "domain", "plan", "shards", "pruning", "confidence", "weight")
    output_only = ("confidence", "weight", "pruning")

    domain: SparseDomain = field(
        metadata=coded(
            write=lambda tree: {"kind": tree.kind} | tree.domain.spec(), read=domain_from_spec
        )
    )
    plan: SparsePlan
    pruning: Pruning = field(
        default=EVERY_NODE,
        metadata=coded(write=lambda tree: tree.pruning.rows, read=lambda rows: Pruning(rows=rows)),
    )
    shards: int = SHARDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a sparse tree has none; make the key its first label")
        if self.plan.height != self.domain.height:
            raise ValueError(
                f"plan: it is of height {self.plan.height}, the domain of {self.domain.height}"
            )
        if self.plan.public_total:
            # A row with a null, or a text that is no code, is dropped.
            raise ValueError("plan: the total is not public where rows may be dropped")
        if self.shards < 1:
            raise ValueError(f"shards: {self.shards} is not at least 1")
        self._check_noise()

    def _check_noise(self) -> None:
        """Refuse a budget whose noise cannot be drawn now, not when it is drawn."""
        try:
            for level in range(self.plan.height + 1):
                self.plan.law(level)
        except ValueError as error:
            raise ValueError(f"plan: no noise fits the budget of a level, as the {error}") from None

    @property
    def unit(self) -> PrivacyUnit:
        return self.plan.unit

    @property
    def spending(self) -> Spending:
        return Spending(epsilon=self.plan.epsilon, delta=self.plan.delta)

    @property
    def places(self) -> list[Place]:
        """The level and the shard of every part in which the tree is handled."""
        return shard_places(self.domain, self.shards)

    def place_balance(self, place: Place) -> int:
        """The level's: a row may end above the lower ones."""
        return place.group

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        return self.domain.row_outcomes(columns)

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        leaves = self.domain.leaf_counts(columns)
        return Increments(leaves.keys, leaves.counts)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        keys = self.domain.leaf_keys(columns)
        if keys.null_count == 0:
            return RowIncrements(Increments(keys))
        return RowIncrements(Increments(keys.drop_null()), np.flatnonzero(keys.is_valid()))

    def regrouped(self, increments: Increments) -> Increments:
        """Increments by leaf: keys rising, no two alike."""
        assert isinstance(increments.cells, pa.Array)
        leaves = NodeCounts.grouped(increments.cells)
        return Increments(leaves.keys, leaves.counts)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> SparseCounter:
        return SparseCounter(self.domain, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return merge_shard(self.domain, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of the leaves, as `SparseDomain.leaf_counts` gives them, into
        partial counts.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of nodes")
        return shard_partials(self.domain, self.shards, counts)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = NodeCounts.from_bytes(counts)
        nodes = publish_shard(self.plan, self.domain, self.name, *place, exact, noise)
        return Drawn(sent=nodes.to_bytes(), kept=None)

    def gathered_by(self, place: Place) -> int:
        """All levels together, which are made to agree."""
        return 0

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        published = {place: NodeCounts.from_bytes(nodes) for place, nodes in sent.items()}
        tables = zip(self.parts(), sparse_tables(self, published), strict=True)
        return Gathered({}, [ReleasedPart(part, table) for part, table in tables])

    def parts(self) -> Iterator[Part]:
        for level in range(self.plan.height + 1):
            yield Part(kind=NODES, tree=self.name, key=0, index=level)

    def unpublished_most(self, level: int) -> int:
        """The most rows of a node of a level that is not there: 2 R where its noisy count was at
        most the threshold R; and where it was folded into its parent its interval began below the
        rows of the pruning, and ends at most 2 R above."""
        return 2 * self.plan.radius(level) + max(0, self.pruning.rows - 1)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return dict.fromkeys(self.domain.columns, self.domain.value_type)

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        for name in self.domain.columns:
            if not self.domain.accepts(types[name]):
                raise ValueError(
                    f"column {name!r} has type {types[name]}, but this tree needs "
                    f"{self.domain.needed}."
                )

    def entry(self) -> dict[str, object]:
        """Each level's noise and threshold, and the pruning."""
        return {
            "name": self.name,
            "epsilon": str(self.plan.epsilon),
            "delta": str(self.plan.delta),
            "mechanism": "threshold",
            "levels": self.plan.level_entries,
            "pruning": {
                "rule": self.pruning.rule,
                "rows": self.pruning.rows,
                "words": self.pruning.sentence(self.confidence),
            },
            "policies": {
                ", ".join(self.columns): {
                    **self.domain.policies,
                    "unknown": "counted above, and released if it passes its threshold",
                }
            },
        }


def sparse_tables(
    question: SparseQuestion, published: Mapping[Place, NodeCounts]
) -> list[pa.Table]:
    """The released rows of each level, root first, as `dpcore.questions.tables.NODES_SCHEMA`: nodes
    have no numbers, and an estimate is null where only a node below was published.

    Args:
        question: the tree.
        published: of every shard, from `dpcore.sparse.publication.publish_shard`.
    """
    empty = NodeCounts.empty(question.domain.key_type)
    levels: list[list[NodeCounts]] = [[empty] for _ in range(question.plan.height + 1)]
    for (level, _), nodes in sorted(published.items(), key=lambda item: item[0]):
        levels[level].append(nodes)
    settled = solve_levels(
        question.plan,
        question.domain,
        [NodeCounts.merged(parts) for parts in levels],
        confidence=question.confidence,
        pruning=question.pruning,
    )
    return [_level_table(question, number, level) for number, level in enumerate(settled)]


def _level_table(question: SparseQuestion, number: int, level: PrunedLevel) -> pa.Table:
    size = len(level.keys)
    tree = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(size, np.int32)), pa.array([question.name])
    )
    implied = np.isnan(level.estimate)
    return pa.Table.from_arrays(
        [
            tree,
            pa.nulls(size, NODES_SCHEMA.field("key").type),
            pa.array(np.full(size, number, np.int32)),
            pa.nulls(size, pa.int64()),
            question.domain.paths(number, level.keys).cast(pa.string()),
            pa.array(level.estimate, mask=implied),
            pa.array(level.std_error, mask=implied),
            pa.array(level.ci_low.astype(np.float64)),
            pa.array(level.ci_high.astype(np.float64)),
            pa.array(level.count),
        ],
        schema=NODES_SCHEMA,
    )
