"""Sums of published nodes: how often their intervals hold, near the threshold and above it.

Limits have false alarms below 1e-6; noise 30 % larger passes the limit of the standard error.
The intervals hold more often than stated, as the intervals of the nodes are added up.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.sparse.released import ReleasedSparse
from tests.dpcore.sparse.counts import node_counts, release_plan

DOMAIN = CodeDomain(column="code", widths=(12,), notation="hex")
PLAN = plan_sparse(DOMAIN.names, Fraction(1), Fraction(1, 1000), ADD_REMOVE_ROW)
QUESTION = SparseQuestion(name="codes", domain=DOMAIN, plan=PLAN, shards=1)
TRIPLES = 400


def exact(near: bool) -> np.ndarray[Any, Any]:
    """(3 * TRIPLES,) counts, well above the threshold or around it."""
    threshold = PLAN.threshold(1)
    assert threshold is not None
    spread = np.arange(3 * TRIPLES) % 7
    return threshold + spread if near else 3 * threshold + 50 * spread


def released(counts: np.ndarray[Any, Any]) -> ReleasedSparse:
    leaves = {"codes": node_counts(dict(enumerate(counts.tolist())))}
    tree = release_counts(release_plan(QUESTION), leaves, ReleaseKey(bytes(32))).tree("codes")
    assert isinstance(tree, ReleasedSparse)
    return tree


def held(tree: ReleasedSparse, counts: np.ndarray[Any, Any]) -> tuple[int, int, list[float]]:
    """How many sums of three published nodes are in their intervals, of how many; and by how many
    standard errors each is off."""
    published = {row["label"]: row for row in tree.rows(1).to_pylist()}
    names = DOMAIN.paths(1, pa.array(np.arange(counts.size, dtype=np.uint64))).to_pylist()
    inside, off = 0, []
    for start in range(0, counts.size, 3):
        triple = names[start : start + 3]
        if not all(name in published for name in triple):
            continue
        answer, true = tree.sum(triple), int(counts[start : start + 3].sum())
        assert answer.estimate is not None and answer.std_error is not None
        inside += answer.ci_low <= true <= answer.ci_high
        off.append((answer.estimate - true) / answer.std_error)
    return inside, len(off), off


@pytest.mark.parametrize("near", [False, True])
def test_intervals_hold_at_least_as_often_as_stated(near: bool) -> None:
    counts = exact(near)
    inside, trials, off = held(released(counts), counts)
    assert trials > (50 if near else TRIPLES - 1)
    assert inside >= stats.binom.ppf(1e-6, trials, QUESTION.confidence)
    if not near:
        low, high = (stats.chi2.ppf(p, trials) for p in (1e-6, 1 - 1e-6))
        # Squares of noise with heavier tails than a normal law vary more than these.
        assert 0.85 * low < np.square(off).sum() < 1.15 * high


def test_larger_noise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = TruncatedLaplace.sample
    monkeypatch.setattr(
        TruncatedLaplace,
        "sample",
        lambda law, *bits: np.rint(1.3 * own(law, *bits)).astype(np.int64),
    )
    counts = exact(near=False)
    _, trials, off = held(released(counts), counts)
    assert np.square(off).sum() > 1.15 * stats.chi2.ppf(1 - 1e-6, trials)
