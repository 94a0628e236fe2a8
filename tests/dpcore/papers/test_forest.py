"""Releases of the papers' mechanisms, estimates and consistent counts, end to end.

Each combination is released through `release_counts` and compared with `dpcore.papers.honaker`
and `dpcore.trees.closest_cdf` on the noise that the release drew, which is drawn again here from
its key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.planner import plan_mechanism
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, combine_digests, counts_digest
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.papers.forest import PapersForest, independent_estimates
from dptrees.dpcore.papers.honaker import TreeEstimate, estimate_tree
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from dptrees.dpcore.trees.closest_cdf import closest_cdf
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.estimation import estimation_weights
from dptrees.dpcore.uniform.intervals import IntervalWidths
from dptrees.dpcore.uniform.plan import Consistency, Estimator, Measured, TreePlan, TreeSetting
from tests.dpcore.conftest import (
    NodeNoiseLaw,
    NodeNoiseSource,
    make_question,
    make_release_plan,
    replace_laws,
)
from tests.dpcore.released_tables import columns_of
from tests.dpcore.single_questions import KEY

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]

ADD_REMOVE, SUBSTITUTE = ADD_REMOVE_ROW, SUBSTITUTE_ROW
SETTINGS = {
    "add_remove": (ADD_REMOVE, False, 0),
    "N public": (SUBSTITUTE, True, 0),
    "substitute": (SUBSTITUTE, False, 0),
    "substitute keyed": (SUBSTITUTE, False, 3),
}
LEAVES = 11
OF_PAPERS = (Consistency.TOP_DOWN, Consistency.L1, Consistency.L2, Consistency.LINF)
# Trimmed, with a level that is not measured, and a private root that is.
LEVELS: dict[str, Any] = {"fanouts": (2, 3, 2)}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "planned": ("planned", {}),
    "tree": ("tree", LEVELS),
    "gaps": ("tree", LEVELS | {"level_budgets": (2, 0, 3)}),
    "root": ("tree", LEVELS | {"level_budgets": (1, 1, 0, 3)}),
    "binary": ("binary", {}),
    "histogram": ("histogram", {}),
    "independent": ("independent", {}),
}
# Every shape with N public and with one of the private settings in turn.
PRIVATE = ("add_remove", "substitute", "substitute keyed")
CASES = [
    *((shape, "N public") for shape in SHAPES),
    *((shape, PRIVATE[place % 3]) for place, shape in enumerate(SHAPES)),
    *((shape, each) for shape in ("root", "independent") for each in PRIVATE[1:]),
]
QUERIED = [case for case in CASES if case[0] in ("tree", "root", "independent")]


def released(plan: TreePlan, setting: str, counts: Array, **fields: Any) -> ReleaseReader:
    """A release of counts by a plan."""
    question = question_with_widths(plan, setting, **fields)
    return release_counts(make_release_plan(question), {question.name: counts}, KEY)


def same(found: Array, expected: Array) -> None:
    """Equal up to the last bits, where one of them may have a value for every key."""
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-9, atol=1e-7)


def make_plan(
    shape: str,
    setting: str,
    *,
    measure: Measure = Measure.EPSILON,
    amount: Fraction | int = 2,
    estimator: Estimator = Estimator.FULL,
    leaves: int = LEAVES,
) -> TreePlan:
    """The plan of a shape; refuses as `plan_mechanism` does."""
    unit, public, keys = SETTINGS[setting]
    name, given = SHAPES[shape]
    given = dict(given)
    if "level_budgets" in given:
        units = (0, *given["level_budgets"][1:]) if public and shape == "root" else None
        units = units or given["level_budgets"]
        given["level_budgets"] = tuple(Fraction(amount) * Fraction(n, sum(units)) for n in units)
    return plan_mechanism(
        name,
        TreeSetting(
            leaves=leaves,
            budget=Budget(measure=measure, amount=Fraction(amount)),
            unit=unit,
            public_total=public,
            keyed=keys > 0,
        ),
        estimator=estimator,
        **given,
    )


def plans(
    shape: str, setting: str, measure: Measure = Measure.EPSILON, **fields: Any
) -> Iterator[TreePlan]:
    """With every estimator that the plan can have."""
    for estimator in Estimator:
        try:
            yield make_plan(shape, setting, measure=measure, estimator=estimator, **fields)
        except ValueError as refused:
            assert str(refused).startswith(("estimator: ", "estimation: "))


def data(setting: str, seed: int = 0, leaves: int = LEAVES) -> Array:
    """(keys, K) counts, many of them zero."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.choice([0.2, 6.0], leaves), (max(1, SETTINGS[setting][2]), leaves))


def question_with_widths(
    plan: TreePlan, setting: str, **fields: Any
) -> OrderedQuestion[UniformMechanism]:
    """The question of a plan, with widths of its own: they take time and have their own tests."""
    _, public, keys = SETTINGS[setting]
    question: OrderedQuestion[UniformMechanism] = make_question(
        leaves=plan.tree.leaves, plan=plan, keys=keys, public_total=public, **fields
    )
    question.remember_widths(
        IntervalWidths(confidence=0.95, levels=(2.0,) * (plan.tree.height + 1), prefix=2.0)
    )
    return question


def cdf_columns(release: ReleaseReader, *names: str) -> list[Array]:
    """Columns of the CDFs, (keys, K) each."""
    count = release.plan.questions[0].key_count
    return [column.reshape(count, -1) for column in columns_of(release, "cdf", *names)]


def node_columns(release: ReleaseReader, *names: str) -> list[list[Array]]:
    """Per level, root first, the columns as (keys, n_l)."""
    question = release.plan.questions[0]
    level, node, *values = columns_of(release, "nodes", "level", "node", *names)
    found = []
    for depth, size in enumerate(question.plan.tree.level_sizes):
        mine = level == depth
        assert mine.sum() == question.key_count * size
        shape = (question.key_count, size)
        np.testing.assert_array_equal(
            node[mine].reshape(shape), np.broadcast_to(np.arange(size), shape)
        )
        found.append([value[mine].reshape(shape) for value in values])
    return found


def redrawn(release: ReleaseReader, counts: Array) -> TreeEstimate:
    """The estimates from the exact counts and the noise, drawn anew from the key."""
    question = release.plan.questions[0]
    plan, tree, name = question.plan, question.plan.tree, question.name
    digest = counts_digest(KEY, release.plan.name, name, 0, 0, counts.reshape(-1))
    source = NoiseSource(
        key=KEY,
        release=release.plan.name,
        spec_digest=release.plan.digest,
        global_digest=combine_digests(digest),
    ).for_counts(counts)

    def noisy(law: NoiseLaw, exact: Array, level: int) -> Array:
        drawn: Array = law.sample(source.stream(name, 0, 0, level), exact.size)
        measured: Array = exact + drawn.reshape(exact.shape)
        return measured

    total = counts.sum(axis=1) if plan.public_total else None
    if plan.measured is Measured.PREFIXES:
        law = plan.laws[-1]
        assert law is not None
        exact = np.cumsum(counts, axis=1)[:, : tree.leaves - plan.public_total]
        prefixes = noisy(law, exact, tree.height)
        return independent_estimates(tree, prefixes, law.variance, total=total)
    measured = [
        None if law is None else noisy(law, exact, level)
        for level, (law, exact) in enumerate(zip(plan.laws, tree.level_counts(counts), strict=True))
    ]
    return estimate_tree(plan.estimator, tree, plan.variances, measured, total=total)


def expected_counts(
    plan: TreePlan, consistency: Consistency, found: TreeEstimate, root: Array
) -> list[Array]:
    """By the definition: top down, or the cheapest of all CDFs, by its cost."""
    if consistency is Consistency.TOP_DOWN:
        variances = list(plan.variances)
        if plan.public_total:
            variances[0] = np.inf
        weights = estimation_weights(plan.tree, variances)
        return consistent_counts(weights.tree, weights.below, list(found.levels), root[:, None])
    power = 1 if consistency is Consistency.L1 else 2
    best = closest_cdf(found.prefixes, root, lambda x, h: np.abs(x - h) ** power)
    return plan.tree.level_counts(np.diff(best, axis=1, prepend=0))


def can_be_within(h: Array, total: int, most: float) -> bool:
    """Whether rising integers from 0 to the total differ from h by no more, found one by one."""
    lowest = 0
    for value in h.tolist():
        lowest = max(lowest, math.ceil(value - most))
        if lowest > min(total, math.floor(value + most)):
            return False
    return True


@pytest.mark.parametrize(("shape", "setting"), CASES)
def test_every_mechanism_estimate_and_consistency_is_released_as_defined(
    shape: str, setting: str
) -> None:
    counts, seen = data(setting), set()
    total = counts.sum(axis=1)
    for measure in Measure if setting == "N public" else (Measure.EPSILON,):
        digests = set()
        for plan, consistency in itertools.product(plans(shape, setting, measure), OF_PAPERS):
            release = released(plan, setting, counts, consistency=consistency)
            seen.add(plan.estimator)
            digests.add(release.plan.digest)
            found = redrawn(release, counts)
            root = total if plan.public_total else root_count(found.levels[0][:, 0])
            nodes = node_columns(release, "estimate", "std_error", "count")
            for level, (estimate, error, count) in enumerate(nodes):
                np.testing.assert_allclose(estimate, found.levels[level], rtol=1e-9, atol=1e-9)
                same(error, np.sqrt(found.level_variances[level]))
                assert count.dtype == np.int64 and count.min() >= 0
                if level:
                    sums = plan.tree.child_sum(level - 1, count)
                    np.testing.assert_array_equal(sums, nodes[level - 1][2])
            np.testing.assert_array_equal(nodes[0][2][:, 0], root)
            estimate, error, cdf = cdf_columns(release, "estimate", "std_error", "count")
            np.testing.assert_allclose(estimate, found.prefixes, rtol=1e-9, atol=1e-9)
            same(error, np.sqrt(found.prefix_variances))
            assert (np.diff(cdf, axis=1, prepend=0) >= 0).all()
            np.testing.assert_array_equal(cdf[:, -1], root)
            np.testing.assert_array_equal(cdf, np.cumsum(nodes[-1][2], axis=1))
            if consistency is Consistency.LINF:
                for h, last, x in zip(found.prefixes, root.tolist(), cdf, strict=True):
                    worst = np.abs(x - h)[:-1].max(initial=0)
                    assert can_be_within(h[:-1], last, worst + 1e-6)
                    assert worst < 1e-6 or not can_be_within(h[:-1], last, worst - 1e-5)
                continue
            expected = expected_counts(plan, consistency, found, root)
            if consistency is Consistency.TOP_DOWN:
                for level, each in enumerate(expected):
                    np.testing.assert_array_equal(nodes[level][2], each)
            else:  # of several closest CDFs any will do: the cost decides
                power = 1 if consistency is Consistency.L1 else 2
                best = np.cumsum(expected[-1], axis=1)
                costs = [(np.abs(x - found.prefixes) ** power).sum(axis=1) for x in (cdf, best)]
                np.testing.assert_allclose(costs[0], costs[1], rtol=1e-9, atol=1e-6)
        # Whatever is made of it, the noise is the same: nothing of that enters the seed.
        assert len(digests) == 1
    assert seen >= {Estimator.FULL} and (shape == "independent" or len(seen) >= 3)
    assert (Estimator.REFINED in seen) == (setting == "N public" and shape != "independent")


@pytest.mark.parametrize(("shape", "setting"), CASES)
def test_a_huge_budget_gives_the_truth(shape: str, setting: str) -> None:
    measure = Measure.RHO if setting == "N public" else Measure.EPSILON
    counts, amount = data(setting, seed=1), 600 if shape == "independent" else 300
    cdf = np.cumsum(counts, axis=1)
    # Noise other than 0 would come once in 10^9 runs; see below for budgets that are larger yet.
    for plan in plans(shape, setting, measure, amount=amount):
        for consistency in OF_PAPERS:
            release = released(
                plan, setting, counts, consistency=consistency, quantiles=(0.0, 0.5, 1.0)
            )
            truths = [*plan.tree.level_counts(counts), cdf]
            levels = [*node_columns(release, "estimate", "count")]
            levels.append(cdf_columns(release, "estimate", "count"))
            for truth, (estimate, count) in zip(truths, levels, strict=True):
                np.testing.assert_allclose(estimate, truth, atol=1e-9)
                np.testing.assert_array_equal(count, truth)
            assert release.quantiles is not None
            medians = release.quantiles["value"].to_numpy().reshape(-1, 3)[:, 1]
            cells = (cdf >= np.ceil(cdf[:, -1:] / 2)).argmax(axis=1)
            assert ((cells <= medians) & (medians <= cells + 1)).all()


@pytest.mark.parametrize(("shape", "setting"), QUERIED)
def test_a_release_answers_queries_from_its_tables(shape: str, setting: str) -> None:
    counts = data(setting, seed=2)
    keys = [None] if counts.shape[0] == 1 else [f"k{code}" for code in range(len(counts))]
    for plan in plans(shape, setting):
        release = released(plan, setting, counts, quantiles=(0.5,))
        tree = release.tree(release.plan.questions[0].name)
        nodes = node_columns(release, "estimate", "std_error", "count")
        estimate, error, count = cdf_columns(release, "estimate", "std_error", "count")
        for code, key in enumerate(keys):
            for boundary in (1, 4, LEAVES):
                answer = tree.cdf(boundary, key)
                assert answer.estimate == estimate[code, boundary - 1]
                assert answer.count == count[code, boundary - 1]
                assert answer.std_error == pytest.approx(error[code, boundary - 1], abs=1e-7)
            answer = tree.range(3, 8, key)
            assert answer.estimate == estimate[code, 7] - estimate[code, 2]
            assert answer.count == count[code, 7] - count[code, 2]
            assert answer.ci_low <= max(0.0, answer.estimate) and answer.ci_high >= 0
            node = tree.node(1, 1, key)
            assert (node.estimate, node.std_error, node.count) == tuple(
                column[code, 1] for column in nodes[1]
            )
            if not plan.is_efficient:
                with pytest.raises(ValueError, match=r"^plan: bands are those of the fully eff"):
                    tree.cdf(4, key, simultaneous=True)


TWENTIETHS = tuple(q / 20 for q in range(21))


@pytest.mark.parametrize(("shape", "setting"), QUERIED)
def test_a_quantile_that_is_requested_again_is_the_released_one(shape: str, setting: str) -> None:
    for plan in plans(shape, setting, amount=Fraction(1, 4)):
        for seed in range(2):
            release = released(plan, setting, data(setting, seed=seed), quantiles=TWENTIETHS)
            (question,) = release.plan.questions
            tree, key = release.tree(question.name), question.key_labels[0]
            again = [tree.computed_quantile(each, key) for each in TWENTIETHS]
            assert again == tree.quantiles(key), plan.estimator


def test_a_root_of_a_budget_so_large_that_its_variance_is_zero() -> None:
    plan = make_plan("binary", "add_remove", estimator=Estimator.BELOW, amount=2000, leaves=2)
    (cdf,) = cdf_columns(released(plan, "add_remove", np.array([3, 4])), "count")
    assert cdf.tolist() == [[3, 7]]


@pytest.mark.parametrize("shape", ["planned", "root", "independent"])
def test_keys_in_any_chunk_are_solved_alike(shape: str) -> None:
    counts = np.random.default_rng(5).poisson(3, (7, LEAVES))
    for plan, consistency in itertools.product(plans(shape, "add_remove"), OF_PAPERS):
        # Noise by the number of a node; of independent prefixes the leaves'.
        law = NodeNoiseLaw(width=6)
        law.__dict__["variance"] = 9.0
        planted = replace_laws(plan, lambda _, law=law: law)
        found = [
            solved(
                PapersForest(planted, keys=7, chunk_leaves=size, consistency=consistency),
                counts,
            )
            for size in (7 * LEAVES, 3 * LEAVES, LEAVES)
        ]
        for other in found[1:]:
            for ours, theirs in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def solved(forest: PapersForest, counts: Array) -> list[Array]:
    """All answers, the keys in front."""
    noise, parts = NodeNoiseSource(chunking=forest.chunking), []
    for chunk in forest.chunking:
        exact = counts.reshape(-1)[chunk.start : chunk.start + chunk.leaves]
        measured = forest.measure("t", chunk, exact, noise)
        totals = exact.reshape(chunk.units, -1).sum(axis=1)
        roots, _ = forest.solve_spine(
            "t", chunk.key, forest.chunk_roots(chunk, measured), totals, noise
        )
        levels, prefix = forest.solve(chunk, measured, roots)
        values = [value for each in levels for value in (each.estimate, each.variance, each.count)]
        parts.append([*values, prefix.estimate, prefix.variance, prefix.alpha, prefix.count])
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_domain_of_one_cell(setting: str) -> None:
    counts = data(setting, leaves=1) + 4
    for shape in [name for name, (_, given) in SHAPES.items() if not given]:
        for plan, consistency in itertools.product(plans(shape, setting, leaves=1), OF_PAPERS):
            release = released(plan, setting, counts, consistency=consistency)
            ((estimate, error, count),) = node_columns(release, "estimate", "std_error", "count")
            prefix, cdf = cdf_columns(release, "estimate", "count")
            np.testing.assert_array_equal(prefix, estimate)
            np.testing.assert_array_equal(cdf, count)
            if plan.public_total:
                assert (estimate == counts).all() and (count == counts).all() and not error.any()
                continue
            levels = redrawn(release, counts).levels
            np.testing.assert_array_equal(estimate, levels[0])
            np.testing.assert_allclose(error, plan.variances[0] ** 0.5)


def test_mechanisms_have_noise_of_their_own() -> None:
    digests = [
        make_release_plan(question_with_widths(make_plan(shape, "add_remove"), "add_remove")).digest
        for shape in SHAPES
        if shape != "planned"  # it may be one of the others
    ]
    assert len(set(digests)) == len(SHAPES) - 1


def test_more_cells_than_a_chunk_are_refused_but_for_the_default() -> None:
    leaves = CHUNK_LEAVES + 1
    default = make_plan("histogram", "add_remove", leaves=leaves)
    assert make_question(leaves=leaves, plan=default).plan is default
    independent = make_plan("independent", "add_remove", leaves=CHUNK_LEAVES)
    assert make_question(leaves=CHUNK_LEAVES, plan=independent).forest.plan is independent
    refused = [(make_plan("independent", "add_remove", leaves=leaves), Consistency.TOP_DOWN)]
    refused += [
        (replace(default, estimator=estimator), consistency)
        for estimator in (Estimator.NONE, Estimator.BELOW, Estimator.FULL)
        for consistency in OF_PAPERS
        if (estimator, consistency) != (Estimator.FULL, Consistency.TOP_DOWN)
    ]
    for plan, consistency in refused:
        with pytest.raises(ValueError, match=f"^domain: {leaves} cells are too many for the pap"):
            make_question(leaves=leaves, plan=plan, consistency=consistency)
        with pytest.raises(ValueError, match=f"^leaves: {leaves} are too many for the papers' est"):
            PapersForest(plan, consistency=consistency)


def test_one_tree_exists_for_one_key_under_substitute() -> None:
    plan = make_plan("tree", "substitute", estimator=Estimator.NONE)
    with pytest.raises(ValueError, match=r"^keys: a plan without keys is for one tree, not 2"):
        PapersForest(plan, keys=2)
    assert PapersForest(replace(plan, keyed=True), keys=2).chunking.keys == 2
