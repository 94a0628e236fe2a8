"""A release answers from its tables alone, whatever the chunks; its noise is drawn once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism, range_error
from dptrees.dpcore.noise.laws import ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import RangeObjective
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting
from tests.dpcore.conftest import make_question, make_release_plan, replace_laws
from tests.dpcore.mechanisms import changed
from tests.dpcore.released_tables import all_rows
from tests.dpcore.single_questions import KEY

Make = Callable[..., Any]
LEAVES, QUANTILES = 23, (0.0, 0.1, 0.5, 0.9, 1.0)
KEYS = [None, "k0", "k2"]


def tree_plan(*, keyed: bool = False) -> TreePlan:
    return TreePlan(
        tree=UniformTree(leaves=LEAVES, fanouts=(3, 2, 4)),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(3)),
        level_amounts=tuple(Fraction(n, 2) for n in (0, 1, 2, 3)),
        keyed=keyed,
    )


@pytest.fixture(scope="module", params=[2**17, 50, 8, 4], ids=lambda size: f"chunks of {size}")
def release(request: pytest.FixtureRequest) -> ReleaseReader:
    """Release of a tree "plain" and a tree "keyed" with 3 keys."""
    same = {"leaves": LEAVES, "quantiles": QUANTILES, "chunk_leaves": request.param}
    plain = make_question(plan=tree_plan(), name="plain", **same)
    keyed = make_question(plan=tree_plan(keyed=True), name="keyed", keys=3, **same)
    rng = np.random.default_rng(0)
    counts = {"plain": rng.poisson(9, LEAVES), "keyed": rng.poisson(9, (3, LEAVES))}
    return release_counts(make_release_plan(plain, keyed), counts, KEY)


def tree_name(key: str | None) -> str:
    return "plain" if key is None else "keyed"


def key_rows(release: ReleaseReader, kind: str, key: str | None) -> list[dict[str, Any]]:
    rows = all_rows(release, kind, tree_name(key)).to_pylist()
    return [row for row in rows if row["key"] == key]


def quantile_rows(release: ReleaseReader, key: str | None) -> list[dict[str, Any]]:
    assert release.quantiles is not None
    rows = release.quantiles.to_pylist()
    return [row for row in rows if row["tree"] == tree_name(key) and row["key"] == key]


def test_cdf_is_the_row_of_its_boundary(release: ReleaseReader) -> None:
    for key in KEYS:
        tree = release.tree(tree_name(key))
        start = tree.cdf(0, key)
        assert (start.estimate, start.std_error, start.count, start.fraction) == (0, 0, 0, 0), key
        for row in key_rows(release, "cdf", key):
            answer = tree.cdf(int(row["upper"]), key)
            assert (answer.estimate, answer.count) == (row["estimate"], row["count"]), key
            assert answer.std_error == pytest.approx(row["std_error"], rel=1e-9), key
            assert answer.fraction == pytest.approx(row["fraction"]), key
            assert answer.ci_low <= max(0.0, row["estimate"]) <= answer.ci_high + 1e-9, key
            assert (
                answer.ci_low <= row["ci_low"] + 1e-6 and row["ci_high"] <= answer.ci_high + 1e-6
            ), key
            assert answer.label == ("0" if row["upper"] == 1 else f"[0, {int(row['upper'])})"), key


@pytest.mark.parametrize("key", KEYS)
def test_a_range_is_the_difference_of_two_boundaries(
    release: ReleaseReader, key: str | None
) -> None:
    tree, plan = release.tree(tree_name(key)), release.plan.question(tree_name(key)).plan
    for start, stop in itertools.combinations(range(0, LEAVES + 1, 3), 2):
        answer = tree.range(start, stop, key)
        low, high = tree.cdf(start, key), tree.cdf(stop, key)
        assert answer.count == high.count - low.count
        assert answer.estimate == pytest.approx(high.estimate - low.estimate)
        assert answer.std_error == pytest.approx(range_error(plan, start, stop).variance ** 0.5)
        assert answer.label == f"[{start}, {stop})"
    assert tree.range(0, LEAVES, key).fraction == 1.0
    empty = tree.range(5, 5, key)
    assert (empty.estimate, empty.std_error, empty.count, empty.label) == (0, 0, 0, "nothing")


def test_nodes_are_rows(release: ReleaseReader) -> None:
    for key in KEYS:
        tree = release.tree(tree_name(key))
        rows = key_rows(release, "nodes", key)
        sizes = release.plan.question(tree_name(key)).plan.tree.level_sizes
        assert len(rows) == sum(sizes), key
        total = tree.node(0, 0, key).count
        for row in rows:
            answer = tree.node(row["level"], row["node"], key)
            for name in ("label", "estimate", "std_error", "ci_low", "ci_high", "count"):
                assert getattr(answer, name) == row[name], key
            assert answer.fraction == row["count"] / total, key
        for level, size in enumerate(sizes):
            found = [tree.node(level, node, key).count for node in range(size)]
            order = sorted(range(size), key=lambda node: (-found[node], node))
            top = tree.top(3, level, key)
            assert [answer.count for answer in top] == [found[node] for node in order[:3]], key
            assert [answer.label for answer in top] == [
                tree.node(level, node, key).label for node in order[:3]
            ]


def test_the_node_that_holds_a_value(release: ReleaseReader) -> None:
    tree, shape = release.tree("plain"), release.plan.question("plain").plan.tree
    for level in range(shape.height + 1):
        for value in range(LEAVES):
            assert value in shape.leaf_range(level, tree.find_node(value, level))


def test_any_quantile_may_be_requested(release: ReleaseReader) -> None:
    for key in KEYS:
        tree = release.tree(tree_name(key))
        released = quantile_rows(release, key)
        assert [row["q"] for row in released] == list(QUANTILES), key
        assert [_without_words(row) for row in tree.quantiles(key)] == released
        for row in released:
            assert _without_words(tree.computed_quantile(row["q"], key)) == row
        between = tree.quantile(0.3, key)
        assert released[1]["value"] <= between["value"] <= released[2]["value"], key


@pytest.mark.parametrize("key", KEYS)
def test_released_quantiles_are_looked_up(
    release: ReleaseReader, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up makes no forest, which takes the variances of all levels."""

    def refused(question: OrderedQuestion[Any]) -> None:
        raise AssertionError(f"the forest of {question.name} is not needed")

    monkeypatch.setattr(OrderedQuestion, "forest", property(refused))
    tree = release.tree(tree_name(key))
    other = tree.at_confidence(0.5)
    monkeypatch.setattr(type(tree), "computed_quantile", lambda *_: {})
    for row in quantile_rows(release, key):
        assert _without_words(tree.quantile(row["q"], key)) == row
        assert other.quantile(row["q"], key) == {}  # another interval
    assert tree.quantile(0.3, key) == {}


def test_quantiles_of_all_keys_are_those_of_each(release: ReleaseReader) -> None:
    """Released ones, others, and both; in chunks of several keys and in several chunks of a key."""
    for name, keys in (("plain", [None]), ("keyed", ["k0", "k1", "k2"])):
        tree = release.tree(name)
        for each, quantiles in itertools.product(
            (tree, tree.at_confidence(0.5)), ((0.5,), (0.3, 0.7), ("0.7", 0.9, 0.3, 0.0, 0.3), ())
        ):
            found = [each.quantile(quantile, key) for key in keys for quantile in quantiles]
            assert each.quantiles_by_key(quantiles) == found
        for wrong in ((0.5, 1.5), (0.5, "x")):
            with pytest.raises(ValueError, match="quantile"):
                tree.quantiles_by_key(wrong)


def _without_words(row: dict[str, Any]) -> dict[str, Any]:
    """A quantile as the table has it."""
    return {name: value for name, value in row.items() if not name.endswith("in_words")}


def test_refusals(release: ReleaseReader) -> None:
    plain, keyed = release.tree("plain"), release.tree("keyed")
    with pytest.raises(KeyError):
        release.tree("unknown")
    for query in (lambda t, k: t.cdf(3, k), lambda t, k: t.quantile(0.5, k)):
        with pytest.raises(ValueError, match="has no keys"):
            query(plain, "k0")
        with pytest.raises(ValueError, match="needs a key"):
            query(keyed, None)
        with pytest.raises(ValueError, match="key"):
            query(keyed, "unknown")
    with pytest.raises(ValueError, match="range: 9 is above 3"):
        plain.range(9, 3)
    with pytest.raises(ValueError, match="quantiles: "):
        plain.quantile(1.5)
    with pytest.raises(ValueError):
        plain.cdf("not a number")
    for place in ((-1, 0), (4, 0), (1, 3), (1, -1)):
        with pytest.raises(ValueError, match="node: "):
            plain.node(*place)


def test_top_refuses_a_level_that_is_none(release: ReleaseReader) -> None:
    for level in (-1, 4):
        with pytest.raises(ValueError, match="level"):
            release.tree("plain").top(3, level)
        with pytest.raises(ValueError, match="level"):
            release.tree("plain").find_node(3, level)


def test_no_quantiles_where_none_were_requested() -> None:
    plan = make_release_plan(make_question(leaves=LEAVES, plan=tree_plan()))
    release = release_counts(plan, {"delay": np.arange(LEAVES)}, KEY)
    assert release.quantiles is None and release.tree("delay").quantiles() == []
    assert release.tree("delay").quantile(0.5)["value"] is not None


def test_zero_noise_gives_the_truth_back() -> None:
    silent = replace_laws(tree_plan(), lambda law: ZeroNoise())
    question = make_question(leaves=LEAVES, plan=silent, quantiles=(0.5,))
    counts = np.random.default_rng(2).poisson(4, LEAVES)
    tree = release_counts(make_release_plan(question), {"delay": counts}, KEY).tree("delay")
    for value in range(LEAVES + 1):
        assert tree.cdf(value).count == counts[:value].sum()
        assert tree.cdf(value).estimate == pytest.approx(counts[:value].sum())
    assert [a.count for a in tree.top(LEAVES, 3)] == sorted(counts.tolist(), reverse=True)
    half = -(-counts.sum() // 2)
    cell = int(np.argmax(np.cumsum(counts) >= half))
    assert cell <= tree.quantile(0.5)["value"] <= cell + 1


# Noise is drawn once. One level, with noise so wide that two draws hardly ever agree: at scale
# 1e5 four of 64 pairs agree with probability below 1e-9.
WIDE, CELLS = Fraction(1, 10**5), 64


def wide_question(*, keys: int = 0, name: str = "delay", **fields: Any) -> Any:
    plan = TreePlan(
        tree=UniformTree(leaves=CELLS, fanouts=(CELLS,)),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=WIDE),
        level_amounts=(Fraction(0), WIDE),
        keyed=keys > 0,
    )
    return make_question(leaves=CELLS, plan=plan, keys=keys, name=name, **fields)


def leaf_noise(release: ReleaseReader, counts: dict[str, Any]) -> dict[tuple[str, int], Any]:
    """(tree, key code) -> the noise of its leaves."""
    found = {}
    for question in release.plan.questions:
        rows = all_rows(release, "nodes", question.name)
        leaves = rows.filter(pc.equal(rows["level"], 1))["estimate"].to_numpy()
        noise = np.rint(leaves - np.ravel(counts[question.name])).reshape(-1, CELLS)
        found |= {(question.name, code): each for code, each in enumerate(noise)}
    return found


def test_the_same_key_plan_and_counts_give_identical_tables() -> None:
    plan = make_release_plan(wide_question(keys=3, quantiles=(0.5,)))
    counts = {"delay": np.arange(3 * CELLS)}
    once, again = (
        release_counts(p, counts, ReleaseKey(bytes(32)))
        for p in (plan, plan_from_spec(plan.spec()))
    )
    for kind in ("nodes", "cdf"):
        assert all_rows(once, kind, "delay").equals(all_rows(again, kind, "delay"))
    assert once.quantiles is not None and once.quantiles.equals(again.quantiles)


def test_any_change_draws_all_noise_afresh() -> None:
    """The release's id, one count by one, the key, anything of the specification."""
    one, two = wide_question(keys=2), wide_question(name="other")
    plan = make_release_plan(one, two)
    counts = {"delay": np.arange(2 * CELLS), "other": np.arange(CELLS)}
    moved = {"delay": counts["delay"] + (np.arange(2 * CELLS) == 5), "other": counts["other"]}
    domain = StepDomain(kind="integer", column="delay", lower=1, upper=CELLS + 1)
    plans = [
        replace(plan, name="another"),
        replace(plan, budget=replace(plan.budget, amount=2 * plan.budget.amount)),
        make_release_plan(one, replace(two, domain=domain)),
    ]
    key, other_key = ReleaseKey(bytes(32)), ReleaseKey(bytes(31) + b"1")
    releases = [(release_counts(plan, counts, key), counts)]
    releases.append((release_counts(plan, moved, key), moved))
    releases.append((release_counts(plan, counts, other_key), counts))
    releases += [(release_counts(each, counts, key), counts) for each in plans]
    draws = [noise for each in releases for noise in leaf_noise(*each).values()]
    assert len(draws) == 6 * 3  # of every release both keys and the other tree
    for first, second in itertools.combinations(draws, 2):
        assert (first == second).sum() < 4


def test_another_confidence_or_quantile_draws_the_same_noise() -> None:
    """They shape the output alone: querying again otherwise must not spend the budget again."""
    one = wide_question(keys=2)
    other = changed(
        one, confidence=0.9, quantiles=(0.3,), weight=Fraction(2), objective=RangeObjective()
    )
    counts = {"delay": np.arange(2 * CELLS)}
    first, second = (release_counts(make_release_plan(each), counts, KEY) for each in (one, other))
    columns = ["estimate", "std_error", "count"]
    rows = [all_rows(each, "nodes", "delay").select(columns) for each in (first, second)]
    assert rows[0].equals(rows[1])


def test_levels_and_chunks_have_noise_of_their_own() -> None:
    plan = make_release_plan(wide_question(keys=2, chunk_leaves=16))
    counts = {"delay": np.zeros(2 * CELLS, np.int64)}
    noise = leaf_noise(release_counts(plan, counts, ReleaseKey(bytes(32))), counts)
    chunks = np.concatenate(list(noise.values())).reshape(-1, 16)
    assert len(chunks) == 8
    for first, second in itertools.combinations(chunks, 2):
        assert (first == second).sum() < 4


def test_the_shape_of_the_counts_does_not_matter() -> None:
    plan = make_release_plan(wide_question(keys=2))
    flat = np.arange(2 * CELLS)
    one, other = (
        release_counts(plan, {"delay": each}, KEY) for each in (flat, flat.reshape(2, CELLS))
    )
    assert all_rows(one, "cdf", "delay").equals(all_rows(other, "cdf", "delay"))


def test_refuses_what_are_no_counts() -> None:
    for counts, message in (
        ({}, "there are none of tree delay"),
        ({"delay": np.full(CELLS, 0.5)}, "are float64, not integers"),
        ({"delay": np.zeros(CELLS + 1, np.int64)}, "leaves, not"),
        ({"delay": np.arange(CELLS) - 1}, "one of tree delay is negative"),
    ):
        plan = make_release_plan(wide_question())
        with pytest.raises(ValueError, match=message):
            release_counts(plan, counts, KEY)


@pytest.mark.parametrize("measure", list(Measure))
def test_what_is_known_exactly_is_reported_exactly(measure: Measure) -> None:
    """The public total as the last point of the CDF, and as a node, a range and in a band."""
    budget = Budget(measure=measure, amount=Fraction(1, 3))
    leaves, rng = 50, np.random.default_rng(7)
    plan = plan_tree(
        TreeSetting(leaves=leaves, budget=budget, unit=SUBSTITUTE_ROW, public_total=True)
    )
    domain = StepDomain(kind="integer", column="delay", lower=0, upper=leaves, missing="first")
    question = OrderedQuestion(name="t", domain=domain, mechanism=UniformMechanism(plan=plan))
    for _ in range(20):
        counts = rng.integers(0, 60, leaves)
        made = release_counts(make_release_plan(question), {question.name: counts}, KEY)
        tree, total = made.tree(question.name), float(counts.sum())
        answers = [
            tree.cdf(leaves),
            tree.cdf(leaves, simultaneous=True),
            tree.at_confidence(0.5).cdf(leaves),
            tree.range(0, leaves),
            tree.node(0, 0),
        ]
        for answer in answers:
            exact = (answer.estimate, answer.std_error, answer.ci_low, answer.ci_high)
            assert exact == (total, 0.0, total, total)
        last = all_rows(made, "cdf", question.name).to_pylist()[-1]
        assert (last["estimate"], last["ci_low"], last["ci_high"]) == (total, total, total)
