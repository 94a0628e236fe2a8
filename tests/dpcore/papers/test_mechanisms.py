"""The published mechanisms as plans: what they measure, what it costs, and what they refuse.

The sensitivity of independent prefixes is the largest change of what the mechanism itself measures,
over all neighboring data sets of a few rows. Statistical limits have a false-alarm rate of
1e-6, and every one is shown to fail on a planted error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.levels.planner import plan_mechanism, plan_tree
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.papers.plans import (
    binary_mechanism,
    histogram_mechanism,
    independent_mechanism,
    tree_mechanism,
)
from dptrees.dpcore.papers.rameshwar_optima import optimal_level_budgets
from dptrees.dpcore.privacy.composition import certified_delta, keeps
from dptrees.dpcore.privacy.sensitivity import noise_law, prefix_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import NodeObjective, RangeObjective
from dptrees.dpcore.uniform.plan import Estimator, Measured, TreePlan, TreeSetting, moved_counts
from tests.dpcore.conftest import make_question, make_release_plan, replace_laws
from tests.dpcore.neighboring import DROPPED, Row, neighbors, possible_rows
from tests.dpcore.noise_laws import p_value
from tests.dpcore.tree_settings import KEYED, PRIVATE, PUBLIC, ROWS, ROWS_KEYED, tree_setting
from tests.dpcore.tree_settings import Case as Setting

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]

FALSE_ALARM = 1e-6
SETTINGS: list[Setting] = [PUBLIC, PRIVATE, KEYED, ROWS, ROWS_KEYED]


def budget(measure: Measure = Measure.EPSILON, amount: Fraction | int | str = 1) -> Budget:
    return Budget(measure=measure, amount=Fraction(amount))


def independent(leaves: int, setting: Setting, given: Budget | None = None) -> TreePlan:
    given = given or budget()
    return independent_mechanism(tree_setting(leaves, setting, given.measure, given.amount))


class NoStreams:
    """In place of a source: noise that is none needs no randomness."""

    def for_counts(self, counts: object) -> NoStreams:
        return self

    def stream(self, *place: object) -> None:
        return None


# --- the sensitivity of independent prefixes ----------------------------------------------------


def largest_change(plan: TreePlan, keys: int, *, drops: bool) -> tuple[int, int]:
    """The largest L1 and squared L2 change of all that the mechanism measures."""
    forest = PapersForest(plan, keys=keys)

    @cache
    def measured(rows: tuple[Row, ...]) -> Array:
        counts = np.zeros((keys, plan.tree.leaves), np.int64)
        for key, leaf in rows:
            if (key, leaf) != DROPPED:
                counts[key, leaf] += 1
        levels = forest.measure("t", forest.chunking[0], counts.reshape(-1), NoStreams())  # type: ignore[arg-type]
        seen = [level.reshape(-1) for level in levels if level is not None]
        return np.concatenate([np.zeros(0, np.int64), *seen])

    universe = possible_rows(keys, plan.tree.leaves, drops=drops)
    l1 = l2_squared = 0
    for one, other in neighbors(universe, plan.unit):
        change = np.abs(measured(one) - measured(other))
        l1, l2_squared = max(l1, int(change.sum())), max(l2_squared, int((change**2).sum()))
    return l1, l2_squared


@pytest.mark.parametrize("setting", SETTINGS)
def test_prefix_sensitivity_is_the_largest_change_of_what_is_measured(setting: Setting) -> None:
    unit, public, keyed = setting
    for leaves in (1, 2, 3, 4):
        plan = replace_laws(independent(leaves, setting), lambda law: ZeroNoise())
        keys = 2 if keyed else 1
        stated = prefix_sensitivity(unit, leaves, public_total=public, keyed=keyed)
        # The bound is tight: a claim of one less would be broken, one more would be wasted noise.
        assert largest_change(plan, keys, drops=not public) == stated, leaves
        if not public:  # stated for any policy; where none drops it may be one prefix less
            kept = largest_change(plan, keys, drops=False)[0]
            assert kept == stated[0] - (setting == PRIVATE), leaves


def spent(law: NoiseLaw | None, l1: int, l2_squared: int) -> Fraction:
    """What a law spends of the budget for a change of the counts."""
    if isinstance(law, DiscreteLaplace):
        return l1 / law.scale
    assert isinstance(law, DiscreteGaussian)
    return l2_squared / (2 * law.sigma_squared)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_law_of_independent_prefixes_spends_the_budget_exactly(setting: Setting) -> None:
    """On the worst neighbors; the law of a sensitivity that is one less would overspend."""
    _, public, keyed = setting
    for measure in Measure:
        plan = independent(3, setting, budget(measure, "7/5"))
        silent = replace_laws(plan, lambda law: ZeroNoise())
        l1, l2_squared = largest_change(silent, 2 if keyed else 1, drops=not public)
        assert plan.laws[:-1] == (None,)
        assert spent(plan.laws[-1], l1, l2_squared) == plan.budget.amount
        less = noise_law(plan.budget, l1 - 1, l2_squared - 1)
        assert spent(less, l1, l2_squared) > plan.budget.amount


def test_one_public_count_is_not_measured() -> None:
    plan = independent(1, SETTINGS[0])
    assert plan.laws == (None,) and plan.variances == (0.0,)
    assert prefix_sensitivity(SUBSTITUTE_ROW, 1, public_total=True, keyed=False) == (0, 0)


# --- what independent prefixes draw -------------------------------------------------------------

RUNS = 30_000


def many_runs(plan: TreePlan, counts: Array) -> Array:
    """(runs, prefixes) what is measured; a tree for each run, public total or not."""
    forest = PapersForest(plan, chunk_leaves=RUNS * plan.tree.leaves)
    forest.chunking = UniformChunking(
        tree=plan.tree, keys=RUNS, chunk_leaves=RUNS * plan.tree.leaves
    )
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=b"c"
    )
    *above, prefixes = forest.measure("t", forest.chunking[0], np.tile(counts, RUNS), noise)
    assert above == [None] * plan.tree.height and prefixes is not None
    return prefixes


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("measure", list(Measure))
def test_independent_prefixes_have_noise_of_their_law_each_its_own(
    measure: Measure, setting: Setting
) -> None:
    """K - 1 noisy prefixes where N is public, else K; noise of the neighboring sensitivity, one
    less, is noticed."""
    counts, given = np.array([4, 0, 2, 7]), budget(measure, 2)
    plan = independent(4, setting, given)
    noise = many_runs(plan, counts)
    measured = 3 if setting[1] else 4
    assert noise.shape == (RUNS, measured)
    noise = noise - np.cumsum(counts)[:measured]
    law = plan.laws[-1]
    assert law is not None
    for column in noise.T:
        assert p_value(column, law) > FALSE_ALARM / 4
    correlation = np.corrcoef(noise.T)[~np.eye(measured, dtype=bool)]
    assert np.abs(correlation).max() < 5.6 / math.sqrt(RUNS)
    l1, l2_squared = prefix_sensitivity(setting[0], 4, public_total=setting[1], keyed=setting[2])
    planted = replace_laws(plan, lambda law: noise_law(given, l1 - 1, l2_squared - 1))
    off = many_runs(planted, counts) - np.cumsum(counts)[:measured]
    assert p_value(off.reshape(-1), law) < FALSE_ALARM


# --- shapes and level budgets -------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_mechanism_spends_the_budget_on_its_own_levels(setting: Setting) -> None:
    _, public, _ = setting
    makers = (independent_mechanism, histogram_mechanism, binary_mechanism, tree_mechanism)
    for leaves, measure in itertools.product((1, 2, 3, 17, 64), Measure):
        given = tree_setting(leaves, setting, measure, "3/7")
        plans = {make: make(given) for make in makers}
        for make, plan in plans.items():
            assert sum(plan.level_amounts) == (0 if leaves == 1 and public else Fraction(3, 7))
            assert (plan.unit, plan.public_total, plan.keyed) == setting
            expected = Measured.PREFIXES if make is independent_mechanism else Measured.NODES
            assert plan.measured is expected and plan.estimator is Estimator.FULL
        if leaves == 1:
            continue
        for make in (independent_mechanism, histogram_mechanism):
            assert plans[make].tree.fanouts == (leaves,)
            assert plans[make].level_amounts == (Fraction(0), Fraction(3, 7))
        binary = plans[binary_mechanism]
        height = math.ceil(math.log2(leaves))
        assert binary.tree.fanouts == (2,) * height
        each = Fraction(3, 7) / (height if public else height + 1)
        assert binary.level_amounts == (Fraction(0) if public else each, *[each] * height)
        assert plans[tree_mechanism].level_amounts[0] == 0


@pytest.mark.parametrize(("measure", "power"), [(Measure.EPSILON, 1 / 3), (Measure.RHO, 1 / 2)])
def test_the_best_level_budgets_before_estimation(measure: Measure, power: float) -> None:
    """~ (n_i - 1)^(1/3), and ^(1/2) for rho: no other split has a smaller error."""
    fanouts, whole = (2, 5, 9), Fraction(3)
    setting = tree_setting(90, SETTINGS[0], measure, whole)
    made = partial(tree_mechanism, setting, fanouts=fanouts)
    plan = made()
    weights = np.array([n - 1 for n in fanouts]) ** power
    shares = np.array([float(each / whole) for each in plan.level_amounts[1:]])
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-6)
    assert plan.level_amounts[1:] == tuple(optimal_level_budgets(fanouts, whole, measure))
    assert made(level_budgets="equal").level_amounts == tuple(map(Fraction, (0, 1, 1, 1)))
    given = (Fraction(1, 2), Fraction(2), Fraction(1, 3))
    assert made(level_budgets=given).level_amounts == (Fraction(0), *given)


def test_a_private_root_is_measured_where_it_has_an_amount() -> None:
    amounts = (Fraction(1, 4), Fraction(0), Fraction(3, 4))
    plan = plan_mechanism(
        "tree",
        tree_setting(6),
        fanouts=(2, 3),
        level_budgets=amounts,
        estimator=Estimator.ABOVE,
    )
    assert plan.level_amounts == amounts and plan.estimator is Estimator.ABOVE
    assert [law is not None for law in plan.laws] == [True, False, True]


@pytest.mark.parametrize("name", ["tree", "binary", "histogram", "planned"])
def test_any_tree_has_any_estimate(name: str) -> None:
    setting = tree_setting(23, SETTINGS[0])
    for estimator in Estimator:
        plan = plan_mechanism(name, setting, estimator=estimator)
        assert plan.estimator is estimator
        assert plan.is_efficient == (estimator is Estimator.FULL)
        # An estimate is post-processing: it changes nothing that is measured.
        assert replace(plan, estimator=Estimator.FULL) == plan_mechanism(name, setting)


def test_the_planned_tree_of_given_levels_is_the_tree() -> None:
    setting = tree_setting(12)
    given: dict[str, Any] = {"fanouts": (3, 4), "level_budgets": "equal"}
    assert plan_mechanism("planned", setting, **given) == plan_mechanism("tree", setting, **given)
    best = plan_mechanism("planned", setting, fanouts=(3, 4))
    assert best == plan_tree(setting, fanouts=(3, 4)) and best.tree.fanouts == (3, 4)


# --- refusals -----------------------------------------------------------------------------------

HALVES = (Fraction(1, 2), Fraction(1, 2))
PUBLIC_TOTAL = {"unit": SUBSTITUTE_ROW, "public_total": True}
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("best", {}, r"mechanism: there is none of the name 'best'"),
    *[
        (name, {field: value}, f"{field}: the mechanism {name} has its own")
        for name in ("binary", "histogram", "independent")
        for field, value in (("fanouts", (5,)), ("level_budgets", "equal"))
    ],
    ("independent", {"estimator": Estimator.NONE}, "estimation: independent prefixes have one"),
    ("planned", {"level_budgets": HALVES}, "level_budgets: they need the fanouts"),
    ("planned", {"estimator": Estimator.REFINED}, "estimator: refined needs a public total"),
    ("tree", {"estimator": Estimator.REFINED}, "estimator: refined needs a public total"),
    ("tree", {"estimator": Estimator.ABOVE}, "estimator: above needs a root that is public or"),
    ("histogram", {"estimator": Estimator.ABOVE}, "estimator: above needs a root that is public"),
    ("tree", {"fanouts": (2, 2)}, r"fanouts: \(2, 2\) cover fewer than 5 leaves"),
    ("planned", {"fanouts": (2, 2)}, r"fanouts: \(2, 2\) cover fewer than 5 leaves"),
    ("tree", {"fanouts": (5, 1)}, r"fanouts: \(5, 1\) has a fan-out below 2"),
    ("tree", {"fanouts": (2, 5)}, r"fanouts: \(2, 5\) repeat the root of 5 leaves"),
    ("tree", {"fanouts": (3, 2), "level_budgets": HALVES[:1]}, "level_budgets: 1 of them for 2"),
    ("tree", {"fanouts": (3, 2), "level_budgets": 2 * HALVES}, "level_budgets: 4 of them for 2"),
    *[
        ("tree", {"fanouts": (3, 2), "level_budgets": amounts}, f"level_amounts: {message}")
        for amounts, message in (
            ((Fraction(1, 2), Fraction(3, 4)), "they sum to 5/4, above the budget 1"),
            ((Fraction(2), Fraction(-1)), "an amount is negative"),
            ((Fraction(1), Fraction(0)), "the leaves must be measured"),
        )
    ],
    ("tree", {"fanouts": (2, 3), "level_budgets": ()}, "level_budgets"),
    *[
        ("tree", {"leaves": 1, "level_budgets": amounts}, "level_")
        for amounts in ((Fraction(5),), HALVES)
    ],
    (
        "tree",
        {
            **PUBLIC_TOTAL,
            "fanouts": (3, 2),
            "level_budgets": (Fraction(1, 9), *HALVES[:1], HALVES[0] / 9),
        },
        "level_amounts: a root that is public needs no budget",
    ),
    ("histogram", {"public_total": True}, "public_total: the number of rows is public only under"),
    ("histogram", {**PUBLIC_TOTAL, "keyed": True}, "public_total: .* without keys"),
    ("planned", {"objective": RangeObjective(widths=(6,))}, "widths: 6 is more than the 5 leaves"),
    (
        "planned",
        {"objective": NodeObjective(weights=(1.0, 1.0)), "fanouts": (3, 2)},
        "level_weights: 2 of them for 3 levels",
    ),
    *[
        (name, {"leaves": leaves}, f"leaves: {leaves} is not between 1 and 2\\^40")
        for name in ("planned", "tree", "binary", "histogram", "independent")
        for leaves in (0, -3, 2**40 + 1)
    ],
]


def test_refuses_in_one_sentence_that_starts_with_the_field() -> None:
    for name, change, message in REFUSALS:
        given: dict[str, Any] = {"leaves": 5, "budget": budget(), "unit": ADD_REMOVE_ROW, **change}
        names = [each.name for each in fields(TreeSetting) if each.name in given]
        own = {each: given.pop(each) for each in names}
        with pytest.raises(ValueError, match=f"^{message}") as refused:
            plan_mechanism(name, TreeSetting(**own), **given)
        sentence = str(refused.value)
        assert "\n" not in sentence and not sentence.endswith(".") and ". " not in sentence


def test_refuses_noise_that_does_not_fit_counts() -> None:
    for name in ("planned", "tree", "binary", "histogram", "independent"):
        with pytest.raises(ValueError, match="scale"):
            plan = plan_mechanism(name, tree_setting(5, amount=Fraction(1, 2**42)))
            assert plan.laws  # published plans make their laws on request


def test_a_plan_of_independent_prefixes_has_one_level_and_one_estimate() -> None:
    taller = UniformTree(leaves=6, fanouts=(2, 3))
    for change, message in (
        ({"level_amounts": HALVES}, "mechanism: independent prefixes"),
        (
            {"tree": taller, "level_amounts": (Fraction(0), *HALVES)},
            "mechanism: independent prefixes have one level",
        ),
        ({"estimator": Estimator.BELOW}, "estimator: independent prefixes have one estimate only"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            replace(independent(6, SETTINGS[3]), **change)


# --- (epsilon, delta) ---------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_moved_counts_of_independent_prefixes(setting: Setting) -> None:
    """One pair: every measured prefix that the worst neighbors move, each by one."""
    for leaves in (2, 3, 4):
        plan = independent(leaves, setting, budget(Measure.RHO))
        silent = replace_laws(plan, lambda law: ZeroNoise())
        most = largest_change(silent, 2 if setting[2] else 1, drops=not setting[1])[0]
        assert moved_counts(plan) == ((plan.laws[-1], most),)
    one = independent(1, setting, budget(Measure.RHO))
    alone = 2 if setting == KEYED else 1
    assert moved_counts(one) == (() if setting[1] else ((one.laws[-1], alone),))


def test_the_delta_of_independent_prefixes_is_that_of_the_gaussian_mechanism() -> None:
    """K - 1 counts of sigma^2 = (K - 1) / (2 rho) are one of mu^2 = 2 rho; one count fewer would
    understate it."""
    rho, epsilon = 0.05, 1.0
    plan = independent(40, SETTINGS[0], budget(Measure.RHO, "1/20"))
    ((law, moved),) = moved_counts(plan)
    mu = math.sqrt(2 * rho)
    exact = float(
        stats.norm.cdf(mu / 2 - epsilon / mu)
        - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    )
    assert moved == 39
    assert exact <= certified_delta([(law, moved)], epsilon) < exact * 1.001
    assert certified_delta([(law, moved - 1)], epsilon) < exact


# The composition of a mechanism follows from its moved counts: settings take turns.
@pytest.mark.parametrize(
    ("name", "setting"),
    [*zip(["independent", "histogram", "binary", "tree", "planned"], SETTINGS, strict=True)],
)
def test_a_release_that_does_not_keep_what_it_states_is_refused(
    name: str, setting: Setting
) -> None:
    unit, public, keyed = setting
    given = budget(Measure.RHO, "1/20")
    tree = plan_mechanism(name, tree_setting(12, setting, given.measure, given.amount))
    question = make_question(leaves=12, plan=tree, keys=2 if keyed else 0, public_total=public)

    def release(epsilon: Fraction, delta: Fraction) -> ReleasePlan:
        own = {"questions": (question,), "stated": (epsilon, delta)}
        return ReleasePlan(name="r", unit=unit, budget=given, **own)

    least = Fraction(certified_delta(moved_counts(tree), 1))
    assert release(Fraction(1), least * Fraction(101, 100)).stated is not None
    assert keeps(moved_counts(tree), given.amount, 1, least)
    assert not keeps(moved_counts(tree), given.amount, 1, least * Fraction(99, 100))
    for epsilon, delta in ((Fraction(1), least * Fraction(99, 100)), (Fraction(99, 100), least)):
        with pytest.raises(ValueError, match=r"^delta: the noise does not keep .* at epsilon"):
            release(epsilon, delta)


def test_pure_budgets_beside_a_delta_add_up_to_epsilon() -> None:
    """Laplace noise spends no delta; what it spends of epsilon must be stated."""
    question = make_question(leaves=6, plan=independent(6, SETTINGS[3]))
    plan, spent = make_release_plan(question), question.plan.budget.amount
    assert replace(plan, stated=(spent, Fraction(1, 1000))).composed == ()
    with pytest.raises(ValueError, match=r"^delta: the noise does not keep"):
        replace(plan, stated=(spent - Fraction(1, 10**9), Fraction(1, 1000)))
