"""Where estimates come from a strategy past trees."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, WeightedSums
from dptrees.dpcore.levels.planner import WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.uniform.objectives import CDF, Objective, QuantileObjective, RangeObjective

RHO = Share(budget=Budget(measure=Measure.RHO, amount=Fraction(1, 10)))
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)


def estimates(cells: int, objective: Objective = CDF) -> OrderedChoice:
    domain = IntegerDomain(column="x", lower=0, upper=cells)
    return OrderedChoice(
        name="t",
        whole=OrderedWorkload(name="t", domain=domain, candidate=WholeLevels(objective=objective)),
        strategy=OrderedWorkload(
            name="t", domain=domain, candidate=WeightedSums(objective=objective)
        ),
    )


@pytest.mark.parametrize(
    "objective", [CDF, RangeObjective(), QuantileObjective(quantiles=(0.1, 0.5))]
)
def test_under_rho_the_smaller_predicted_error_decides(objective: Objective) -> None:
    workload = estimates(200, objective)
    planned = workload.planned(RHO, TERMS)
    tree = workload.whole.planned(RHO, TERMS)
    assert workload.strategy is not None
    strategy = workload.strategy.planned(RHO, TERMS)
    is_less = workload.strategy.predicted(strategy) < workload.whole.predicted(tree)
    assert planned == (strategy if is_less else tree)
    assert workload.predicted(planned) == min(
        workload.strategy.predicted(strategy), workload.whole.predicted(tree)
    )


@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW])
def test_a_strategy_is_reported(unit: object) -> None:
    workload = estimates(200)
    planned = workload.planned(RHO, ReleaseTerms(unit=unit))  # type: ignore[arg-type]
    assert isinstance(planned.mechanism, FactorizedMechanism)
    assert "a strategy past trees" in str(workload.why(planned))
    assert workload.error_unit == "rows" and workload.linear() is workload.whole
    keys = KeyList(column="place", keys=("north", "south"))
    assert workload.with_keys(keys).planned(RHO, TERMS).keys == keys


def test_a_tree_stays_under_epsilon_beside_a_delta_and_of_many_cells() -> None:
    pure = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    beside = ReleaseTerms(unit=ADD_REMOVE_ROW, has_delta=True)
    for cells, share, terms in ((200, pure, TERMS), (200, RHO, beside), (1025, RHO, TERMS)):
        workload = estimates(cells)
        planned = workload.planned(share, terms)
        assert isinstance(planned.mechanism, UniformMechanism) and workload.why(planned) is None
        assert planned == workload.whole.planned(share, terms)


def test_a_release_reports_its_delta() -> None:
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    for delta in (None, Fraction(1, 10**6)):
        guarantee = Guarantee(budget=RHO.budget if delta is None else budget, delta=delta)
        (planned,) = plan_release("r", guarantee, TERMS, [estimates(64)]).questions
        assert isinstance(planned.mechanism, FactorizedMechanism) is (delta is None)
