"""A tree over a series, run after run in memory: what it carries, what it releases, what windows of
it are worth."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.irregular import FEWEST
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.columns import unpack, unpack_many
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.series.temporal import Span, TemporalTree, adds_up
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Consistency, Estimator, TreePlan
from tests.dpcore.hierarchy_questions import hierarchy_question
from tests.dpcore.mechanisms import changed
from tests.dpcore.series_runs import EXACT, KEY, Runs, level_sums, series_plan
from tests.dpcore.threshold_questions import threshold_question
from tests.transforms.every_kind import ordered_question

SUMS = MeasureColumn(column="amount", lower=-5, upper=30)
RACES = ("white", "black")
BINARY = TemporalTree.from_fanout(7, 2)


def one_level(budget: Budget, *, keys: int, cells: int = 1) -> OrderedQuestion[UniformMechanism]:
    """Many trees of few leaves, all measured."""
    shape = UniformTree(leaves=cells, fanouts=() if cells == 1 else (cells,))
    plan = TreePlan(
        tree=shape,
        unit=ADD_REMOVE_ROW,
        budget=budget,
        level_amounts=(Fraction(0),) * shape.height + (budget.amount,),
        keyed=True,
    )
    names = tuple(f"k{number}" for number in range(keys))
    return OrderedQuestion(
        name="days",
        domain=StepDomain(kind="integer", column="x", lower=0, upper=cells),
        mechanism=UniformMechanism(plan=plan),
        keys=KeyList(column="key", keys=names),
    )


def uniform(**fields: Any) -> OrderedQuestion[UniformMechanism]:
    return ordered_question("tree", measure=Measure.RHO, amount=EXACT.amount, **fields)


KINDS: dict[str, TreeQuestion] = {
    "ordered, one chunk": uniform(chunk_leaves=30),
    "ordered, chunks": uniform(chunk_leaves=8),
    "ordered by key": replace(
        uniform(keyed=True, chunk_leaves=64),
        keys=KeyList(column="race", keys=(*RACES, "nobody")),
    ),
    "hierarchy": hierarchy_question("digits", budget=EXACT, chunk_leaves=4),
    "hierarchy with leaves above": hierarchy_question("paths", budget=EXACT, chunk_leaves=2),
    "hierarchy in one chunk": hierarchy_question("paths", budget=EXACT),
    "sums": hierarchy_question("columns", budget=EXACT, measure=SUMS, keys=RACES, chunk_leaves=4),
    "public root": hierarchy_question("bushy", budget=EXACT, unit=SUBSTITUTE_ROW, public_level=0),
}
by_kind = pytest.mark.parametrize("kind", KINDS)
TIMES = [
    BINARY,
    TemporalTree.from_fanout(5, 3),
    TemporalTree.from_fanout(1, 2),
    TemporalTree(periods=4),
]
by_time = pytest.mark.parametrize("temporal", TIMES, ids=lambda at: f"{at.periods}-{at.spans}")


def released_nodes(runs: Runs, span: Span) -> dict[tuple[Any, int, int], dict[str, Any]]:
    """The rows of a temporal node by (key, level, node)."""
    question = runs.question(span.last)
    parts = [part for part in question.parts() if part.kind == "nodes"]
    rows = [row for part in parts for row in runs.read(span, part.key, part.index).to_pylist()]
    return {(row["key"], row["level"], row["node"]): row for row in rows}


def window_nodes(runs: Runs, *window: int) -> dict[tuple[Any, int, int], dict[str, Any]]:
    tables = runs.window(*window)
    parts = [part for part in tables.question.parts() if part.kind == "nodes"]
    rows = [row for p in parts for row in tables.part(p.kind, p.key, p.index).to_pylist()]
    return {(row["key"], row["level"], row["node"]): row for row in rows}


def exact_nodes(tree: TreeQuestion, counts: np.ndarray[Any, Any]) -> dict[Any, int]:
    """The nodes of all keys, from the counts of their leaves."""
    found = {}
    for label, own in zip(tree.key_labels, counts.reshape(tree.key_count, -1), strict=True):
        found |= {(label, *node): count for node, count in level_sums(tree, own).items()}
    return found


# --- what is carried ---


# Every tree with seven periods, and with another series in turn.
@pytest.mark.parametrize(
    ("kind", "temporal"),
    [(kind, each) for at, kind in enumerate(KINDS) for each in (BINARY, TIMES[1 + at % 3])],
    ids=lambda each: each if isinstance(each, str) else f"{each.periods}-{each.spans}",
)
def test_without_noise_every_node_and_window_is_the_sum_of_its_periods(
    kind: str, temporal: TemporalTree
) -> None:
    tree = KINDS[kind]
    runs = Runs.of(tree, temporal)
    if tree.is_signed:
        runs.counts = runs.counts * 3 - 50
    runs.run()
    spans = [(each.first, each.last) for each in runs.nodes]
    for span in runs.nodes:
        expected = exact_nodes(tree, runs.counts[span.first - 1 : span.last].sum(axis=0))
        found = released_nodes(runs, span)
        assert found.keys() <= expected.keys()
        assert {at: row["count"] for at, row in found.items()} == {at: expected[at] for at in found}
    for first, last in {*spans, (1, temporal.periods), (temporal.periods, temporal.periods)}:
        expected = exact_nodes(tree, runs.counts[first - 1 : last].sum(axis=0))
        found = window_nodes(runs, first, last)
        assert found and {at: row["count"] for at, row in found.items()} == {
            at: expected[at] for at in found
        }
        for at, row in found.items():
            assert row["estimate"] == pytest.approx(expected[at], abs=1e-6)


def test_a_specification_is_read_back() -> None:
    for kind in KINDS:
        plan = series_plan(KINDS[kind], BINARY, 3)
        universes = {table.digest: table for table in plan.questions[0].public_tables}
        again = plan_from_spec(plan.spec(), universes.__getitem__)  # type: ignore[arg-type]
        assert again.spec() == plan.spec() and again.digest == plan.digest, kind
        assert again.run == (3, 7, None), kind


def test_every_run_has_a_digest_of_its_own() -> None:
    plans = [series_plan(KINDS["hierarchy"], BINARY, period) for period in (1, 2, 3)]
    assert len({plan.digest for plan in plans}) == 3


def test_the_state_reveals_only_how_large_the_tree_is() -> None:
    tree = one_level(Budget(measure=Measure.RHO, amount=Fraction(1)), keys=64)
    few, many = Runs.of(tree, BINARY), Runs.of(tree, BINARY)
    many.counts = many.counts * 10**9 + 7
    few.counts = np.zeros_like(few.counts)
    for runs in (few, many):
        runs.run(3)
    (place,) = few.question(3).places
    # Of the nodes 3 to 4 and 1 to 4: two arrays of 64 counts, and 16 bytes of the seal.
    sizes = {len(runs.sealed(3, place)) for runs in (few, many)}
    assert sizes == {2 * 64 * 8 + 16}
    sealed = many.sealed(3, place)
    for value in many.counts[:3].sum(axis=0):
        assert int(value).to_bytes(8, "little") not in sealed
    assert len(set(sealed[at : at + 8] for at in range(0, len(sealed), 8))) > 120


@pytest.mark.parametrize("other", ["key", "nonce", "release", "period"])
def test_the_state_opens_under_its_own_name_alone(other: str) -> None:
    runs = Runs.of(KINDS["ordered, one chunk"], BINARY).run(3)
    question, (place,) = runs.question(3), runs.question(3).places
    sealed = runs.sealed(3, place)
    assert question.opened(place, sealed, KEY, "runs", bytes([3]))
    key = ReleaseKey(bytes(32)) if other == "key" else KEY
    name = "other" if other == "release" else "runs"
    nonce = bytes([4 if other == "nonce" else 3])
    if other == "period":
        question = replace(question, period=5)
    with pytest.raises(ValueError, match="sealed under another key or name"):
        question.opened(place, sealed, key, name, nonce)
    with pytest.raises(ValueError, match="or damaged"):
        question.opened(place, sealed[:-1] + b"x", KEY, "runs", bytes([3]))


def test_a_run_needs_what_was_carried_on() -> None:
    runs = Runs.of(KINDS["ordered, one chunk"], BINARY).run(1)
    with pytest.raises(ValueError, match="carried on is not at hand"):
        release_counts(runs.plan(2), {"tree": runs.counts[1]}, KEY)


def test_counts_near_the_limit_saturate_and_do_not_wrap() -> None:
    tree = KINDS["hierarchy in one chunk"]
    runs = Runs.of(tree, TemporalTree.from_fanout(2, 2))
    question = runs.plan(1).questions[0]
    (place,) = question.places
    large = np.full(tree.domain.cells, 2**62, np.int64)
    partial = next(iter(tree.split_counts(large, None)))  # type: ignore[arg-type]
    merged = question.merge(place, [partial.data] * 3)
    own = unpack(unpack_many(merged.to_bytes())[1])
    assert own.min() == 2**62


# --- variances ---


@pytest.mark.parametrize("measure", [Measure.RHO, Measure.EPSILON])
@pytest.mark.parametrize("temporal", [BINARY, TemporalTree.from_fanout(6, 3)], ids=["2", "3"])
def test_the_variance_of_every_day_is_that_of_the_theory(
    measure: Measure, temporal: TemporalTree
) -> None:
    """Compare the mean square of each day's errors with its variance. Over n independent errors the
    ratio has a standard deviation of at most sqrt(5 / n) (a Laplace law's fourth moment is 6 times
    its squared variance, and less of sums): 5.5 of it, over 13 days and 2 measures, is a false
    alarm below 1e-6."""
    keys = 4000
    runs = Runs.of(one_level(Budget(measure=measure, amount=Fraction(1, 10)), keys=keys), temporal)
    runs.run()
    limit = 5.5 * math.sqrt(5 / keys)
    planted = []
    for period in range(1, temporal.periods + 1):
        tables = runs.window(1, period, period)
        rows = tables.part("nodes", 0, 0)
        errors = rows["estimate"].to_numpy() - runs.counts[:period].sum(axis=0)
        (variance,) = set((rows["std_error"].to_numpy() ** 2).round(9))
        ratio = (errors**2).mean() / variance
        assert abs(ratio - 1) < limit
        planted.append(abs(ratio / 1.3**2 - 1) > limit)  # a scale 30 % larger than it should be
    assert all(planted)


def test_days_have_noise_of_their_own_and_levels_too() -> None:
    tree = one_level(Budget(measure=Measure.RHO, amount=Fraction(1, 100)), keys=2000)
    runs = Runs.of(tree, BINARY).run()
    errors = {
        span: runs.read(span, 0, 0)["estimate"].to_numpy()
        - runs.counts[span.first - 1 : span.last].sum(axis=0)
        for span in runs.nodes
    }
    matrix = np.corrcoef(np.array(list(errors.values())))
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    assert np.abs(off).max() < 6 / math.sqrt(2000)  # 55 pairs: below 1e-6


# --- against dense linear algebra ---


def drawn_by_span(runs: Runs) -> dict[Span, tuple[bytes, Any]]:
    """The exact counts that every temporal node is measured from, and what is drawn of it."""
    found, draw = {}, TreeQuestion.draw

    def recorded(self: TreeQuestion, place: Any, counts: bytes, noise: Any) -> Any:
        level = runs.temporal.spans.index(int(self.name.split("@")[1]))
        drawn = draw(self, place, counts, noise)
        found[runs.temporal.find_span(level, len(runs.releases) + 1)] = counts, drawn
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TreeQuestion, "draw", recorded)
        runs.run()
    return found


def exact_by_span(runs: Runs) -> dict[Span, Any]:
    """The exact counts that every temporal node is measured from."""
    return {span: unpack(counts) for span, (counts, _) in drawn_by_span(runs).items()}


def measured_by_span(runs: Runs) -> dict[Span, list[Any]]:
    """The noisy counts of every spatial level of every temporal node."""
    return {
        span: [unpack(each) if each else None for each in unpack_many(drawn.kept)]
        for span, (_, drawn) in drawn_by_span(runs).items()
    }


@pytest.mark.parametrize("temporal", [BINARY, TemporalTree.from_fanout(5, 3)], ids=["2", "3"])
def test_windows_are_least_squares_over_time_and_tree_at_once(temporal: TemporalTree) -> None:
    tree = ordered_question("tree", measure=Measure.RHO, amount=Fraction(1, 200), chunk_leaves=30)
    runs = Runs.of(tree, temporal)
    measured = measured_by_span(runs)
    shape, periods = tree.plan.tree, temporal.periods
    design, values, precisions = [], [], []
    for span, levels in measured.items():
        laws = runs.question(1).levels[span.level].plan.laws  # type: ignore[attr-defined]
        for level, noisy in enumerate(levels):
            for node, value in enumerate(noisy):
                row = np.zeros((periods, shape.leaves))
                row[span.first - 1 : span.last, list(shape.leaf_range(level, node))] = 1
                design.append(row.ravel())
                values.append(float(value))
                precisions.append(1 / laws[level].variance)
    matrix, weight = np.array(design), np.array(precisions)
    covariance = np.linalg.inv((matrix.T * weight) @ matrix)
    solved = covariance @ (matrix.T * weight) @ np.array(values)
    for first, last in [(1, periods), (2, 4), (3, 3), (2, periods)]:
        summed = [
            (list(shape.leaf_range(level, node)), row)
            for (_, level, node), row in window_nodes(runs, first, last).items()
        ]
        cdf = runs.window(first, last).part("cdf", 0, 0).to_pylist()
        summed += [(list(range(leaf + 1)), row) for leaf, row in enumerate(cdf)]
        for leaves, row in summed:
            inside = np.zeros((periods, shape.leaves))
            inside[first - 1 : last, leaves] = 1
            flat = inside.ravel()
            assert row["estimate"] == pytest.approx(flat @ solved, rel=1e-10, abs=1e-9)
            assert row["std_error"] ** 2 == pytest.approx(flat @ covariance @ flat, rel=1e-9)


def noisy(base: TreeQuestion) -> TreeQuestion:
    """With a budget that leaves counts to repair."""
    budget = Budget(measure=Measure.RHO, amount=Fraction(1, 200))
    factor = budget.amount / EXACT.amount
    amounts = tuple(each * factor for each in base.plan.level_amounts)  # type: ignore[attr-defined]
    return changed(base, plan=replace(base.plan, budget=budget, level_amounts=amounts))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("kind", "consistency"),
    [
        ("ordered, one chunk", Consistency.SHRUNK),
        ("ordered, chunks", Consistency.SHRUNK),
        ("hierarchy", FEWEST),
    ],
)
def test_counts_of_one_period_are_repaired_as_its_release(kind: str, consistency: object) -> None:
    tree = noisy(KINDS[kind])
    counts = []
    for question in (tree, changed(tree, consistency=consistency)):
        runs = Runs.of(question, TemporalTree(periods=2)).run()
        window, day = window_nodes(runs, 1, 1), released_nodes(runs, Span(0, 1, 1))
        assert {at: row["count"] for at, row in window.items()} == {
            at: row["count"] for at, row in day.items()
        }
        counts.append([row["count"] for row in day.values()])
    assert counts[0] != counts[1]


@by_kind
def test_counts_of_windows_are_consistent_and_not_negative(kind: str) -> None:
    tree = noisy(KINDS[kind])
    runs = Runs.of(tree, BINARY).run()
    found = window_nodes(runs, 2, 6)
    shape = tree.plan.tree
    for (key, level, node), row in found.items():
        if not tree.is_signed:
            assert row["count"] >= 0
        leaves = shape.leaf_range(level, node)
        below = [
            (key, level + 1, child)
            for child in range(shape.level_sizes[level + 1] if level < shape.height else 0)
            if shape.leaf_range(level + 1, child).start in leaves
        ]
        inner = [found[child] for child in below if child in found]
        if len(inner) == len(below) > 0:
            assert sum(each["count"] for each in inner) == row["count"]
            assert sum(each["estimate"] for each in inner) == pytest.approx(row["estimate"])


# --- whose periods do not add up ---


@pytest.mark.parametrize(
    "question",
    [
        ordered_question(estimator=Estimator.NONE, chunk_leaves=30),
        hierarchy_question("digits", estimation="none"),
        threshold_question("paths"),
    ],
    ids=["as published", "as measured", "thresholds"],
)
def test_trees_that_are_not_linear_do_not_add_up(question: TreeQuestion) -> None:
    assert not adds_up(question) and not adds_up(object())
    assert adds_up(ordered_question(chunk_leaves=30))


def test_a_spine_is_put_together_too() -> None:
    runs = Runs.of(KINDS["ordered, chunks"], BINARY).run()
    assert len(runs.window(1, 7).part("nodes", 0, SPINE)) > 0


# --- what a row moves ---


@by_time
@pytest.mark.parametrize("repeated", [False, True], ids=["once", "planted"])
def test_a_row_moves_one_count_of_one_node_of_each_temporal_level(
    temporal: TemporalTree, repeated: bool
) -> None:
    """What the guarantee rests on; seen to fail where a run is given a row of the run before."""
    if repeated and temporal.periods == 1:
        return
    tree = one_level(Budget(measure=Measure.RHO, amount=Fraction(1)), keys=5)
    left = exact_by_span(Runs.of(tree, temporal))
    for period in range(1, temporal.periods + 1 - repeated):
        more = Runs.of(tree, temporal)
        more.counts[period - 1, 3] += 1
        if repeated:
            more.counts[period, 3] += 1
        right = exact_by_span(more)
        moved = {span: int(np.abs(left[span] - right[span]).sum()) for span in left}
        by_level = [
            sum(count for span, count in moved.items() if span.level == level)
            for level in range(len(temporal.spans))
        ]
        assert (max(by_level) > 1) == repeated


def test_what_the_levels_spend_is_no_more_than_the_budget() -> None:
    for kind in KINDS:
        tree = KINDS[kind]
        for temporal in TIMES:
            plans = [series_plan(tree, temporal, at) for at in range(1, temporal.periods + 1)]
            for plan in plans:
                assert plan.spending.rho <= plan.budget.amount, kind
                assert plan.questions[0].budget == tree.budget, kind
            # Each run states the whole of it: what a run spends is not known by what closes in it.
            assert len({plan.spending.rho for plan in plans}) == 1, kind
