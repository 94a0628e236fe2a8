"""Settling published nodes: bounds that always hold, coverage, consistent counts, pruning."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain
from dptrees.dpcore.sparse.plan import plan_sparse, publish_shard
from dptrees.dpcore.sparse.pruning import (
    PrunedLevel,
    child_sums,
    known_tree,
    pruning_in_words,
    solve_levels,
)
from tests.dpcore.sparse.counts import counts_by_key, exact_levels, node_counts

CODES = CodeDomain(column="c", widths=(2, 2, 4), notation="hex")
NAMES = LabelDomain(label_columns=("x", "y", "z"))
EPSILON, DELTA = Fraction(3), Fraction(1, 100)
# A lower threshold below than above, so that nodes without published parents occur.
PLAN = plan_sparse(CODES.names, EPSILON, DELTA, ADD_REMOVE_ROW, weights=[1, 1, 3])
NOISE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")


def draw_rows(
    domain: SparseDomain, generator: np.random.Generator, size: int
) -> dict[str, pa.Array]:
    codes = np.minimum(generator.geometric(0.03, size) - 1, 255)
    if domain is CODES:
        return {"c": pa.array(codes)}
    labels = [codes >> 6, codes >> 4 & 3, codes & 15]
    # A "-" sorts before the joint of a path, which parents and children must survive.
    return {
        n: pa.array([f"{'-' * (v % 3)}{v}" for v in own])
        for n, own in zip("xyz", labels, strict=True)
    }


def release(
    domain: SparseDomain, truth: list[NodeCounts], run: int, **options: object
) -> list[PrunedLevel]:
    noise = replace(NOISE, global_digest=run.to_bytes(4, "big"))
    parts = [
        publish_shard(PLAN, domain, "t", level, 0, counts, noise)
        for level, counts in enumerate(truth)
    ]
    return solve_levels(PLAN, domain, parts, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", [CODES, NAMES])
@pytest.mark.parametrize("prune_below", [0, 5])
def test_what_holds_always(domain: SparseDomain, prune_below: int) -> None:
    generator, implied = np.random.default_rng(3), 0
    for run in range(60):
        rows = draw_rows(domain, generator, int(generator.integers(0, 600)))
        truth = exact_levels(domain, domain.leaf_counts(rows))
        if not len(truth[0]):
            truth[0] = NodeCounts(keys=domain.root_keys, counts=np.zeros(1, np.int64))
        levels = release(domain, truth, run, prune_below=prune_below)
        for number, level in enumerate(levels):
            known = counts_by_key(truth[number])
            true = np.array([known[key] for key in level.keys.to_pylist()], np.int64)
            assert (level.least <= true).all() and (true <= level.most).all()
            assert (level.least <= level.count).all() and (level.count <= level.most).all()
            assert (level.least <= level.ci_low).all() and (level.ci_high <= level.most).all()
            assert (level.ci_low <= level.ci_high).all()
            implied += int(np.isnan(level.estimate).sum())
            if number:
                above = levels[number - 1].keys.to_pylist()
                parents = domain.parent_keys(number, level.keys).to_pylist()
                sums = dict.fromkeys(above, 0)
                for parent, count in zip(parents, level.count.tolist(), strict=True):
                    sums[parent] += count
                assert (np.array(list(sums.values())) <= levels[number - 1].count).all()
    assert implied > 0 or prune_below


def test_intervals_cover_given_publication() -> None:
    """Nodes of one count each, over many releases: at least 90 % of those published are covered."""
    size, level = 16, 3
    law, threshold = PLAN.law(level), PLAN.threshold(level)
    assert law is not None and threshold is not None
    # Nodes of few rows are seldom published.
    for count, runs in ((3, 400), (threshold, 100), (2 * threshold, 100)):
        truth = exact_levels(CODES, node_counts({16 * number: count for number in range(size)}))
        seen = covered = naive = 0
        width = law.bound(0.1)
        for run in range(runs):
            own = release(CODES, truth, run, confidence=0.9)[level]
            seen += len(own.keys)
            covered += int(((own.ci_low <= count) & (count <= own.ci_high)).sum())
            naive += int((np.abs(own.estimate - count) <= width).sum())
        assert seen > 60
        least = stats.binom.ppf(1e-6, seen, 0.9)
        assert covered >= least
        if count == 3:
            # Without regard to the selection it would not be so.
            assert naive < least


def published(*levels: dict[int, int]) -> list[NodeCounts]:
    return [node_counts(level) for level in levels]


def test_a_node_without_published_ancestors_brings_them_along() -> None:
    radius = PLAN.radius(3)
    levels = solve_levels(PLAN, CODES, published({0: 900}, {}, {}, {0xA7: 12}))
    assert [level.keys.to_pylist() for level in levels] == [[0], [2], [10], [0xA7]]
    assert np.isnan(levels[1].estimate).all() and levels[1].least.tolist() == [12 - radius]
    assert levels[1].most.tolist() == [2 * PLAN.radius(1)]
    assert (levels[1].ci_low, levels[1].ci_high) == (levels[1].least, levels[1].most)
    # It has no more rows than its parents, which were not published.
    assert levels[3].most.tolist() == [min(12 + radius, 2 * PLAN.radius(1))]
    assert [levels[level].estimate[0] for level in (0, 3)] == [900, 12]
    assert [np.isnan(level.std_error[0]) for level in levels] == [False, True, True, False]


def test_siblings_bound_each_other() -> None:
    levels = solve_levels(PLAN, CODES, published({0: 180}, {0: 100, 1: 90}, {}, {}))
    radius, root = PLAN.radius(1), PLAN.radius(0)
    assert levels[1].most.tolist() == [
        min(100 + radius, 180 + root - (90 - radius)),
        min(90 + radius, 180 + root - (100 - radius)),
    ]
    assert levels[0].least.tolist() == [max(180 - root, 190 - 2 * radius)]


def test_pruning_folds_what_may_be_small() -> None:
    threshold = PLAN.threshold(3)
    assert threshold is not None
    parts = published({0: 900}, {2: 50}, {}, {0xA7: threshold + 1, 0xB0: 3 * threshold})
    assert solve_levels(PLAN, CODES, parts)[3].keys.to_pylist() == [0xA7, 0xB0]
    folded = solve_levels(PLAN, CODES, parts, prune_below=threshold)
    assert [level.keys.to_pylist() for level in folded] == [[0], [2], [11], [0xB0]]
    assert folded[0].count.tolist() == [900]
    # What is folded leaves its rows to its siblings: they need not leave space for it.
    heavy = published({0: 30}, {0: 40, 1: PLAN.radius(1) + 1}, {}, {})
    least = int(solve_levels(PLAN, CODES, heavy)[1].ci_low[0])
    pruned = solve_levels(PLAN, CODES, heavy, prune_below=least)
    assert [level.count.tolist() for level in pruned[:2]] == [[39], [39]]
    # With a heavy node its ancestors stay, though they could not stay by themselves.
    small = PLAN.radius(1) + 1
    parts = published({0: 900}, {2: small}, {}, {0xB0: small + PLAN.radius(3)})
    levels = solve_levels(PLAN, CODES, parts, prune_below=small - 4)
    assert levels[1].keys.to_pylist() == [2]


def test_the_rule_of_pruning_in_words() -> None:
    words = pruning_in_words(50, 0.9)
    assert "50 rows or more" in words and "before this folding, which selects" in words
    assert "interval" not in pruning_in_words(0, 0.9)


def test_nothing_but_the_root() -> None:
    levels = solve_levels(PLAN, CODES, published({0: -3}, {}, {}, {}))
    assert [len(level.keys) for level in levels] == [1, 0, 0, 0]
    assert levels[0].count.tolist() == [0] and levels[0].estimate.tolist() == [-3.0]
    assert levels[0].ci_low.tolist() == [0]


def test_sums_over_children() -> None:
    tree = known_tree(CODES, published({0: 9}, {1: 5, 3: 2}, {4: 3, 5: 1, 12: 1}, {}))
    assert child_sums(tree[2], tree[2].noisy, 2).tolist() == [4, 1]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="4 levels"):
        solve_levels(PLAN, CODES, published({0: 1}))
    with pytest.raises(ValueError, match="the root first"):
        solve_levels(PLAN, CODES, published({}, {}, {}, {}))
    with pytest.raises(ValueError, match="confidence is 2"):
        solve_levels(PLAN, CODES, published({0: 1}, {}, {}, {}), confidence=2.0)
