"""An irregular forest in chunks of any size gives what the whole tree in one array gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.noise.source import LARGEST_MEASURED, NoiseSource
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.trees.chunks import SPINE, branch_index
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.forests import LevelSolution, RootSolutions
from dptrees.dpcore.trees.shapes import IrregularTree
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.irregular_trees import (
    RHO,
    irregular,
    make_plan,
    node_chains,
    node_variances,
    random_irregular_plan,
)

Array = np.ndarray[Any, Any]
SIZES = [1, 2, 4, 8, 16, 40, 2**17]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Place of the draws of one class, over all keys: the class and the first draw."""

    code: int
    start: int


@dataclass(frozen=True)
class PlacedLaw:
    """In place of a law: noise that depends on the class and the node alone, on no chunk."""

    width: int

    def sample(self, stream: Place, size: int) -> Array:
        mixed = np.arange(stream.start, stream.start + size, dtype=np.uint64)
        mixed = (mixed + np.uint64(1 + 977 * stream.code)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return (mixed >> np.uint64(33)).astype(np.int64) % (2 * self.width + 1) - self.width


class PlacedNoise:
    """In place of a source: knows where in its class a chunk begins."""

    largest = LARGEST_MEASURED

    def __init__(self, forest: IrregularForest) -> None:
        self.forest, tree = forest, forest.plan.tree
        chains = node_chains(tree)
        self.classes = [
            np.array(
                [
                    -1
                    if level < tree.height and len(tree.children(level, node)) == 1
                    else chains[level][node]
                    for node in range(size)
                ]
            )
            for level, size in enumerate(tree.level_sizes)
        ]

    def for_counts(self, counts: Array) -> PlacedNoise:
        return self

    def stream(self, tree: str, key: int, chunk: int, code: int) -> Place:
        shape, chunking = self.forest.plan.tree, self.forest.chunking
        chain, level = divmod(code, shape.height + 1)
        first = 0
        if chunk != SPINE:
            own = chunking.branch(key, branch_index(chunk)) if chunk < SPINE else None
            own = own or chunking[chunking.number(key, chunk)]
            root, split = own.first, chunking.first_level(own)
            first = shape.node_ranges(split, root, root + 1)[level - split][0]
        members = self.classes[level] == chain
        start = key * int(members.sum()) + int(members[:first].sum())
        return Place(code=code, start=start)


def with_laws(plan: IrregularPlan, change_law: Callable[[Any], Any]) -> IrregularPlan:
    """The plan, which believes in its own variances, but whose noise has other laws."""
    planted = replace(plan)
    planted.__dict__["class_variances"] = plan.class_variances
    planted.__dict__["_laws"] = tuple(
        tuple(None if law is None else change_law(law) for law in laws) for laws in plan._laws
    )
    return planted


@dataclass(frozen=True, kw_only=True)
class Solved:
    """Per level (keys, n_l)."""

    estimates: list[Array]
    variances: list[Array]
    counts: list[Array]


def check_equal(one: Solved, other: Solved) -> None:
    """Check that two solutions have the same bits."""
    for name in ("estimates", "variances", "counts"):
        for ours, theirs in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def solve(forest: IrregularForest, counts: Array, noise: Any) -> Solved:
    """The plain loop over the chunks; every chunk's answer must say where it belongs."""
    chunking, tree = forest.chunking, forest.plan.tree
    shapes = [(chunking.keys, size) for size in tree.level_sizes]
    estimates, variances = ([np.full(shape, np.nan) for shape in shapes] for _ in range(2))
    found = [np.full(shape, -1, np.int64) for shape in shapes]
    flat = counts.reshape(-1)
    for first in range(0, len(chunking), chunking.chunks_per_key):
        chunks = [chunking[first + index] for index in range(chunking.chunks_per_key)]
        parts = [flat[chunk.start : chunk.start + chunk.leaves] for chunk in chunks]
        measured = [forest.measure("t", *pair, noise) for pair in zip(chunks, parts, strict=True)]
        roots = [forest.chunk_roots(*pair) for pair in zip(chunks, measured, strict=True)]
        totals = [
            chunk.tree.level_counts(part.reshape(chunk.rows, -1))[0].reshape(-1)
            for chunk, part in zip(chunks, parts, strict=True)
        ]
        key = chunks[0].key
        reported = np.concatenate(roots), np.concatenate(totals)
        if chunking.branches:
            solutions, levels = solve_branches(forest, key, *reported, noise)
        else:
            solutions, levels = forest.solve_spine("t", key, *reported, noise)
        start = 0
        for chunk, measurements in zip(chunks, measured, strict=True):
            mine = solutions.slice(start, start + chunk.units)
            start += chunk.units
            levels = levels + forest.solve_chunk(chunk, measurements, mine)
        for level in levels:
            rows = slice(key, key + level.estimate.shape[0])
            columns = slice(level.first_node, level.first_node + level.estimate.shape[1])
            estimates[level.level][rows, columns] = level.estimate
            variances[level.level][rows, columns] = level.variance
            found[level.level][rows, columns] = level.count
    return Solved(estimates=estimates, variances=variances, counts=found)


def solve_branches(
    forest: IrregularForest, key: int, roots: Array, totals: Array, noise: Any
) -> tuple[RootSolutions, list[LevelSolution]]:
    """What `IrregularForest.solve_spine` gives where there are branches."""
    chunking = forest.chunking
    branches = [chunking.branch(key, number) for number in range(chunking.branches)]
    ends = np.cumsum([branch.leaves for branch in branches])[:-1]
    known, sent, sums = [], [], []
    pieces = zip(branches, np.split(roots, ends), np.split(totals, ends), strict=True)
    for branch, z, exact in pieces:
        measured = forest.measure_branch("t", branch, exact, noise)
        known.append([*measured, z.reshape(branch.rows, -1)])
        sent.append(forest.chunk_roots(branch, known[-1]))
        sums.append(forest.chunk_totals(branch, exact))
    reported = np.concatenate(sent), np.concatenate(sums)
    solutions, levels = forest.solve_spine("t", key, *reported, noise)
    found, start = [], 0
    for branch, own in zip(branches, known, strict=True):
        mine = solutions.slice(start, start + branch.units)
        start += branch.units
        below, solved = forest.solve_branch(branch, own, mine)
        found.append(below.to_array())
        levels = levels + solved
    return RootSolutions.from_array(np.concatenate(found, axis=1)), levels


def whole_tree(forest: IrregularForest, counts: Array, noise: PlacedNoise) -> Solved:
    """Everything from one array per level, node by node from the definitions."""
    plan, tree = forest.plan, forest.plan.tree
    exact, spread = tree.level_counts(counts), node_variances(replace(plan))
    keys, measured = len(counts), []
    for level, truth in enumerate(exact):
        noisy = truth.copy()
        for chain in range(level + 1):
            law = plan.law(level, chain)
            members = np.flatnonzero(noise.classes[level] == chain)
            if law is not None:
                code = level + chain * (tree.height + 1)
                drawn = law.sample(Place(code=code, start=0), keys * members.size)  # type: ignore[arg-type]
                noisy[:, members] += drawn.reshape(keys, -1)
        measured.append(noisy)
    shape: Any = tree
    weights = estimation_weights(shape, spread)
    estimates = estimate_down(weights, estimate_up(weights, measured))
    variances = weights.variances(float(weights.below[0][0]))
    return Solved(
        estimates=estimates,
        variances=[np.broadcast_to(g, u.shape) for g, u in zip(variances, estimates, strict=True)],
        counts=consistent_counts(tree, weights.below, estimates, root_count(estimates[0])),
    )


@pytest.mark.parametrize("public", [False, True], ids=["N private", "levels public"])
@pytest.mark.parametrize("seed", range(8))
def test_chunked_equals_whole(public: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = with_laws(random_irregular_plan(rng, public=public), lambda law: PlacedLaw(9))
    keys = 1 if public else int(rng.integers(1, 5))
    counts = rng.poisson(rng.choice([0.3, 5, 200]), (keys, plan.tree.leaves))
    splits = set()
    for size, most in itertools.product(SIZES, (1, 3, 2**20)):
        forest = IrregularForest(plan, keys=keys, chunk_leaves=size, spine_leaves=most)
        splits.add(forest.chunking.split_level)
        noise = PlacedNoise(forest)
        found, expected = solve(forest, counts, noise), whole_tree(forest, counts, noise)
        for name in ("estimates", "variances"):
            for ours, theirs in zip(getattr(found, name), getattr(expected, name), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-8)
        for ours, theirs in zip(found.counts, expected.counts, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for level in range(plan.tree.height):
            np.testing.assert_array_equal(
                plan.tree.child_sum(level, found.counts[level + 1]), found.counts[level]
            )
        root = found.variances[0][0, 0]
        assert forest.root_variance == pytest.approx(root, rel=1e-12)
    assert len(splits) > 1 or plan.tree.leaves == 1


def test_public_counts_come_back_as_they_are() -> None:
    rng = np.random.default_rng(9)
    for _ in range(10):
        plan = random_irregular_plan(rng, public=True)
        assert plan.public_level is not None
        counts = rng.poisson(6, (1, plan.tree.leaves))
        exact = plan.tree.level_counts(counts)
        planted = with_laws(plan, lambda law: PlacedLaw(30))
        for size in SIZES:
            forest = IrregularForest(planted, chunk_leaves=size)
            found = solve(forest, counts, PlacedNoise(forest))
            for level in range(plan.public_level + 1):
                np.testing.assert_array_equal(found.counts[level], exact[level])
                np.testing.assert_allclose(found.estimates[level], exact[level], atol=1e-9)
                np.testing.assert_array_equal(found.variances[level], 0)


@pytest.mark.parametrize("known", [False, True])
def test_zero_noise_gives_the_truth_back(known: bool) -> None:
    """Whether the plan knows that there is no noise (variance 0) or believes in some."""
    rng = np.random.default_rng(11)
    for size in (1, 2, 4, 8, 16, 40, 2**17) * 2:
        plan = with_laws(random_irregular_plan(rng), lambda law: ZeroNoise())
        if known:
            plan.__dict__["class_variances"] = tuple(
                np.where(np.isinf(row), np.inf, 0.0) for row in plan.class_variances
            )
        counts = rng.poisson(1.5, (3, plan.tree.leaves))
        forest = IrregularForest(plan, keys=3, chunk_leaves=size)
        found = solve(forest, counts, PlacedNoise(forest))
        for level, truth in enumerate(plan.tree.level_counts(counts)):
            np.testing.assert_allclose(found.estimates[level], truth, atol=1e-8)
            np.testing.assert_array_equal(found.counts[level], truth)


def test_a_tree_of_equal_fanouts_is_solved_as_the_level_uniform_one(
    random_plan: Callable[..., TreePlan],
    replace_laws: Callable[..., TreePlan],
    solve_forest: Callable[..., Any],
) -> None:
    """Without noise but believing in some, on counts that were spoilt on purpose."""
    rng = np.random.default_rng(12)
    for _ in range(10):
        uniform = replace_laws(random_plan(rng, public=False), lambda law: PlacedLaw(9))
        if any(fanout == 1 for fanout in map(np.min, irregular(uniform.tree).fanouts)):
            continue  # a trimmed level of one child: here it is pooled, there it is not
        plan = with_laws(
            IrregularPlan(
                tree=irregular(uniform.tree),
                unit=uniform.unit,
                budget=uniform.budget,
                level_amounts=uniform.level_amounts,
            ),
            lambda law: PlacedLaw(9),
        )
        counts = rng.poisson(4, (2, plan.tree.leaves))
        forest = IrregularForest(plan, keys=2)
        noise = PlacedNoise(forest)
        mine, theirs = (
            solve(forest, counts, noise),
            solve_forest(UniformForest(uniform, 2), counts, noise),
        )
        for level in range(plan.tree.height + 1):
            np.testing.assert_allclose(mine.estimates[level], theirs.estimates[level], atol=1e-8)
            np.testing.assert_allclose(mine.variances[level], theirs.variances[level], atol=1e-8)
            np.testing.assert_array_equal(mine.counts[level], theirs.counts[level])


# --- the noise ----------------------------------------------------------------------------------

CHAINED = IrregularTree.from_fanouts([[3], [1, 2, 4], [1, 3, 1, 2, 1, 0, 2]])


def source(release_key: Any) -> NoiseSource:
    return NoiseSource(key=release_key, release="r", spec_digest=b"spec", global_digest=b"digest")


def chained_plan() -> IrregularPlan:
    return make_plan(CHAINED, *(Fraction(n, 10) for n in (2, 3, 1, 4)), keyed=True)


def error_z(
    plan: IrregularPlan,
    release_key: Any,
    keys: int = 3000,
    chunk_leaves: int = 2**17,
    spine_leaves: int = 2**20,
) -> float:
    """How many standard deviations the mean of (u - truth)^2 / g is from 1, over the keys."""
    counts = np.random.default_rng(1).poisson(5, (keys, plan.tree.leaves))
    forest = IrregularForest(plan, keys=keys, chunk_leaves=chunk_leaves, spine_leaves=spine_leaves)
    found = solve(forest, counts, source(release_key))
    per_key = np.concatenate(
        [
            (u - truth) ** 2 / g
            for u, truth, g in zip(
                found.estimates, plan.tree.level_counts(counts), found.variances, strict=True
            )
        ],
        axis=1,
    ).mean(axis=1)
    return float((per_key.mean() - 1) / (per_key.std() / math.sqrt(keys)))


@pytest.mark.parametrize(
    ("keys", "chunk_leaves", "spine_leaves"),
    [(400, 4, 2**20), (400, 3, 3), (3000, 2**17, 2**20)],
    ids=["chunks", "branches", "whole trees"],
)
def test_measured_error_is_the_predicted_one(
    release_key: Any, keys: int, chunk_leaves: int, spine_leaves: int
) -> None:
    # Beyond 4.9 standard deviations: below 1e-6.
    assert abs(error_z(chained_plan(), release_key, keys, chunk_leaves, spine_leaves)) < 4.9


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10), Fraction(13, 10)])
def test_a_wrong_scale_is_noticed(release_key: Any, factor: Fraction) -> None:
    planted = with_laws(chained_plan(), lambda law: DiscreteLaplace(scale=law.scale * factor))
    assert abs(error_z(planted, release_key)) > 4.9


def test_a_chain_that_is_believed_to_be_measured_once_at_one_amount_is_noticed(
    release_key: Any,
) -> None:
    plan = chained_plan()
    planted = replace(plan)
    planted.__dict__["class_variances"] = plan.class_variances
    planted.__dict__["_laws"] = tuple(
        tuple(laws[0] for _ in laws) for laws in plan._laws
    )  # the child's own amount alone
    assert abs(error_z(planted, release_key)) > 4.9


def test_noise_is_drawn_once_and_afresh_for_every_class_chunk_and_count(release_key: Any) -> None:
    plan = with_laws(chained_plan(), lambda law: DiscreteLaplace(scale=Fraction(10**6)))
    seen: set[bytes] = set()
    draws = 0
    for counts in (np.zeros(CHAINED.leaves, np.int64), np.ones(CHAINED.leaves, np.int64)):
        forest = IrregularForest(plan, keys=2, chunk_leaves=4)
        for chunk in forest.chunking:
            part = counts[: chunk.leaves]
            measured = forest.measure("t", chunk, part, source(release_key))
            again = forest.measure("t", chunk, part, source(release_key))
            for level, (one, two) in enumerate(zip(measured, again, strict=True)):
                assert one is not None and two is not None
                np.testing.assert_array_equal(one, two)
                split = forest.chunking.split_level
                chains = forest._root_chains(chunk)
                for depth in range(level):
                    chains = chunk.tree.chains_below(depth, chains)
                repeated = split + level < CHAINED.height and chunk.tree.fanouts[level] == 1
                noisy = one - chunk.tree.level_counts(part.reshape(1, -1))[level]
                assert (one[..., np.broadcast_to(repeated, chains.shape)] == 0).all()
                for chain in np.unique(chains[~np.broadcast_to(repeated, chains.shape)]):
                    mine = (chains == chain) & ~np.broadcast_to(repeated, chains.shape)
                    seen.add(noisy[..., mine].tobytes())
                    draws += 1
    assert len(seen) == draws > 30


def test_streams_have_distinct_names() -> None:
    forest = IrregularForest(chained_plan())
    codes = [forest.stream_code(level, chain) for level in range(4) for chain in range(level + 1)]
    assert len(set(codes)) == len(codes)
    assert [forest.stream_code(level, 0) for level in range(4)] == [0, 1, 2, 3]


def test_refuses() -> None:
    plan = with_best_shares(make_plan([[2]], budget=RHO, unit=SUBSTITUTE_ROW))
    with pytest.raises(ValueError, match="is for one tree, not 2"):
        IrregularForest(plan, keys=2)


def test_a_tree_of_one_node() -> None:
    best = with_best_shares(make_plan(IrregularTree(child_starts=())))
    plan = with_laws(best, lambda law: ZeroNoise())
    forest = IrregularForest(plan, keys=2)
    found = solve(forest, np.array([[5], [7]]), PlacedNoise(forest))
    assert found.counts[0].tolist() == [[5], [7]]
