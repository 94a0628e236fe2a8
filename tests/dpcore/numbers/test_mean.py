"""A mean that is measured alone: exact before the noise, of the stated law, with intervals that
hold.

Statistical limits have a false-alarm probability of at most 1e-6; the keys are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.numbers import MeanQuestion, ReleasedMean
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.sensitivity import split_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.released import StatisticKind
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.specification import Refusal
from tests.dpcore.neighboring import largest
from tests.dpcore.noise_laws import p_value, scaled
from tests.dpcore.single_questions import alone, released, silenced

FALSE_ALARM = 1e-6
EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=2)
GROUPS = KeyList(column="group", keys=("x", "y"))
AGE = {"column": "value", "type": "integer", "lower": 0, "upper": 101}


def make_question(
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    *,
    domain: dict[str, Any] | None = None,
    keys: KeyList | None = None,
    budget: Budget = EPSILON,
) -> MeanQuestion:
    made = make_domain(domain or AGE)
    return MeanQuestion(name="m", domain=made, keys=keys, release_unit=unit, spent=budget)


def value(
    tree: ReleasedMean, kind: StatisticKind = StatisticKind.MEAN, key: object = None
) -> float:
    return tree.statistic(kind, key=key).value


def test_means_totals_and_rows_are_exact_before_the_noise() -> None:
    for size in (170, 4000):
        random = np.random.default_rng(3)
        values, groups = random.integers(0, 101, 3000), random.choice(["x", "y", "z"], 3000)
        rows = {"value": pa.array(values), "group": pa.array(groups)}
        tree = released(silenced(make_question(keys=GROUPS)), rows, size)
        for key in GROUPS.keys:
            own = values[groups == key]
            assert value(tree, key=key) == pytest.approx(own.mean(), rel=1e-12), size
            assert value(tree, StatisticKind.TOTAL, key) == pytest.approx(own.sum(), rel=1e-12)
            (rows_of_key,) = tree.top(5, 0, key)
            assert rows_of_key.estimate == pytest.approx(len(own), rel=1e-12), size


def test_numbers_are_within_half_a_cell_and_policies_apply() -> None:
    column = pa.array([0.25, 99.5, -7.0, 1e9, None, float("nan")])
    domain = {"column": "value", "type": "number", "lower": 0, "upper": 100, "cells": 2**20}
    for outside, truth in (("clamp", [0.25, 99.5, 0, 100]), ("drop", [0.25, 99.5])):
        tree = released(
            silenced(make_question(domain=domain | {"outside": outside})), {"value": column}
        )
        assert value(tree) == pytest.approx(np.mean(truth), abs=50 / 2**20)
    with pytest.raises(Refusal, match="missing: first would count missing values at a bound"):
        make_question(domain=domain | {"missing": "first"})


def largest_moves(unit: PrivacyUnit, *, keyed: bool, rows: int) -> tuple[int, int]:
    """The largest L1 and squared L2 distance of the sums of neighbors, in parts of a row, over all
    units of so many rows."""
    question = silenced(make_question(unit, keys=GROUPS if keyed else None))
    choices = [(group, at) for group in ("x", "y") for at in (0, 100)]
    sums = []
    for own in (
        own for many in range(rows + 1) for own in combinations_with_replacement(choices, many)
    ):
        columns = {
            "user": pa.array(["u"] * len(own) + ["v"]),
            "group": pa.array([*(group for group, _ in own), "x"]),
            "value": pa.array([*(at for _, at in own), 7]),
        }
        table = released(question, columns)._level(1)
        sums.append(np.rint(table["estimate"].to_numpy() * question.row_parts))
    return largest(np.array(sums), unit.neighbors, without=sums[0])


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_sensitivity_is_that_of_brute_force(neighbors: Neighbors, keyed: bool) -> None:
    unit = replace(PERSON, neighbors=neighbors)
    assert largest_moves(unit, keyed=keyed, rows=3) == split_sensitivity(unit, 100, keyed=keyed)


def test_a_bound_that_is_off_by_one_is_found() -> None:
    l1, _ = largest_moves(replace(PERSON, rows=3), keyed=False, rows=3)
    assert l1 == 300 > split_sensitivity(PERSON, 100, keyed=False)[0]


@pytest.mark.parametrize(
    ("budget", "law"),
    [
        (EPSILON, DiscreteLaplace(scale=Fraction(20))),
        (RHO, DiscreteGaussian(sigma_squared=Fraction(400))),
    ],
)
def test_the_noise_has_the_law_of_the_sensitivity(budget: Budget, law: NoiseLaw) -> None:
    keys = KeyList(column="group", keys=tuple(range(3000)))
    domain = AGE | {"upper": 11}
    question = make_question(PERSON, domain=domain, keys=keys, budget=budget)
    assert question.law == law
    none = {name: pa.array([], pa.int64()) for name in ("value", "group", "user")}
    table = released(question, none)._level(1)
    noise = np.rint(table["estimate"].to_numpy() * question.row_parts).astype(np.int64)
    assert p_value(noise, law) > FALSE_ALARM > p_value(noise, scaled(law, Fraction(7, 10)))


@pytest.mark.parametrize("budget", [EPSILON, RHO])
@pytest.mark.parametrize("rows", [8, 100])
def test_intervals_hold_as_often_as_stated(budget: Budget, rows: int) -> None:
    """Skewed values, under many keys of few rows."""
    number = 2000
    keys = KeyList(column="group", keys=tuple(range(number)))
    random = np.random.default_rng(6)
    values = np.minimum(random.geometric(0.1, (number, rows)), 100)
    columns = {
        "value": pa.array(values.reshape(-1)),
        "group": pa.array(np.repeat(np.arange(number), rows)),
    }
    tree = released(make_question(keys=keys, budget=budget), columns)
    held, refused, off = 0, 0, []
    for key in range(number):
        try:
            found = tree.statistic(StatisticKind.MEAN, key=key)
        except ValueError:
            refused += 1
            continue
        truth = values[key].mean()
        held += found.ci_low <= truth <= found.ci_high
        off.append(found.value - truth)
    answered = number - refused
    assert refused < (0.35 if rows == 8 else 0.01) * number
    assert stats.binomtest(held, answered, 0.95, "less").pvalue > FALSE_ALARM
    if rows == 100:
        # No wider than they need to be, and off by what is stated.
        assert held / answered < 0.985
        error = tree.statistic(StatisticKind.MEAN, key=0).std_error
        assert np.std(off) == pytest.approx(error, rel=0.15)


def test_the_mean_is_closer_than_that_of_two_measurements() -> None:
    """Half of the budget for the rows, half for the sum about the middle, as is usual."""
    # In the middle of the bounds the noise of the rows does not matter; a value is off by 50.
    usual = np.sqrt(DiscreteLaplace(scale=Fraction(2 * 50)).variance)
    own = 100 * make_question().share_error / np.sqrt(2)
    assert usual / own == pytest.approx(np.sqrt(2), rel=1e-3)


def test_the_specification_reads_back() -> None:
    for question in (
        make_question(),
        make_question(PERSON, keys=GROUPS, budget=RHO),
        make_question(domain={"column": "v", "lower": 0.5, "upper": 2, "cells": 1024}),
    ):
        whole = alone(question)
        assert plan_from_spec(whole.spec()) == whole


def test_bad_domains_and_plans_are_refused() -> None:
    dates = {"column": "d", "type": "date", "lower": "2020-01-01", "upper": "2021-01-01"}
    with pytest.raises(Refusal, match="values of type date have no mean"):
        make_question(domain=dates)
    with pytest.raises(Refusal, match="1 cells are not from 2 to"):
        make_question(domain=AGE | {"upper": 1})
    with pytest.raises(Refusal, match="no noise fits it"):
        make_question(budget=replace(EPSILON, amount=Fraction(1, 2**50)))
    spec = alone(make_question()).spec()
    for other in ({"cells": 51}, {"keyed": True}):
        spec["trees"][0]["plan"] |= other
        with pytest.raises(ValueError, match="plan: it does not follow from the other fields"):
            plan_from_spec(spec)


def test_what_is_not_measured_is_refused_by_name() -> None:
    tree = released(make_question(keys=GROUPS), {"value": pa.array([1]), "group": pa.array(["x"])})
    for refused, match in (
        (
            lambda: tree.statistic(StatisticKind.STD, key="x"),
            "std: tree m has a mean alone; a tree",
        ),
        (lambda: tree.statistic(StatisticKind.MEAN, 3, 4, "x"), "mean of all its rows alone"),
        (lambda: tree.statistic(StatisticKind.MEAN), "mean: key: tree m needs a key"),
        (lambda: tree.statistic(StatisticKind.MEAN, key="x"), "too few to divide by"),
        (lambda: tree.cdf(3, "x"), r"has a mean alone \(objective: mean\), which gives no CDF"),
        (lambda: tree.top(1, 1, "x"), "level: 1 is not 0"),
        (lambda: tree.at_path("a", "x"), "use --path ''"),
        (lambda: tree.at_confidence(1.0), "1.0 is not above 0"),
    ):
        with pytest.raises(ValueError, match=match):
            refused()
    narrow, wide = (tree.at_confidence(each).top(1, 0, "x")[0] for each in (0.5, 0.99))
    assert narrow.ci_high < wide.ci_high and narrow.estimate == wide.estimate
