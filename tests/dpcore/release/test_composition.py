"""Workloads that describe nothing are refused when they are made, without a configuration."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.question import SparseWorkload
from dptrees.dpcore.specification import Refusal

PLACES = HierarchyDomain(
    universe=universe_from_codes(pa.array(["0101", "0102", "0201"]), (2, 2)), columns=("place",)
)
MAKE: list[Callable[..., Workload[Any]]] = [
    lambda **given: OrderedWorkload(
        name="age", domain=StepDomain(kind="integer", column="age", lower=0, upper=9), **given
    ),
    lambda **given: HierarchyWorkload(name="places", domain=PLACES, **given),
    lambda **given: SparseWorkload(
        name="codes", domain=CodeDomain(column="code", widths=(8, 24)), **given
    ),
]


def test_a_weight_of_nothing() -> None:
    for make, weight in product(MAKE, (0, -1)):
        with pytest.raises(Refusal, match=f"weight: {weight} is not above 0"):
            make(weight=Fraction(weight))


def test_counts_as_measured_that_would_be_planned_as_others() -> None:
    with pytest.raises(Refusal, match="estimation: none goes with the mechanism tree"):
        HierarchyWorkload(name="places", domain=PLACES, estimation="none")
    HierarchyWorkload(name="places", domain=PLACES, estimation="none", level_budgets="equal")
