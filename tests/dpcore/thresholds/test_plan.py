"""Threshold plans: the guarantee by enumeration of all outputs, the sampled law, the keyed noise.

The exact law of all rounds on tiny trees is computed here from the description of the mechanism,
by sums over the noise of the thresholds and products over queries and nodes, not from the code.
Statistical limits have a false-alarm probability of at most 1e-6; the streams are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.thresholds.forest import finding_rounds
from dptrees.dpcore.thresholds.plan import ThresholdPlan, ThresholdRound
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.threshold_questions import calibrated
from tests.dpcore.thresholds.enumerated_law import classification_law, p_value
from tests.dpcore.units import bounded_unit

FALSE_ALARM = 1e-6
RUNS = 4000
TINY = UniformTree(leaves=2, fanouts=(2,))
# Of each node of TINY (root, left, right): the round that finds it, 0 for none.
Outcome = tuple[int, int, int]
Law = dict[Outcome, float]
NODES = ((0, 0), (1, 0), (1, 1))


def one_round(**changes: object) -> ThresholdRound:
    first = ThresholdRound(
        cutoff=1,
        search_epsilon=Fraction(1),
        node_epsilon=Fraction(1),
        delta=Fraction(1, 100),
        tau=30,
        acceptance=24,
        estimate=Fraction(40),
    )
    return replace(first, **changes)  # type: ignore[arg-type]


LOW = one_round()
HIGH = one_round(cutoff=2, tau=70, acceptance=62, estimate=Fraction(90), node_epsilon=Fraction(2))


def make_plan(
    *rounds: ThresholdRound, unit: PrivacyUnit = ADD_REMOVE_ROW, rows: int = 1
) -> ThresholdPlan:
    """A plan that claims just what its rounds spend on a row."""
    k = rows * (2 if unit == SUBSTITUTE_ROW else 1)
    row_epsilon = sum((each.epsilon for each in rounds), Fraction(0))
    row_delta = sum((each.delta for each in rounds), Fraction(0))
    series = sum(math.exp(i * row_epsilon) for i in range(k))
    spare = 1 if k == 1 else Fraction(1 + 1e-9)
    return ThresholdPlan(
        epsilon=k * row_epsilon,
        delta=row_delta * Fraction(series) * spare,
        unit=bounded_unit(unit, rows),
        least=Fraction(5),
        rounds=rounds,
    )


def round_law(
    counts: dict[tuple[int, int], int], each: ThresholdRound, noise_factor: float
) -> dict[frozenset[tuple[int, int]], float]:
    """The probability of every set of TOP nodes of one tree of TINY's nodes: Algorithm 1."""
    scale = noise_factor * 2 * each.cutoff / float(each.search_epsilon)
    return classification_law(
        counts,
        lambda node: (node, (0, 0)),
        cutoff=each.cutoff,
        tau=each.tau,
        acceptance=each.acceptance,
        radius=each.noise.radius,
        node_scale=noise_factor * each.cutoff / float(each.node_epsilon),
        threshold_scale=scale,
        query_scale=scale,
    )


def exact_law(plan: ThresholdPlan, counts: tuple[int, int], *, noise_factor: float = 1.0) -> Law:
    """The probability of every outcome of a plan on the tree of two leaves."""
    weights = dict(zip(NODES, (sum(counts), *counts), strict=True))
    law: Law = {(0, 0, 0): 1.0}
    for number in range(len(plan.rounds), 0, -1):
        each, after = plan.rounds[number - 1], dict[Outcome, float]()
        for found, p in law.items():
            left = {node: weights[node] for node, n in zip(NODES, found, strict=True) if not n}
            # With the root done, each leaf that is left is a tree of its own.
            trees = [left] if (0, 0) in left else [{node: n} for node, n in left.items()]
            laws = [round_law(tree, each, noise_factor) for tree in trees]
            for tops in itertools.product(*(one.items() for one in laws)):
                q = math.prod(chance for _, chance in tops)
                if q > 0:
                    top = frozenset[tuple[int, int]]().union(*(nodes for nodes, _ in tops))
                    outcome = tuple(
                        number if node in top else n for node, n in zip(NODES, found, strict=True)
                    )
                    after[outcome] = after.get(outcome, 0.0) + p * q  # type: ignore[index, arg-type]
        law = after
    return law


def spent(
    plan: ThresholdPlan, one: tuple[int, int], two: tuple[int, int], **planted: float
) -> float:
    """The delta of two data sets at the plan's epsilon, as part of the plan's."""
    laws = [exact_law(plan, counts, **planted) for counts in (one, two)]
    epsilon = float(plan.epsilon)
    worst = max(
        math.fsum(max(0.0, p - math.exp(epsilon) * b.get(o, 0.0)) for o, p in a.items())
        for a, b in (laws, laws[::-1])
    )
    return worst / float(plan.delta)


def starts(plan: ThresholdPlan) -> list[tuple[int, int]]:
    """Counts at the edges where one row makes a node reachable, and others."""
    found = [(0, 0), (25, 24), (200, 3)]
    for each in plan.rounds:
        found += [(each.floor - 1, 3 * each.tau), (each.floor - 1, 0), (each.tau, each.floor - 1)]
    return found


@for_each("rounds", [(LOW,), (HIGH,), (LOW, HIGH)])
def test_all_outputs_of_neighbours_keep_epsilon_and_delta(rounds: tuple) -> None:
    plan = make_plan(*rounds)
    used = [
        spent(plan, (a, b), moved) for a, b in starts(plan) for moved in ((a + 1, b), (a, b + 1))
    ]
    assert 0.05 < max(used) <= 1


def test_the_enumeration_finds_noise_that_is_too_small() -> None:
    plan = make_plan(LOW)
    edge = (LOW.floor - 1, 300), (LOW.floor, 300)
    assert 0.3 < spent(plan, *edge) <= 1
    # A radius 30 % smaller, with the law's ends where they would be then.
    small = replace(LOW, acceptance=LOW.acceptance)
    small.__dict__["noise"] = replace(LOW.noise, radius=round(0.7 * LOW.noise.radius))
    planted = ThresholdPlan(
        epsilon=plan.epsilon, delta=plan.delta, unit=plan.unit, least=Fraction(5),
        rounds=(small,),
    )  # fmt: skip
    assert small.floor != LOW.floor
    assert spent(planted, (small.floor - 1, 300), (small.floor, 300)) > 1
    # A search and looks at 3 tenths of their noise overspend epsilon where delta is tiny.
    tight = make_plan(one_round(delta=Fraction(1, 10**9)))
    place = [((a, 0), (a + 1, 0)) for a in range(10, 40, 3)]
    assert max(spent(tight, *pair) for pair in place) <= 1
    assert max(spent(tight, *pair, noise_factor=0.3) for pair in place) > 1


SMALL = one_round(
    search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2), delta=Fraction(1, 999)
)


def test_all_outputs_of_substitute_neighbours_keep_the_claim() -> None:
    for rows in (1, 2):
        plan = make_plan(SMALL, unit=SUBSTITUTE_ROW, rows=rows)
        edge = SMALL.floor
        used = [
            spent(plan, (a, b), (max(0, a - rows), b + min(rows, a)))
            for a, b in [(edge, 90), (edge + 1, edge - 1), (30, 30), (0, 31)]
        ]
        assert 1e-3 < max(used) <= 1


def test_a_calibrated_plan_keeps_its_claim_by_enumeration() -> None:
    plan = calibrated(
        height=1, epsilon=Fraction(4), delta=Fraction(1, 50), alpha=0.6, root_bound=60
    )
    assert len(plan.rounds) >= 2
    used = [
        spent(plan, (a, b), moved) for a, b in starts(plan) for moved in ((a + 1, b), (a, b + 1))
    ]
    assert 1e-3 < max(used) <= 1


def test_estimates_follow_the_exact_law() -> None:
    plan, counts = make_plan(LOW, HIGH), (24, 44)
    assert plan.estimates.tolist() == [float(plan.least), 40.0, 90.0]
    seen: Counter[Outcome] = Counter()
    for run in range(RUNS):
        levels = finding_rounds(plan, TINY, [np.array(counts)], [public_stream("law", run)])
        root, left, right = np.concatenate(levels, axis=1)[0].tolist()
        seen[root, left, right] += 1
    law = exact_law(plan, counts)
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
    assert sum(p > 0.01 for p in law.values()) >= 4
    assert p_value(seen, law) > FALSE_ALARM
    assert p_value(seen, exact_law(plan, counts, noise_factor=0.7)) < FALSE_ALARM
    for changed in ({"tau": 32}, {"acceptance": 26}):
        planted = make_plan(replace(LOW, **changed), HIGH)  # type: ignore[arg-type]
        assert p_value(seen, exact_law(planted, counts)) < FALSE_ALARM


def test_estimates_never_rise_below_a_node_and_spare_empty_nodes() -> None:
    tree = IrregularTree.from_fanouts([[3], [2, 0, 3], [2, 1, 2, 1, 0]])
    plan, rng = make_plan(LOW, HIGH), np.random.default_rng(3)
    for trial in range(50):
        counts = rng.integers(0, 60, tree.leaves) * rng.integers(0, 2, tree.leaves)
        found = finding_rounds(plan, tree, [counts], [public_stream("tree", trial)])
        levels = [plan.estimates[level[0]] for level in found]
        for level in range(tree.height):
            assert np.all(levels[level + 1] <= tree.to_children(level, levels[level]))
        for exact, estimate in zip(tree.level_counts(counts), levels, strict=True):
            assert np.all(estimate[exact < LOW.floor] == float(plan.least))


def test_a_specification_is_read_back() -> None:
    plan = make_plan(SMALL, unit=SUBSTITUTE_ROW, rows=2)
    assert ThresholdPlan.from_spec(plan.spec()) == plan
    spec = plan.spec()
    spec["epsilon"] = str(plan.epsilon - Fraction(1, 2**80))
    with pytest.raises(ValueError, match="they spend an epsilon"):
        ThresholdPlan.from_spec(spec)


def test_the_least_overspending_is_refused() -> None:
    plan = make_plan(LOW, HIGH)
    for name in ("epsilon", "delta"):
        planted = {name: getattr(plan, name) - Fraction(1, 10**30)}
        with pytest.raises(ValueError, match=f"they spend an? {name}"):
            replace(plan, **planted)  # type: ignore[arg-type]
    # The radius is the least that delta / c allows, so no look may have a smaller one.
    small = replace(LOW)
    small.__dict__["noise"] = replace(LOW.noise, radius=LOW.noise.radius - 1)
    with pytest.raises(ValueError, match="looks at nodes spend more"):
        small._check_spending()


@for_each(
    ("make", "message"),
    [
        (lambda: one_round(cutoff=0), "cutoff is 0"),
        (lambda: one_round(cutoff=Fraction(3, 2)), "cutoff is .*paid for"),
        (lambda: one_round(search_epsilon=Fraction(0)), "search_epsilon is 0"),
        (lambda: one_round(node_epsilon=Fraction(-1)), "node_epsilon is -1"),
        (lambda: one_round(delta=Fraction(0)), "delta is 0"),
        (lambda: one_round(delta=Fraction(1)), "delta is 1"),
        (lambda: one_round(estimate=Fraction(-1)), "estimate is -1"),
        (lambda: one_round(tau=Fraction(3, 2)), "tau is .*integer"),
        (lambda: one_round(acceptance=True), "acceptance is True"),
        (lambda: make_plan(HIGH, LOW), "must rise"),
        (lambda: replace(make_plan(LOW), least=Fraction(-1)), "least is -1"),
        (
            lambda: finding_rounds(
                make_plan(LOW), TINY, [np.array([1, -1])], [public_stream("bad")]
            ),
            "negative",
        ),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
