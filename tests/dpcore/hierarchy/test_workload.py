"""Workloads of hierarchies: plans are made for the errors that a user names."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.hierarchy.question import HierarchyQuestion, HierarchyWorkload
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.levels.irregular import IrregularLevels
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from tests.dpcore.hierarchy_questions import universe_domain

OBJECTIVE = RelativeObjective(metric="rel_kappa", kappa=50.0, level_weights=(8, 1, 1, 1))
WEIGHTS = NodeWeights(levels=(8.0, 1.0, 1.0, 1.0))


def planned(**fields: Any) -> HierarchyQuestion[Any]:
    workload = HierarchyWorkload(
        name="places", domain=universe_domain("digits"), candidate=IrregularLevels(**fields)
    )
    share = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    return workload.planned(share, ReleaseTerms(unit=ADD_REMOVE_ROW))


@pytest.mark.parametrize(
    "fields", [{"weights": WEIGHTS}, {"objective": OBJECTIVE}], ids=["weights", "objective"]
)
def test_the_plan_is_the_best_one_for_what_it_is_made_for(fields: dict[str, Any]) -> None:
    """No worse than the equal split, nor than the plan for anything else."""
    best, plain, equal = planned(**fields), planned(), planned(**fields, level_budgets="equal")

    def error(question: HierarchyQuestion[Any]) -> float:
        mechanism = question.mechanism
        judged = planned(**fields, level_budgets=mechanism.plan.level_amounts)
        return float(judged.mechanism.predicted_error)

    assert best.mechanism.predicted_error <= equal.mechanism.predicted_error
    assert error(best) < 0.999 * error(plain)
