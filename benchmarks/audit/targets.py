"""Tiny releases to attack, one of each kind: two neighboring data sets, and what is claimed.

The second data set has one row more. The trees are made so that what is released loses nearly all
that is claimed, for else no attack could detect noise that is too small: a level, or the levels of
counts that are read as measured, and few leaves.

Of a series what is read is all that both releases publish, of a wide table the noisy counts of its
one pair of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from scipy import stats

from benchmarks.audit.published import OBJECTIVE, claiming, threshold_plan
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.exponential.mechanism import ExponentialMechanism
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.question import ExponentialQuestion
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism
from dptrees.dpcore.factorised.plan import FactorizedPlan
from dptrees.dpcore.factorised.planner import listed_tree, plan_strategy
from dptrees.dpcore.factorised.read import Read
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes, universe_from_paths
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.irregular.planner import with_equal_shares
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.levels.thresholds import ThresholdMechanism
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.growth import GrowthRule
from dptrees.dpcore.partitions.plan import Holding, LevelSketches, PartitionPlan
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import STATE, Place
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.in_memory import release_counts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.release import ReleaseReader
from dptrees.dpcore.rows.sums import MeasureColumn
from dptrees.dpcore.selection.key_columns import KeyColumns
from dptrees.dpcore.selection.plan import SelectionPlan, counted_once
from dptrees.dpcore.selection.question import SelectionQuestion
from dptrees.dpcore.series.carried_counts import CarriedCounts
from dptrees.dpcore.series.linear import scaled
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.temporal import TemporalTree
from dptrees.dpcore.sketches.shape import SketchKind, SketchShape
from dptrees.dpcore.sparse.labels import PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.noisy_sums import NoisySum
from dptrees.dpcore.table.question import TableQuestion
from dptrees.dpcore.thresholds.forest import TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdRound
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.plan import Consistency, TreePlan
from dptrees.dpcore.unit_bounds.plan import BoundPlan
from dptrees.dpcore.unit_bounds.question import BoundOf, BoundQuestion


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a release claims.

    Args:
        measure: "epsilon" or "rho".
        amount: of it.
        delta: beside an epsilon; 0 without.
    """

    measure: str
    amount: Fraction
    delta: Fraction = Fraction(0)

    def lower_bound(self, likelier: float, unlikelier: float) -> float:
        """What is lost at least, if an event has at least the one probability on one data set and
        at most the other on its neighbor.

        An epsilon from P <= exp(epsilon) Q + delta. A rho as of Gaussian noise: if some event has P
        and Q under two normal laws, these are mu = z(P) - z(Q) apart or more, and rho = mu^2 / 2
        (Dong, Roth, Su 2022, Section 2).

        >>> round(Claim(measure="epsilon", amount=Fraction(1)).lower_bound(0.6, 0.2), 3)
        1.099
        >>> round(Claim(measure="rho", amount=Fraction(1)).lower_bound(0.8413, 0.1587), 2)
        2.0
        """
        if self.measure == "rho":
            apart = float(stats.norm.ppf(likelier) - stats.norm.ppf(unlikelier))
            return max(0.0, apart) ** 2 / 2
        gained = likelier - float(self.delta)
        return max(0.0, math.log(gained / unlikelier)) if gained > 0 else 0.0

    def __str__(self) -> str:
        beside = f", delta {float(self.delta):g}" if self.delta else ""
        return f"{self.measure} {float(self.amount):g}{beside}"


NAME = "tree"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A release and two data sets.

    Args:
        plan: the release.
        claim: what it claims.
        one, two: the exact counts of the leaves; of a sparse tree by the path of the leaf, of a box
            by the code of the cell.
        read: the released numbers of a release, as many for each.
        cost: of how many times fewer releases than of others it is judged, as they take longer.
    """

    plan: ReleasePlan
    claim: Claim
    one: Mapping[Any, int] | tuple[int, ...]
    two: Mapping[Any, int] | tuple[int, ...]
    read: Callable[[ReleaseReader], Floats] = field(repr=False)
    cost: int = 1

    def released(self, which: str, key: ReleaseKey) -> Floats:
        """Return the released numbers of one release of a data set.

        Args:
            which: as for `data`.
            key: the release key, which no other release has.
        """
        return self.read(release_counts(plan=self.plan, key=key, **self.data(which)))

    def data(self, which: str) -> dict[str, Any]:
        """The arguments of `release_counts` for a data set.

        Args:
            which: "one", "two", or "twice": as two, but with the row that one lacks twice.
        """
        if isinstance(self.one, tuple):
            assert isinstance(self.two, tuple)
            one, two = (np.array(counts, np.int64) for counts in (self.one, self.two))
            counts = {"one": one, "two": two, "twice": 2 * two - one}[which]
            return {"counts": {NAME: counts}}
        assert not isinstance(self.two, tuple)
        doubled = {path: 2 * n - self.one.get(path, 0) for path, n in self.two.items()}
        chosen = {"one": self.one, "two": self.two, "twice": doubled}[which]
        return {"counts": {NAME: node_counts(chosen)}}


def node_counts(counts: Mapping[Any, int]) -> NodeCounts:
    """Return the exact counts of nodes by their labels or codes."""
    keys = sorted(counts)
    return NodeCounts(
        keys=pa.array(keys, pa.large_string() if isinstance(keys[0], str) else pa.uint64()),
        counts=np.array([counts[key] for key in keys], np.int64),
    )


PERIODS = 2


@dataclass(frozen=True, kw_only=True)
class SeriesTarget(Target):
    """A series whose first period has the rows of a data set, and whose second has none.

    Args:
        plan: the tree as one release, whose budget becomes that of the series.
    """

    @cached_property
    def runs(self) -> tuple[ReleasePlan, ...]:
        """The plan of each period: the budget in equal parts for each temporal level."""
        temporal = TemporalTree.from_fanout(PERIODS, 2)
        (tree,) = self.plan.questions
        assert isinstance(tree, TreeQuestion)
        own = replace(self.plan.budget, amount=self.plan.budget.amount / len(temporal.spans))
        levels = [scaled(tree, own) for _ in temporal.spans]
        return tuple(
            replace(
                self.plan, questions=(SeriesQuestion.from_trees(temporal, period, levels, NAME),)
            )
            for period in range(1, PERIODS + 1)
        )

    def released(self, which: str, key: ReleaseKey) -> Floats:
        counts = self.data(which)["counts"][NAME]
        carried: dict[Place, list[bytes]] = {}
        numbers = []
        for period, plan in enumerate(self.runs, start=1):
            given = CarriedCounts(period=counts, carried=carried)
            made = release_counts(plan, {NAME: given}, key, nonce=bytes([period]))
            numbers.append(self.read(made))
            carried, counts = _carried(made, key, period), np.zeros_like(counts)
        return np.concatenate(numbers)


def _carried(made: ReleaseReader, key: ReleaseKey, period: int) -> dict[Place, list[bytes]]:
    """Return the exact counts that a run hands to the next one, as only the key can open them."""
    (question,) = made.plan.questions
    assert isinstance(question, SeriesQuestion)
    name = made.plan.name
    return {
        place: [
            question.opened(
                place,
                made._read(STATE, NAME, *place)["sealed"][0].as_py(),
                key,
                name,
                bytes([period]),
            )
        ]
        for place in question.places
        if question.temporal.carried(period)
    }


# Rows of cells (0, 0), (0, 1), (1, 0) and (1, 1): so dependent that the pair is chosen for sure.
_ROWS = (4000, 3, 2, 4000)
# A model is fitted in each release, which takes longer than other releases do.
COST = 3


@dataclass(frozen=True, kw_only=True)
class TableTarget(Target):
    """A wide table of two columns of two cells each.

    Args:
        one, two: the rows of every cell of the pair.
    """

    def released(self, which: str, key: ReleaseKey) -> Floats:
        # Intervals follow from the laws alone, and to compute them takes half of the time.
        with patch.object(NoisySum, "half_width", lambda self, confidence: 0.0):
            return super().released(which, key)

    def data(self, which: str) -> dict[str, Any]:
        joint = super().data(which)["counts"][NAME].reshape(2, 2)
        counts = np.concatenate([joint.sum(axis=1), joint.sum(axis=0), joint.reshape(-1)])
        return {"counts": {NAME: counts}}


def wide_table(budget: Budget) -> TableTarget:
    """Nearly all of the budget is spent on the pair, and a row more in one of its cells."""
    axes = tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y"))
    domain = TableDomain(axes=axes)
    plan = MarginalsPlan(
        shape=domain.shape,
        unit=ADD_REMOVE_ROW,
        budget=budget,
        column_amount=budget.amount / 80,
        choice_amount=budget.amount / 40,
        pair_amount=budget.amount * Fraction(19, 20),
    )
    question = TableQuestion(name=NAME, domain=domain, plan=plan)
    return TableTarget(
        plan=ReleasePlan(name="r", unit=plan.unit, budget=budget, questions=(question,)),
        claim=Claim(measure=budget.measure.value, amount=budget.amount),
        one=_ROWS,
        two=(_ROWS[0], _ROWS[1] + 1, *_ROWS[2:]),
        read=_read_pair,
        cost=COST,
    )


def _read_pair(release: ReleaseReader) -> Floats:
    """The noisy counts of the pair; -1 where it is not measured."""
    pair = release._read("nodes", NAME, 0, 2)
    noisy = dict(zip(pair["node"].to_pylist(), pair["estimate"].to_pylist(), strict=True))
    return np.array([noisy.get(node, -1.0) for node in range(4, 8)])


# Exact counts of a box are in many shards, whatever their number.
BOX_COST = 3
ADD_REMOVE = ADD_REMOVE_ROW
ONE = Fraction(1)


def _read_nodes(release: ReleaseReader) -> Floats:
    """The estimates and the integers of all nodes."""
    table = release._read("nodes", NAME, 0, 0)
    return np.concatenate([table["estimate"].to_numpy(), table["count"].to_numpy()])


def _read_quantile(release: ReleaseReader) -> Floats:
    """The value of the one quantile."""
    table = release.quantiles
    assert table is not None
    return np.array([table["value"][0].as_py()])


def _read_published(release: ReleaseReader) -> Floats:
    """The estimates of the root and of the nodes a and b; -1 where one is not published."""
    root, level = (release._read("nodes", NAME, 0, number) for number in (0, 1))
    shown = dict(zip(level["label"].to_pylist(), level["estimate"].to_pylist(), strict=True))
    return np.array([root["estimate"][0].as_py(), shown.get("a", -1), shown.get("b", -1)])


def _read_box(release: ReleaseReader) -> Floats:
    """The estimates of the nodes of a box of two bits; -1 of those that were not looked at."""
    shown = np.full(7, -1.0)
    for depth in (0, 1, 2):
        if depth in release.plan.question(NAME).plan.depths:  # type: ignore[attr-defined]
            table = release._read("nodes", NAME, 0, depth)
            shown[2**depth - 1 + table["node"].to_numpy()] = table["estimate"].to_numpy()
    return shown


def _read_divided(release: ReleaseReader) -> Floats:
    """The estimates of the nodes, and which of them were not split."""
    table = release.part("nodes", NAME, 0, 0)
    ended = table["ended"].fill_null(-1).to_numpy()
    return np.concatenate([table["estimate"].to_numpy(), ended])


def _read_averaged(release: ReleaseReader) -> Floats:
    """The estimates of the nodes, their averaged counts, and which of them were not split."""
    counts = release.part("nodes", NAME, 0, 0)["count"].to_numpy()
    return np.concatenate([_read_divided(release), counts])


def _read_counted_box(release: ReleaseReader) -> Floats:
    """The estimates of the nodes of a box of two bits, and the averaged counts."""
    shown = np.full(7, -1.0)
    for depth in (0, 1, 2):
        table = release._read("nodes", NAME, 0, depth)
        shown[2**depth - 1 + table["node"].to_numpy()] = table["count"].to_numpy()
    return np.concatenate([_read_box(release), shown])


def _read_bound(release: ReleaseReader) -> Floats:
    """The chosen bound."""
    return release._read("nodes", NAME, 0, 0)["max_rows"].to_numpy().astype(np.float64)


def _read_key(release: ReleaseReader) -> Floats:
    """1 where the key a is released, else 0."""
    released = release._read("nodes", NAME, 0, 0)
    return np.array([float("a" in released["key"].to_pylist())])


def _of_budget(
    question: Question, read: Callable[[ReleaseReader], Floats] = _read_nodes, **data: Any
) -> Target:
    budget, unit = question.budget, question.unit  # type: ignore[attr-defined]
    assert budget is not None
    plan = ReleasePlan(name="r", unit=unit, budget=budget, questions=(question,))
    claim = Claim(measure=budget.measure.value, amount=budget.amount)
    return Target(plan=plan, claim=claim, read=read, **data)


def _ordered(
    budget: Budget,
    fanouts: tuple[int, ...],
    *shares: Fraction,
    unit: PrivacyUnit = ADD_REMOVE,
) -> Target:
    """A tree to which one unit more adds as many rows as are counted of it."""
    plan = TreePlan(
        tree=UniformTree(leaves=math.prod(fanouts), fanouts=fanouts),
        unit=unit,
        budget=budget,
        level_amounts=tuple(share * budget.amount for share in shares),
    )
    domain = IntegerDomain(column="value", lower=0, upper=plan.tree.leaves)
    one = (3, 1, 0, 2)[: plan.tree.leaves]
    return _of_budget(
        OrderedQuestion(name=NAME, domain=domain, mechanism=UniformMechanism(plan=plan)),
        one=one,
        two=(one[0], one[1] + unit.rows, *one[2:]),
    )


def _series() -> SeriesTarget:
    """Two periods, each measured by itself and both together; a row more in the first."""
    tree = _ordered(_EPSILON, (3,), Fraction(0), ONE)
    return SeriesTarget(**{**vars(tree), "cost": 2})


def _private_keys() -> Target:
    """A key of one unit or of two, where the optimal decision loses all of its epsilon."""
    epsilon, delta = ONE, Fraction(1, 20)
    plan = SelectionPlan(unit=counted_once(_PERSON), epsilon=epsilon, delta=delta)
    domain = KeyColumns(columns=("key",), types=("text",))
    question = SelectionQuestion(name=NAME, domain=domain, plan=plan, shards=1)
    return Target(
        plan=ReleasePlan(
            name="r",
            unit=plan.unit,
            budget=Budget(measure=Measure.EPSILON, amount=epsilon),
            questions=(question,),
            stated=(epsilon, delta),
        ),
        claim=Claim(measure="epsilon", amount=epsilon, delta=delta),
        one={"a": 1},
        two={"a": 2},
        read=_read_key,
    )


def _factorized(budget: Budget) -> Target:
    """Three cells that are measured by the best strategy for prefixes."""
    plan = FactorizedPlan(
        tree=listed_tree(3),
        unit=ADD_REMOVE,
        budget=budget,
        strategy=plan_strategy(3, Read(kind="cdf")),
    )
    domain = IntegerDomain(column="value", lower=0, upper=3)
    question = OrderedQuestion(name=NAME, domain=domain, mechanism=FactorizedMechanism(plan=plan))
    return _of_budget(question, one=(3, 1, 0), two=(3, 2, 0))


def _quantile(budget: Budget) -> Target:
    """A median below which lie most cells, without rows, just as far as the likely ones above: one
    row more moves the wanted rank away from those below, and towards those above. What is likely
    is so by the number of such cells, so that nearly all is lost by an event of some percent."""
    one = (5, *(0,) * 1000, 1, *(0,) * 20, 1, *(0,) * 100, 4)
    domain = IntegerDomain(column="value", lower=0, upper=len(one))
    plan = ExponentialPlan(
        cells=len(one), unit=ADD_REMOVE, budget=budget, quantiles=(Fraction(1, 2),)
    )
    question = ExponentialQuestion(
        name=NAME, domain=domain, mechanism=ExponentialMechanism(plan=plan), quantiles=(0.5,)
    )
    return _of_budget(question, _read_quantile, one=one, two=(*one[:-1], 5))


def _adaptive(budget: Budget, decision_part: Fraction, *, averaged: bool = False) -> Target:
    """Two halves; one more row in the first may divide it. Nearly all is lost by the counts of the
    halves, by whether they were divided and by the cells. Averaged counts are read besides."""
    plan = AdaptivePlan(
        tree=UniformTree(leaves=4, fanouts=(2, 2)),
        unit=ADD_REMOVE,
        budget=budget,
        level_amounts=(Fraction(0), budget.amount / 2, budget.amount / 2),
        thresholds=(0, 3),
        decision_part=decision_part,
    )
    domain = IntegerDomain(column="value", lower=0, upper=4)
    consistency = Consistency.AVERAGED if averaged else Consistency.TOP_DOWN
    mechanism = AdaptiveMechanism(plan=plan, consistency=consistency)
    question = OrderedQuestion(name=NAME, domain=domain, mechanism=mechanism)
    read = _read_averaged if averaged else _read_divided
    return _of_budget(question, read, one=(2, 1, 0, 0), two=(3, 1, 0, 0))


def _hierarchy(budget: Budget, measure: MeasureColumn | None = None) -> Target:
    """Two levels of counts that are read as they were measured."""
    universe = universe_from_codes(pa.array(["0", "1", "2"]), (1,))
    domain = HierarchyDomain(universe=universe, columns=("code",))
    sensitivities = ()
    if measure is not None:
        sensitivities = sum_sensitivities(
            domain.tree.shape, ADD_REMOVE, lower=measure.lower, upper=measure.upper
        )
    plan = IrregularPlan(
        tree=domain.tree.shape, unit=ADD_REMOVE, budget=budget, sensitivities=sensitivities
    )
    question = HierarchyQuestion(
        name=NAME,
        domain=domain,
        mechanism=IrregularMechanism(plan=with_equal_shares(plan), estimation="none"),
        measure=measure,
    )
    added = 1 if measure is None else measure.lower
    return _of_budget(question, one=(2, 1, 3), two=(2, 1 + added, 3))


def _adaptive_hierarchy() -> Target:
    """A decision that costs little, at the very limit, and what is measured after it: the leaves,
    or the root once more."""
    universe = universe_from_codes(pa.array(["0", "1", "2"]), (1,))
    domain = HierarchyDomain(universe=universe, columns=("code",))
    plan = AdaptivePlan(
        tree=domain.tree.shape,
        unit=ADD_REMOVE,
        budget=_EPSILON,
        level_amounts=(ONE / 20, 19 * ONE / 20),
        thresholds=(7,),
    )
    question = HierarchyQuestion(name=NAME, domain=domain, mechanism=AdaptiveMechanism(plan=plan))
    return _of_budget(question, one=(2, 1, 3), two=(2, 2, 3))


def _thresholds() -> Target:
    """A search that costs little, and a look at nodes of the count that is accepted."""
    universe = universe_from_paths(pa.array(["a", "b"]), "/")
    domain = HierarchyDomain(universe=universe, columns=("path",))
    searched = ThresholdRound(
        cutoff=1,
        search_epsilon=Fraction(1, 20),
        node_epsilon=Fraction(19, 20),
        delta=Fraction(1, 10**6),
        tau=-200,  # so low that nearly every search ends with a look
        acceptance=6,
        estimate=Fraction(10),
    )
    plan = TreeThresholds(tree=domain.tree.shape, thresholds=claiming((searched,), ADD_REMOVE))
    question = HierarchyQuestion(
        name=NAME, domain=domain, mechanism=ThresholdMechanism(plan=plan, objective=OBJECTIVE)
    )
    epsilon, delta = question.spending.own
    return Target(
        plan=threshold_plan(question),
        claim=Claim(measure="epsilon", amount=epsilon, delta=delta),
        one=(5, 0),
        two=(6, 0),
        read=_read_nodes,
    )


def _sparse() -> Target:
    """Nodes of more rows than the threshold, so that their noisy counts are seen."""
    delta = Fraction(1, 10**4)
    domain = PathDomain(column="path", depth=1)
    plan = plan_sparse(domain.names, ONE, delta, ADD_REMOVE, root_weight=Fraction(1, 256))
    question = SparseQuestion(name=NAME, domain=domain, plan=plan, shards=1)
    return Target(
        plan=ReleasePlan(
            name="r",
            unit=ADD_REMOVE,
            budget=Budget(measure=Measure.EPSILON, amount=ONE),
            questions=(question,),
            stated=(ONE, delta),
        ),
        claim=Claim(measure="epsilon", amount=ONE, delta=delta),
        one={"a": 20, "b": 3},
        two={"a": 21, "b": 3},
        read=_read_published,
    )


def _box(
    holding: Holding,
    depths: tuple[int, ...] = (0, 2),
    shares: tuple[Fraction, ...] = (Fraction(0), ONE),
    *,
    measure: Measure = Measure.EPSILON,
    most: int = 4,
) -> Target:
    """Two columns of two cells each, whose cells are codes of two bits."""
    axes = tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y"))
    shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=1, width=16)
    sketches = LevelSketches(shape=shape, counters=0) if holding is Holding.SKETCH else None
    budget = _EPSILON if measure is Measure.EPSILON else _RHO
    plan = PartitionPlan(
        depths=depths,
        amounts=tuple(share * budget.amount for share in shares),
        measure=measure,
        unit=ADD_REMOVE,
        rule=GrowthRule(most=most),
        holding=holding,
        sketches=sketches,
    )
    domain = HypercubeDomain(axes=axes, depths=(1, 1))
    question = HypercubeQuestion(name=NAME, domain=domain, plan=plan)
    # Of the halves the first has by far the most rows, so that it is split.
    found = _of_budget(question, _read_box, one={0: 300, 1: 2, 3: 5}, two={0: 300, 1: 3, 3: 5})
    return found if sketches else replace(found, cost=BOX_COST)


def _adaptive_box(*, averaged: bool = False) -> Target:
    """The same columns; of the halves the first is split, and nearly all of the budget is spent on
    its cells, or on the other half, which is measured again."""
    axes = tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y"))
    plan = AdaptivePartitionPlan(
        depths=(0, 1, 2),
        amounts=(Fraction(0), ONE / 20, 19 * ONE / 20),
        thresholds=(0, 150),
        most=2,
        measure=Measure.EPSILON,
        unit=ADD_REMOVE,
        averaged=averaged,
    )
    domain = HypercubeDomain(axes=axes, depths=(1, 1))
    question = HypercubeQuestion(name=NAME, domain=domain, plan=plan)
    read = _read_counted_box if averaged else _read_box
    found = _of_budget(question, read, one={0: 300, 1: 2, 3: 5}, two={0: 300, 1: 2, 3: 6})
    return replace(found, cost=BOX_COST)


def _bound(budget: Budget) -> Target:
    """A bound of three that are nearly the same. One unit more has more rows than the first of
    them, which is then less likely by as much as the choice may lose."""
    plan = BoundPlan(unit=_PERSON, budget=budget, sizes=(100, 101, 102), tolerated=Fraction(0))
    question = BoundQuestion(name=NAME, of=BoundOf.ROWS, plan=plan)
    return _of_budget(question, _read_bound, one=(9, 0, 0, 0), two=(9, 1, 0, 0))


_EPSILON = Budget(measure=Measure.EPSILON, amount=ONE)
_RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
_PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",))
TARGETS: dict[str, Callable[[], Target]] = {
    "ordered, epsilon": lambda: _ordered(_EPSILON, (3,), Fraction(0), ONE),
    "ordered, rho": lambda: _ordered(_RHO, (2, 2), Fraction(0), ONE / 2, ONE / 2),
    "units of three rows": lambda: _ordered(
        _EPSILON, (3,), Fraction(0), ONE, unit=replace(_PERSON, rows=3)
    ),
    "series": _series,
    "private keys": _private_keys,
    "factorised": lambda: _factorized(_RHO),
    "quantile": lambda: _quantile(Budget(measure=Measure.EPSILON, amount=7 * ONE / 4)),
    "adaptive, decided apart": lambda: _adaptive(_EPSILON, ONE / 5),
    "adaptive, for counts": lambda: _adaptive(_EPSILON, Fraction(0)),
    "hierarchy": lambda: _hierarchy(_EPSILON),
    "signed sums": lambda: _hierarchy(_EPSILON, MeasureColumn(column="amount", lower=-5, upper=3)),
    "adaptive hierarchy": _adaptive_hierarchy,
    "thresholds": _thresholds,
    "sparse": _sparse,
    "box, dense": lambda: _box(Holding.DENSE, measure=Measure.RHO),
    "box, noise where looked at": lambda: _box(
        Holding.SPARSE, (0, 1, 2), (Fraction(0), ONE / 20, 19 * ONE / 20), most=1
    ),
    "box, sketch": lambda: _box(Holding.SKETCH),
    "box, adaptive": _adaptive_box,
    "adaptive, averaged counts": lambda: _adaptive(_EPSILON, Fraction(0), averaged=True),
    "box, adaptive, averaged counts": lambda: _adaptive_box(averaged=True),
    "wide table": lambda: wide_table(_EPSILON),
    "bound of a unit": lambda: _bound(Budget(measure=Measure.EPSILON, amount=3 * ONE / 2)),
}
