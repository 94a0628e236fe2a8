"""The whole law of PrivTree's tree on tiny domains, by enumeration: over all neighboring data sets
no tree reveals more than the budget of the splits, and no tree with its counts more than both.

What is compared with noise, b(v), is read off the plan, and a node is split if its own noise is
above -b(v); so the probability of a tree is a product over its nodes. That the plan grows trees so,
whatever becomes of other nodes, is seen where each tree in turn is prescribed.

How tight the bound is: of a row more or less the largest loss is 0.67 to 0.86 of epsilon_1 on these
domains, whose trees end early, and along paths of 40 levels 0.69 to 0.87 for a fan-out of 2, 0.87
to 0.94 for 4, above 0.98 for 32.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes import partition as measuring
from dptrees.dpcore.boxes import privtree
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, NodeNoise
from dptrees.dpcore.boxes.privtree import PrivTreePlan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit

# By level and number.
Node = tuple[int, int]
Splits = frozenset[Node]
# Far more than sums of a dozen logarithms are rounded by.
ROUNDING = 1 + 1e-9
COUNT_EPSILON = Fraction(3, 4)


@dataclass(kw_only=True)
class Prescribed:
    """A run of a plan in which each node is split as prescribed, and the noise that it requested.

    Args:
        plan: the plan.
        counts: (n,) the rows of the nodes of the last level that can be split, in their first cell.
        splits: the nodes that are split.
    """

    plan: PrivTreePlan
    counts: tuple[int, ...]
    splits: Splits
    visited: list[Node] = field(default_factory=list)
    biased: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    laws: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._waiting: list[Node] = [(0, 0)]
        axis = StepDomain(kind="integer", column="x", lower=0, upper=1 << self.plan.finest)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(privtree, "add_noise", self._split)
            patch.setattr(measuring, "add_noise", self._counted)
            domain = HypercubeDomain(axes=(axis,), depths=(self.plan.finest,))
            self.tree = self.plan.estimated(domain, self._measurement).tree

    @property
    def _measurement(self) -> NodeNoise:
        codes = np.arange(len(self.counts), dtype=np.uint64) << np.uint64(self.plan.bits_apart)
        return NodeNoise(
            tree="t",
            counts=CodeCounts.from_codes(self.plan.finest, codes, np.array(self.counts)),
            laws=self.plan.laws,
            source=NoiseSource(
                key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=b"g"
            ),
        )

    def _split(
        self, law: DiscreteLaplace, biased: Integers, streams: object, *, largest: int
    ) -> Integers:
        """In place of noisy b(v): 1 for nodes to be split, else 0."""
        self.laws.add(("split", law))
        level, fanout = self._waiting[0][0], 1 << self.plan.bits_apart
        decisions = [node in self.splits for node in self._waiting]
        assert len(decisions) == len(biased)
        self.visited += self._waiting
        self.biased += biased.tolist()
        self._waiting = [
            (level + 1, node * fanout + child)
            for (_, node), split in zip(self._waiting, decisions, strict=True)
            for child in range(fanout)
            if split
        ]
        return np.array(decisions, np.int64)

    def _counted(
        self, law: DiscreteLaplace, exact: Integers, streams: object, **_: int
    ) -> Integers:
        self.laws.add(("count", law))
        self.parts += exact.tolist()
        return exact

    @property
    def log_probability(self) -> float:
        """Log-probability of the run's splits, under the noise law that it requested."""
        split = np.array([node in self.splits for node in self.visited])
        (law,) = (law for use, law in self.laws if use == "split")
        return float(np.where(split, *log_splits(law, np.array(self.biased))).sum())


def log_splits(law: DiscreteLaplace, biased: Integers) -> tuple[Floats, Floats]:
    """ln P(b + Z > 0) and ln P(b + Z <= 0) = ln P(Z >= b), the law being even."""
    return np.log(law.survival(-biased)), np.log(law.survival(biased - 1))


@dataclass(frozen=True, kw_only=True)
class TinyLaw:
    """The law of the trees of a plan for every data set of few rows.

    Args:
        plan: the plan.
        most: rows of a node of the last level that can be split.
        total: rows in all.
    """

    plan: PrivTreePlan
    most: int
    total: int

    @property
    def fanout(self) -> int:
        return 1 << self.plan.bits_apart

    @cached_property
    def nodes(self) -> list[Node]:
        """All that can be split."""
        return [
            (level, node) for level in range(self.plan.height) for node in range(self.fanout**level)
        ]

    @cached_property
    def trees(self) -> list[Splits]:
        """All trees, by the nodes that are split."""
        return [Splits(own) for own in self._below(0, 0)]

    def _below(self, level: int, node: int) -> Iterator[tuple[Node, ...]]:
        yield ()
        if level == self.plan.height:
            return
        if level == self.plan.height - 1:
            yield ((level, node),)
            return
        children = (
            list(self._below(level + 1, node * self.fanout + child)) for child in range(self.fanout)
        )
        for own in itertools.product(*children):
            yield ((level, node), *itertools.chain(*own))

    @cached_property
    def data_sets(self) -> list[tuple[int, ...]]:
        finest = self.fanout ** (self.plan.height - 1)
        counts = itertools.product(range(self.most + 1), repeat=finest)
        return [each for each in counts if sum(each) <= self.total]

    @cached_property
    def counts(self) -> Integers:
        """(data sets, nodes) in rows."""
        finest = np.array(self.data_sets)
        levels = [
            finest.reshape(len(finest), self.fanout**level, -1).sum(axis=2)
            for level in range(self.plan.height)
        ]
        return np.concatenate(levels, axis=1)

    @cached_property
    def masks(self) -> tuple[Floats, Floats]:
        """(nodes, trees) ones where a node is split, and where it is a part."""
        split = np.array([[node in tree for tree in self.trees] for node in self.nodes], np.float64)
        above = [(level - 1, node // self.fanout) for level, node in self.nodes]
        there = [[up[0] < 0 or up in tree for tree in self.trees] for up in above]
        return split, np.array(there, np.float64) - split

    @cached_property
    def log_probabilities(self) -> Floats:
        """(data sets, trees)."""
        whole = Splits(self.nodes)
        counts, levels = self.counts, np.array(self.nodes)[:, 0]
        biased = np.empty_like(counts)
        last = [0] * (self.fanout ** (self.plan.height - 1) - 1)
        for count in range(self.total + 1):
            # b(v) of the first node of each level, which holds all rows.
            run = Prescribed(plan=self.plan, counts=(count, *last), splits=whole)
            firsts = [b for (_, node), b in zip(run.visited, run.biased, strict=True) if not node]
            biased = np.where(counts == count, np.array(firsts)[levels], biased)
        split, ends = log_splits(self.plan.split_law, biased)
        return split @ self.masks[0] + ends @ self.masks[1]

    def unit(self) -> Iterator[tuple[list[int], list[int]]]:
        """Places of data sets, and of neighbors of each, once."""
        place = {each: at for at, each in enumerate(self.data_sets)}
        width = range(len(self.data_sets[0]))
        moves: list[tuple[int, ...]] = [(into,) for into in width]
        if self.plan.unit == SUBSTITUTE_ROW:
            moves = [(into, out) for into in width for out in range(into)]
        for into, *out in moves:
            change = [(at == into) - (at in out) for at in width]
            pairs = [
                (at, place.get(tuple(map(sum, zip(each, change, strict=True)))))
                for each, at in place.items()
            ]
            found = [(one, two) for one, two in pairs if two is not None]
            yield [one for one, _ in found], [two for _, two in found]

    @cached_property
    def losses(self) -> tuple[float, float]:
        """max |ln P / Q| over all neighbors: of a tree, and of a tree with its noisy counts.

        A noisy count reveals 1 / scale for each row by which it is moved, some outcome all of that.
        """
        split, ends = self.masks
        # The rows of a node of the last level that is split are all in its first part.
        last = np.array([level == self.plan.height - 1 for level, _ in self.nodes])
        parts = ends + split * last[:, np.newaxis]
        most, both = 0.0, 0.0
        for one, two in self.unit():
            tree = np.abs(self.log_probabilities[two] - self.log_probabilities[one])
            moved = np.abs(self.counts[two] - self.counts[one]) @ parts
            both_losses = tree + moved / float(self.plan.count_law.scale)
            most, both = max(most, tree.max()), max(both, both_losses.max())
        return most, both


def make_law(
    fanout: int, levels: int, split: Fraction, unit: PrivacyUnit = ADD_REMOVE_ROW
) -> TinyLaw:
    """Up to 6 rows in each of 4 nodes; up to 4 in all where there are more nodes."""
    bits_apart = fanout.bit_length() - 1
    plan = PrivTreePlan(
        bits_apart=bits_apart,
        finest=bits_apart * levels,
        split_epsilon=split,
        count_epsilon=COUNT_EPSILON,
        unit=unit,
    )
    many = fanout ** (levels - 1) > 4
    return TinyLaw(plan=plan, most=4 if many else 6, total=4 if many else 24)


# Fan-out and levels that can be split: of 26, 17 and 677 trees.
SHAPES = [(2, 3), (4, 2), (2, 4)]
# Of the splits; the decay is from 13 rows to 1.
BUDGETS = [Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(6)]
# Of it, the least part that some tree reveals.
LEAST = {ADD_REMOVE_ROW: Fraction(6, 10), SUBSTITUTE_ROW: Fraction(2, 10)}


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
def test_no_tree_reveals_more_than_its_epsilon(fanout: int, levels: int, unit: PrivacyUnit) -> None:
    for split in BUDGETS:
        law = make_law(fanout, levels, split, unit)
        assert len(law.trees) == len(set(law.trees)) == {3: 26, 2: 17, 4: 677}[levels]
        assert np.exp(law.log_probabilities).sum(axis=1) == pytest.approx(1, rel=1e-12)
        tree, both = law.losses
        assert LEAST[unit] * split < tree <= split * ROUNDING
        assert both <= (split + COUNT_EPSILON) * ROUNDING
        if unit == ADD_REMOVE_ROW:
            assert both == pytest.approx(tree + COUNT_EPSILON)


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
def test_the_plan_grows_each_tree_with_the_probability_enumerated(
    fanout: int, levels: int, unit: PrivacyUnit
) -> None:
    """Also: a row counts in one part, a row that is moved in two at most."""
    law = make_law(fanout, levels, Fraction(5, 2), unit)
    plan, rng = law.plan, np.random.default_rng(levels)
    one, two = (np.concatenate(each) for each in zip(*law.unit(), strict=True))
    for pair in rng.choice(len(one), 4, replace=False):
        for tree in rng.choice(len(law.trees), 17, replace=False):
            runs = []
            for data in (one[pair], two[pair]):
                run = Prescribed(plan=plan, counts=law.data_sets[data], splits=law.trees[tree])
                assert run.laws == {("split", plan.split_law), ("count", plan.count_law)}
                assert nodes_split(run) == law.trees[tree]
                expected = law.log_probabilities[data, tree]
                assert run.log_probability == pytest.approx(expected, rel=1e-12)
                assert sum(run.parts) == sum(law.data_sets[data])
                runs.append(np.array(run.parts))
            moved = np.abs(runs[1] - runs[0])
            assert moved.sum() <= (1 if unit == ADD_REMOVE_ROW else 2)
            assert moved.sum() <= plan.count_law.scale * COUNT_EPSILON


def nodes_split(run: Prescribed) -> Splits:
    """Return the nodes of the grown tree that were split."""
    levels = zip(itertools.count(), run.tree.levels, run.tree.leaves())
    return Splits(
        (level, node) for level, own, ends in levels for node in own.nodes[~ends].tolist()
    )


def with_half_the_noise(law: TinyLaw) -> TinyLaw:
    """Plant a fault: half the noise of splits, with the decay as it is."""
    decay, noise = law.plan.decay, law.plan.split_law
    law.plan.__dict__.update(decay=decay, split_law=replace(noise, scale=noise.scale / 2))
    return law


@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
def test_half_the_noise_is_found(fanout: int, levels: int) -> None:
    for split in BUDGETS:
        tree, both = with_half_the_noise(make_law(fanout, levels, split)).losses
        assert tree > split and both > split + COUNT_EPSILON


def test_the_noise_of_one_path_is_too_little_for_a_row_that_is_moved() -> None:
    law = with_half_the_noise(make_law(2, 4, Fraction(6), SUBSTITUTE_ROW))
    assert law.losses[0] > law.plan.split_epsilon


@pytest.mark.parametrize(("decay", "split"), [(0, 6), (0, Fraction(1, 2)), (1, Fraction(1, 2))])
def test_too_little_decay_is_found(
    decay: int, split: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row then reveals something in every level of its path."""
    law = make_law(2, 4, Fraction(split))
    monkeypatch.setitem(law.plan.__dict__, "decay", decay)
    assert law.losses[0] > 1.09 * law.plan.split_epsilon


def path_loss(law: DiscreteLaplace, decay: int, levels: int = 40) -> float:
    """What one more row reveals by the splits of its path, the most over all counts down the path.

    Counts do not grow down a path, and the row is in each. One less reveals 1 / lambda at the end
    of its path, and above it the opposite.
    """
    counts = np.arange(1, (levels + 1) * decay + levels + 2)
    most: Floats = np.zeros(len(counts))
    for level in reversed(range(levels)):
        after, before = (
            log_splits(law, np.maximum(-decay, rows - level * decay))[0]
            for rows in (counts, counts - 1)
        )
        most = np.maximum.accumulate(most) + after - before
    return float(most.max())


@pytest.mark.parametrize(
    ("fanout", "least"), [(2, 0.68), (4, 0.86), (8, 0.94), (32, 0.98), (256, 0.99)]
)
def test_no_path_reveals_more_than_its_epsilon(fanout: int, least: float) -> None:
    """Check the largest loss of a path of up to 40 levels: trees that deep are too many to list."""
    for split in (Fraction(1, 100), *BUDGETS):
        plan = make_law(fanout, 1, split).plan
        assert least * split < path_loss(plan.split_law, plan.decay) <= split * ROUNDING
        assert 1 / plan.split_law.scale < split


@pytest.mark.parametrize("fanout", [2, 4, 8, 32])
def test_half_the_decay_is_found_along_a_path(fanout: int) -> None:
    plan = make_law(fanout, 1, Fraction(1, 2)).plan
    assert path_loss(plan.split_law, plan.decay // 2) > 1.04 * plan.split_epsilon


def test_the_worst_path_is_that_of_the_trees() -> None:
    for split in BUDGETS:
        law = make_law(4, 2, split)
        assert law.losses[0] == pytest.approx(path_loss(law.plan.split_law, law.plan.decay, 2))
