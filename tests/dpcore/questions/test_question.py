"""Specifications: read back as they were, digested whole; parts that do not fit are refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.uniform.objectives import RangeObjective
from tests.dpcore.mechanisms import changed
from tests.dpcore.refusals import check_refusals

Make = Callable[..., Any]


def some_plans(make_question: Make, make_release_plan: Make) -> list[ReleasePlan]:
    keyed = make_question(keys=3, name="by carrier", quantiles=(0.1, 0.5), confidence=0.9)
    public = make_question(unit=SUBSTITUTE_ROW, public_total=True)
    number = replace(
        make_question(name="distance", weight=Fraction(2, 3)),
        domain=NumberDomain(column="distance", lower=0.1, upper=0.7, cells=12),
    )
    names = tuple("abcdefghijkl")
    category = replace(
        make_question(name="category", measure=Measure.RHO),
        domain=CategoryDomain(column="c", categories=names, unknown="first"),
    )
    return [
        make_release_plan(make_question()),
        make_release_plan(make_question(), keyed, number),
        make_release_plan(public),
        make_release_plan(category),
    ]


def test_a_specification_is_read_back(make_question: Make, make_release_plan: Make) -> None:
    for plan in some_plans(make_question, make_release_plan):
        for spec in (plan.spec(), json.loads(json.dumps(plan.spec()))):
            again = plan_from_spec(spec)
            assert again == plan
            assert again.digest == plan.digest
            assert again.spec() == plan.spec()


def test_what_shapes_the_noise_changes_the_digest_and_nothing_else_does(
    make_question: Make, make_release_plan: Make
) -> None:
    base = make_question(keys=2, quantiles=(0.5,))
    whole = base.plan.budget.amount
    other_amounts = [whole * amount for amount in (Fraction(1, 2), Fraction(3, 4))]
    amounts = list(base.plan.level_amounts)
    amounts[-1] -= Fraction(1, 2**30)
    others = [
        replace(base, name="other"),
        replace(base, domain=StepDomain(kind="integer", column="other", lower=0, upper=12)),
        replace(base, domain=StepDomain(kind="integer", column="delay", lower=1, upper=13)),
        replace(
            base,
            domain=StepDomain(kind="integer", column="delay", lower=0, upper=12, missing="first"),
        ),
        replace(
            base,
            domain=StepDomain(kind="integer", column="delay", lower=0, upper=12, outside="drop"),
        ),
        replace(base, keys=KeyList(column="carrier", keys=("k1", "k0"))),
        replace(base, keys=KeyList(column="carrier", keys=("k0",), unknown="other")),
        changed(base, plan=replace(base.plan, level_amounts=tuple(amounts))),
        *[make_question(keys=2, quantiles=(0.5,), amount=amount) for amount in other_amounts],
        make_question(keys=2, quantiles=(0.5,), measure=Measure.RHO),
        make_question(keys=2, quantiles=(0.5,), unit=SUBSTITUTE_ROW),
        make_question(keys=3, quantiles=(0.5,)),
        make_question(quantiles=(0.5,)),
    ]
    plans = [make_release_plan(each) for each in [base, *others]]
    plans.append(make_release_plan(base, name="another"))
    plans.append(make_release_plan(base, replace(base, name="second")))
    assert len({plan.digest for plan in plans}) == len(plans)
    output = {
        "quantiles": (0.25,),
        "confidence": 0.9,
        "weight": Fraction(2),
        "objective": RangeObjective(),
    }
    same = [replace(base), *(changed(base, **{name: value}) for name, value in output.items())]
    assert {make_release_plan(each).digest for each in same} == {plans[0].digest}


def test_refuses_a_specification_of_another_format(
    make_question: Make, make_release_plan: Make
) -> None:
    spec = make_release_plan(make_question()).spec()
    with pytest.raises(ValueError, match="format: 99 is not"):
        plan_from_spec({**spec, "format": 99})


def test_a_question_refuses_parts_that_do_not_fit(make_question: Make) -> None:
    keys = KeyList(column="carrier", keys=("UA",))
    wider = StepDomain(kind="integer", column="delay", lower=0, upper=13)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"domain": wider}, "plan: 12 leaves for a domain of 13 cells"),
        ({"keys": keys}, "keyed"),
        ({"quantiles": (0.5, 1.01)}, "quantiles: 1.01"),
        ({"quantiles": (float("nan"),)}, "quantiles: nan"),
        ({"confidence": 0.0}, "confidence"),
        ({"confidence": 0.99999}, "confidence"),
    ]
    check_refusals(partial(changed, make_question()), rows)
    public = make_question(unit=SUBSTITUTE_ROW, public_total=True)
    # A total is not public where rows are dropped.
    drops = {"domain": StepDomain(kind="integer", column="delay", lower=0, upper=12)}
    check_refusals(partial(replace, public), [(drops, "drops rows"), ({"keys": keys}, "keyed")])


def test_a_release_refuses_questions_that_do_not_fit(make_question: Make) -> None:
    one = make_question()

    def release(
        *questions: OrderedQuestion[UniformMechanism],
        amount: int = 2,
        **fields: Any,
    ) -> ReleasePlan:
        budget = Budget(measure=Measure.EPSILON, amount=Fraction(amount))
        given = {"unit": ADD_REMOVE_ROW, "budget": budget} | fields
        return ReleasePlan(name="r", questions=questions, **given)

    assert release(one, replace(one, name="b")).question("b").name == "b"
    with pytest.raises(KeyError):
        release(one).question("b")
    with pytest.raises(ValueError, match="at least one"):
        release()
    with pytest.raises(ValueError, match="is listed twice"):
        release(one, one)
    with pytest.raises(ValueError, match="budgets sum to 3, above 2"):
        release(one, replace(one, name="b"), replace(one, name="c"))
    with pytest.raises(ValueError, match="another guarantee"):
        release(one, unit=SUBSTITUTE_ROW)
    with pytest.raises(ValueError, match="another guarantee"):
        release(make_question(measure=Measure.RHO))


def test_rows_become_global_leaf_ids(make_question: Make) -> None:
    batch = {
        "delay": pa.array([0, 11, None, 5, 99, 3]),
        "carrier": pa.array(["k0", "k1", "k1", "zz", "k1", None]),
    }
    plain, keyed = make_question(), make_question(keys=2)
    assert plain.leaf_ids(batch).tolist() == [0, 11, 5, 11, 3]  # null dropped, 99 clamped
    assert keyed.leaf_ids(batch).tolist() == [0, 23, 23]
    other = replace(keyed, keys=KeyList(column="carrier", keys=("k1",), unknown="other"))
    assert other.leaf_ids(batch).tolist() == [12, 11, 17, 11, 15]
    assert keyed.leaf_ids(batch).dtype == np.int64
    assert plain.columns == ("delay",) and keyed.columns == ("delay", "carrier")


def test_columns_of_a_release_are_read_once(make_question: Make, make_release_plan: Make) -> None:
    plan = make_release_plan(make_question(), make_question(keys=2, name="b"))
    assert plan.columns == ("delay", "carrier")


def test_keys_have_names(make_question: Make) -> None:
    assert make_question().key_labels == [None] and make_question().key_count == 1
    assert make_question(keys=2).key_labels == ["k0", "k1"]


def test_a_pickled_question_leaves_its_arrays_behind(make_question: Make) -> None:
    question = make_question(leaves=4096)
    forest = question.forest
    forest.prefix_variances(forest.chunking[0])
    travelled = pickle.dumps(question)
    assert len(travelled) < 5000
    assert pickle.loads(travelled) == question
