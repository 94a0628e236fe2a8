"""Adaptive trees in chunks of any size give what one array gives, which is dense least squares."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.adaptive import plan as drawing
from dptrees.dpcore.adaptive.drawn_trees import DrawnTree, DrawnTrees
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.least_squares import level_fanouts
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree
from dptrees.dpcore.uniform.plan import Consistency
from tests.dpcore.adaptive_trees import (
    LEVELS,
    PREFIXES,
    dense_drawn,
    random_adaptive_plan,
    solve_adaptive,
    source,
)
from tests.dpcore.irregular_trees import random_irregular_tree

SIZES = [1, 3, 7, 16, 40, 2**17]
KINDS = ("uniform", "irregular")


class CodedSource:
    """In place of a source of streams: a stream is the code of its level and purpose."""

    def for_counts(self, counts: Any) -> CodedSource:
        return self

    def stream(self, tree: str, key: int, chunk: int, code: int) -> int:
        return code


def coded_noise(law: Any, counts: Any, stream: int) -> Any:
    """Noise by the count and the stream's code alone, so by no cut into chunks."""
    mixed = (counts.astype(np.uint64) + np.uint64(1 + 977 * stream)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return counts + (mixed >> np.uint64(33)).astype(np.int64) % 19 - 9


def random_tree(rng: np.random.Generator, kind: str) -> Shape:
    if kind == "irregular":
        return random_irregular_tree(rng)
    fanouts = tuple(int(each) for each in rng.integers(2, 5, rng.integers(1, 5)))
    cells = int(np.prod(fanouts))
    return UniformTree(
        leaves=int(rng.integers(cells // fanouts[0] + 1, cells + 1)), fanouts=fanouts
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_chunked_equals_whole(monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    for public in (False, True):
        monkeypatch.setattr(drawing, "add_noise", coded_noise)
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, kind)
        keys = 1 if public else int(rng.integers(1, 4))
        plan = random_adaptive_plan(
            rng, tree, public=public, keyed=keys > 1, counts=bool(rng.random() < 0.5)
        )
        if kind == "uniform" and seed % 2 and not plan.decides(0):
            plan = replace(plan, consistency=Consistency.SHRUNK)
        counts = rng.poisson(rng.choice([0.3, 5, 40], (keys, tree.leaves)))
        whole = solve_adaptive(AdaptiveForest(plan, keys=keys), counts, CodedSource())
        for size in SIZES:
            forest = AdaptiveForest(plan, keys=keys, chunk_leaves=size)
            found = solve_adaptive(forest, counts, CodedSource())
            for ours, theirs in zip(found.levels, whole.levels, strict=True):
                for name in LEVELS:
                    np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-7)
            if whole.prefixes is not None:
                assert found.prefixes is not None
                for name in PREFIXES:
                    np.testing.assert_allclose(
                        found.prefixes[name], whole.prefixes[name], rtol=1e-9, atol=1e-7
                    )


@pytest.mark.parametrize("seed", range(6))
def test_estimates_are_dense_least_squares_on_the_drawn_tree(seed: int) -> None:
    for kind, counts in product(KINDS, (True, False)):
        rng = np.random.default_rng(100 + seed)
        tree = random_tree(rng, kind)
        plan = random_adaptive_plan(rng, tree, counts=counts)
        exact, forest = rng.poisson(rng.choice([0.3, 5, 40], tree.leaves)), AdaptiveForest(plan)
        numbers = forest.measure("t", forest.chunking[0], exact, source(seed))
        solved = solve_adaptive(forest, exact, source(seed))
        ended = [level["ended"][0] for level in solved.levels]
        estimates, covariance = dense_drawn(forest, numbers, ended)
        drawn = DrawnTree(plan, ended)
        edges = drawn.edges
        assert len(edges) == len(estimates) + 1
        for level, answers in enumerate(solved.levels):
            for node in range(tree.level_sizes[level]):
                leaves = tree.leaf_range(level, node)
                if 0 <= ended[level][node] < level:
                    assert np.isnan(answers["variance"][0, node]) and np.isnan(
                        drawn.node(level, node)
                    )
                    continue
                mine = np.searchsorted(edges, [leaves.start, leaves.stop])
                weights = np.zeros(len(estimates))
                weights[mine[0] : mine[1]] = 1
                variance = weights @ covariance @ weights
                assert answers["estimate"][0, node] == pytest.approx(weights @ estimates, abs=1e-7)
                assert answers["variance"][0, node] == pytest.approx(variance, rel=1e-9)
                assert drawn.node(level, node) == pytest.approx(variance, rel=1e-9)
        if solved.prefixes is not None:
            _check_prefixes(solved.prefixes, edges, estimates, covariance)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_released_reports_all_that_was_solved(seed: int) -> None:
    """Rebuild all solved values of several keys, with trees cut in chunks, from `DrawnTrees` of the
    ended nodes and the estimates alone."""
    for kind in KINDS:
        rng = np.random.default_rng(500 + seed)
        tree = random_tree(rng, kind)
        plan = random_adaptive_plan(rng, tree, keyed=True, counts=seed % 2 == 0)
        forest = AdaptiveForest(plan, keys=3, chunk_leaves=max(2, tree.leaves // 2))
        exact = rng.poisson(rng.choice([0.3, 5, 40], (3, tree.leaves)))
        solved = solve_adaptive(forest, exact, source(seed))
        drawn = DrawnTrees(plan, [level["ended"] for level in solved.levels])
        levels = drawn.levels(
            [(np.arange(each["ended"].shape[1]), each["estimate"]) for each in solved.levels]
        )
        for own, level in zip(levels, solved.levels, strict=True):
            np.testing.assert_allclose(own.variance, level["variance"], rtol=1e-9)
            np.testing.assert_allclose(own.holder_variance, level["holder_variance"], rtol=1e-9)
            np.testing.assert_allclose(own.holder_estimate, level["holder_estimate"], atol=1e-7)
        if solved.prefixes is not None:
            prefixes = drawn.prefixes(solved.prefixes["estimate"])
            for name in set(PREFIXES) - {"count", "alpha"}:
                found = getattr(prefixes, name)
                np.testing.assert_allclose(found, solved.prefixes[name], rtol=1e-9, atol=1e-7)


def test_shapes_of_no_tree_are_refused() -> None:
    plan = random_adaptive_plan(np.random.default_rng(2), UniformTree(leaves=4, fanouts=(2, 2)))
    plan = replace(plan, level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)))
    ends = [[-1], [1, -1], [1, 1, 2, 2]]
    DrawnTree(plan, [np.array(each) for each in ends])
    wrongs = [(0, 0, 0), (0, 0, 1), (1, 0, 0), (2, 0, 2), (2, 0, -1), (2, 3, -1), (2, 3, 1)]
    for level, node, wrong in wrongs:
        other = [np.array(each) for each in ends]
        other[level][node] = wrong
        with pytest.raises(ValueError, match="those of no tree of the plan"):
            DrawnTree(plan, other)


def _check_prefixes(prefixes: Any, edges: Any, estimates: Any, covariance: Any) -> None:
    for leaf in range(int(edges[-1])):
        stops = np.searchsorted(edges, leaf + 1, side="right") - 1, np.searchsorted(edges, leaf + 1)
        for stop, name in zip(stops, ("low", "high"), strict=True):
            weights = np.arange(len(estimates)) < stop
            at = {each: prefixes[f"{name}_{each}"][0, leaf] for each in ("estimate", "variance")}
            assert at["estimate"] == pytest.approx(estimates[weights].sum(), abs=1e-7)
            variance = weights @ covariance @ weights
            assert at["variance"] == pytest.approx(variance, rel=1e-9, abs=1e-12)
        assert np.isnan(prefixes["variance"][0, leaf]) == (stops[0] != stops[1])


@pytest.mark.parametrize("seed", range(6))
def test_integers_add_up_and_are_spread_evenly(seed: int) -> None:
    for kind in KINDS:
        rng = np.random.default_rng(200 + seed)
        tree = random_tree(rng, kind)
        plan = random_adaptive_plan(rng, tree, counts=bool(seed % 2))
        exact = rng.poisson(rng.choice([0.3, 5, 40], tree.leaves))
        solved = solve_adaptive(AdaptiveForest(plan, chunk_leaves=5), exact, source(seed))
        for level in range(tree.height):
            children = solved.levels[level + 1]["count"]
            np.testing.assert_array_equal(
                tree.child_sum(level, children), solved.levels[level]["count"]
            )
            assert children.min() >= 0
        leaves, ended = solved.levels[-1]["count"][0], [each["ended"][0] for each in solved.levels]
        edges = DrawnTree(plan, ended).edges
        for start, stop in pairwise(edges):
            assert np.ptp(leaves[start:stop]) <= 1
        if solved.prefixes is not None:
            np.testing.assert_array_equal(solved.prefixes["count"][0], np.cumsum(leaves))


def test_every_path_spends_the_budget() -> None:
    """Amounts of what is measured on a path, from the laws that are drawn."""
    rng = np.random.default_rng(5)
    for trial in range(20):
        tree = random_tree(rng, "irregular" if trial % 2 else "uniform")
        plan = random_adaptive_plan(rng, tree, counts=bool(rng.random() < 0.5))
        exact = rng.poisson(rng.choice([0.3, 5, 40], tree.leaves))
        solved = solve_adaptive(AdaptiveForest(plan), exact, source(trial))
        for leaf in range(tree.leaves):
            assert _spent(plan, solved, leaf) == sum(plan.level_amounts)


def _spent(plan: AdaptivePlan, solved: Any, leaf: int) -> Any:
    """1 / scale, summed over the numbers of a path: noise under epsilon, add_remove, one row."""
    tree, spent = plan.tree, 0
    for level in range(tree.height + 1):
        nodes = range(tree.level_sizes[level])
        node = next(each for each in nodes if leaf in tree.leaf_range(level, each))
        ended = solved.levels[level]["ended"][0, node]
        chain = int(np.broadcast_to(plan.chains(level), len(nodes))[node])
        laws = [plan.law(level, chain)]
        if level < tree.height:
            laws.append(plan.decision_law(level, chain))
            if level_fanouts(tree, level)[node] == 1 and isinstance(tree, IrregularTree):
                laws = []
        if ended == level < tree.height:
            laws.append(plan.last_law(level))
        spent += sum(1 / law.scale for law in laws if law is not None)  # type: ignore[attr-defined]
        if ended == level:
            break
    return spent


def test_noise_is_drawn_once_and_follows_the_counts() -> None:
    rng = np.random.default_rng(9)
    plan = random_adaptive_plan(rng, UniformTree(leaves=60, fanouts=(4, 4, 4)))
    counts, forest = rng.poisson(4, 60), AdaptiveForest(plan, chunk_leaves=16)
    once, again = (solve_adaptive(forest, counts, source(3)) for _ in range(2))
    other = solve_adaptive(forest, counts, source(3, b"other"))
    np.testing.assert_array_equal(once.levels[-1]["estimate"], again.levels[-1]["estimate"])
    assert (once.levels[-1]["estimate"] != other.levels[-1]["estimate"]).any()


def test_a_plan_reads_back() -> None:
    rng = np.random.default_rng(1)
    plan = random_adaptive_plan(rng, UniformTree(leaves=60, fanouts=(4, 4, 4)), counts=False)
    given = {"tree": plan.tree, "unit": plan.unit, "measure": plan.budget.measure}
    assert AdaptivePlan.from_spec(plan.spec(), **given, keyed=False) == plan


@pytest.mark.parametrize("public", [False, True])
def test_a_tree_of_one_leaf(public: bool) -> None:
    rng = np.random.default_rng(1)
    plan = random_adaptive_plan(rng, UniformTree(leaves=1, fanouts=()), public=public)
    found = solve_adaptive(AdaptiveForest(plan), np.array([50]), source(0))
    assert (found.levels[0]["variance"][0, 0] == 0) == public
    assert found.levels[0]["ended"][0, 0] == 0
    assert not public or found.levels[0]["count"][0, 0] == 50


def test_what_is_refused() -> None:
    rng = np.random.default_rng(1)
    tree = UniformTree(leaves=4, fanouts=(2, 2))
    with pytest.raises(ValueError, match="keys: a plan without keys"):
        AdaptiveForest(random_adaptive_plan(rng, tree, unit=SUBSTITUTE_ROW), keys=2)
    plan = random_adaptive_plan(rng, tree, unit=ADD_REMOVE_ROW)
    for change in (
        {"level_amounts": plan.level_amounts[:-1]},
        {"level_amounts": (*plan.level_amounts[:-1], plan.budget.amount * 2)},
        {"level_amounts": (*plan.level_amounts[:-1], plan.level_amounts[-1] * 0)},
        {"thresholds": (1,)},
        {"decision_part": plan.budget.amount},
        {"public_total": True},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            AdaptivePlan(**{**plan.__getstate__(), **change})
