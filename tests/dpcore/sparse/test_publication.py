"""Noise and threshold of the parts of sparse trees: which bits, which law, which nodes.

Statistical limits have a false-alarm probability of at most 1e-6; the keys are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource, combine_digests
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.questions.messages import Increments, Place
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.labels import PathDomain
from dptrees.dpcore.sparse.plan import SparsePlan, plan_sparse, publish_shard
from dptrees.dpcore.sparse.pruning import PrunedLevel, solve_levels
from dptrees.dpcore.sparse.question import SparseCounter
from tests.dpcore.sparse.counts import node_counts

FALSE_ALARM = 1e-6
DOMAIN = CodeDomain(column="c", widths=(8, 24))
PLAN = plan_sparse(DOMAIN.names, Fraction(1), Fraction(1, 10**4), SUBSTITUTE_ROW)
KEY = ReleaseKey(bytes(32))
NOISE = NoiseSource(key=KEY, release="r", spec_digest=b"s", global_digest=b"g")


def published(counts: NodeCounts, level: int = 1, shard: int = 0, **changed: object) -> NodeCounts:
    noise = replace(NOISE, **changed)  # type: ignore[arg-type]
    return publish_shard(PLAN, DOMAIN, "t", level, shard, counts, noise)


def many(count: int, size: int = 100_000) -> NodeCounts:
    return node_counts(dict.fromkeys(range(size), count))


def test_a_retry_draws_the_same_and_anything_else_draws_anew() -> None:
    large = node_counts(dict.fromkeys(range(50), 1000))
    first = published(large)
    assert published(large).counts.tolist() == first.counts.tolist()
    others = [
        published(large, shard=1),
        published(large, level=2),
        published(large, release="other"),
        published(large, spec_digest=b"other"),
        published(large, global_digest=b"other"),
        published(large, key=ReleaseKey(b"1" * 32)),
        # One key, or one count, is another.
        published(node_counts(dict.fromkeys([*range(49), 99], 1000))),
        published(node_counts(dict.fromkeys(range(50), 1000) | {0: 1001})),
        publish_shard(PLAN, DOMAIN, "other", 1, 0, large, NOISE),
    ]
    draws = [tuple((found.counts[1:49]).tolist()) for found in (first, *others)]
    assert len(set(draws)) == len(draws)


def test_noisy_counts_follow_the_law() -> None:
    law = PLAN.law(1)
    assert law is not None
    z = published(many(10_000)).counts - 10_000
    assert z.size == 100_000 and np.abs(z).max() <= law.radius
    assert chi_squared(z, law) > FALSE_ALARM
    # The same test finds noise that is 30 % too small.
    assert chi_squared(z, replace(law, scale=law.scale * Fraction(10, 7))) < FALSE_ALARM


def chi_squared(z: np.ndarray, law: TruncatedLaplace) -> float:
    k = np.arange(-law.radius, law.radius + 1)
    observed, expected = np.bincount(z + law.radius, minlength=k.size), law.pmf(k) * z.size
    often = expected >= 10
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], max(expected[~often].sum(), 1e-9))
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), expected.size - 1))


@pytest.mark.parametrize("share", [0.6, 1.0, 1.2])
def test_nodes_are_published_as_often_as_predicted(share: float) -> None:
    count = round(share * PLAN.radius(1))
    chance = PLAN.publication_probability(1, count)
    found = published(many(count))
    low, high = stats.binom.interval(1 - FALSE_ALARM, 100_000, chance)
    assert low <= len(found) <= high
    threshold = PLAN.threshold(1)
    assert threshold is not None and found.counts.min() > threshold
    # A threshold that is one less is found out.
    off = float(PLAN.law(1).survival(threshold - 1 - count))  # type: ignore[union-attr]
    low, high = stats.binom.interval(1 - FALSE_ALARM, 100_000, off)
    assert not low <= len(found) <= high


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_a_single_row_is_seen_with_probability_delta(unit: PrivacyUnit) -> None:
    """The event on which the whole guarantee hangs, at a delta so large that it can be counted."""
    plan = plan_sparse(DOMAIN.names, Fraction(2), Fraction(1, 10), unit)
    delta = float(plan.levels[1].delta) / (1 if unit == ADD_REMOVE_ROW else 2)
    found = len(publish_shard(plan, DOMAIN, "t", 1, 0, many(1), NOISE))
    chance = plan.publication_probability(1, 1)
    low, high = stats.binom.interval(1 - FALSE_ALARM, 100_000, chance)
    assert low <= found <= high and chance <= delta
    # Noise of a radius that is one less would be found out.
    law = plan.law(1)
    assert law is not None
    assert float(replace(law, radius=law.radius - 1).survival(law.radius - 2)) > delta


def released_bytes(level: PrunedLevel) -> list[object]:
    """The keys and numbers of a level, to the last bit."""
    numbers = (level.estimate, level.std_error, level.ci_low, level.ci_high, level.count)
    return [level.keys.to_pylist(), *(each.tobytes() for each in numbers)]


def test_batches_and_their_order_do_not_matter_to_a_single_bit() -> None:
    domain = CodeDomain(column="c", widths=(4, 4), notation="hex")
    codes = np.minimum(np.random.default_rng(5).geometric(0.02, 4000), 255)
    tables = []
    for batches in (np.split(codes, 4), np.split(codes[::-1], [10, 3000]), [codes]):
        counter, merged = SparseCounter(domain, 3, most_leaves=300), {}
        for batch in batches:
            leaves = domain.leaf_counts({"c": pa.array(batch)})
            counter.add(Increments(leaves.keys, leaves.counts), len(batch))
            for partial in counter.take():
                merged[partial.place] = [partial.data, *merged.get(partial.place, [])]
        shards = {
            place: NodeCounts.from_partials(domain.key_type, parts)
            for place, parts in merged.items()
        }
        total = sum(own.digest(KEY, "r", "t", place) for place, own in shards.items())
        noise = replace(NOISE, global_digest=combine_digests(total))
        levels = [[NodeCounts.empty(domain.key_type)] for _ in range(3)]
        for (level, shard), own in sorted(shards.items()):
            levels[level].append(publish_shard(PLAN, domain, "t", level, shard, own, noise))
        settled = solve_levels(PLAN, domain, [NodeCounts.merged(parts) for parts in levels])
        tables.append([released_bytes(level) for level in settled])
        assert sum(len(level.keys) for level in settled) > 20
    assert tables[0] == tables[1] == tables[2]


def test_the_root_is_always_there() -> None:
    for counts in (NodeCounts.empty(pa.uint64()), node_counts({0: 0}), node_counts({0: 7})):
        found = published(counts, level=0)
        assert found.keys.to_pylist() == [0]
        assert abs(int(found.counts[0]) - counts.total) <= PLAN.radius(0)
    seen = {
        int(published(node_counts({0: 0}), level=0, global_digest=bytes([n])).counts[0])
        for n in range(60)
    }
    assert min(seen) < 0 < max(seen)
    paths = PathDomain(column="c", depth=2)
    root = publish_shard(PLAN, paths, "t", 0, 0, NodeCounts.empty(paths.key_type), NOISE)
    assert root.keys.to_pylist() == [""]
    assert len(published(NodeCounts.empty(pa.uint64()))) == 0


def test_a_public_root_is_exact() -> None:
    plan = SparsePlan(
        levels=(
            replace(PLAN.levels[0], epsilon=Fraction(0), delta=Fraction(0)),
            *PLAN.levels[1:],
        ),
        unit=SUBSTITUTE_ROW,
        public_total=True,
    )
    assert publish_shard(plan, DOMAIN, "t", 0, 0, node_counts({0: 7}), NOISE).counts.tolist() == [7]


def test_digests_cover_keys_counts_and_places() -> None:
    counts = node_counts({1: 3, 2: 4})
    digests = {
        counts.digest(KEY, "r", "t", Place(1, 0)),
        node_counts({1: 3, 3: 4}).digest(KEY, "r", "t", Place(1, 0)),
        node_counts({1: 3, 2: 5}).digest(KEY, "r", "t", Place(1, 0)),
        counts.digest(KEY, "r", "t", Place(1, 1)),
        counts.digest(KEY, "r", "t", Place(2, 0)),
        counts.digest(KEY, "r", "u", Place(1, 0)),
        counts.digest(KEY, "q", "t", Place(1, 0)),
        counts.digest(ReleaseKey(b"1" * 32), "r", "t", Place(1, 0)),
    }
    assert len(digests) == 8
    assert node_counts({1: 3, 2: 4}).digest(KEY, "r", "t", Place(1, 0)) in digests


def test_plans_of_another_height_are_refused() -> None:
    with pytest.raises(ValueError, match="height 2, the domain of 1"):
        publish_shard(PLAN, CodeDomain(column="c", widths=(32,)), "t", 1, 0, many(1, 1), NOISE)
