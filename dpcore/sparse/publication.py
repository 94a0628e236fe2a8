"""Noise and threshold for one part of a level of a large sparse tree, as a keyed pure function.

Nodes get noise in the order of their keys from a keystream that is bound to the release, the tree,
the level, the part of the data, the global digest and the exact keys and counts of the part: the
same counts always get the same noise, and any others get noise of their own.

Guarantee: `dpcore.sparse.plan`. A node without rows would be published with probability 0, so
noise is drawn for those with rows alone.

Source: `dpcore.noise.source`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from dpcore.noise.randomness import ReleaseKey
from dpcore.noise.source import NoiseSource, add_noise
from dpcore.sparse.domain import SparseDomain
from dpcore.sparse.node_counts import NodeCounts
from dpcore.sparse.node_keys import key_digest
from dpcore.sparse.plan import SparsePlan

__all__ = ["publish_shard", "shard_digest"]


def shard_digest(
    key: ReleaseKey, release: str, tree: str, level: int, shard: int, counts: NodeCounts
) -> int:
    """A keyed digest of the exact keys and counts of one part, to be summed modulo 2^256 over all.

    Args:
        key: the release key.
        release: the release's id.
        tree: the tree's name.
        level: 0..h.
        shard: the part of the data.
        counts: exact.

    >>> import pyarrow as pa
    >>> counts = NodeCounts.grouped(pa.array([3, 1], pa.uint64()))
    >>> secret = ReleaseKey(bytes(32))
    >>> shard_digest(secret, "r", "t", 1, 0, counts) == shard_digest(
    ...     secret, "r", "t", 1, 0, counts.taken(np.array([0])))
    False
    """
    body = _content(counts)
    return int.from_bytes(
        key.digest("node counts", release, tree, level, shard, len(counts), *body), "big"
    )


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
        OverflowError: a count beyond 2^40.

    Source: `dpcore.sparse.plan`.

    >>> from fractions import Fraction
    >>> import pyarrow as pa
    >>> from dpcore.privacy.budget import Neighbors
    >>> from dpcore.sparse.domain import CodeDomain
    >>> from dpcore.sparse.plan import plan_sparse
    >>> domain = CodeDomain(column="address", widths=(8, 24))
    >>> plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), Neighbors.ADD_REMOVE)
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
    own = replace(noise, own_digest=noise.key.digest("own node counts", *_content(counts)))
    noisy = NodeCounts(
        keys=counts.keys,
        counts=add_noise(law, counts.counts, own.stream(tree, 0, shard, level)),
    )
    return noisy if threshold is None else noisy.taken(noisy.counts > threshold)


def _content(counts: NodeCounts) -> tuple[bytes, bytes]:
    body = np.ascontiguousarray(counts.counts, "<i8").tobytes()
    return key_digest(counts.keys), hashlib.sha256(body).digest()
