"""Releases of a domain measured by a strategy: specification, answers, intervals, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, read_by
from dptrees.dpcore.levels.planner import predicted_cdf_rmse
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Noise, Setting, Way
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.objectives import CountObjective, QuantileObjective, RangeObjective
from dptrees.dpcore.uniform.plan import Consistency
from tests.dpcore.cases import for_each
from tests.dpcore.mechanisms import changed
from tests.dpcore.single_questions import alone

CELLS = 60
DOMAIN = StepDomain(
    kind="integer", column="age", lower=0, upper=CELLS, outside="clamp", missing="first"
)
KEYS = KeyList(column="city", keys=("a", "b", "c"))
HALF = Setting(unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
WORKLOAD = OrderedWorkload(name="age", domain=DOMAIN, quantiles=(0.25, 0.5), mechanism="factorised")
FALSE_ALARM = 1e-6


def make_question(
    unit: PrivacyUnit = ADD_REMOVE_ROW, workload: OrderedWorkload = WORKLOAD
) -> OrderedQuestion[FactorizedMechanism]:
    return workload.planned(replace(HALF, unit=unit))


def released(
    question: OrderedQuestion[FactorizedMechanism], counts: Integers, number: int = 7
) -> ReleaseReader:
    key = ReleaseKey(bytes([number % 256] * 31 + [number // 256]))
    return release_counts(alone(question), {"age": counts}, key)


def some_counts(rows: int = 1) -> Integers:
    return np.random.default_rng(3).integers(0, 90, (rows, CELLS))


@for_each("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW])
@for_each("keys", [None, KEYS])
def test_a_specification_is_read_back(unit: PrivacyUnit, keys: KeyList | None) -> None:
    question = make_question(unit, replace(WORKLOAD, keys=keys))
    plan = alone(question)
    again = plan_from_spec(json.loads(json.dumps(plan.spec())))
    assert again == plan
    assert question.public_total == (unit == SUBSTITUTE_ROW and keys is None)
    assert json.dumps(question.entry())


def test_answers_agree_with_each_other_and_with_the_data() -> None:
    counts = some_counts()
    tree = released(make_question(), counts).tree("age")
    whole = tree.cdf(CELLS)
    parts = [tree.range(start, start + 20) for start in (0, 20, 40)]
    assert sum(each.count for each in parts) == whole.count
    assert sum(each.estimate for each in parts) == pytest.approx(whole.estimate)
    for answer, truth in (
        (whole, counts.sum()),
        (tree.range(10, 30), counts[0, 10:30].sum()),
        (tree.sum([5, (20, 30), (40, 55)]), counts[0, [5, *range(20, 30), *range(40, 55)]].sum()),
        (tree.node(1, 2), counts[0, 32:48].sum()),
    ):
        assert abs(answer.estimate - truth) < stats.norm.isf(FALSE_ALARM / 10) * answer.std_error
    one, band = tree.cdf(30), tree.cdf(30, simultaneous=True)
    assert band.ci_low < one.ci_low < one.ci_high < band.ci_high
    wider = tree.at_confidence(0.99).cdf(30)
    assert wider.ci_low < one.ci_low and wider.std_error == one.std_error
    assert tree.quantile(0.5)["ci_low"] <= np.searchsorted(np.cumsum(counts), counts.sum() / 2)
    assert [row["q"] for row in tree.quantiles()] == [0.25, 0.5]


@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=str)
def test_a_specification_of_before_has_the_counts_of_before(unit: PrivacyUnit) -> None:
    """Its noise is that of now, and so are its estimates; its integers are repaired top down."""
    question = make_question(unit)
    spec = json.loads(json.dumps(alone(question).spec()))
    (entry,) = spec["trees"]
    assert entry.pop("consistency") == "l2"
    before = plan_from_spec(spec).questions[0]
    assert (
        isinstance(before.mechanism, FactorizedMechanism)
        and before.mechanism.consistency is Consistency.TOP_DOWN
    )
    assert json.loads(json.dumps(before.spec())) == entry  # what it is verified by
    assert "consistency" not in before.entry()
    now, old = (released(each, some_counts() // 30).tree("age") for each in (question, before))
    answers = [[tree.node(2, cell) for cell in range(CELLS)] for tree in (now, old)]
    assert [each.estimate for each in answers[0]] == [each.estimate for each in answers[1]]
    assert [each.count for each in answers[0]] != [each.count for each in answers[1]]
    with pytest.raises(ValueError, match="l2 or top_down"):
        changed(question, consistency=Consistency.L1)


def test_counts_are_closer_than_estimates_and_than_those_from_the_top_down() -> None:
    """Compare errors for 60 rows in three of sixty cells, with no rows elsewhere."""
    counts = np.zeros((1, CELLS), dtype=np.int64)
    counts[0, [3, 20, 41]] = 30, 20, 10
    question, runs, truth = make_question(), 100, np.cumsum(counts)
    errors = {"estimate": 0.0, "top_down": 0.0, "l2": 0.0}
    for consistency in (Consistency.L2, Consistency.TOP_DOWN):
        repaired = changed(question, consistency=consistency)
        for number in range(runs):
            rows = released(repaired, counts, number).part("cdf", "age", 0, 0)
            errors[consistency.value] += np.square(rows["count"].to_numpy() - truth).sum()
            errors["estimate"] += np.square(rows["estimate"].to_numpy() - truth).sum() / 2
    assert errors["l2"] < 0.8 * errors["estimate"]
    assert errors["l2"] < 0.8 * errors["top_down"]


def test_every_key_has_its_answers() -> None:
    counts = some_counts(3)
    tree = released(make_question(workload=replace(WORKLOAD, keys=KEYS)), counts).tree("age")
    for place, key in enumerate("abc"):
        answer, truth = tree.cdf(30, key), counts[place, :30].sum()
        assert abs(answer.estimate - truth) < 6 * answer.std_error


@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=str)
def test_intervals_of_ranges_and_quantiles_cover(unit: PrivacyUnit) -> None:
    """Check that intervals cover at their stated rate: exactly for a range, at least for a
    quantile."""
    question, counts, runs = make_question(unit), some_counts(), 400
    cdf = np.cumsum(counts)
    median = int(np.searchsorted(cdf, np.ceil(cdf[-1] / 2)))
    missed = {"range": 0, "cdf": 0, "median": 0}
    for number in range(runs):
        tree = released(question, counts, number).tree("age")
        answers = {"range": (tree.range(7, 31), cdf[30] - cdf[6]), "cdf": (tree.cdf(31), cdf[30])}
        for name, (answer, truth) in answers.items():
            missed[name] += not answer.ci_low <= truth <= answer.ci_high
        row = tree.quantile(0.5)
        missed["median"] += not row["ci_low"] <= median <= row["ci_high"]
    low, high = stats.binom.ppf([FALSE_ALARM / 6, 1 - FALSE_ALARM / 6], runs, 0.05)
    assert low <= missed["range"] <= high and low <= missed["cdf"] <= high
    assert missed["median"] <= high


def test_what_is_read_of_it_shapes_the_strategy() -> None:
    for objective in (
        QuantileObjective(quantiles=(0.5,)),
        RangeObjective(widths=(5,)),
        RangeObjective(),
    ):
        own = replace(WORKLOAD, objective=objective)
        read = read_by(objective, public_total=False)
        better, other = (make_question(workload=each) for each in (own, WORKLOAD))
        errors = [each.forest.errors.rmse(read) for each in (better, other)]
        assert errors[0] < errors[1]
        assert own.predicted(better) == pytest.approx(errors[0])


def test_it_is_better_than_the_planned_tree() -> None:
    for unit in (ADD_REMOVE_ROW, SUBSTITUTE_ROW):
        question = make_question(unit)
        tree = replace(WORKLOAD, mechanism="levels").planned(
            replace(HALF, unit=unit, drops_rows=not question.public_total)
        )
        assert tree.plan.public_total == question.public_total
        assert WORKLOAD.predicted(question) < 0.95 * predicted_cdf_rmse(tree.plan)


@for_each(
    ("change", "field"),
    [
        ({"noise": Noise.LAPLACE}, "noise"),
        ({"objective": CountObjective()}, "objective"),
        (
            {"domain": StepDomain(kind="integer", column="x", lower=0, upper=2**20 + 1)},
            "mechanism",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(change: dict[str, object], field: str) -> None:
    workload = replace(WORKLOAD, **change)
    with pytest.raises(Refusal) as refused:
        workload.check(Measure.RHO, delta=True)
    assert refused.value.field == field


def test_epsilon_alone_is_refused() -> None:
    assert WORKLOAD.ways == {Way.SHARED}
    with pytest.raises(Refusal, match="trees have the smaller errors"):
        WORKLOAD.check(Measure.EPSILON, delta=False)
