"""Questions about hierarchies: the specification, what travels, what rows add, what is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_code_blocks, universe_from_codes
from dptrees.dpcore.hierarchy.question import (
    HierarchyQuestion,
)
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from tests.dpcore.cases import for_each
from tests.dpcore.hierarchy_questions import (
    BLOCKS,
    BUSHY,
    UNIVERSES,
    hierarchy_question,
    leaf_counts,
    make_release_plan,
    node_sums,
    random_rows,
    universe_domain,
)
from tests.dpcore.mechanisms import changed

SUBSTITUTE = SUBSTITUTE_ROW
AMOUNT = MeasureColumn(column="amount", lower=-5, upper=30)
PAID = MeasureColumn(column="amount", lower=0, upper=30, missing="zero")
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 3))
QUESTIONS: dict[str, HierarchyQuestion[IrregularMechanism]] = {
    "plain": hierarchy_question(),
    "text labels": hierarchy_question(
        "columns", domain=universe_domain("columns", unknown="other")
    ),
    "paths": hierarchy_question("paths", domain=universe_domain("paths", missing="other")),
    "keys": hierarchy_question(keys=("white", "black"), unknown_key="other", confidence=0.9),
    "signed sums": hierarchy_question(measure=AMOUNT),
    "sums by key": hierarchy_question(measure=PAID, keys=("white", "black")),
    "public": hierarchy_question(
        domain=universe_domain("digits", unknown="other", missing="other"),
        unit=SUBSTITUTE,
        public_level=0,
    ),
    "invariants": hierarchy_question(unit=SUBSTITUTE, public_level=1, budget=RHO),
    "weights": hierarchy_question(
        weights=NodeWeights(levels=(1, 0, 2, 1), nodes=((1, 2, 0.5),)), weight=Fraction(2, 3)
    ),
}


def find_universe(digest: str) -> Universe:
    return {universe.digest: universe for universe in UNIVERSES.values()}[digest]


def test_slots_count_no_row_without_a_leaf_at_the_key_before() -> None:
    """The leaf 9999 is in the last slot of each key."""
    codes = pa.array(["0100", "0101", "9999"])
    universe = universe_from_code_blocks(
        1, lambda _: codes, (2, 2), levels=("county", "block"), column="code"
    )
    question = hierarchy_question(
        domain=universe_domain("digits", universe=universe), keys=("white", "black")
    )
    slots = question.slots
    assert slots is not None
    rows = pa.table(
        {
            "code": pa.array(["0100", None, "9999", "7777", "0101", "9999", None]),
            "race": pa.array(["white", "black", "black", "black", "red", "white", "white"]),
        }
    )
    cells = question.increments({name: rows[name] for name in rows.column_names}).cells
    assert cells.tolist() == [0, 2 * slots.per_key - 1, slots.per_key - 1]


@for_each("name", QUESTIONS)
def test_a_specification_is_read_back(name: str) -> None:
    plan = make_release_plan(QUESTIONS[name])
    for spec in (plan.spec(), json.loads(json.dumps(plan.spec(), allow_nan=False))):
        again = plan_from_spec(spec, find_universe)
        assert again == plan and again.digest == plan.digest and again.spec() == plan.spec()


def test_the_specification_names_the_universe_and_does_not_hold_it() -> None:
    spec = make_release_plan(hierarchy_question()).spec()
    text = json.dumps(spec)
    assert BLOCKS.digest in text and "0112" not in text
    with pytest.raises(ValueError, match="the universe of places is not at hand"):
        plan_from_spec(spec)
    with pytest.raises(ValueError, match="not the one that the specification names"):
        plan_from_spec(spec, lambda digest: BUSHY)


def test_what_shapes_the_noise_changes_the_digest_and_nothing_else_does() -> None:
    base = hierarchy_question(unit=SUBSTITUTE)
    amounts = list(base.plan.level_amounts)
    amounts[1] -= Fraction(1, 2**30)
    looser = tuple((l1 + 1, l2) for l1, l2 in base.plan.sensitivities)
    renamed = universe_from_codes(
        BLOCKS.paths(3, np.arange(BLOCKS.leaves)), (1, 1, 2), levels=("state", "county", "tract")
    )
    fewer = universe_from_codes(
        BLOCKS.paths(3, np.arange(9)), (1, 1, 2), levels=("state", "county", "block")
    )
    others = [
        replace(base, name="other"),
        replace(base, chunk_leaves=4),  # the streams of noise follow the chunks
        replace(base, domain=replace(base.domain, columns=("place",))),
        hierarchy_question(unit=SUBSTITUTE, domain=universe_domain("digits", unknown="other")),
        hierarchy_question(unit=SUBSTITUTE, domain=universe_domain("digits", missing="other")),
        hierarchy_question(unit=SUBSTITUTE, domain=universe_domain("digits", universe=renamed)),
        hierarchy_question(unit=SUBSTITUTE, domain=universe_domain("digits", universe=fewer)),
        hierarchy_question(unit=SUBSTITUTE, keys=("white",)),
        hierarchy_question(unit=SUBSTITUTE, keys=("white", "black")),
        hierarchy_question(unit=SUBSTITUTE, keys=("white",), unknown_key="other"),
        hierarchy_question(unit=SUBSTITUTE, public_level=0),
        hierarchy_question(unit=SUBSTITUTE, public_level=1),
        hierarchy_question(unit=SUBSTITUTE, budget=RHO),
        hierarchy_question(unit=SUBSTITUTE, measure=AMOUNT),
        hierarchy_question(unit=SUBSTITUTE, measure=PAID),
        hierarchy_question(unit=SUBSTITUTE, measure=replace(PAID, missing="drop")),
        hierarchy_question(unit=SUBSTITUTE, measure=replace(PAID, column="paid")),
        hierarchy_question(unit=SUBSTITUTE, measure=replace(PAID, upper=31)),
        hierarchy_question(),
        changed(base, plan=replace(base.plan, level_amounts=tuple(amounts))),
        changed(base, plan=replace(base.plan, sensitivities=looser)),
    ]
    digests = [make_release_plan(each).digest for each in (base, *others)]
    assert len(set(digests)) == len(digests)
    same = [
        replace(base, confidence=0.5),
        replace(base, weight=Fraction(7)),
        changed(base, weights=NodeWeights(levels=(1, 1, 1, 1))),
    ]
    assert {make_release_plan(each).digest for each in same} == {digests[0]}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_unpickled_question_is_the_question(name: str) -> None:
    question = QUESTIONS[name]
    again = pickle.loads(pickle.dumps(question))
    assert again == question and again.spec() == question.spec()
    rows = random_rows(1, 300)
    assert leaf_counts(again, rows).tolist() == leaf_counts(question, rows).tolist()
    assert again.widths == question.widths
    for level, size in enumerate(question.plan.tree.level_sizes):
        nodes = np.arange(size)
        assert again.node_labels(level, nodes) == question.node_labels(level, nodes)


def test_widths_that_were_computed_travel_along(monkeypatch: pytest.MonkeyPatch) -> None:
    question = hierarchy_question(name="once")
    widths = question.widths
    travelled = pickle.dumps(question)
    monkeypatch.setattr("dptrees.dpcore.levels.irregular.irregular_widths", None)
    assert pickle.loads(travelled).widths == widths


def test_what_a_question_computes_for_itself_stays_behind() -> None:
    """Nothing travels but the universe: its size is that of the pickle."""
    codes = pa.array([f"{number:06d}" for number in range(20_000)])
    universe = universe_from_codes(codes, (2, 2, 2))
    question = hierarchy_question(domain=HierarchyDomain(universe=universe, columns=("code",)))
    bare = len(pickle.dumps(question))
    assert question.forest.chunking.cells == 20_000
    assert question.domain.leaf_ids({"code": codes.slice(0, 3)}).tolist() == [0, 1, 2]
    assert question.plan.leaf_variances.size > 0 and question.plan.variances_above_leaves
    assert len(pickle.dumps(question)) == bare
    assert bare - len(pickle.dumps(universe)) < 4000


FORMS = ["digits", "columns", "paths"]
POLICIES = [("drop", "drop"), ("other", "drop"), ("drop", "other"), ("other", "other")]


@for_each("form", FORMS)
@for_each(("unknown", "missing"), POLICIES)
@for_each("keys", [(), ("white", "black")])
@for_each("measure", [None, AMOUNT, PAID])
def test_rows_add_what_is_counted_by_hand(
    form: str, unknown: str, missing: str, keys: tuple[str, ...], measure: MeasureColumn | None
) -> None:
    domain = universe_domain(form, unknown=unknown, missing=missing)
    question = hierarchy_question(
        form, domain=domain, keys=keys, unknown_key="other", measure=measure
    )
    rows = random_rows(2, 400)
    counts = leaf_counts(question, rows).reshape(question.key_count, -1)
    expected = node_sums(question, form, rows)
    for key, label in enumerate(question.key_labels):
        for level, sums in enumerate(domain.tree.shape.level_counts(counts[key])):
            nodes = np.arange(len(sums))
            listed = question.listed(level, nodes)
            paths = question.node_labels(level, nodes).to_pylist()
            for path, own in zip(np.array(paths)[listed], sums[listed].tolist(), strict=True):
                assert own == expected.get((label, path), 0), (label, path)


def test_columns_are_read_once_and_have_one_type() -> None:
    question = hierarchy_question(measure=AMOUNT, keys=("white",))
    assert question.columns == ("code", "race", "amount")
    assert question.value_types == {
        "code": pa.string(),
        "race": pa.string(),
        "amount": pa.float64(),
    }
    twice = hierarchy_question(measure=replace(AMOUNT, column="code"))
    assert twice.columns == ("code",)
    with pytest.raises(ValueError, match="'code' is read as string and as double by one tree"):
        _ = twice.value_types
    types = {"code": pa.string(), "race": pa.string(), "amount": pa.int64()}
    question.check_types(types)
    for column, wrong in (("code", pa.bool_()), ("race", pa.float64()), ("amount", pa.string())):
        with pytest.raises(ValueError, match=f"column '{column}' has type {wrong}"):
            question.check_types(types | {column: wrong})


@for_each("unit", ROW_UNITS)
@for_each("keys", [(), ("white",)])
def test_a_row_moves_a_count_of_each_level(unit: PrivacyUnit, keys: tuple[str, ...]) -> None:
    question = hierarchy_question("bushy", unit=unit, keys=keys, budget=RHO)
    several = 2 if unit is SUBSTITUTE else 1
    moved = question.mechanism.moved_counts
    assert moved is not None
    assert [count for _, count in moved] == [several if keys else 1, several, several]
    amounts = [RHO.amount / 3] * 3
    for (law, count), amount in zip(moved, amounts, strict=True):
        assert law == DiscreteGaussian(sigma_squared=count / (2 * amount))


def test_the_moved_counts_of_pooled_levels_and_of_sums_are_not_known() -> None:
    assert hierarchy_question("digits").mechanism.moved_counts is None  # a chain
    assert hierarchy_question("columns").mechanism.moved_counts is None  # LGA has one destination
    assert hierarchy_question("bushy", measure=AMOUNT).mechanism.moved_counts is None
    assert hierarchy_question("bushy").mechanism.moved_counts is not None


def test_public_levels_have_no_noise_of_their_own() -> None:
    question = hierarchy_question("bushy", unit=SUBSTITUTE, public_level=1)
    assert question.mechanism.moved_counts == ((DiscreteLaplace(scale=Fraction(2)), 2),)
    assert question.public_total and not hierarchy_question("bushy").public_total


@for_each(
    ("change", "message"),
    [
        (
            {"domain": universe_domain("digits", unknown="other")},
            "10 leaves for a domain of 11 cells",
        ),
        ({"keys": KeyList(column="race", keys=("white",))}, "keyed must say whether"),
        ({"confidence": 0.0}, "confidence: 0.0 is not above 0"),
        ({"confidence": 0.99999}, "confidence: 0.99999 is not"),
        ({"confidence": float("nan")}, "confidence: nan"),
        ({"measure": AMOUNT}, "its noise is too small for the bounds of the measure"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(hierarchy_question(), **change)


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_noise_of_narrower_bounds_is_refused(unit: PrivacyUnit) -> None:
    """A planted error: the sensitivities of bounds that are one less."""
    wide = MeasureColumn(column="amount", lower=-3, upper=31)
    narrow = hierarchy_question(
        "bushy", unit=unit, measure=MeasureColumn(column="amount", lower=-3, upper=30)
    )
    with pytest.raises(ValueError, match="too small for the bounds"):
        replace(narrow, measure=wide)
    fitting = hierarchy_question("bushy", unit=unit, measure=wide)
    assert replace(fitting, measure=replace(wide, upper=30)).measure is not None  # more is fine


def test_sums_of_public_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="the sums of public nodes are not supported"):
        hierarchy_question(unit=SUBSTITUTE, public_level=1, measure=AMOUNT)


def test_a_node_with_too_many_leaves_is_refused() -> None:
    flat = universe_from_codes(pa.array([f"{n:02d}" for n in range(10)]), (2,))
    domain = HierarchyDomain(universe=flat, columns=("code",))
    with pytest.raises(ValueError, match=r"more than 4 children, or with as many .* needs a level"):
        hierarchy_question(domain=domain, chunk_leaves=4, spine_leaves=9)


def test_leaves_above_the_lowest_level_are_listed_once() -> None:
    question = hierarchy_question("paths")
    found = []
    for level, size in enumerate(question.plan.tree.level_sizes):
        nodes = np.arange(size)
        listed = nodes[question.listed(level, nodes)]
        found += question.node_labels(level, listed).to_pylist()
    assert sorted(found) == sorted(
        ["", "etc", "usr", "var", "usr/bin", "usr/lib", "usr/bin/ed", "usr/bin/vi"]
    )


OBJECTIVE = RelativeObjective(metric="rel_kappa", kappa=50.0, level_weights=(8, 1, 1, 1))
WEIGHTS = NodeWeights(levels=(8.0, 1.0, 1.0, 1.0))


def planned(**fields: Any) -> HierarchyQuestion[Any]:
    workload = HierarchyWorkload(name="places", domain=universe_domain("digits"), **fields)
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    return workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))


@pytest.mark.parametrize(
    "fields", [{"weights": WEIGHTS}, {"objective": OBJECTIVE}], ids=["weights", "objective"]
)
def test_the_plan_is_the_best_one_for_what_it_is_made_for(fields: dict[str, Any]) -> None:
    """No worse than the equal split, nor than the plan for anything else."""
    best, plain, equal = planned(**fields), planned(), planned(**fields, level_budgets="equal")

    def error(question: HierarchyQuestion[Any]) -> float:
        mechanism = question.mechanism
        judged = planned(**fields, level_budgets=mechanism.plan.level_amounts)
        return float(judged.mechanism.predicted_error)

    assert best.mechanism.predicted_error <= equal.mechanism.predicted_error
    assert error(best) < 0.999 * error(plain)
