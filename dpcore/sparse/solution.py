"""The answer about a large sparse tree, from exact counts of its shards to the released tables.

    leaves' counts -> counts of every shard -> published nodes -> settled levels -> tables

The pipeline spreads the same steps over workers.

Source: `dpcore.sparse.counter`, `dpcore.sparse.publication`, `dpcore.sparse.settling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dpcore.noise.source import NoiseSource
from dpcore.questions.tables import NODES_SCHEMA
from dpcore.sparse.counter import level_counts
from dpcore.sparse.node_counts import NodeCounts
from dpcore.sparse.publication import publish_shard
from dpcore.sparse.question import SparseQuestion
from dpcore.sparse.settling import SettledLevel, settle

Place = tuple[int, int]  # level, shard


def shard_counts(question: SparseQuestion, leaves: NodeCounts) -> dict[Place, NodeCounts]:
    """The exact counts of every shard of every level, empty ones too.

    Args:
        question: the tree.
        leaves: exact, as `SparseDomain.leaf_counts` gives them.
    """
    empty = NodeCounts.empty(question.domain.key_type)
    shards = dict.fromkeys(question.places(), empty)
    for level, found in level_counts(question.domain, leaves):
        for shard, own in found.split(1 if level == 0 else question.shards):
            shards[level, shard] = own
    return shards


def sparse_tables(
    question: SparseQuestion, published: Mapping[Place, NodeCounts]
) -> list[pa.Table]:
    """The released rows of each level, root first, as `dpcore.questions.tables.NODES_SCHEMA`: nodes
    have no numbers, and an estimate is null where only a node below was published.

    Args:
        question: the tree.
        published: of every shard, from `publish_shard`.
    """
    empty = NodeCounts.empty(question.domain.key_type)
    levels: list[list[NodeCounts]] = [[empty] for _ in range(question.plan.height + 1)]
    for (level, _), nodes in sorted(published.items(), key=lambda item: item[0]):
        levels[level].append(nodes)
    settled = settle(
        question.plan,
        question.domain,
        [NodeCounts.merged(parts) for parts in levels],
        confidence=question.confidence,
        pruning=question.pruning,
    )
    return [_level_table(question, number, level) for number, level in enumerate(settled)]


def solve_sparse(
    question: SparseQuestion, shards: Mapping[Place, NodeCounts], noise: NoiseSource
) -> Sequence[pa.Table]:
    """The tables of all levels from the exact counts of all shards, in this process."""
    return sparse_tables(
        question,
        {
            place: publish_shard(
                question.plan, question.domain, question.name, *place, counts, noise
            )
            for place, counts in shards.items()
        },
    )


def _level_table(question: SparseQuestion, number: int, level: SettledLevel) -> pa.Table:
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
