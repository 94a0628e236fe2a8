"""The candidates: which they are, that all give one guarantee, and that the error stated for each
is exactly the mean of the variances of its own estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.planner import candidates, plan_mechanism, predicted_cdf_rmse
from dptrees.dpcore.papers.forest import independent_estimates
from dptrees.dpcore.papers.honaker import estimate_tree
from dptrees.dpcore.papers.plans import published_prefix_variance, tree_mechanism
from dptrees.dpcore.papers.rameshwar import independent_error, refined_error, tree_error
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, Measured, TreePlan
from tests.dpcore.cases import for_each
from tests.dpcore.tree_settings import (
    KEYED,
    PRIVATE,
    PUBLIC,
    ROWS,
    Case,
    planned_tree,
    tree_setting,
)

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]

SETTINGS = [PUBLIC, PRIVATE, KEYED, ROWS]


def own_variances(plan: TreePlan) -> Array:
    """(K,) of the prefixes, from the estimator itself."""
    tree, public = plan.tree, plan.public_total
    total = 0 if public else None
    if plan.measured is Measured.PREFIXES:
        law = plan.laws[-1]
        nothing = np.zeros(tree.leaves - public)
        variance = law.variance if law else 0.0
        return independent_estimates(tree, nothing, variance, total=total).prefix_variances
    measured = [
        None if law is None else np.zeros(size)
        for law, size in zip(plan.laws, tree.level_sizes, strict=True)
    ]
    found = estimate_tree(plan.estimator, tree, plan.variances, measured, total=total)
    return found.prefix_variances


@for_each("leaves", [1, 2, 3, 22])
@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("setting", SETTINGS)
def test_candidates_by_name_and_guarantee(leaves: int, measure: Measure, setting: Case) -> None:
    plan = planned_tree(leaves, setting, measure)
    shown = candidates(plan)
    expected = [
        ("independent", "full"),
        ("histogram", "none"),
        ("histogram", "full"),
        ("binary", "none"),
        ("binary", "below"),
        ("binary", "full"),
        ("tree", "none"),
        *([("tree", "refined")] if plan.public_total else []),
        ("tree", "full"),
        ("planned", "full"),
    ]
    assert [(each.label, each.plan.estimator.value) for each in shown] == expected
    assert shown[-1].plan == plan
    for each in shown:
        other = each.plan
        assert (other.budget, other.unit) == (plan.budget, plan.unit)
        assert (other.public_total, other.keyed) == (plan.public_total, plan.keyed)
        assert other.tree.leaves == leaves
        assert sum(other.level_amounts) == (0 if leaves == 1 and plan.public_total else 1)
        prefixes = each.label == "independent" or (each.label == "planned" and plan.is_complement)
        assert (other.measured is Measured.PREFIXES) == prefixes
        if each.label != "planned":
            own = tree_setting(leaves, setting, measure)
            assert other == plan_mechanism(each.label, own, estimator=other.estimator)


@pytest.mark.parametrize("leaves", [1, 2, 7, 22])
@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_error_of_every_candidate_is_that_of_its_own_estimates(
    leaves: int, measure: Measure, setting: Case
) -> None:
    for each in candidates(planned_tree(leaves, setting, measure)):
        expected = float(own_variances(each.plan).mean())
        assert published_prefix_variance(each.plan) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert predicted_cdf_rmse(each.plan) ** 2 == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_the_error_of_any_levels_and_any_estimate(random_tree: Make, seed: int) -> None:
    """Trimmed, with levels not measured, the root of a private total measured or not."""
    rng, seen = np.random.default_rng(seed), set()
    for _ in range(25):
        tree: UniformTree = random_tree(rng)
        case = SETTINGS[int(rng.integers(len(SETTINGS)))]
        units = rng.integers(1, 15, tree.height + 1)
        units[:-1][rng.random(tree.height) < 0.4] = 0
        units[0] *= case is not PUBLIC
        for estimator in Estimator:
            try:
                plan = tree_mechanism(
                    tree_setting(tree.leaves, case),
                    fanouts=tree.fanouts,
                    level_budgets=[Fraction(int(unit), 100) for unit in units],
                    estimator=estimator,
                )
            except ValueError as refused:
                assert str(refused).startswith("estimator: ")
                continue
            seen.add(estimator)
            expected = float(own_variances(plan).mean())
            assert published_prefix_variance(plan) == pytest.approx(expected, rel=1e-9)
    assert seen == set(Estimator)


def test_a_different_variance_is_another_error() -> None:
    """The comparison above sees one level that is 1 % off, for every estimate."""
    plan = planned_tree(22, SETTINGS[0])
    plan = tree_mechanism(
        tree_setting(22, PUBLIC),
        fanouts=(3, 2, 4),
        level_budgets="equal",
    )
    for estimator in Estimator:
        own = replace(plan, estimator=estimator)
        expected = published_prefix_variance(own)
        for level in (1, 2, 3):
            planted = replace(own)
            variances = list(own.variances)
            variances[level] *= 1.01
            planted.__dict__["variances"] = tuple(variances)
            assert published_prefix_variance(planted) > expected * 1.0003


def test_the_paper_s_errors_with_discrete_noise() -> None:
    """Lemmas III.1 and IV.4, Theorem IV.1: continuous noise, larger by 1/6 a count at most."""
    plan = planned_tree(256, SETTINGS[0], amount=Fraction(1, 10))
    stated = {
        ("independent", "full"): independent_error(256, 0.1),
        ("histogram", "none"): tree_error(256, (256,), (0.1,)),
        ("binary", "none"): tree_error(256, (2,) * 8, (0.1 / 8,) * 8),
        ("tree", "none"): tree_error(256, (16, 16), (0.05, 0.05)),
        ("tree", "refined"): refined_error(256, (16, 16), (0.05, 0.05)),
    }
    found = {
        (each.label, each.plan.estimator.value): 256 * published_prefix_variance(each.plan)
        for each in candidates(plan)
    }
    for name, error in stated.items():
        assert (1 - 1e-3) * error < found[name] < error, name


def test_a_plan_of_one_s_own_goes_with_the_planned_one() -> None:
    plan = planned_tree(22, SETTINGS[0])
    own = replace(plan, estimator=Estimator.BELOW)
    *shown, chosen = candidates(own)
    assert (chosen.label, chosen.plan) == ("chosen", own)
    assert [(each.label, each.plan) for each in shown] == [
        (each.label, each.plan) for each in candidates(plan)
    ]


def test_a_mechanism_whose_noise_does_not_fit_counts_is_left_out() -> None:
    plan = planned_tree(2**12, SETTINGS[3], amount=Fraction(1, 2**31))
    assert predicted_cdf_rmse(plan) > 0  # the planned noise fits; that of 2^12 prefixes does not
    shown = candidates(plan)
    assert [each.label for each in shown if each.label == "independent"] == []
    assert all(predicted_cdf_rmse(each.plan) > 0 for each in shown)
