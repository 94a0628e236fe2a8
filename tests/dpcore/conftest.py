"""What several tests of the mathematics share: random trees and plans, dense least squares, noise
that is a function of the node alone, and the plain loop that solves a forest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from scipy import linalg

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import LARGEST_MEASURED
from dptrees.dpcore.ordered.question import OrderedQuestion, QuantileCells, Totals, chunk_quantiles
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.answer_errors import difference_ends
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.trees.chunks import SPINE, UniformChunking
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting, UniformForest
from tests.dpcore.mechanisms import take_mechanism


def random_tree(rng: np.random.Generator, *, height: int = 4, fanout: int = 4) -> UniformTree:
    """A tree of 1 to ``height`` levels below the root, mostly trimmed."""
    fanouts = tuple(int(n) for n in rng.integers(2, fanout + 1, rng.integers(1, height + 1)))
    cells = math.prod(fanouts)
    return UniformTree(
        leaves=int(rng.integers(cells // fanouts[0] + 1, cells + 1)), fanouts=fanouts
    )


def random_plan(
    rng: np.random.Generator,
    *,
    public: bool | None = None,
    measure: Measure = Measure.EPSILON,
    tree: UniformTree | None = None,
) -> TreePlan:
    """A plan with unequal levels, some of them not measured."""
    tree = tree or random_tree(rng)
    public = bool(rng.random() < 0.5) if public is None else public
    units = rng.integers(1, 15, tree.height + 1)
    units[:-1][rng.random(tree.height) < 0.3] = 0
    if public:
        units[0] = 0
    return TreePlan(
        tree=tree,
        unit=SUBSTITUTE_ROW if public else ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=Fraction(1)),
        level_amounts=tuple(Fraction(int(unit), 100) for unit in units),
        public_total=public,
    )


def replace_laws(plan: TreePlan, change_law: Callable[[NoiseLaw], Any]) -> TreePlan:
    """The plan, which believes in its own variances, but whose noise has other laws."""
    believed = plan.variances
    planted = replace(plan)
    planted.__dict__["laws"] = tuple(None if law is None else change_law(law) for law in plan.laws)
    planted.__dict__["variances"] = believed
    return planted


@dataclass(frozen=True, kw_only=True)
class DenseLeastSquares:
    """Generalised least squares by matrices: the definition the passes are tested against."""

    tree: UniformTree
    exact: Floats  # (exact nodes, K), measured with variance zero
    noisy: Floats  # (noisy nodes, K)
    variances: Floats  # (noisy nodes,)
    covariance: Floats  # (K, K) of the estimated leaves

    def leaves(self, measurements: Sequence[Floats], per_node: Sequence[Floats]) -> Floats:
        """(K,) the estimated leaves; exact measurements must agree with each other."""
        values, spread = np.concatenate(measurements), np.concatenate(per_node)
        particular = np.zeros(self.tree.leaves)
        if len(self.exact):
            particular = np.linalg.pinv(self.exact) @ values[spread == 0]
        noisy = values[(spread > 0) & np.isfinite(spread)]
        correction = self.noisy.T @ ((noisy - self.noisy @ particular) / self.variances)
        return particular + self.covariance @ correction


def level_matrix(tree: UniformTree, level: int) -> Floats:
    """(n_l, K) ones where a leaf is below a node."""
    matrix = np.zeros((tree.level_sizes[level], tree.leaves))
    for node in range(len(matrix)):
        matrix[node, list(tree.leaf_range(level, node))] = 1
    return matrix


def dense_least_squares(tree: UniformTree, per_node: Sequence[Floats]) -> DenseLeastSquares:
    """From the variance of every node of every level: zero exact, infinite not measured."""
    nodes = np.concatenate([level_matrix(tree, level) for level in range(tree.height + 1)])
    spread = np.concatenate(per_node)
    exact, noisy = spread == 0, (spread > 0) & np.isfinite(spread)
    free = linalg.null_space(nodes[exact]) if exact.any() else np.eye(tree.leaves)
    seen = nodes[noisy] @ free
    information = seen.T @ (seen / spread[noisy][:, None])
    covariance = free @ np.linalg.solve(information, free.T) if free.size else 0 * free @ free.T
    return DenseLeastSquares(
        tree=tree,
        exact=nodes[exact],
        noisy=nodes[noisy],
        variances=spread[noisy],
        covariance=covariance,
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    level: int
    start: int  # the number of the first node, over all keys


@dataclass(frozen=True, kw_only=True)
class NodeNoiseLaw:
    """In place of a law: noise that depends on level and node alone, so on no cut into chunks."""

    width: int

    def sample(self, stream: _Place, size: int) -> Integers:
        mixed = np.arange(stream.start, stream.start + size, dtype=np.uint64)
        mixed = (mixed + np.uint64(1 + 977 * stream.level)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return (mixed >> np.uint64(33)).astype(np.int64) % (2 * self.width + 1) - self.width


@dataclass(frozen=True, kw_only=True)
class NodeNoiseSource:
    """In place of a source of keyed streams: says where in its level a chunk begins."""

    chunking: UniformChunking
    largest: ClassVar[int] = LARGEST_MEASURED

    def for_counts(self, counts: Integers) -> NodeNoiseSource:
        return self

    def stream(self, tree: str, key: int, chunk: int, level: int) -> _Place:
        whole = self.chunking.tree
        first = 0
        if chunk != SPINE:
            leaf = self.chunking[self.chunking.number(key, chunk)].start % whole.leaves
            first = leaf // whole.leaves_below(level)
        return _Place(level=level, start=key * whole.level_sizes[level] + first)


@dataclass(frozen=True, kw_only=True)
class SolvedForest:
    """All answers in arrays with the keys in front."""

    estimates: list[Floats]  # per level (keys, n_l)
    variances: list[Floats]
    counts: list[Integers]
    prefix_estimate: Floats  # (keys, K)
    prefix_variance: Floats
    prefix_alpha: Floats
    prefix_count: Integers
    quantiles: QuantileCells  # (keys, quantiles)


def solve_forest(
    forest: UniformForest, counts: Integers, noise: Any, quantiles: Sequence[float] = (0.5,)
) -> SolvedForest:
    """Measures and solves a forest chunk by chunk, as the pipeline does."""
    chunking, tree = forest.chunking, forest.plan.tree
    keys, flat = chunking.keys, counts.reshape(-1)
    per_level: list[list[tuple[Any, ...]]] = [[] for _ in tree.level_sizes]
    prefixes, cells = [], []
    for first in range(0, len(chunking), chunking.chunks_per_key):
        chunks = [chunking[first + index] for index in range(chunking.chunks_per_key)]
        parts = [flat[chunk.start : chunk.start + chunk.leaves] for chunk in chunks]
        measured = [forest.measure("t", *pair, noise) for pair in zip(chunks, parts, strict=True)]
        roots = [forest.chunk_roots(*pair) for pair in zip(chunks, measured, strict=True)]
        totals = [p.reshape(c.units, -1).sum(axis=1) for c, p in zip(chunks, parts, strict=True)]
        solutions, levels = forest.solve_spine(
            "t", chunks[0].key, np.concatenate(roots), np.concatenate(totals), noise
        )
        start, found = 0, None
        for chunk, measurements in zip(chunks, measured, strict=True):
            mine = solutions.slice(start, start + chunk.units)
            start += chunk.units
            solved = forest.solve_chunk(chunk, measurements, mine)
            levels += solved
            prefix = forest.solve_prefixes(chunk, solved[-1], mine)
            prefixes.append(prefix)
            known = chunk_quantiles(
                quantiles,
                prefix.count,
                Totals(count=mine.total_count, before_count=mine.before_count),
                first_leaf=chunk.start % tree.leaves,
                leaves=tree.leaves,
                ends=difference_ends(prefix, mine.total, forest.root_variance, 2.0),
            )
            known = known if chunking.split_level == 0 else known.collapse()
            found = known if found is None else found.merge(known)
        assert found is not None
        cells.append(found.to_array())
        for level in levels:
            per_level[level.level].append((level.estimate, level.variance, level.count))

    def joined(arrays: Sequence[npt.NDArray[Any]], size: int) -> npt.NDArray[Any]:
        return np.concatenate([array.reshape(-1) for array in arrays]).reshape(keys, size)

    def read_levels(place: int) -> list[npt.NDArray[Any]]:
        return [
            joined([part[place] for part in parts], size)
            for parts, size in zip(per_level, tree.level_sizes, strict=True)
        ]

    return SolvedForest(
        estimates=read_levels(0),
        variances=read_levels(1),
        counts=read_levels(2),
        prefix_estimate=joined([p.estimate for p in prefixes], tree.leaves),
        prefix_variance=joined([p.variance for p in prefixes], tree.leaves),
        prefix_alpha=joined([p.alpha for p in prefixes], tree.leaves),
        prefix_count=joined([p.count for p in prefixes], tree.leaves),
        quantiles=QuantileCells.from_array(np.concatenate(cells, axis=1)),
    )


def make_question(
    *,
    leaves: int = 12,
    keys: int = 0,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int = 1,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    public_total: bool = False,
    name: str = "delay",
    plan: TreePlan | None = None,
    **fields: Any,
) -> OrderedQuestion[UniformMechanism]:
    """A question over the integers 0, ..., leaves - 1 and the keys k0, k1, ..."""
    return OrderedQuestion(
        name=name,
        domain=StepDomain(
            kind="integer",
            column="delay",
            lower=0,
            upper=leaves,
            missing="first" if public_total else "drop",
        ),
        keys=KeyList(column="carrier", keys=tuple(f"k{i}" for i in range(keys))) if keys else None,
        mechanism=take_mechanism(
            UniformMechanism,
            fields,
            plan=plan
            or plan_tree(
                TreeSetting(
                    leaves=leaves,
                    budget=Budget(measure=measure, amount=Fraction(amount)),
                    unit=unit,
                    public_total=public_total,
                    keyed=keys > 0,
                )
            ),
        ),
        **fields,
    )


def make_release_plan(
    *questions: OrderedQuestion[UniformMechanism], name: str = "flights-2013"
) -> ReleasePlan:
    """The release of questions that have the same guarantee."""
    plans = [question.plan for question in questions]
    return ReleasePlan(
        name=name,
        unit=plans[0].unit,
        budget=Budget(
            measure=plans[0].budget.measure,
            amount=sum((p.budget.amount for p in plans), Fraction()),
        ),
        questions=questions,
    )


@pytest.fixture(scope="session", name="random_tree")
def random_tree_fixture() -> Callable[..., Any]:
    return random_tree


@pytest.fixture(scope="session", name="random_plan")
def random_plan_fixture() -> Callable[..., Any]:
    return random_plan


@pytest.fixture(scope="session", name="replace_laws")
def replace_laws_fixture() -> Callable[..., Any]:
    return replace_laws


@pytest.fixture(scope="session", name="level_matrix")
def level_matrix_fixture() -> Callable[..., Any]:
    return level_matrix


@pytest.fixture(scope="session", name="dense_least_squares")
def dense_least_squares_fixture() -> Callable[..., Any]:
    return dense_least_squares


@pytest.fixture(scope="session", name="solve_forest")
def solve_forest_fixture() -> Callable[..., Any]:
    return solve_forest


@pytest.fixture(scope="session", name="make_question")
def make_question_fixture() -> Callable[..., Any]:
    return make_question


@pytest.fixture(scope="session", name="make_release_plan")
def make_release_plan_fixture() -> Callable[..., Any]:
    return make_release_plan


@pytest.fixture(scope="session", name="node_noise_law")
def node_noise_law_fixture() -> Callable[..., Any]:
    return NodeNoiseLaw


@pytest.fixture(scope="session", name="node_noise_source")
def node_noise_source_fixture() -> Callable[..., Any]:
    return NodeNoiseSource


@pytest.fixture(scope="session")
def release_key() -> ReleaseKey:
    return ReleaseKey(bytes(range(32)))
