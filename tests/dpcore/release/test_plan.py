"""The guarantee of a release of several kinds of trees: what each spends adds up, exactly."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.composition import Spending, certified_delta
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec, total_spending
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sparse.labels import LabelDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from tests import toy_kind
from tests.dpcore.hierarchy_questions import BUSHY, hierarchy_question

SPARSE = Fraction(1, 3), Fraction(1, 10**7)
REST = Fraction(2, 3), Fraction(1, 10**6)
WHOLE = SPARSE[0] + REST[0], SPARSE[1] + REST[1]
LABELS = LabelDomain(label_columns=("origin", "dest"))


def sparse(
    spent: tuple[Fraction, Fraction] = SPARSE,
    name: str = "heavy",
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> SparseQuestion:
    return SparseQuestion(name=name, domain=LABELS, plan=plan_sparse(LABELS.names, *spent, unit))


def rho(amount: Fraction) -> Budget:
    return Budget(measure=Measure.RHO, amount=amount)


def release(
    *questions: Question, stated: tuple[Fraction, Fraction] | None = WHOLE, amount: Fraction
) -> ReleasePlan:
    return ReleasePlan(
        name="mixed",
        unit=ADD_REMOVE_ROW,
        budget=rho(amount),
        questions=questions,
        stated=stated,
    )


def refuses(*questions: Question, match: str = "the noise does not keep", **given: Any) -> None:
    """Check that a release of questions is refused."""
    with pytest.raises(ValueError, match=match):
        release(*questions, **given)


EPS = Measure.EPSILON
CONVERTED = zcdp_rho(*REST)
TINY = Fraction(1, 10**30)


@pytest.mark.parametrize("form", ["digits", "bushy"])
def test_a_mixed_release_keeps_the_sum(form: str) -> None:
    """Sparse part + what the rho of the others is worth = what is stated, and not a bit less."""
    tree = hierarchy_question(form, budget=rho(CONVERTED))
    plan = release(sparse(), tree, amount=CONVERTED)
    assert plan.composed == (tree,)
    again = plan_from_spec(json.loads(json.dumps(plan.spec())), lambda digest: tree.domain.universe)
    assert again == plan and again.digest == plan.digest
    for less in ((WHOLE[0] - SPARSE[0] / 2, WHOLE[1]), (WHOLE[0], WHOLE[1] - SPARSE[1] / 2)):
        if form == "digits":  # a chain: nothing but its rho is known
            refuses(sparse(), tree, stated=less, amount=CONVERTED)


def test_where_only_rho_is_known_no_more_of_it_is_taken() -> None:
    more = CONVERTED * (1 + Fraction(1, 10**6))
    release(sparse(), hierarchy_question(budget=rho(CONVERTED)), amount=CONVERTED)
    refuses(sparse(), hierarchy_question(budget=rho(more)), amount=more)


def test_where_the_laws_are_known_the_certificate_decides() -> None:
    """More rho than its conversion allows, as long as the composed laws keep what is left."""
    kept = refused = False
    for percent in range(100, 200, 5):
        amount = CONVERTED * percent / 100
        tree = hierarchy_question("bushy", budget=rho(amount))
        moved = total_spending([tree]).moved
        assert moved is not None
        holds = certified_delta(moved, REST[0]) <= REST[1] or percent <= 100
        if holds:
            release(sparse(), tree, amount=amount)
            kept |= percent > 100
        else:
            refused = True
            refuses(sparse(), tree, amount=amount)
    assert kept and refused


def test_a_planted_doubling_is_refused() -> None:
    tree = hierarchy_question(budget=rho(CONVERTED))
    # The sparse tree twice, or with twice its epsilon, or with twice its delta.
    for spent in ((SPARSE[0] * 2, SPARSE[1]), (SPARSE[0], SPARSE[1] * 2)):
        refuses(sparse(spent), tree, amount=CONVERTED)
    refuses(sparse(), sparse(name="again"), tree, amount=CONVERTED)
    refuses(
        sparse(),
        tree,
        hierarchy_question(name="b", budget=rho(CONVERTED)),
        amount=CONVERTED,
        match=r"budgets sum to .*, above",
    )
    doubled = hierarchy_question(budget=rho(CONVERTED * 2))
    refuses(sparse(), doubled, amount=CONVERTED * 2)


def test_sparse_trees_alone_add_up_exactly() -> None:
    two = [sparse(), sparse(REST, name="other")]
    assert release(*two, amount=Fraction(1)).spending.moved == ()
    for less in ((WHOLE[0] - TINY, WHOLE[1]), (WHOLE[0], WHOLE[1] - TINY)):
        refuses(*two, stated=less, amount=Fraction(1))
    release(*two, stated=(WHOLE[0] + TINY, WHOLE[1] + TINY), amount=Fraction(1))


def test_nothing_left_for_the_others_is_refused() -> None:
    little = Fraction(1, 10**12)
    tree = hierarchy_question("bushy", budget=rho(little))
    for stated in (SPARSE, (SPARSE[0], WHOLE[1]), (WHOLE[0], SPARSE[1])):
        refuses(sparse(), tree, stated=stated, amount=little)


def test_a_delta_that_is_spent_must_be_stated() -> None:
    refuses(sparse(), stated=None, amount=Fraction(1), match="delta: a tree spends one")


def test_an_epsilon_of_a_tree_of_its_own_is_added() -> None:
    """Laplace noise beside a stated delta spends epsilon alone: basic composition, exactly."""
    pure = hierarchy_question("bushy", name="pure", budget=Budget(measure=EPS, amount=REST[0]))
    plan = release(sparse(), pure, stated=(WHOLE[0], SPARSE[1]), amount=Fraction(1))
    assert plan.composed == ()
    refuses(sparse(), pure, stated=(WHOLE[0] - TINY, SPARSE[1]), amount=Fraction(1))
    tree = hierarchy_question(budget=rho(CONVERTED))
    whole = WHOLE[0] + REST[0], WHOLE[1]
    release(sparse(), pure, tree, stated=whole, amount=CONVERTED)
    refuses(sparse(), pure, tree, stated=(whole[0] - REST[0] / 1000, WHOLE[1]), amount=CONVERTED)


def test_guarantees_are_not_mixed() -> None:
    pure = hierarchy_question("bushy")
    refuses(pure, stated=None, amount=CONVERTED, match="places is planned for another guarantee")
    refuses(
        sparse(unit=SUBSTITUTE_ROW),
        amount=Fraction(1),
        match="heavy is planned for another guarantee",
    )


def test_questions_are_found_by_name() -> None:
    tree = hierarchy_question("bushy", budget=rho(CONVERTED))
    plan = release(sparse(), tree, amount=CONVERTED)
    assert plan.question("heavy") is plan.questions[0] and plan.question("places") is tree
    with pytest.raises(KeyError):
        plan.question("none")
    assert plan.columns == ("origin", "dest", "tens") and tree.domain.universe == BUSHY


def test_moved_counts_add_up_where_all_are_known() -> None:
    one = hierarchy_question("bushy", name="one", budget=rho(CONVERTED / 2))
    two = hierarchy_question("bushy", name="two", budget=rho(CONVERTED / 2))
    plan = release(sparse(), one, two, amount=CONVERTED)
    assert one.mechanism.moved_counts is not None and two.mechanism.moved_counts is not None
    assert plan.spending.moved == one.mechanism.moved_counts + two.mechanism.moved_counts
    pooled = hierarchy_question("digits", name="pooled", budget=rho(CONVERTED / 2))
    assert release(sparse(), one, pooled, amount=CONVERTED).spending.moved is None


def test_what_a_tree_spends_counts_and_not_what_it_shows() -> None:
    """A kind whose budget is less than what it spends is refused, with a delta or without."""

    class Dear(HierarchyQuestion[IrregularMechanism]):
        @property
        def spending(self) -> Spending:
            return super().spending + super().spending

    for own, stated in ((Budget(measure=EPS, amount=Fraction(1)), None), (rho(CONVERTED), WHOLE)):
        fair = hierarchy_question("bushy", budget=own)
        given = {each.name: getattr(fair, each.name) for each in fields(fair)}
        plan = ReleasePlan(name="one", unit=fair.unit, budget=own, questions=(fair,), stated=stated)
        with pytest.raises(ValueError, match="trees: budgets sum to"):
            replace(plan, questions=(Dear(**given),))


def test_a_tree_that_spends_another_measure_than_its_budget_is_refused() -> None:
    """A kind may state one measure and spend another: neither is added to the other."""
    for measure, spent in ((Measure.RHO, "epsilon"), (Measure.EPSILON, "rho")):
        budget = Budget(measure=measure, amount=Fraction(1))
        question = toy_kind.TotalsQuestion(
            name="own", keys=KeyList(column="k", keys=("a",)), share=budget, relation=ADD_REMOVE_ROW
        )
        plan = ReleasePlan(name="r", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))
        assert plan.spending == question.spending
        other = Spending(**{spent: Fraction(1, 4)})
        kind = type("Other", (toy_kind.TotalsQuestion,), {"spending": other})
        wrong = kind(**{each.name: getattr(question, each.name) for each in fields(question)})
        with pytest.raises(ValueError, match=f"they spend an? {spent} of 1/4 beside the budget"):
            replace(plan, questions=(wrong,))
