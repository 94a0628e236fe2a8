"""Workloads of single trees: what holds for all that do not say otherwise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.release.split import BudgetSplit, check_split
from dptrees.dpcore.specification import Refusal


def quantiles(**fields: Any) -> OrderedWorkload:
    return OrderedWorkload(
        name="age",
        mechanism="exponential",
        domain=StepDomain(kind="integer", column="age", lower=0, upper=120),
        quantiles=(0.5,),
        **fields,
    )


def test_a_weight_is_above_zero() -> None:
    for weight in (Fraction(0), Fraction(-1, 2)):
        with pytest.raises(Refusal, match="is not above 0"):
            quantiles(weight=weight)


def test_trees_without_amounts_of_their_own_go_with_every_split() -> None:
    workload = quantiles()
    assert not workload.has_fixed_amounts
    for split in BudgetSplit:
        check_split(split, [workload, workload])
