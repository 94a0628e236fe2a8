"""Sparse plans: the guarantee by enumeration of all outputs, the split of the budget, bad input."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.sparse.plan import SparseLevel, SparsePlan, plan_sparse, pure_epsilon_refusal
from tests.dpcore.refusals import check_refusals
from tests.dpcore.units import bounded_unit

ADD_REMOVE, SUBSTITUTE = ADD_REMOVE_ROW, SUBSTITUTE_ROW
ROUNDING = 1e-12


def one_level(
    unit: PrivacyUnit, epsilon: object, delta: object, rows: int = 1
) -> tuple[TruncatedLaplace, int]:
    """The noise and the threshold of a level at this budget."""
    plan = SparsePlan(
        levels=(
            SparseLevel(name="root", epsilon=Fraction(1), delta=Fraction(1, 100)),
            SparseLevel(name="nodes", epsilon=Fraction(epsilon), delta=Fraction(delta)),
        ),
        unit=bounded_unit(unit, rows),
    )
    law, threshold = plan.law(1), plan.threshold(1)
    assert law is not None and threshold is not None
    return law, threshold


def outputs(law: TruncatedLaplace, threshold: int | None, count: int, most: int) -> np.ndarray:
    """The law of what is published of a node: nothing at all, or a noisy count up to `most`.

    It is that of the mechanism as it runs: below the root a node without rows is left out.
    """
    if threshold is not None and count == 0:
        return np.eye(1, most + 2 + law.radius)[0]
    z = np.arange(-law.radius, law.radius + 1)
    p = law.pmf(z)
    seen = np.full(z.size, True) if threshold is None else count + z > threshold
    found = np.zeros(most + 2 + law.radius)
    found[0] = p[~seen].sum()
    np.add.at(found, 1 + law.radius + (count + z)[seen], p[seen])
    return found


def divergence(p: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The delta with which two laws keep epsilon, in one direction."""
    return math.fsum(np.maximum(0.0, p - math.exp(epsilon) * other).ravel())


def joint(law: TruncatedLaplace, threshold: int, counts: tuple[int, ...], most: int) -> np.ndarray:
    """The law of what is published of several nodes."""
    found = np.ones(())
    for count in counts:
        found = np.multiply.outer(found, outputs(law, threshold, count, most))
    return found


def neighbor_changes(unit: PrivacyUnit, nodes: int, rows: int) -> list[tuple[int, ...]]:
    """How the counts of a level may change with one unit of so many rows at most."""
    every = itertools.product(range(-rows, rows + 1), repeat=nodes)
    if unit is ADD_REMOVE:
        return [c for c in every if sum(c) <= rows and min(c) >= 0]
    return [
        c
        for c in every
        if sum(x for x in c if x > 0) <= rows and -sum(x for x in c if x < 0) <= rows
    ]


def worst_delta(
    law: TruncatedLaplace, threshold: int, unit: PrivacyUnit, epsilon: float, rows: int = 1
) -> float:
    """The largest delta over all pairs of neighboring levels of two nodes that matter."""
    reach = 2 * law.radius + rows + 1
    # Counts near 0, near the threshold, and beyond where anything is suppressed.
    starts = sorted({*range(rows + 2), threshold, threshold + 1, reach})
    most, worst = reach + rows + law.radius, 0.0
    for counts in itertools.product(starts, repeat=2):
        before = joint(law, threshold, counts, most)
        for change in neighbor_changes(unit, 2, rows):
            moved = tuple(np.add(counts, change).tolist())
            if min(moved) >= 0:
                after = joint(law, threshold, moved, most)
                worst = max(
                    worst, divergence(before, after, epsilon), divergence(after, before, epsilon)
                )
    return worst


BUDGETS = [
    (ADD_REMOVE, 1, Fraction(1, 20), 1),
    (ADD_REMOVE, Fraction(1, 2), Fraction(1, 10), 1),
    (ADD_REMOVE, 1, Fraction(1, 10), 2),
    (SUBSTITUTE, 1, Fraction(1, 10), 1),
    (SUBSTITUTE, 2, Fraction(1, 50), 1),
    (SUBSTITUTE, 2, Fraction(1, 5), 2),
]


@pytest.mark.parametrize(("unit", "epsilon", "delta", "rows"), BUDGETS)
def test_a_level_keeps_its_epsilon_and_delta(
    unit: PrivacyUnit, epsilon: Fraction, delta: Fraction, rows: int
) -> None:
    law, threshold = one_level(unit, epsilon, delta, rows)
    assert worst_delta(law, threshold, unit, float(epsilon), rows) <= delta + ROUNDING


@pytest.mark.parametrize(("unit", "epsilon", "delta", "rows"), BUDGETS[:5])
def test_planted_errors_break_the_guarantee(
    unit: PrivacyUnit, epsilon: Fraction, delta: Fraction, rows: int
) -> None:
    """A radius that is one less, a threshold that is, and a scale that is 30 % less."""
    law, threshold = one_level(unit, epsilon, delta, rows)
    for planted, lowest in (
        (replace(law, radius=law.radius - 1), threshold - 1),
        (law, threshold - 1),
        (replace(law, scale=law.scale * Fraction(7, 10)), threshold),
    ):
        assert worst_delta(planted, lowest, unit, float(epsilon), rows) > delta + ROUNDING


def test_noise_for_added_rows_is_too_little_for_substituted_ones() -> None:
    for epsilon, delta in ((1, Fraction(1, 10)), (2, Fraction(1, 50))):
        law, threshold = one_level(ADD_REMOVE, epsilon, delta)
        assert worst_delta(law, threshold, SUBSTITUTE, float(epsilon)) > delta + ROUNDING


def test_the_delta_of_add_remove_is_exact() -> None:
    """The formula of the issue: delta is the probability that a single row is seen."""
    law, threshold = one_level(ADD_REMOVE, 1, Fraction(1, 20))
    exact = float(law.survival(threshold - 1))
    assert worst_delta(law, threshold, ADD_REMOVE, 1.0) == pytest.approx(exact, rel=1e-12)


def test_the_delta_of_substitute_is_that_of_two_events() -> None:
    law, threshold = one_level(SUBSTITUTE, 1, Fraction(1, 10))
    one = float(law.survival(threshold - 1))
    worst = worst_delta(law, threshold, SUBSTITUTE, 1.0)
    assert one < worst <= 2 * one - one * one + ROUNDING


def test_root_and_level_compose() -> None:
    """One more row changes the root and one node: sum epsilon, sum delta, for every count."""
    plan = plan_sparse(["nodes"], Fraction(2), Fraction(1, 10), ADD_REMOVE, root_weight=Fraction(1))
    root, nodes = plan.law(0), plan.law(1)
    assert root is not None and nodes is not None and plan.threshold(0) is None
    most, worst = 6 * nodes.radius, 0.0
    for count in range(2 * nodes.radius + 2):
        laws = [
            np.multiply.outer(
                outputs(root, None, n, most), outputs(nodes, plan.threshold(1), n, most)
            )
            for n in (count, count + 1)
        ]
        worst = max(worst, divergence(*laws, 2.0), divergence(*laws[::-1], 2.0))
    assert 0.4 * float(plan.delta) < worst <= plan.delta + ROUNDING


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_the_root_without_threshold_keeps_its_budget(unit: PrivacyUnit) -> None:
    """The root gains or loses at most one row under either relation."""
    plan = plan_sparse(["nodes"], Fraction(2), Fraction(1, 10), unit, root_weight=Fraction(1))
    root = plan.law(0)
    assert root is not None
    laws = [outputs(root, None, n, 40) for n in (3, 4)]
    assert divergence(laws[0], laws[1], 1.0) <= plan.levels[0].delta + ROUNDING
    smaller = replace(root, radius=root.radius - 1)
    laws = [outputs(smaller, None, n, 40) for n in (3, 4)]
    assert divergence(laws[0], laws[1], 1.0) > plan.levels[0].delta + ROUNDING


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_what_nobody_touches_never_appears_and_what_is_suppressed_is_small(
    unit: PrivacyUnit,
) -> None:
    plan = plan_sparse(["a", "b"], Fraction(1), Fraction(1, 10**6), unit)
    for level in (1, 2):
        threshold = plan.threshold(level)
        assert threshold is not None
        # The dense mechanism, which gives noise to every node, is the sparse one.
        assert plan.publication_probability(level, 0) == 0.0
        assert plan.publication_probability(level, 1) > 0.0
        assert plan.publication_probability(level, 2 * threshold) < 1.0
        assert plan.publication_probability(level, 2 * threshold + 1) == 1.0


def test_heavy_counts_are_the_least() -> None:
    plan = plan_sparse(["a"], Fraction(1), Fraction(1, 10**6), SUBSTITUTE)
    for probability in (1e-7, 0.3, 0.95, 1.0):
        heavy = plan.heavy_count(1, probability)
        assert plan.publication_probability(1, heavy) >= probability
        assert plan.publication_probability(1, heavy - 1) < probability
    assert plan.heavy_count(0) == 0


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [1, 1, 4, 16]])
def test_the_split_is_nearly_the_best(weights: list[int]) -> None:
    """No other of many splits has a weighted sum of thresholds that is 3 % lower."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    root = Fraction(1, 16)
    plan = plan_sparse([*"abcd"], epsilon, delta, ADD_REMOVE, weights=weights, root_weight=root)
    assert plan.epsilon == epsilon and plan.delta == delta

    def cost(shares: np.ndarray, delta_shares: np.ndarray) -> float:
        """The continuous law's radii, Ghazi et al., Lemma 2.8."""
        own, odd = float(epsilon) * shares, float(delta) * delta_shares
        return float(np.array([float(root), *weights]) @ (np.log1p(np.expm1(own) / 2 / odd) / own))

    own = np.array([float(level.epsilon) for level in plan.levels])
    generator = np.random.default_rng(7)
    others = own * np.exp(generator.normal(0, 0.4, (2000, 5)))
    others /= others.sum(axis=1, keepdims=True)
    shares = own * np.exp(generator.normal(0, 0.4, (2000, 5)))
    shares /= shares.sum(axis=1, keepdims=True)
    best = min(cost(*split) for split in zip(others, shares, strict=True))
    assert cost(own, own) <= 1.03 * best
    even = np.full(5, 0.2)
    assert cost(own, own) < cost(even, even)


def test_predictions_say_what_the_plan_does() -> None:
    plan = plan_sparse(["a"], Fraction(1), Fraction(1, 10**6), SUBSTITUTE)
    root, below = json.loads(json.dumps(plan.predictions(0.9)))
    assert root["threshold"] is None and root["heavy_count"] == 0
    assert below["threshold"] == plan.threshold(1)
    assert below["heavy_count"] == plan.heavy_count(1, 0.9)
    assert below["std_error"] == pytest.approx(math.sqrt(plan.law(1).variance))  # type: ignore[union-attr]


def test_a_public_root_costs_nothing() -> None:
    plan = plan_sparse(["a"], Fraction(1), Fraction(1, 10**6), SUBSTITUTE, public_total=True)
    assert plan.law(0) is None and plan.radius(0) == 0 and plan.standard_error(0) == 0.0
    assert plan.levels[1].epsilon == 1


def test_specifications_come_back() -> None:
    for unit, public in ((bounded_unit(ADD_REMOVE, 3), False), (SUBSTITUTE, True)):
        plan = plan_sparse(["a", "b"], Fraction(1), Fraction(1, 10**6), unit, public_total=public)
        assert SparsePlan.from_spec(json.loads(json.dumps(plan.spec()))) == plan
        assert pickle.loads(pickle.dumps(plan)) == plan
    spec = plan.spec()
    spec["levels"][1]["threshold"] -= 1
    with pytest.raises(ValueError, match=r"^levels: it does not follow from the other fields"):
        SparsePlan.from_spec(spec)


def test_pure_epsilon_is_refused_where_it_must_be() -> None:
    assert pure_epsilon_refusal(2**40) is None
    assert "every one of them" in str(pure_epsilon_refusal(2**40 + 1))
    assert str(pure_epsilon_refusal(None)).startswith("no list")


LEVEL = SparseLevel(name="a", epsilon=Fraction(1), delta=Fraction(1, 10))


def test_bad_arguments_are_named() -> None:
    levels: list[tuple[dict[str, Any], str]] = [
        ({"name": ""}, "name"),
        ({"epsilon": Fraction(-1)}, "epsilon of level a is -1"),
        ({"delta": Fraction(1, 2)}, "delta of level a is 1/2"),
    ]
    check_refusals(partial(replace, LEVEL), levels)
    public = (replace(LEVEL, delta=Fraction(0)), replace(LEVEL, name="b"))
    plans: list[tuple[dict[str, Any], str]] = [
        ({"levels": (LEVEL,)}, "at least one level below"),
        ({"levels": (LEVEL, LEVEL)}, "not all different"),
        ({"levels": public}, "must both be above 0"),
    ]
    check_refusals(partial(SparsePlan, unit=ADD_REMOVE), plans)
    budgets: list[tuple[dict[str, Any], str]] = [
        ({"public_total": True}, "public_total"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"delta": Fraction(1)}, "delta: it is 1"),
        ({"weights": [1, 1]}, "there are 2"),
        ({"weights": [0]}, "above 0"),
    ]

    def plan(epsilon: Any = 1, delta: Any = Fraction(1, 9), **fields: Any) -> SparsePlan:
        return plan_sparse(["a"], epsilon, delta, ADD_REMOVE, **fields)

    check_refusals(plan, budgets)
    with pytest.raises(ValueError, match=r"is 0\.0"):
        plan().heavy_count(1, 0.0)
