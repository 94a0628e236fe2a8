"""A tree too large to list: its counting in shards, its plan and its published heavy nodes.

No list of its leaves is public, so only nodes that pass a threshold are released, under an
epsilon with a delta (`dpcore.sparse.plan`). Each level below the root is handled in as many
shards as the plan states, whatever the data are; counts leave in parts that add up, so it does
not matter how the rows were divided into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Counter,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.one_part import key_increments, place_partials
from dptrees.dpcore.questions.planning import Setting, Way, Workload
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES, NODES_SCHEMA
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.labels import domain_from_spec
from dptrees.dpcore.sparse.plan import SparsePlan, plan_sparse, publish_shard, pure_epsilon_refusal
from dptrees.dpcore.sparse.pruning import PrunedLevel, pruning_in_words, solve_levels
from dptrees.dpcore.specification import Refusal, coded

MOST_LEAVES = 2**22


def level_counts(domain: SparseDomain, leaves: NodeCounts) -> Iterator[tuple[int, NodeCounts]]:
    """The counts of each level's nodes with rows, from the leaves' level up to the root.

    Args:
        domain: of the tree.
        leaves: from `SparseDomain.leaf_counts`.

    >>> from dptrees.dpcore.sparse.labels import PathDomain
    >>> domain = PathDomain(column="url", depth=2)
    >>> leaves = domain.leaf_counts({"url": pa.array(["a/b", "a/c", "a"])})
    >>> [(level, own.keys.to_pylist(), own.counts.tolist())
    ...  for level, own in level_counts(domain, leaves)]
    [(2, ['a/b', 'a/c'], [1, 1]), (1, ['a'], [3]), (0, [''], [3])]
    """
    keys, counts = leaves.keys, leaves.counts
    for level in range(domain.height, -1, -1):
        own = (
            domain.level_keys(level, keys)
            if level == domain.height
            else domain.parent_keys(level + 1, keys)
        )
        if own.null_count == 0:
            found = NodeCounts.grouped(own, counts)
            keys, counts = found.keys, found.counts
        else:
            # What ends above this level waits for its own.
            ends = np.asarray(own.is_null())
            found = NodeCounts.grouped(own.drop_null(), counts[~ends])
            keys = pa.concat_arrays([found.keys, keys.filter(pa.array(ends))])
            counts = np.concatenate([found.counts, counts[ends]])
        yield level, found


def shard_places(domain: SparseDomain, shards: int) -> list[Place]:
    """The level and the shard of every part in which a tree is handled; the root is one."""
    below = range(1, domain.height + 1)
    return [Place(0, 0), *(Place(level, shard) for level in below for shard in range(shards))]


def shard_partials(domain: SparseDomain, shards: int, leaves: NodeCounts) -> Iterator[Partial]:
    """The counts of every place, also of those without rows: how many there are must not reveal
    where rows are.

    Args:
        domain: of the tree.
        shards: in how many parts each level below the root is handled.
        leaves: exact, as `SparseDomain.leaf_counts` gives them.
    """
    levels = level_counts(domain, leaves) if len(leaves) else ()
    counts = (
        (Place(level, shard), own)
        for level, found in levels
        for shard, own in found.split(1 if level == 0 else shards)
    )
    return place_partials(shard_places(domain, shards), counts)


class SparseCounter(Counter):
    """Counts the rows of many batches, in memory that does not grow with them.

    Args:
        domain: of the tree.
        shards: in how many parts each level below the root is handled.
        most_leaves: about so many leaves are held at a time.

    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> counter = SparseCounter(domain, shards=4)
    >>> leaves = domain.leaf_counts({"address": pa.array([10 << 24, 10 << 24 | 5, 11 << 24])})
    >>> counter.add(Increments(leaves.keys, leaves.counts), 3), counter.is_due
    (3, False)
    >>> sorted((partial.place.group, partial.total) for partial in counter.take() if partial.data)
    [(0, 3), (1, 3), (2, 1), (2, 2)]
    """

    def __init__(
        self, domain: SparseDomain, shards: int, *, most_leaves: int = MOST_LEAVES
    ) -> None:
        if shards < 1:
            raise ValueError(f"shards is {shards}; it must be at least 1")
        self._domain, self._shards, self._most = domain, shards, most_leaves
        self._waiting: list[NodeCounts] = []

    def add(self, increments: Increments, rows: int, /) -> int:
        """Counts a batch.

        Args:
            increments: the keys of its leaves, rising, no two alike; and how many rows each has.
            rows: of the batch.
        """
        assert isinstance(increments.cells, pa.Array) and increments.values is not None
        counts = NodeCounts(keys=increments.cells, counts=increments.values)
        self._waiting.append(counts)
        if sum(map(len, self._waiting)) > self._most:
            self._waiting = [NodeCounts.merged(self._waiting)]
        return counts.total

    @property
    def is_due(self) -> bool:
        """It follows from how many leaves the rows touch."""
        # Merged counts that are no more than half full take as much again before the next merging.
        return 2 * sum(map(len, self._waiting)) > self._most and len(self._waiting) == 1

    def take(self) -> Iterator[Partial]:
        """The counts of every place since the last call, and start anew."""
        waiting, self._waiting = self._waiting, []
        leaves = NodeCounts.merged([NodeCounts.empty(self._domain.key_type), *waiting])
        yield from shard_partials(self._domain, self._shards, leaves)


SHARDS = 16


@dataclass(frozen=True, kw_only=True)
class SparseQuestion(Question):
    """The heavy nodes of a large tree.

    Args:
        domain: the levels, and how rows fall into nodes.
        plan: the noise and the threshold of each level.
        prune_below: nodes whose interval begins at fewer rows are folded into their parents, unless
            one below stays.
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
    written = ("name", "domain", "plan", "shards", "prune_below", "confidence", "weight")
    output_only = ("confidence", "weight", "pruning")

    domain: SparseDomain = field(
        metadata=coded(
            write=lambda tree: {"kind": tree.kind} | tree.domain.spec(), read=domain_from_spec
        )
    )
    plan: SparsePlan
    prune_below: int = field(default=0, metadata=coded(name="pruning"))
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
        if self.prune_below < 0:
            raise ValueError(f"prune_below: {self.prune_below} is not at least 0")
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
        return key_increments(self.domain.leaf_keys(columns))

    def regrouped(self, increments: Increments) -> Increments:
        """Increments by leaf: keys rising, no two alike."""
        assert isinstance(increments.cells, pa.Array)
        leaves = NodeCounts.grouped(increments.cells)
        return Increments(leaves.keys, leaves.counts)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> SparseCounter:
        return SparseCounter(self.domain, self.shards)

    def merge(self, place: Place, partials: Iterable[bytes]) -> NodeCounts:
        return NodeCounts.from_partials(self.domain.key_type, partials)

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
        return 2 * self.plan.radius(level) + max(0, self.prune_below - 1)

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
                "rule": "interval" if self.prune_below else "threshold",
                "rows": self.prune_below,
                "words": pruning_in_words(self.prune_below, self.confidence),
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
    """The released rows of each level, root first, as `dpcore.questions.released.NODES_SCHEMA`:
    nodes have no numbers, and an estimate is null where only a node below was published.

    Args:
        question: the tree.
        published: of every shard, from `dpcore.sparse.plan.publish_shard`.
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
        prune_below=question.prune_below,
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


@dataclass(frozen=True, kw_only=True)
class SparseWorkload(Workload[SparseQuestion]):
    """The heavy nodes of codes, labels or paths.

    Args:
        domain: the levels, and how rows fall into nodes.
        weights: how much a row less in the threshold of each level below the root is worth; None:
            the same for each.
        prune_below: nodes whose interval begins at fewer rows are folded into their parents.
    """

    domain: SparseDomain
    weights: tuple[Fraction, ...] | None = None
    prune_below: int = 0

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.OWN})

    def planned(self, setting: Setting) -> SparseQuestion:
        if setting.delta is None:
            reason = pure_epsilon_refusal(self.domain.leaves)
            raise Refusal(
                "delta", reason or "a sparse tree needs one beside epsilon; or list its leaves"
            )
        plan = plan_sparse(
            self.domain.names,
            setting.budget.amount,
            setting.delta,
            setting.unit,
            weights=self.weights,
        )
        return SparseQuestion(
            name=self.name,
            domain=self.domain,
            plan=plan,
            prune_below=self.prune_below,
            confidence=setting.confidence,
            weight=self.weight,
        )
