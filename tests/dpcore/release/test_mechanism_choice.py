"""Which mechanism an ordered domain gets: for its counts, its estimates, or by a guess of rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.exponential.question import ExponentialQuestion
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism
from dptrees.dpcore.factorised.strategies import DenseStrategy, ToeplitzStrategy
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.levels.workload import OrderedWorkload, ReadAs
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Noise, Setting
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.uniform.objectives import CDF, Objective, QuantileObjective, RangeObjective


def setting(measure: Measure, amount: Fraction | int) -> Setting:
    budget = Budget(measure=measure, amount=Fraction(amount))
    return Setting(unit=ADD_REMOVE_ROW, budget=budget)


PURE, RHO = setting(Measure.EPSILON, 1), setting(Measure.RHO, Fraction(1, 2))
KEYS = KeyList(column="place", keys=("north", "south"))
NINETEEN = tuple(part / 20 for part in range(1, 20))


def tree(cells: int, **choices: Any) -> OrderedWorkload:
    domain = StepDomain(kind="integer", column="x", lower=0, upper=cells)
    return OrderedWorkload(name="t", domain=domain, mechanism="planned", **choices)


def counts(rows: int | None, cells: int = 32, **choices: Any) -> OrderedWorkload:
    return tree(cells, read_as=ReadAs.COUNTS, guessed_rows=rows, **choices)


def estimates(cells: int, **choices: Any) -> OrderedWorkload:
    return tree(cells, read_as=ReadAs.ESTIMATES, **choices)


def guessed(rows: int, *, quantiles: tuple[float, ...] = (), cells: int = 1024) -> OrderedWorkload:
    if not quantiles:
        return estimates(cells, guessed_rows=Fraction(rows))
    objective = QuantileObjective(quantiles=quantiles)
    return tree(cells, guessed_rows=Fraction(rows), objective=objective, quantiles=quantiles)


def by(name: str, workload: OrderedWorkload, **choices: Any) -> OrderedWorkload:
    """The same by one mechanism."""
    return replace(workload, mechanism=name, **choices)


def planned(workload: OrderedWorkload, setting: Setting) -> Any:
    """Plan as a release does."""
    return workload.under(setting.budget.measure, delta=setting.has_delta).planned(setting)


# --- counts ---


@pytest.mark.parametrize("rows", [10, 400, None])
def test_counts_under_epsilon_are_of_an_adaptive_tree_up_to_some_rows_a_cell(
    rows: int | None,
) -> None:
    workload = counts(rows)
    requested = workload.planned(PURE)
    assert isinstance(requested.mechanism, AdaptiveMechanism)
    assert requested.mechanism.counts
    said = "more than 960" if rows is None else f"counts and the guess of {rows} rows: an"
    assert said in str(workload.why(requested))
    assert workload.error_unit == "rows" and workload.resolved(requested).mechanism == "adaptive"


@pytest.mark.parametrize("rows", [1_000, 10**7])
def test_counts_of_more_rows_are_of_whole_levels(rows: int) -> None:
    workload = counts(rows)
    requested = workload.planned(PURE)
    assert isinstance(requested.mechanism, UniformMechanism) and requested.mechanism.for_counts
    assert "whole levels planned for counts" in str(workload.why(requested))
    assert workload.predicted(requested) == by("levels", workload).predicted(requested)


def test_counts_under_rho_are_of_a_strategy() -> None:
    for rows in (500, 10**7, None):
        workload = counts(rows)
        requested = planned(workload, RHO)
        strategy = by("factorised", workload)
        assert requested == strategy.planned(RHO)
        assert "a strategy past trees" in str(workload.why(requested))
        assert ("500 rows" in str(workload.why(requested))) == (rows == 500)
        assert workload.predicted(requested) == strategy.predicted(requested)
        assert workload.condition(requested) == "of the estimates, not of the counts"
        assert workload.linear() == by("levels", workload)
        assert planned(replace(workload, keys=KEYS), RHO).keys == KEYS


def test_few_rows_are_reported_by_the_scale_of_the_noise() -> None:
    few = setting(Measure.RHO, Fraction(1, 50))
    assert isinstance(planned(counts(1_000), RHO).mechanism, FactorizedMechanism)
    assert isinstance(planned(counts(1_000), few).mechanism, UniformMechanism)


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the search for the plan that counts get, which takes long."""
    monkeypatch.setattr(
        "dptrees.dpcore.levels.planner.plan_for_counts", lambda best, *_, **__: best
    )


@pytest.mark.usefixtures("no_search")
def test_counts_else_stay_of_whole_levels() -> None:
    for workload, has_delta in (
        (counts(450), False),
        (counts(1_000), True),
        (counts(1_000, cells=15), False),
        (counts(1_000, cells=2**20 + 1), False),
        (counts(1_000, noise=Noise.LAPLACE), False),
    ):
        own = replace(RHO, has_delta=has_delta)
        assert planned(workload, own) == by("levels", workload).planned(own)


@pytest.mark.usefixtures("no_search")
def test_a_tree_too_large_to_be_read_whole_has_whole_levels() -> None:
    most = 2**22
    assert isinstance(planned(counts(None, cells=most), PURE).mechanism, AdaptiveMechanism)
    assert isinstance(planned(counts(None, cells=most + 1), PURE).mechanism, UniformMechanism)


# --- estimates ---

TENTH = setting(Measure.RHO, Fraction(1, 10))


@pytest.mark.parametrize(
    "objective", [CDF, RangeObjective(), QuantileObjective(quantiles=(0.1, 0.5))]
)
def test_under_rho_the_smaller_predicted_error_decides(objective: Objective) -> None:
    workload = estimates(200, objective=objective)
    found = workload.planned(TENTH)
    strategy, whole = by("factorised", workload), by("levels", workload)
    both = [each.planned(TENTH) for each in (strategy, whole)]
    errors = [strategy.predicted(both[0]), whole.predicted(both[1])]
    assert found == both[errors.index(min(errors))]
    assert workload.predicted(found) == min(errors)


@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW])
def test_a_strategy_is_reported(unit: PrivacyUnit) -> None:
    workload = estimates(200)
    found = workload.planned(replace(TENTH, unit=unit))
    assert isinstance(found.mechanism, FactorizedMechanism)
    assert "a strategy past trees" in str(workload.why(found))
    assert workload.error_unit == "rows" and workload.linear() == by("levels", workload)
    assert replace(workload, keys=KEYS).planned(TENTH).keys == KEYS


@pytest.mark.parametrize("make", [estimates, partial(counts, None)])
def test_strategies_of_many_cells_are_of_the_formula_unless_they_are_named(make: Any) -> None:
    workload = make(cells=1025)
    found = planned(workload, TENTH).mechanism
    assert found.plan.strategy == ToeplitzStrategy.from_size(1025)
    named = by("factorised", workload)
    best = named.planned(TENTH).mechanism
    assert isinstance(best.plan.strategy, DenseStrategy)
    error, least = (named.planner.predicted(named, each) for each in (found, best))
    assert least < error < 1.03 * least


def test_a_tree_stays_under_epsilon_and_beside_a_delta() -> None:
    for own in (PURE, replace(TENTH, has_delta=True)):
        workload = estimates(200)
        found = workload.planned(own)
        assert isinstance(found.mechanism, UniformMechanism) and workload.why(found) is None
        assert found == by("levels", workload).planned(own)


def test_a_release_reports_its_delta() -> None:
    for delta in (None, Fraction(1, 10**6)):
        budget = (TENTH if delta is None else PURE).budget
        guarantee = Guarantee(unit=ADD_REMOVE_ROW, budget=budget, delta=delta)
        (found,) = plan_release("r", guarantee, [estimates(64)]).questions
        assert isinstance(found.mechanism, FactorizedMechanism) is (delta is None)


# --- a public guess of the rows ---


def test_few_rows_make_it_adaptive() -> None:
    few, many = guessed(1_000), guessed(10**7)
    found, other = few.planned(PURE), many.planned(PURE)
    assert isinstance(found.mechanism, AdaptiveMechanism) and found.mechanism.guessed_rows == 1_000
    assert found.plan.decision_part and few.resolved(found).mechanism == "adaptive"
    assert "chosen for the guess of 1,000 rows: an adaptive tree" in str(few.why(found))
    assert isinstance(other.mechanism, UniformMechanism)
    assert other == by("levels", many).planned(PURE)
    said = "whole levels, as an adaptive tree is expected to be closer up to"
    assert said in str(many.why(other))
    assert few.predicted(found) > many.predicted(other) > 0
    assert few.error_unit is None and few.linear() == by("levels", few)


def test_other_quantiles_are_read_off_a_tree_for_counts() -> None:
    closer = "an adaptive tree, as its counts are expected to be closer than whole levels'"
    for rows, kind, named in (
        (1_000, AdaptiveMechanism, closer),
        (10**7, UniformMechanism, "planned for counts, as quantiles are read off counts"),
    ):
        workload = guessed(rows, quantiles=NINETEEN)
        found = workload.planned(PURE)
        assert isinstance(found.mechanism, kind)
        assert str(workload.why(found)).endswith(named)


def test_few_quantiles_of_many_rows_are_chosen() -> None:
    workload = guessed(30_000, quantiles=(0.75, 0.5))
    found = workload.planned(PURE)
    assert isinstance(found, ExponentialQuestion) and found.quantiles == (0.75, 0.5)
    assert "it gives no CDF" in str(workload.why(found))
    assert workload.predicted(found) == by("exponential", workload).predicted(found)


@pytest.mark.parametrize(
    ("rows", "quantiles", "cells", "kind"),
    [
        pytest.param(20, (0.25, 0.5, 0.75), 1024, AdaptiveMechanism, id="few rows"),
        pytest.param(10**7, NINETEEN, 1024, UniformMechanism, id="many quantiles"),
        pytest.param(10**7, (0.0, 0.5), 1024, UniformMechanism, id="a minimum"),
        pytest.param(10**9, (0.5,), 2**20, UniformMechanism, id="many cells"),
    ],
)
def test_other_quantiles_are_read_from_a_tree(
    rows: int, quantiles: tuple[float, ...], cells: int, kind: type
) -> None:
    question = guessed(rows, quantiles=quantiles, cells=cells).planned(PURE)
    assert isinstance(question.mechanism, kind)


@pytest.mark.parametrize("rows", [1_000, 10**7])
def test_keys_that_were_selected_are_those_of_what_is_chosen(rows: int) -> None:
    for quantiles in ((), (0.5,)):
        workload = replace(guessed(rows, quantiles=quantiles), keys=KEYS)
        assert workload.planned(PURE).keys == KEYS
