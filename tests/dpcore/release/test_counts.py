"""Where counts come from: an adaptive tree, whole levels planned for them, or a strategy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import AdaptiveTree
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, WeightedSums
from dptrees.dpcore.levels.planner import WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Noise, ReleaseTerms, Share
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.rows.keys import KeyList

PURE = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
RHO = Share(budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)


def counts(rows: int | None, cells: int = 32, noise: Noise = Noise.BEST) -> OrderedChoice:
    domain = IntegerDomain(column="x", lower=0, upper=cells)
    levels = WholeLevels(for_counts=True, guessed_rows=rows)
    whole = OrderedWorkload(name="t", domain=domain, candidate=levels)
    strategy = OrderedWorkload(name="t", domain=domain, candidate=WeightedSums())
    adaptive = OrderedWorkload(
        name="t",
        domain=domain,
        candidate=AdaptiveTree(counts=True, guessed_rows=rows),
    )
    return OrderedChoice(
        name="t", noise=noise, whole=whole, for_counts=True, strategy=strategy, adaptive=adaptive
    )


@pytest.mark.parametrize("rows", [10, 400, None])
def test_under_epsilon_they_are_of_an_adaptive_tree_up_to_some_rows_a_cell(
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
def test_with_more_rows_they_are_of_whole_levels(rows: int) -> None:
    workload = counts(rows)
    requested = workload.planned(PURE, TERMS)
    assert isinstance(requested.mechanism, UniformMechanism) and requested.mechanism.for_counts
    assert "whole levels planned for counts" in str(workload.why(requested))
    assert workload.predicted(requested) == workload.whole.predicted(requested)


def planned(workload: OrderedChoice, share: Share, terms: ReleaseTerms = TERMS) -> Any:
    """Plan as a release does."""
    return workload.under(share.budget.measure, delta=terms.has_delta).planned(share, terms)


@pytest.mark.parametrize("rows", [500, 10**7, None])
def test_under_rho_they_are_of_a_strategy(rows: int | None) -> None:
    workload = counts(rows)
    requested = planned(workload, RHO)
    assert workload.strategy is not None
    assert requested == workload.strategy.planned(RHO, TERMS)
    assert "a strategy past trees" in str(workload.why(requested))
    assert ("500 rows" in str(workload.why(requested))) == (rows == 500)
    assert workload.predicted(requested) == workload.strategy.predicted(requested)
    assert workload.condition(requested) == "of the estimates, not of the counts"
    assert workload.linear() is workload.whole
    keys = KeyList(column="place", keys=("north", "south"))
    assert planned(workload.with_keys(keys), RHO).keys == keys


def test_few_rows_are_reported_by_the_scale_of_the_noise() -> None:
    few = Share(budget=Budget(measure=Measure.RHO, amount=Fraction(1, 50)))
    assert isinstance(planned(counts(1_000), RHO).mechanism, FactorizedMechanism)
    assert isinstance(planned(counts(1_000), few).mechanism, UniformMechanism)


def test_else_whole_levels_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which plan counts get is of no matter here, and its search takes long.
    monkeypatch.setattr(
        "dptrees.dpcore.levels.planner.plan_for_counts", lambda best, *_, **__: best
    )
    beside = ReleaseTerms(unit=ADD_REMOVE_ROW, has_delta=True)
    for workload, terms in (
        (counts(450), TERMS),
        (counts(1_000), beside),
        (counts(1_000, cells=15), TERMS),
        (counts(1_000, cells=1_025), TERMS),
        (counts(1_000, noise=Noise.LAPLACE), TERMS),
    ):
        requested = planned(workload, RHO, terms)
        assert requested == workload.whole.planned(RHO, terms)


def test_a_tree_too_large_to_be_read_whole_has_whole_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "dptrees.dpcore.levels.planner.plan_for_counts", lambda best, *_, **__: best
    )
    most = 2**22
    assert isinstance(planned(counts(None, cells=most), PURE).mechanism, AdaptiveMechanism)
    assert isinstance(planned(counts(None, cells=most + 1), PURE).mechanism, UniformMechanism)
