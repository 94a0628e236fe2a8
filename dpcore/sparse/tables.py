"""The tables of a large sparse tree: published nodes of all shards, settled, a table a level.

Source: `dpcore.sparse.settling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpcore.questions.node_counts import NodeCounts
from dpcore.questions.place import Place
from dpcore.questions.tables import NODES_SCHEMA
from dpcore.sparse.settling import SettledLevel, settle

if TYPE_CHECKING:  # which calls this file
    from dpcore.sparse.question import SparseQuestion


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
    settled = settle(
        question.plan,
        question.domain,
        [NodeCounts.merged(parts) for parts in levels],
        confidence=question.confidence,
        pruning=question.pruning,
    )
    return [_level_table(question, number, level) for number, level in enumerate(settled)]


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
