"""What an adaptive tree loses, over all transcripts: exactly, never above the budget, and no less.

Two ways. The numbers of `Draw` for all noise of a small law, so that what is drawn is the code that
a release runs; and a recursion over the tree with the laws of a plan: the largest ratio of two
likelihoods is, of a node that decides, the larger of two: of being split and of not being split,
and a Renyi divergence sums over both.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.adaptive import plan as drawing
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree
from dptrees.dpcore.uniform.plan import Consistency
from tests.dpcore.adaptive_trees import source
from tests.dpcore.units import bounded_unit

THIRD = Fraction(1, 3)


def make_plan(tree: Shape, *, amounts: list[Fraction], **fields: Any) -> AdaptivePlan:
    chosen = {
        "unit": ADD_REMOVE_ROW,
        "budget": Budget(measure=Measure.EPSILON, amount=sum(amounts, Fraction(0))),
        "thresholds": tuple(range(2, 2 + tree.height)),
    }
    return AdaptivePlan(tree=tree, level_amounts=tuple(amounts), **{**chosen, **fields})


class Enumerated:
    """In place of noise: every combination of small values, one to a row of a chunk of keys."""

    def __init__(self, values: range, variables: int) -> None:
        self.table = np.array(list(itertools.product(values, repeat=variables)), dtype=np.int64)
        self.log_likelihood, self.used = np.zeros(len(self.table)), 0

    def add(self, law: NoiseLaw, counts: Any, stream: object) -> Any:
        noise = self.table[:, self.used : self.used + counts.shape[-1]]
        self.used += counts.shape[-1]
        self.log_likelihood += np.log(law.pmf(noise)).sum(axis=1)
        return counts + noise


def transcripts(
    monkeypatch: pytest.MonkeyPatch, plan: AdaptivePlan, counts: list[int], values: range
) -> dict[bytes, float]:
    """The probability of every transcript of `Draw`, over all noise of these values."""
    sizes = plan.tree.level_sizes
    variables = sum(
        size * sum(law is not None for law in laws)
        for level, size in enumerate(sizes)
        for laws in [(plan.law(level), plan.decision_law(level), plan.last_law(level))]
    )
    noise = Enumerated(values, variables)
    keys, keyed = len(noise.table), replace(plan, keyed=True)
    monkeypatch.setattr(keyed.__class__, "sensitivities", plan.sensitivities)
    monkeypatch.setattr(drawing, "add_noise", noise.add)
    forest = AdaptiveForest(keyed, keys=keys, chunk_leaves=keys * plan.tree.leaves)
    exact = np.tile(np.array(counts, dtype=np.int64), keys)
    numbers = forest.measure("t", forest.chunking[0], exact, source(0))
    monkeypatch.undo()
    assert noise.used == variables
    draws = np.concatenate([each for each in numbers if each is not None], axis=1)
    found: dict[bytes, float] = defaultdict(float)
    for row, weight in zip(draws, np.exp(noise.log_likelihood), strict=True):
        found[row.tobytes()] += weight
    return found


def largest_ratio(one: dict[bytes, float], other: dict[bytes, float]) -> float:
    """Over transcripts that the small noise gives both."""
    return max(abs(math.log(one[each] / other[each])) for each in one.keys() & other.keys())


CODE_CASES: list[tuple[Any, list[int], list[int], range]] = [
    # Values of noise on both sides of each threshold.
    (
        make_plan(UniformTree(leaves=4, fanouts=(2, 2)), amounts=[THIRD, THIRD, THIRD]),
        [1, 1, 1, 0],
        [2, 1, 1, 0],
        range(-1, 2),
    ),
    (
        make_plan(UniformTree(leaves=2, fanouts=(2,)), amounts=[Fraction(1, 4), Fraction(3, 4)]),
        [1, 1],
        [1, 2],
        range(-3, 4),
    ),
    (
        make_plan(
            UniformTree(leaves=2, fanouts=(2,)),
            amounts=[Fraction(1, 4), Fraction(3, 4)],
            decision_part=Fraction(1, 5),
        ),
        [1, 1],
        [1, 2],
        range(-2, 3),
    ),
    (
        make_plan(
            UniformTree(leaves=4, fanouts=(2, 2)),
            amounts=[Fraction(0), THIRD, 2 * THIRD],
            consistency=Consistency.SHRUNK,
        ),
        [1, 1, 1, 0],
        [2, 1, 1, 0],
        range(-1, 2),
    ),
]


@pytest.mark.parametrize(("plan", "one", "other", "values"), CODE_CASES)
def test_what_the_code_draws_loses_the_budget_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
    plan: AdaptivePlan,
    one: list[int],
    other: list[int],
    values: range,
) -> None:
    ratio = largest_ratio(
        transcripts(monkeypatch, plan, one, values), transcripts(monkeypatch, plan, other, values)
    )
    assert ratio == pytest.approx(float(plan.budget.amount), rel=1e-9)


class SpendsTwice(AdaptivePlan):
    """Planted: the second measurement gets the budget of all levels."""

    def last_law(self, level: int) -> NoiseLaw | None:
        whole = self._law(self.budget.amount / self._own(level))
        return whole if level < self.tree.height else None


def test_a_second_measurement_with_the_whole_budget_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, one, other, values = CODE_CASES[1]
    planted = SpendsTwice(**plan.__getstate__())
    ratio = largest_ratio(
        transcripts(monkeypatch, planted, one, values),
        transcripts(monkeypatch, planted, other, values),
    )
    assert ratio > 1.2 * float(plan.budget.amount)


def test_a_decision_by_exact_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _, _, values = CODE_CASES[1]
    shapes = []
    # So far from 0 that a number of 0 was not drawn.
    for counts in ([5, 5], [5, 6]):
        total = sum(counts)
        with monkeypatch.context() as planted:
            planted.setattr(
                drawing,
                "deciding",
                lambda numbers, depth, total=total: np.full_like(numbers[0], total),
            )
            found = transcripts(planted, replace(plan, thresholds=(11,)), counts, values)
        shapes.append(set(found))
    # No transcript of one is one of the other: the loss is infinite.
    assert not shapes[0] & shapes[1]


class Recursion:
    """Over the tree: log of the largest ratio (order infinite), or of E_Q (P / Q)^order."""

    def __init__(self, plan: AdaptivePlan, order: float, reach: int = 400) -> None:
        self.plan, self.order = plan, order
        self.outputs = np.arange(-reach, reach + 1)
        self._known: dict[tuple[object, ...], float] = {}

    def total(self, one: Any, other: Any) -> float:
        """Return the recursion's result for two vectors of leaf counts."""
        tree = self.plan.tree
        pairs = list(zip(tree.level_counts(one), tree.level_counts(other), strict=True))
        return self._node(pairs, 0, 0, 0)

    def _node(self, pairs: Any, level: int, node: int, chain: int) -> float:
        plan, tree = self.plan, self.plan.tree
        here = int(pairs[level][0][node]), int(pairs[level][1][node])
        if level == tree.height:
            law = plan.law(level, chain)
            assert law is not None
            return self._part(law, here)
        children = tree.children(level, node)
        chained = len(children) == 1 and isinstance(tree, IrregularTree)
        below = sum(
            self._node(pairs, level + 1, child, chain + 1 if chained else 0) for child in children
        )
        law, decision = plan.law(level, chain), plan.decision_law(level, chain)
        if chained or law is None:
            return below
        last = plan.last_law(level)
        assert last is not None
        again, threshold = self._part(last, here), plan.thresholds[level]
        deciding = decision or law
        split = self._part(deciding, here, (threshold, math.inf)) + below
        kept = self._part(deciding, here, (-math.inf, threshold)) + again
        either = max(split, kept) if math.isinf(self.order) else float(np.logaddexp(split, kept))
        return either + (self._part(law, here) if decision else 0.0)

    def _part(
        self,
        law: NoiseLaw,
        here: tuple[int, int],
        between: tuple[float, float] = (-math.inf, math.inf),
    ) -> float:
        """Over the outputs of one number from a bound to below another one."""
        known = (law, here, between)
        if known not in self._known:
            self._known[known] = self._summed(*known)
        return self._known[known]

    def _summed(self, law: NoiseLaw, here: tuple[int, int], between: tuple[float, float]) -> float:
        outputs = self.outputs + here[0]
        kept = outputs[(outputs >= between[0]) & (outputs < between[1])]
        both = [law.pmf(kept - each) for each in here]
        # Beyond float64 nothing is left of either.
        log_p, log_q = (np.log(each[(both[0] > 0) & (both[1] > 0)]) for each in both)
        if math.isinf(self.order):
            return float((log_p - log_q).max(initial=-math.inf))
        terms = self.order * log_p + (1 - self.order) * log_q
        return float(np.logaddexp.reduce(terms)) if terms.size else -math.inf


def neighbors(unit: PrivacyUnit, leaves: int, base: Any) -> list[tuple[Any, Any]]:
    """Return all neighboring pairs that one unit with at most its number of rows, in one tree,
    makes."""
    moved = [
        np.bincount(np.array(rows, dtype=np.int64), minlength=leaves)
        for size in range(unit.rows + 1)
        for rows in itertools.combinations_with_replacement(range(leaves), size)
    ]
    if unit.substitutes:
        pairs = [(base + one, base + other) for one in moved for other in moved]
    else:
        pairs = [(base, base + one) for one in moved]
    return [pair for one, other in pairs for pair in ((one, other), (other, one))]


TREES: list[Shape] = [
    UniformTree(leaves=3, fanouts=(3,)),
    UniformTree(leaves=4, fanouts=(2, 2)),
    UniformTree(leaves=3, fanouts=(2, 2)),
    IrregularTree.from_fanouts([[2], [1, 2]]),
    IrregularTree.from_fanouts([[1], [2], [1, 2]]),
]


# How many rows a unit has at most, and the part of a budget with which decisions are apart.
ROWS_AND_PARTS = list(itertools.product((1, 2), (Fraction(0), Fraction(1, 5))))


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.level_sizes))
@pytest.mark.parametrize("relation", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=["add", "substitute"])
def test_pure_epsilon_is_kept_and_used(tree: Shape, relation: PrivacyUnit) -> None:
    amounts = [Fraction(each, 10) for each in (2, 3, 4, 1)[: tree.height + 1]]
    used = 0.8 if relation.substitutes else 1.0
    for rows, part in ROWS_AND_PARTS:
        unit = bounded_unit(relation, rows)
        plan = make_plan(tree, amounts=amounts, unit=unit, decision_part=part)
        recursion, budget = Recursion(plan, math.inf, reach=30), float(plan.budget.amount)
        pairs = neighbors(plan.unit, tree.leaves, np.array([0, 3, 1, 0][: tree.leaves]))
        loss = max(recursion.total(*pair) for pair in pairs)
        assert used * budget * (1 - 1e-9) <= loss <= budget * (1 + 1e-9), (rows, part)


@pytest.mark.parametrize("tree", TREES[:4], ids=lambda tree: str(tree.level_sizes))
@pytest.mark.parametrize("relation", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=["add", "substitute"])
def test_rho_is_kept_and_used(tree: Shape, relation: PrivacyUnit) -> None:
    amounts = [Fraction(each, 100) for each in (2, 3, 4, 1)[: tree.height + 1]]
    budget = Budget(measure=Measure.RHO, amount=sum(amounts, Fraction(0)))
    for rows, part in ROWS_AND_PARTS:
        unit = bounded_unit(relation, rows)
        plan = make_plan(tree, amounts=amounts, unit=unit, decision_part=part, budget=budget)
        rho, used = float(budget.amount), 0.0
        pairs = neighbors(plan.unit, tree.leaves, np.array([0, 3, 1, 0][: tree.leaves]))
        for order in (1.5, 8.0):
            recursion = Recursion(plan, order)
            for pair in pairs:
                divergence = recursion.total(*pair) / (order - 1)
                assert divergence <= order * rho * (1 + 1e-9)
                used = max(used, divergence / (order * rho))
        assert used > (0.75 if relation.substitutes else 1 - 1e-6), (rows, part)


def test_rows_under_several_keys() -> None:
    """A unit of 3 rows, at most 2 of them under a key, moves two trees: losses add up."""
    unit = replace(bounded_unit(ADD_REMOVE_ROW, 3), keys=2, rows_per_key=2)
    amounts = [Fraction(2, 10), Fraction(3, 10), Fraction(5, 10)]
    tree, base = UniformTree(leaves=4, fanouts=(2, 2)), np.array([0, 3, 1, 0])
    for measure in Measure:
        plan = make_plan(
            tree,
            amounts=amounts,
            unit=unit,
            keyed=True,
            budget=Budget(measure=measure, amount=Fraction(1)),
        )
        order = math.inf if measure is Measure.EPSILON else 2.0
        most = {
            rows: max(
                Recursion(plan, order, reach=60).total(*pair)
                for pair in neighbors(bounded_unit(ADD_REMOVE_ROW, rows), 4, base)
            )
            for rows in (1, 2)
        }
        bound = 1.0 if measure is Measure.EPSILON else order * (order - 1)
        assert most[1] + most[2] == pytest.approx(bound, rel=1e-6)
