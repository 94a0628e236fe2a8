"""Which mechanism an ordered domain gets: for its counts, its estimates, or by a guess of rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import AdaptiveTree
from dptrees.dpcore.exponential.question import ExponentialQuestion, ExponentialWorkload
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, WeightedSums
from dptrees.dpcore.levels.planner import WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Noise, ReleaseTerms, Share
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.uniform.objectives import CDF, Objective, QuantileObjective, RangeObjective


def share(measure: Measure, amount: Fraction | int) -> Share:
    return Share(budget=Budget(measure=measure, amount=Fraction(amount)))


PURE, RHO = share(Measure.EPSILON, 1), share(Measure.RHO, Fraction(1, 2))
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)
BESIDE = ReleaseTerms(unit=ADD_REMOVE_ROW, has_delta=True)
KEYS = KeyList(column="place", keys=("north", "south"))
NINETEEN = tuple(part / 20 for part in range(1, 20))


def tree(cells: int, candidate: Any = None) -> OrderedWorkload[Any]:
    given = {} if candidate is None else {"candidate": candidate}
    domain = StepDomain(kind="integer", column="x", lower=0, upper=cells)
    return OrderedWorkload(name="t", domain=domain, **given)


def counts(rows: int | None, cells: int = 32, noise: Noise = Noise.BEST) -> OrderedChoice:
    return OrderedChoice(
        name="t",
        noise=noise,
        whole=tree(cells, WholeLevels(for_counts=True, guessed_rows=rows)),
        for_counts=True,
        strategy=tree(cells, WeightedSums()),
        adaptive=tree(cells, AdaptiveTree(counts=True, guessed_rows=rows)),
    )


def estimates(cells: int, objective: Objective = CDF) -> OrderedChoice:
    return OrderedChoice(
        name="t",
        whole=tree(cells, WholeLevels(objective=objective)),
        strategy=tree(cells, WeightedSums(objective=objective)),
    )


def guessed(rows: int, *, quantiles: tuple[float, ...] = (), cells: int = 1024) -> OrderedChoice:
    domain = StepDomain(kind="integer", column="x", lower=0, upper=cells)
    alone = ExponentialWorkload(name="t", domain=domain, quantiles=quantiles)
    return OrderedChoice(
        name="t",
        guessed_rows=Fraction(rows),
        whole=tree(cells),
        adaptive=tree(cells, AdaptiveTree(guessed_rows=float(rows))),
        exponential=alone if quantiles else None,
    )


def planned(workload: OrderedChoice, share: Share, terms: ReleaseTerms = TERMS) -> Any:
    """Plan as a release does."""
    return workload.under(share.budget.measure, delta=terms.has_delta).planned(share, terms)


# --- counts ---


@pytest.mark.parametrize("rows", [10, 400, None])
def test_counts_under_epsilon_are_of_an_adaptive_tree_up_to_some_rows_a_cell(
    rows: int | None,
) -> None:
    workload = counts(rows)
    requested = workload.planned(PURE, TERMS)
    assert isinstance(requested.mechanism, AdaptiveMechanism)
    assert requested.mechanism.counts
    said = "more than 960" if rows is None else f"counts and the guess of {rows} rows: an"
    assert said in str(workload.why(requested))
    assert workload.error_unit == "rows" and workload.resolved(requested) is workload.adaptive


@pytest.mark.parametrize("rows", [1_000, 10**7])
def test_counts_of_more_rows_are_of_whole_levels(rows: int) -> None:
    workload = counts(rows)
    requested = workload.planned(PURE, TERMS)
    assert isinstance(requested.mechanism, UniformMechanism) and requested.mechanism.for_counts
    assert "whole levels planned for counts" in str(workload.why(requested))
    assert workload.predicted(requested) == workload.whole.predicted(requested)


def test_counts_under_rho_are_of_a_strategy() -> None:
    for rows in (500, 10**7, None):
        workload = counts(rows)
        requested = planned(workload, RHO)
        assert workload.strategy is not None
        assert requested == workload.strategy.planned(RHO, TERMS)
        assert "a strategy past trees" in str(workload.why(requested))
        assert ("500 rows" in str(workload.why(requested))) == (rows == 500)
        assert workload.predicted(requested) == workload.strategy.predicted(requested)
        assert workload.condition(requested) == "of the estimates, not of the counts"
        assert workload.linear() is workload.whole
        assert planned(workload.with_keys(KEYS), RHO).keys == KEYS


def test_few_rows_are_reported_by_the_scale_of_the_noise() -> None:
    few = share(Measure.RHO, Fraction(1, 50))
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
    for workload, terms in (
        (counts(450), TERMS),
        (counts(1_000), BESIDE),
        (counts(1_000, cells=15), TERMS),
        (counts(1_000, cells=1_025), TERMS),
        (counts(1_000, noise=Noise.LAPLACE), TERMS),
    ):
        requested = planned(workload, RHO, terms)
        assert requested == workload.whole.planned(RHO, terms)


@pytest.mark.usefixtures("no_search")
def test_a_tree_too_large_to_be_read_whole_has_whole_levels() -> None:
    most = 2**22
    assert isinstance(planned(counts(None, cells=most), PURE).mechanism, AdaptiveMechanism)
    assert isinstance(planned(counts(None, cells=most + 1), PURE).mechanism, UniformMechanism)


# --- estimates ---

TENTH = share(Measure.RHO, Fraction(1, 10))


@pytest.mark.parametrize(
    "objective", [CDF, RangeObjective(), QuantileObjective(quantiles=(0.1, 0.5))]
)
def test_under_rho_the_smaller_predicted_error_decides(objective: Objective) -> None:
    workload = estimates(200, objective)
    assert workload.strategy is not None
    found = workload.planned(TENTH, TERMS)
    both = [each.planned(TENTH, TERMS) for each in (workload.strategy, workload.whole)]
    errors = [workload.strategy.predicted(both[0]), workload.whole.predicted(both[1])]
    assert found == both[errors.index(min(errors))]
    assert workload.predicted(found) == min(errors)


@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW])
def test_a_strategy_is_reported(unit: object) -> None:
    workload = estimates(200)
    found = workload.planned(TENTH, ReleaseTerms(unit=unit))  # type: ignore[arg-type]
    assert isinstance(found.mechanism, FactorizedMechanism)
    assert "a strategy past trees" in str(workload.why(found))
    assert workload.error_unit == "rows" and workload.linear() is workload.whole
    assert workload.with_keys(KEYS).planned(TENTH, TERMS).keys == KEYS


def test_a_tree_stays_under_epsilon_beside_a_delta_and_of_many_cells() -> None:
    for cells, own, terms in ((200, PURE, TERMS), (200, TENTH, BESIDE), (1025, TENTH, TERMS)):
        workload = estimates(cells)
        found = workload.planned(own, terms)
        assert isinstance(found.mechanism, UniformMechanism) and workload.why(found) is None
        assert found == workload.whole.planned(own, terms)


def test_a_release_reports_its_delta() -> None:
    for delta in (None, Fraction(1, 10**6)):
        guarantee = Guarantee(budget=(TENTH if delta is None else PURE).budget, delta=delta)
        (found,) = plan_release("r", guarantee, TERMS, [estimates(64)]).questions
        assert isinstance(found.mechanism, FactorizedMechanism) is (delta is None)


# --- a public guess of the rows ---


def test_few_rows_make_it_adaptive() -> None:
    few, many = guessed(1_000), guessed(10**7)
    found, other = few.planned(PURE, TERMS), many.planned(PURE, TERMS)
    assert isinstance(found.mechanism, AdaptiveMechanism) and found.mechanism.guessed_rows == 1_000
    assert found.plan.decision_part and few.resolved(found) is few.adaptive
    assert "chosen for the guess of 1,000 rows: an adaptive tree" in str(few.why(found))
    assert isinstance(other.mechanism, UniformMechanism)
    assert other == many.whole.planned(PURE, TERMS)
    said = "whole levels, as an adaptive tree is expected to be closer up to"
    assert said in str(many.why(other))
    assert few.predicted(found) > many.predicted(other) > 0
    assert few.error_unit is None and few.linear() is few.whole


def test_other_quantiles_are_read_off_a_tree_for_counts() -> None:
    closer = "an adaptive tree, as its counts are expected to be closer than whole levels'"
    for rows, kind, named in (
        (1_000, AdaptiveMechanism, closer),
        (10**7, UniformMechanism, "planned for counts, as quantiles are read off counts"),
    ):
        workload = replace(
            guessed(rows, quantiles=NINETEEN),
            for_counts=True,
            whole=tree(1024, WholeLevels(for_counts=True)),
            adaptive=tree(1024, AdaptiveTree(counts=True, guessed_rows=float(rows))),
        )
        found = workload.planned(PURE, TERMS)
        assert isinstance(found.mechanism, kind)
        assert str(workload.why(found)).endswith(named)


def test_few_quantiles_of_many_rows_are_chosen() -> None:
    workload = guessed(30_000, quantiles=(0.75, 0.5))
    found = workload.planned(PURE, TERMS)
    assert isinstance(found, ExponentialQuestion) and found.quantiles == (0.75, 0.5)
    assert "it gives no CDF" in str(workload.why(found))
    assert workload.exponential is not None
    assert workload.predicted(found) == workload.exponential.predicted(found)


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
    question = guessed(rows, quantiles=quantiles, cells=cells).planned(PURE, TERMS)
    assert isinstance(question.mechanism, kind)


@pytest.mark.parametrize("rows", [1_000, 10**7])
def test_keys_that_were_selected_are_those_of_what_is_chosen(rows: int) -> None:
    for quantiles in ((), (0.5,)):
        workload = guessed(rows, quantiles=quantiles).with_keys(KEYS)
        assert workload.planned(PURE, TERMS).keys == KEYS
