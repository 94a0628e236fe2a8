"""The release object: answers to questions about released trees, each with its error.

A release is asked through the parts it consists of, and a query reads only the parts it needs. All
answers are post-processing of what was released: they cost no budget.

`release_counts` makes one from arrays alone, for a notebook or a test; the pipeline makes the same
one in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dpcore.arrays import Integers
from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.noise.randomness import ReleaseKey
from dpcore.noise.source import NoiseSource, combine_digests, counts_digest
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.released import ReleasedCdf
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.released import Answer, ReadPart, ReleasedTree
from dpcore.questions.tables import NODES
from dpcore.release.in_memory import solve_tree
from dpcore.release.plan import ReleasePlan
from dpcore.sparse.node_counts import NodeCounts
from dpcore.sparse.publication import shard_digest
from dpcore.sparse.question import SparseQuestion
from dpcore.sparse.released import ReleasedSparse
from dpcore.sparse.solution import shard_counts, solve_sparse

__all__ = ["Answer", "ReadPart", "Release", "ReleasedTree", "release_counts"]


class Release:
    """A release as questions and the means to read their answers.

    Args:
        plan: its specification.
        read: gives the rows of a part.
        quantiles: the table of quantiles, None where no tree asked for any.
    """

    def __init__(self, plan: ReleasePlan, read: ReadPart, quantiles: pa.Table | None) -> None:
        self.plan, self._read, self.quantiles = plan, read, quantiles

    def tree(self, name: str) -> ReleasedTree | ReleasedSparse:
        """One of its trees: a `ReleasedCdf`, a `ReleasedHierarchy` or a `ReleasedSparse`.

        Raises:
            KeyError: there is none of this name.
        """
        question = self.plan.question(name)
        if isinstance(question, SparseQuestion):
            return ReleasedSparse(question, self._read)
        if isinstance(question, UniverseQuestion):
            return ReleasedHierarchy(question, self._read)
        assert isinstance(question, OrderedQuestion)
        return ReleasedCdf(question, self._read, self.quantiles)

    def cdf(self, name: str) -> ReleasedCdf:
        """A tree over an ordered domain.

        Raises:
            KeyError: there is none of this name.
            TypeError: it has no CDF.
        """
        tree = self.tree(name)
        if not isinstance(tree, ReleasedCdf):
            raise TypeError(f"tree: {name} has no CDF")
        return tree


def release_counts(
    plan: ReleasePlan,
    counts: Mapping[str, Integers],
    key: ReleaseKey,
    leaves: Mapping[str, NodeCounts] | None = None,
    *,
    nonce: bytes = b"",
) -> Release:
    """A release of exact counts held in memory, the same as the pipeline's.

    Args:
        plan: the questions.
        counts: of every tree by name: (keys * K,) or (keys, K) exact counts of the leaves.
        key: the release key; noise is a pure function of it, the plan and the counts.
        leaves: of every sparse tree by name, the exact counts of its leaves.
        nonce: of the folder whose release is wanted. Without one the same counts always get the
            same noise: nothing averages out, but two releases tell whether their counts are equal.

    Returns:
        the release. The exact counts are not part of it.
    """
    digest = 0
    exact = {question.name: _exact_counts(question, counts) for question in plan.chunked}
    for question in plan.chunked:
        flat = exact[question.name]
        for chunk in question.forest.chunking:
            own = flat[chunk.start : chunk.start + chunk.leaves]
            digest += counts_digest(key, plan.name, question.name, chunk.key, chunk.index, own)
    shards = {q.name: shard_counts(q, (leaves or {})[q.name]) for q in plan.sparse}
    for name, places in shards.items():
        for place, part in places.items():
            digest += shard_digest(key, plan.name, name, *place, part)
    noise = NoiseSource(
        key=key,
        release=plan.name,
        spec_digest=plan.digest,
        global_digest=combine_digests(digest),
        nonce=nonce,
    )
    parts: dict[tuple[str, str, int, int], pa.Table] = {}
    quantiles = []
    for question in plan.chunked:
        solved, concluded = solve_tree(question, exact[question.name], noise)
        parts |= {
            (kind, question.name, first_key, index): table
            for (kind, first_key, index), table in solved.items()
        }
        if concluded is not None:
            quantiles.append(concluded)
    for sparse in plan.sparse:
        tables = solve_sparse(sparse, shards[sparse.name], noise)
        parts |= {(NODES, sparse.name, 0, level): each for level, each in enumerate(tables)}
    return Release(
        plan, lambda *part: parts[part], pa.concat_tables(quantiles) if quantiles else None
    )


def _exact_counts(question: ChunkedQuestion, counts: Mapping[str, Integers]) -> Integers:
    """(keys * K,) int64.

    Raises:
        ValueError: counts of a tree are missing, no integers, negative or of another number.
    """
    name, size = question.name, question.forest.chunking.cells
    if name not in counts:
        raise ValueError(f"counts: there are none of tree {name}")
    flat = np.ravel(np.asarray(counts[name]))
    if not np.issubdtype(flat.dtype, np.integer):
        raise ValueError(f"counts: those of tree {name} are {flat.dtype}, not integers")
    if flat.size != size:
        raise ValueError(f"counts: tree {name} has {size} leaves, not {flat.size}")
    if flat.size and flat.min() < 0 and not question.is_signed:
        raise ValueError(f"counts: one of tree {name} is negative")
    return flat.astype(np.int64)
