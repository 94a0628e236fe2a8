"""Counts of nodes and plans of releases that several tests of sparse trees make."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.question import SparseQuestion, level_counts


def node_counts(counts: Mapping[int, int]) -> NodeCounts:
    """Counts by key."""
    keys = sorted(counts)
    values = np.array([counts[key] for key in keys], np.int64)
    return NodeCounts(keys=pa.array(keys, pa.uint64()), counts=values)


def exact_levels(domain: SparseDomain, leaves: NodeCounts) -> list[NodeCounts]:
    """The counts of each level, root first."""
    found = dict(level_counts(domain, leaves))
    return [found[level] for level in range(domain.height + 1)]


def counts_by_path(domain: SparseDomain, leaves: NodeCounts) -> list[dict[str, int]]:
    """The counts of each level by path, root first."""
    return [
        dict(zip(domain.paths(level, own.keys).to_pylist(), own.counts.tolist(), strict=True))
        for level, own in enumerate(exact_levels(domain, leaves))
    ]


def counts_by_key(counts: NodeCounts) -> dict[int, int]:
    return dict(zip(counts.keys.to_pylist(), counts.counts.tolist(), strict=True))


def release_plan(*questions: SparseQuestion) -> ReleasePlan:
    """The release of questions with what they spend."""
    epsilon = sum((each.plan.epsilon for each in questions), Fraction())
    delta = sum((each.plan.delta for each in questions), Fraction())
    return ReleasePlan(
        name="sparse",
        unit=questions[0].unit,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=questions,
        stated=(epsilon, delta),
    )
