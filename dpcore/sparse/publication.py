"""Noise and threshold for one part of a level of a large sparse tree, as a keyed pure function.

Nodes get noise in the order of their keys from a keystream that is bound to the release, the tree,
the level, the part of the data, the global digest and the exact keys and counts of the part: the
same counts always get the same noise, and any others get noise of their own.

Guarantee: `dpcore.sparse.plan`. A node without rows would be published with probability 0, so
noise is drawn for those with rows alone.

Source: `dpcore.noise.source`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.plan import SparsePlan


def publish_shard(
    plan: SparsePlan,
    domain: SparseDomain,
    tree: str,
    level: int,
    shard: int,
    counts: NodeCounts,
    noise: NoiseSource,
) -> NodeCounts:
    """The nodes of one part of a level that are published, with their noisy counts.

    The root is published whatever its count, also if there is no row at all.

    Args:
        plan: of the tree.
        domain: of the tree.
        tree: its name.
        level: 0..h.
        shard: the part of the data; 0 for the root.
        counts: exact, of all nodes of this part that have rows.
        noise: the release's source.

    Returns:
        Keys rising, counts noisy: above the threshold, below level 0.

    Raises:
        ValueError: a plan of another height than the domain's.

    Source: `dpcore.sparse.plan`.

    >>> from fractions import Fraction
    >>> import pyarrow as pa
    >>> from dptrees.dpcore.noise.randomness import ReleaseKey
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sparse.domain import CodeDomain
    >>> from dptrees.dpcore.sparse.plan import plan_sparse
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE_ROW)
    >>> counts = NodeCounts(keys=pa.array([9, 10], pa.uint64()), counts=np.array([1, 1000]))
    >>> noise = NoiseSource(
    ...     key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")
    >>> publish_shard(plan, domain, "t", 1, 0, counts, noise).keys.to_pylist()
    [10]
    """
    if plan.height != domain.height:
        raise ValueError(f"plan: it is of height {plan.height}, the domain of {domain.height}")
    if level == 0 and len(counts) == 0:
        counts = NodeCounts(keys=domain.root_keys, counts=np.zeros(1, np.int64))
    law, threshold = plan.law(level), plan.threshold(level)
    if law is None:
        return counts
    key_noise = replace(noise, own_digest=noise.key.digest("own node counts", *counts.content))
    noisy = NodeCounts(
        keys=counts.keys,
        counts=add_noise(law, counts.counts, key_noise.stream(tree, 0, shard, level)),
    )
    return noisy if threshold is None else noisy.taken(noisy.counts > threshold)
