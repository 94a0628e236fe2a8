"""Questions by thresholds: how they describe themselves, what a row costs, what is released."""

from __future__ import annotations

import itertools
import json
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.question import (
    HierarchyQuestion,
    ReleasedHierarchy,
    hierarchy_question_from_spec,
)
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.levels.irregular import ThresholdMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.thresholds.forest import ThresholdIntervals
from tests.dpcore.cases import for_each
from tests.dpcore.hierarchy_questions import (
    UNIVERSES,
    all_nodes,
    leaf_counts,
    random_rows,
)
from tests.dpcore.mechanisms import changed
from tests.dpcore.threshold_questions import make_stated_plan, short_plan, threshold_question

KEY = ReleaseKey(bytes(32))
ADD, SUBSTITUTE = ADD_REMOVE_ROW, SUBSTITUTE_ROW
FORMS = ("digits", "bushy", "columns", "paths")


def from_spec(spec: Any, universe: Universe) -> HierarchyQuestion[ThresholdMechanism]:
    """Return the question of a specification."""
    keyed = spec["keys"] is not None
    return hierarchy_question_from_spec(
        spec,
        universe,
        lambda left, domain: ThresholdMechanism.from_entries(
            left, tree=domain.tree.shape, keyed=keyed
        ),
    )


def released(question: HierarchyQuestion[ThresholdMechanism], counts: np.ndarray) -> ReleaseReader:
    return release_counts(make_stated_plan(question), {question.name: counts}, KEY)


def some_counts(question: Question, form: str) -> np.ndarray:
    return leaf_counts(question, random_rows(size=6000))  # type: ignore[arg-type]


# --- how it describes itself ---


@for_each("form", FORMS)
@for_each("keys", [(), ("white", "black")])
def test_comes_back_from_its_specification(form: str, keys: tuple[str, ...]) -> None:
    question = threshold_question(form, keys=keys, confidence=0.9, weight=Fraction(2, 3))
    spec = json.loads(json.dumps(question.spec()))
    again = from_spec(spec, UNIVERSES[form])
    assert again == changed(question, plan=again.plan, domain=again.domain)
    assert again.plan.thresholds == question.plan.thresholds
    assert again.plan.keyed == bool(keys)
    plan = make_stated_plan(question)
    read = plan_from_spec(plan.spec(), lambda digest: UNIVERSES[form])
    assert read.digest == plan.digest and read.spec() == plan.spec()


def test_another_universe_is_refused() -> None:
    with pytest.raises(ValueError, match="universe"):
        from_spec(threshold_question("digits").spec(), UNIVERSES["bushy"])


def test_the_digest_covers_the_mechanism_and_not_what_is_said_of_it() -> None:
    question = threshold_question()
    digest, plan, rounds = (
        make_stated_plan(question).digest,
        question.plan,
        question.plan.thresholds.rounds,
    )
    same = [
        replace(question, confidence=0.5),
        changed(question, objective=replace(question.mechanism.objective, alpha=0.1)),
        replace(question, weight=Fraction(7)),
    ]
    assert {make_stated_plan(each).digest for each in same} == {digest}
    plans = []
    for name, value in (("tau", rounds[0].tau + 1), ("acceptance", rounds[0].acceptance + 1)):
        first = replace(rounds[0], **{name: value})
        plans.append(replace(plan.thresholds, rounds=(first, *rounds[1:])))
    plans.append(replace(plan.thresholds, rounds=rounds[:-1]))
    plans.append(replace(plan.thresholds, delta=plan.thresholds.delta * 2))
    questions = [changed(question, plan=replace(plan, thresholds=each)) for each in plans]
    digests = {make_stated_plan(each).digest for each in questions}
    assert len(digests) == len(plans) and digest not in digests


def test_travels_without_the_tree_and_with_its_intervals() -> None:
    question = threshold_question("paths")
    again = pickle.loads(pickle.dumps(question))
    assert again.plan.tree is again.domain.tree.shape
    assert again.plan.thresholds == question.plan.thresholds
    assert "widths" not in again.__dict__
    known = ThresholdIntervals(
        confidence=0.95, low=question.widths.low, high=tuple(np.arange(100.0, 100 + 1e9, 1e8))
    )
    question.remember_widths(known)
    assert pickle.loads(pickle.dumps(question)).widths == known
    assert question.mechanism.widths_kind.from_spec(known.spec()) == known


def test_there_is_no_budget_to_share_and_no_margin() -> None:
    question = threshold_question()
    assert (question.budget, question.mechanism.moved_counts, question.public_total) == (
        None,
        None,
        False,
    )
    assert question.spending.own == (
        question.plan.thresholds.epsilon,
        question.plan.thresholds.delta,
    )
    solved = question.forest
    with pytest.raises(TypeError, match="have no one margin"):
        question.rule.margins(solved)  # type: ignore[arg-type]


# --- what a row costs ---


@for_each("keys", [(), ("white", "black")])
@for_each("unit", [ADD, SUBSTITUTE])
def test_a_row_costs_the_steps_that_neighbouring_rows_take(
    unit: PrivacyUnit, keys: tuple[str, ...]
) -> None:
    """Over all neighbors of small data sets: so many rows are added or removed, over all trees."""
    question = threshold_question("digits", unit=unit, keys=keys)
    rows = [
        {"code": code, "race": race}
        for code, race in itertools.product(["0100", "9001", "77"], ["white", "black"])
    ]
    data = [{"code": "0110", "race": "white"}]

    def counts(table: list[dict[str, str]]) -> np.ndarray:
        schema = pa.schema([("code", pa.string()), ("race", pa.string())])
        return leaf_counts(question, pa.Table.from_pylist(table, schema=schema))  # type: ignore[arg-type]

    if unit is ADD:
        pairs = [(data, [*data, row]) for row in rows]
    else:
        pairs = [([*data, one], [*data, other]) for one in rows for other in rows]
    moved = max(int(np.abs(counts(one) - counts(other)).sum()) for one, other in pairs)
    group = question.plan.thresholds.group
    assert moved == group.steps == (2 if unit is SUBSTITUTE else 1)
    # The rounds spend no more than a step may.
    spent = sum((each.epsilon for each in question.plan.thresholds.rounds), Fraction())
    assert spent * moved <= question.spending.own[0]


def test_a_release_that_states_less_than_is_spent_is_refused() -> None:
    plan = make_stated_plan(threshold_question())
    assert plan.stated is not None
    epsilon, delta = plan.stated
    for less in ((epsilon * Fraction(99, 100), delta), (epsilon, delta * Fraction(99, 100))):
        with pytest.raises(ValueError, match="delta: the noise does not keep"):
            replace(plan, stated=less)
    with pytest.raises(ValueError, match="delta: a tree spends one, so the release must state one"):
        replace(plan, stated=None)


# --- what is released ---


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys", [(), ("white", "black")])
def test_rows_are_the_named_nodes_with_their_rounds_intervals(
    form: str, keys: tuple[str, ...]
) -> None:
    question = threshold_question(form, keys=keys)
    release = released(question, some_counts(question, form))
    table, tree = all_nodes(release, question.name), question.domain.tree
    named = sum(
        int(tree.is_named(level, np.arange(size)).sum())
        for level, size in enumerate(tree.level_sizes)
    )
    assert len(table) == named * question.key_count
    assert table["std_error"].null_count == len(table)
    ends = dict(
        zip(
            question.plan.estimates.tolist(),
            zip(question.widths.low, question.widths.high, strict=True),
            strict=True,
        )
    )
    for row in table.to_pylist():
        assert (row["ci_low"], row["ci_high"]) == ends[row["estimate"]]
    counts: dict[tuple[str | None, int, int], int] = {
        (row["key"], row["level"], row["node"]): row["count"] for row in table.to_pylist()
    }
    for (key, level, node), count in counts.items():
        children = tree.shape.children(level, node) if level < tree.height else []
        below = [counts.get((key, level + 1, child)) for child in children]
        if below and None not in below:
            assert sum(below) == count  # type: ignore[arg-type]


def test_large_counts_are_found_and_small_ones_are_not() -> None:
    plan = short_plan()
    question = threshold_question("bushy", plan=plan)
    counts = np.zeros(12, dtype=np.int64)
    counts[[0, 5]] = 10**6, 3
    tree = released(question, counts).tree(question.name)
    assert isinstance(tree, ReleasedHierarchy)
    top = float(plan.rounds[-1].estimate)
    answers = {path: tree.at_path(path) for path in ("", "0", "00", "1", "11", "23")}
    assert [answers[path].estimate for path in ("", "0", "00")] == [top] * 3
    assert {answers[path].estimate for path in ("1", "11", "23")} == {float(plan.least)}
    assert {answer.std_error for answer in answers.values()} == {None}
    assert answers["00"].ci_low == plan.rounds[-1].floor and answers["23"].ci_low == 0
    with pytest.raises(ValueError, match="the intervals of tree thresholds are those of the"):
        tree.at_confidence(0.5)


def test_keys_answer_alone() -> None:
    question = threshold_question("bushy", keys=("white", "black"))
    assert isinstance(question.keys, KeyList)
    counts = np.zeros((2, 12), dtype=np.int64)
    counts[1] = 5000
    tree = released(question, counts).tree(question.name)
    assert isinstance(tree, ReleasedHierarchy)
    least = float(question.plan.thresholds.least)
    assert tree.at_path("", "white").estimate == least
    assert (tree.at_path("00", "black").estimate or 0) > least
    assert [each.label for each in tree.top(2, 1, "black")] != []
