"""A released hierarchy answers from its tables alone, whatever the chunks: nodes by their paths,
children, the largest, other confidences. The statistical tests have false alarms below 1e-6."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.dpcore.irregular.intervals import irregular_widths
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.rows.policies import MeasureColumn
from tests.dpcore.cases import for_each
from tests.dpcore.hierarchy_questions import (
    all_nodes,
    hierarchy_question,
    leaf_counts,
    make_release_plan,
    node_sums,
    random_rows,
    universe_domain,
)

Array = np.ndarray[Any, Any]
KEY = ReleaseKey(bytes(range(32)))
ROWS = random_rows(5, 3000)
RACES = ("white", "black")
AMOUNT = MeasureColumn(column="amount", lower=-5, upper=30)
BOTH_OTHER = {"unknown": "other", "missing": "other"}
FORMS = {"plain": "digits", "routes": "columns", "paths": "paths", "keyed": "digits"}
FORMS |= {"sums": "digits", "public": "digits", "keyed sums": "paths"}
SIZES = [2**17, 25, 2]


def questions(unit: PrivacyUnit) -> list[HierarchyQuestion[IrregularMechanism]]:
    found = [
        hierarchy_question("digits", name="plain", unit=unit),
        hierarchy_question("columns", name="routes", unit=unit),
        hierarchy_question(
            "paths", name="paths", unit=unit, domain=universe_domain("paths", **BOTH_OTHER)
        ),
        hierarchy_question("digits", name="keyed", unit=unit, keys=RACES),
        hierarchy_question("digits", name="sums", unit=unit, measure=AMOUNT),
        hierarchy_question("paths", name="keyed sums", unit=unit, measure=AMOUNT, keys=RACES),
    ]
    if unit == SUBSTITUTE_ROW:
        found.append(
            hierarchy_question(
                "digits",
                name="public",
                unit=unit,
                domain=universe_domain("digits", **BOTH_OTHER),
                public_level=1,
            )
        )
    return found


def made(unit: PrivacyUnit = SUBSTITUTE_ROW, *, chunk_leaves: int) -> ReleaseReader:
    plan = make_release_plan(
        *(replace(each, chunk_leaves=chunk_leaves) for each in questions(unit))
    )
    counts = {question.name: leaf_counts(question, ROWS) for question in plan.questions}
    return release_counts(plan, counts, KEY)


@pytest.fixture(scope="module", params=[2**17, 4], ids=lambda size: f"chunks of {size}")
def release(request: pytest.FixtureRequest) -> ReleaseReader:
    return made(chunk_leaves=request.param)


def read_tree(release: ReleaseReader, name: str) -> ReleasedHierarchy:
    tree = release.tree(name)
    assert isinstance(tree, ReleasedHierarchy)
    return tree


def key_rows(release: ReleaseReader, name: str, key: str | None) -> list[dict[str, Any]]:
    return [row for row in all_nodes(release, name).to_pylist() if row["key"] == key]


CASES = [
    *((name, None) for name in ("plain", "routes", "paths", "sums", "public")),
    *itertools.product(("keyed", "keyed sums"), RACES),
]


@pytest.mark.parametrize(("name", "key"), CASES)
def test_every_node_is_found_by_its_path_and_by_its_number(
    release: ReleaseReader, name: str, key: str | None
) -> None:
    tree, universe = read_tree(release, name), read_tree(release, name).question.domain.tree
    rows = key_rows(release, name, key)
    assert len({row["label"] for row in rows}) == len(rows)
    named = [universe.is_named(level, np.arange(n)) for level, n in enumerate(universe.level_sizes)]
    assert len(rows) == sum(int(each.sum()) for each in named)
    total = next(row["count"] for row in rows if row["level"] == 0)
    for row in rows:
        answer = tree.at_path(row["label"], key)
        assert answer == tree.node(row["level"], row["node"], key)
        assert tree.find(row["label"]) == (row["level"], row["node"])
        for column in ("label", "estimate", "std_error", "ci_low", "ci_high", "count"):
            assert getattr(answer, column) == row[column]
        assert answer.fraction == (row["count"] / total if total else None)


@for_each(("name", "key"), CASES)
def test_counts_of_children_add_up_to_their_parent_s(
    release: ReleaseReader, name: str, key: str | None
) -> None:
    tree, shape = read_tree(release, name), read_tree(release, name).question.plan.tree
    for row in key_rows(release, name, key):
        place = row["level"], row["node"]
        below = [] if place[0] == shape.height else list(shape.children(*place))
        leaf = not below or not tree.question.listed(place[0] + 1, np.array(below)).all()
        if leaf:
            with pytest.raises(ValueError, match="leads to a leaf, which has no children"):
                tree.children(row["label"], key)
            continue
        children = tree.children(row["label"], key)
        assert children == [tree.node(place[0] + 1, child, key) for child in below]
        assert sum(child.count for child in children) == row["count"]
        estimates = [child.estimate for child in children]
        assert sum(estimates) == pytest.approx(row["estimate"], abs=1e-6)


@for_each(("name", "key"), CASES)
def test_the_largest_nodes_of_a_level(release: ReleaseReader, name: str, key: str | None) -> None:
    tree = read_tree(release, name)
    rows = key_rows(release, name, key)
    for level, level_name in enumerate(tree.question.domain.tree.level_names):
        assert tree.find_level(level_name) == level == tree.find_level(str(level))
        mine = [row for row in rows if row["level"] == level]
        order = sorted(mine, key=lambda row: (-row["count"], row["node"]))
        for number in (1, 3, 1000):
            found = tree.top(number, level, key)
            assert [answer.label for answer in found] == [row["label"] for row in order[:number]]


@pytest.mark.parametrize(("name", "key"), CASES)
def test_the_node_of_a_level_that_lies_on_a_path(
    release: ReleaseReader, name: str, key: str | None
) -> None:
    tree = read_tree(release, name)
    for row in key_rows(release, name, key):
        for level in range(row["level"] + 1):
            above = tree.node(level, tree.find_node(row["label"], level), key).label
            assert row["label"].startswith(above) and len(above) <= len(row["label"])
        if row["level"] < tree.question.plan.tree.height:
            with pytest.raises(ValueError, match=f"above level {row['level'] + 1}"):
                tree.find_node(row["label"], row["level"] + 1)


@pytest.mark.parametrize(("name", "key"), CASES)
@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_another_confidence_is_another_width_around_the_same_estimates(
    release: ReleaseReader, name: str, key: str | None, confidence: float
) -> None:
    tree = read_tree(release, name)
    other, widths = tree.at_confidence(confidence), irregular_widths(tree.question.plan, confidence)
    assert isinstance(other, ReleasedHierarchy)
    for row in key_rows(release, name, key):
        released, answer = tree.at_path(row["label"], key), other.at_path(row["label"], key)
        assert (answer.estimate, answer.std_error) == (released.estimate, released.std_error)
        assert (answer.count, answer.label) == (released.count, released.label)
        if answer.std_error == 0:
            assert answer.ci_low == answer.ci_high == answer.estimate
            continue
        margin = float(widths.levels[row["level"]].margins(np.array([answer.std_error**2]))[0])
        bottom = -np.inf if name.endswith("sums") else 0.0
        assert answer.ci_low == pytest.approx(max(answer.estimate - margin, bottom))
        narrower = confidence < tree.question.confidence
        assert (margin < row["ci_high"] - row["estimate"]) == narrower
    same = tree.at_confidence(tree.question.confidence)
    assert same.at_path("", key) == tree.at_path("", key)
    with pytest.raises(ValueError, match="confidence: 1 is not above 0"):
        tree.at_confidence(1)


def test_refusals(release: ReleaseReader) -> None:
    plain, keyed = read_tree(release, "plain"), read_tree(release, "keyed")
    for path in ("2", "010", "01000", "x", "/", "other"):
        with pytest.raises(ValueError, match="has no node of this path"):
            plain.at_path(path)
        with pytest.raises(ValueError, match="has no node of this path"):
            plain.children(path)
    with pytest.raises(ValueError, match="key: tree plain has no keys"):
        plain.at_path("01", "white")
    with pytest.raises(ValueError, match="key: tree keyed needs a key"):
        keyed.children("01")
    with pytest.raises(ValueError, match="'asian' is not a listed key"):
        keyed.at_path("01", "asian")
    for level in (-1, 4):
        with pytest.raises(ValueError, match="is not between 0 and 3"):
            plain.top(1, level)
        with pytest.raises(ValueError, match="is not between 0 and 3"):
            plain.find_node("01", level)
    for place in ((-1, 0), (4, 0), (1, 3), (1, -1), (3, 10)):
        with pytest.raises(ValueError, match="has no node"):
            plain.node(*place)
    for name in ("town", "4", "-1", ""):
        with pytest.raises(ValueError, match="is none of root, state, county, block"):
            plain.find_level(name)
    paths = read_tree(release, "paths")
    with pytest.raises(ValueError, match="only repeats a leaf above it"):
        paths.node(2, 0)  # what continues the leaf etc


def test_what_is_public_is_reported_exactly(release: ReleaseReader) -> None:
    question = read_tree(release, "public").question
    truth = node_sums(question, "digits", ROWS)
    exact = set()
    for row in key_rows(release, "public", None):
        if row["std_error"] > 0:
            continue
        count = float(truth.get((None, row["label"]), 0))
        reported = (row["estimate"], row["ci_low"], row["ci_high"], row["count"])
        assert reported == (count, count, count, count)
        exact.add(row["label"])
    # The levels down to the state, and the single children that repeat one of them.
    assert exact == {"", "0", "1", "9", "other", "01", "90", "9001"}
    assert read_tree(release, "public").at_path("").count == ROWS.num_rows


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_zero_noise_gives_the_truth_back_in_chunks_of_any_size(
    size: int, unit: PrivacyUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        DiscreteLaplace, "sample", lambda self, stream, many: ZeroNoise().sample(stream, many)
    )
    release = made(unit, chunk_leaves=size)
    for question in release.plan.questions:
        assert isinstance(question.mechanism, IrregularMechanism)
        truth = node_sums(question, FORMS[question.name], ROWS)
        rows = all_nodes(release, question.name).to_pylist()
        assert rows and {place for place in truth} <= {(r["key"], r["label"]) for r in rows}
        for row in rows:
            exact = truth.get((row["key"], row["label"]), 0)
            assert row["count"] == exact
            assert row["estimate"] == pytest.approx(exact, abs=1e-7)


def test_chunks_of_any_size_give_the_same_errors() -> None:
    """The noise is another one, the law is the same."""
    found = []
    for size in SIZES:
        release = made(chunk_leaves=size)
        columns = ["key", "level", "node", "label", "std_error"]
        found.append(
            [all_nodes(release, each.name).select(columns) for each in release.plan.questions]
        )
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            assert mine.drop_columns("std_error").equals(theirs.drop_columns("std_error"))
            pairs = mine["std_error"].to_numpy(), theirs["std_error"].to_numpy()
            np.testing.assert_allclose(*pairs, rtol=1e-9)


def test_moments_within_a_day_are_rounded_down_and_named() -> None:
    """What was requested is stated only if the answer is about another interval."""
    universe = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2013, 3, 1))
    days = HierarchyDomain(universe=universe, columns=("t",))
    plan = make_release_plan(hierarchy_question(name="days", domain=days))
    tree = read_tree(release_counts(plan, {"days": np.arange(59)}, KEY), "days")
    first, last = "2013-01-03", "2013-02-05"
    exact = tree.range(first, last)
    assert (exact.label, exact.asked) == (f"[{first}, {last})", None)
    for lower, upper in ((f"{first}T12:00", last), (first, f"{last}T00:01")):
        rounded = tree.range(lower, upper)
        assert rounded == replace(exact, asked=f"[{lower}, {upper})")
    before = tree.cdf(last)
    assert before.asked is None
    assert tree.cdf(f"{last}T23:59") == replace(before, asked=f"before {last}T23:59")
