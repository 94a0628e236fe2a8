"""A released adaptive hierarchy: its tables, its nodes, and sums of them, exact and bounded. The
statistical tests have false alarms below 1e-6."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.trees.chunks import level_sums
from tests.dpcore.adaptive_hierarchies import DOMAIN, GROUPS, adaptive_question, released
from tests.dpcore.hierarchy_questions import (
    leaf_counts,
    make_release_plan,
    random_rows,
    universe_domain,
)
from tests.dpcore.mechanisms import changed, drawn_tree

Array = np.ndarray[Any, Any]
# Most groups are sparse; the first is not.
LEAVES = np.array([30, 40, 20, 50, 60] + [1, 0, 0, 2, 0] * 8)
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
SURE = Budget(measure=Measure.EPSILON, amount=Fraction(4000))


def node_rows(tree: ReleasedHierarchy) -> list[dict[str, Any]]:
    question = tree.question
    parts = [
        tree._read(part.kind, question.name, part.key, part.index) for part in question.parts()
    ]
    return [row for part in parts for row in part.to_pylist()]


QUESTIONS: dict[str, HierarchyQuestion[AdaptiveMechanism]] = {
    "counts": adaptive_question(),
    "estimates": adaptive_question(counts=False, guessed_rows=1e6, confidence=0.9),
    "rho": adaptive_question(budget=RHO),
    "public": adaptive_question(unit=SUBSTITUTE_ROW, public=True),
    "substitute": adaptive_question(unit=SUBSTITUTE_ROW),
    "keys": adaptive_question("digits", keys=("white", "black")),
    "paths": adaptive_question(
        "paths", domain=universe_domain("paths", unknown="other"), threshold=60
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_it_is_read_back(name: str) -> None:
    question = QUESTIONS[name]
    plan = make_release_plan(question)
    universe = question.domain.universe
    again = plan_from_spec(json.loads(json.dumps(plan.spec())), lambda digest: universe)
    assert again == plan and again.digest == plan.digest
    assert pickle.loads(pickle.dumps(question)) == question
    json.dumps(question.entry())
    question.recall(json.loads(json.dumps(question.entry())))


def test_a_guess_that_is_no_number_is_refused() -> None:
    question = QUESTIONS["estimates"]
    universe = question.domain.universe
    spec = json.loads(json.dumps(make_release_plan(question).spec()))
    for guess in ("20000", [], True):
        spec["trees"][0]["guessed_rows"] = guess
        with pytest.raises(ValueError, match="guessed_rows"):
            plan_from_spec(spec, lambda digest: universe)


@pytest.mark.parametrize("name", QUESTIONS)
def test_its_tables_say_which_nodes_were_split(name: str) -> None:
    for chunk_leaves in (2**17, 12, 5):
        question = replace(QUESTIONS[name], chunk_leaves=chunk_leaves)
        rows = random_rows(3, 150)
        counts = leaf_counts(question, rows) if name in ("keys", "paths") else LEAVES
        check_split_nodes(released(question, counts, 5))


def check_split_nodes(tree: ReleasedHierarchy) -> None:
    """Check that nodes add up, and that what is inside a node that was not split says so."""
    rows = {(row["key"], row["level"], row["node"]): row for row in node_rows(tree)}
    shape, universe = tree.question.plan.tree, tree.question.domain.tree
    assert any(row["ended"] is not None and row["ended"] < row["level"] for row in rows.values())
    for (key, level, node), row in rows.items():
        assert row["label"] == universe.paths(level, np.array([node])).to_pylist()[0]
        ended = row["ended"]
        if level == shape.height:
            assert ended is not None
            continue
        below = [rows.get((key, level + 1, child)) for child in shape.children(level, node)]
        if None in below:  # which only continue this leaf
            continue
        assert sum(child["count"] for child in below if child) == row["count"]
        assert sum(child["estimate"] for child in below if child) == pytest.approx(row["estimate"])
        for child in below:
            assert child is not None
            assert child["ended"] in ((None, level + 1) if ended is None else (ended,))
            inside = child["ended"] is not None and child["ended"] <= level
            assert (child["std_error"] is None) == inside
            if inside:
                assert child["ci_low"] == 0.0 and child["ci_high"] == row["ci_high"]


def test_without_noise_counts_are_exact() -> None:
    for unit in ("counts", "public", "keys", "paths"):
        question = QUESTIONS[unit]
        sure = changed(
            question,
            plan=replace(
                question.plan,
                budget=SURE,
                level_amounts=tuple(4000 * each for each in question.plan.level_amounts),
                thresholds=(0,) * question.plan.tree.height,
            ),
        )
        counts = leaf_counts(sure, random_rows(3, 150)) if unit in ("keys", "paths") else LEAVES
        tree = released(sure, counts)
        total = level_sums(sure.plan.tree, counts.reshape(sure.key_count, -1))
        codes = dict(zip(sure.labels_between(0, sure.key_count), range(9), strict=False))
        for row in node_rows(tree):
            exact = int(total[row["level"]][codes[row["key"]], row["node"]])
            assert row["count"] == exact and round(row["estimate"]) == exact


def test_a_node_that_was_not_split_bounds_what_is_inside() -> None:
    tree = released(QUESTIONS["counts"], LEAVES, 5)
    inside = [row for row in node_rows(tree) if row["std_error"] is None]
    row = next(row for row in inside if row["level"] == 3 and row["ended"] == 2)
    group = tree.at_path(row["label"][:2])
    block = tree.at_path(row["label"])
    assert block.std_error is None and group.std_error is not None
    assert (block.ci_low, block.ci_high) == (0.0, group.ci_high)
    assert block.estimate == pytest.approx((group.estimate or 0) / 5)
    narrow = tree.at_confidence(0.5)
    above = narrow.at_path(row["label"][:2])
    assert narrow.at_path(row["label"]).ci_high == pytest.approx(above.ci_high, rel=1e-12)
    assert narrow.at_path(row["label"]).ci_high < block.ci_high
    assert len(tree.children(row["label"][:2])) == 5
    assert tree.top(2, 3)[0].count >= tree.top(2, 3)[1].count


def test_sums_at_edges_have_errors_and_others_are_bounded() -> None:
    tree = released(QUESTIONS["counts"], LEAVES, 5)
    ended = {row["label"]: row["ended"] for row in node_rows(tree)}
    assert ended["00"] is None and ended["01"] == ended["02"] == 2, "the seed does not fit"
    both = tree.sum(["01", "02"])
    drawn = drawn_tree(tree)
    assert both.std_error == pytest.approx(drawn.run(5, 15) ** 0.5)
    estimates = [tree.at_path(each).estimate or 0.0 for each in ("01", "02")]
    assert both.estimate == pytest.approx(sum(estimates))
    # All blocks of a group are the group.
    whole = tree.sum([f"01{each}" for each in range(5)])
    one = tree.at_path("01")
    for name in ("estimate", "std_error", "ci_low", "ci_high", "count"):
        assert getattr(whole, name) == pytest.approx(getattr(one, name))
    part = tree.sum(["000", "001", "010"])
    without, beside = tree.sum(["000", "001"]), tree.sum(["000", "001", "01"])
    assert part.std_error is None
    assert (part.ci_low, part.ci_high) == pytest.approx((without.ci_low, beside.ci_high))
    assert part.count == tree.sum(["000", "001"]).count + tree.at_path("010").count
    # Two parts of one node are bounded by it once.
    assert tree.sum(["010", "012"]).ci_high == pytest.approx(one.ci_high)
    assert tree.sum(["010", "012"]).ci_low == 0.0


@cache
def scores(*, counts: bool) -> tuple[Array, int, int]:
    """Return the mean squared errors of many releases over their stated variances, the number of
    intervals that cover, and the number of intervals. The nine intervals of a release depend on
    each other, so that a count of them has at most three times the standard error of independent
    ones."""
    question = adaptive_question(counts=counts, threshold=8)
    exact = level_sums(question.plan.tree, LEAVES.reshape(1, -1))
    squares, held, requested = [], 0, 0
    for seed in range(200):
        own: list[float] = []
        for row in node_rows(released(question, LEAVES, seed)):
            if row["level"] != 2:
                continue
            truth = float(exact[2][0, row["node"]])
            requested += 1
            held += row["ci_low"] <= truth <= row["ci_high"]
            if row["std_error"] is not None:
                own.append(((row["estimate"] - truth) / row["std_error"]) ** 2)
        squares += [np.mean(own)] * bool(own)
    return np.array(squares), held, requested


def is_one(squares: Array) -> bool:
    """Whether a mean is 1 but for chance: 5 standard errors, below 1e-6."""
    spread = float(np.std(squares) / np.sqrt(len(squares)))
    return abs(float(np.mean(squares)) - 1.0) < 5 * spread


def test_errors_given_the_tree_are_those_stated_where_decisions_are_apart() -> None:
    squares, held, requested = scores(counts=False)
    assert is_one(squares)
    assert held >= 0.95 * requested - 15 * (0.05 * 0.95 * requested) ** 0.5


def test_noise_that_is_too_small_is_noticed() -> None:
    squares, _, _ = scores(counts=False)
    assert not is_one(squares / 0.7**2) and not is_one(squares * 0.7**2)


def test_intervals_hold_where_measurements_decide() -> None:
    _, held, requested = scores(counts=True)
    assert held >= 0.95 * requested - 15 * (0.05 * 0.95 * requested) ** 0.5


def test_sums_cover() -> None:
    """Bounded sums and exact ones alike."""
    paths = ["000", "001", "010", "02"]
    truth = int(LEAVES[0] + LEAVES[1] + LEAVES[5] + LEAVES[10:15].sum())
    missed = 0
    for seed in range(400):
        found = released(QUESTIONS["estimates"], LEAVES, seed).sum(paths)
        missed += not found.ci_low <= truth <= found.ci_high
    # At 90 %: at most 40 are expected, and 5 standard errors are 30.
    assert missed <= 70


def test_what_is_no_adaptive_tree_is_refused() -> None:
    question = QUESTIONS["counts"]
    with pytest.raises(ValueError, match="keys: a plan without keys"):
        changed(QUESTIONS["substitute"], keys=None, plan=question.plan).forest.__class__(
            QUESTIONS["substitute"].plan, keys=2
        )
    with pytest.raises(ValueError, match="domain: a node with more than 2 children"):
        replace(question, chunk_leaves=2)
    assert DOMAIN.universe is GROUPS


@pytest.mark.parametrize("counts", [False, True])
def test_no_interval_has_its_low_end_above_its_high_one(counts: bool) -> None:
    """Where noise is larger than what is there, and intervals are short."""
    question = adaptive_question(counts=counts, confidence=0.5)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tree = released(question, rng.integers(0, 30, 45) * (rng.random(45) < 0.1), seed)
        for paths in (["00", "011"], ["00", "110", "012"], ["000", "001", "101"]):
            answer = tree.sum(paths)
            assert answer.ci_low <= answer.ci_high
