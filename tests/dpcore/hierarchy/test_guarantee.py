"""What is stated of a released hierarchy is what is drawn: errors, coverage, noise of its own.

Keys serve as repetitions. False alarms are below 1e-6 a test, the release key is fixed, and every
check is shown to fail on a planted error.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import add_noise
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.policies import MeasureColumn
from tests.dpcore.hierarchy_questions import all_nodes, hierarchy_question, make_release_plan

Array = np.ndarray[Any, Any]
KEY = ReleaseKey(bytes(range(32)))
AMOUNT = MeasureColumn(column="amount", lower=-5, upper=30)
MANY = 3000
FALSE_ALARM = 1e-6
BUDGETS = {
    "epsilon": Budget(measure=Measure.EPSILON, amount=Fraction(1, 2)),
    "rho": Budget(measure=Measure.RHO, amount=Fraction(1, 20)),
}
STATED = [
    ("digits", None, "epsilon", ADD_REMOVE_ROW),
    ("digits", AMOUNT, "epsilon", SUBSTITUTE_ROW),
    ("paths", None, "rho", SUBSTITUTE_ROW),
    ("paths", AMOUNT, "rho", ADD_REMOVE_ROW),
]


def many_trees(
    form: str, measure: MeasureColumn | None, kind: str, unit: PrivacyUnit
) -> tuple[HierarchyQuestion[IrregularMechanism], Array]:
    """A question of very many keys, and large counts, so that nothing is clipped."""
    question = hierarchy_question(
        form,
        unit=unit,
        budget=BUDGETS[kind],
        measure=measure,
        keys=tuple(f"k{number:05d}" for number in range(MANY)),
    )
    counts = np.random.default_rng(3).integers(10**6, 2 * 10**6, question.forest.chunking.cells)
    return question, counts


def measure_errors(
    question: HierarchyQuestion[IrregularMechanism], counts: Array
) -> tuple[Array, Array, Array]:
    """(keys, nodes): estimate minus truth, the stated standard errors, and whether the interval
    covers the truth."""
    release = release_counts(make_release_plan(question), {question.name: counts}, KEY)
    table, shape = all_nodes(release, question.name), question.plan.tree
    truth = np.concatenate(shape.level_counts(counts.reshape(MANY, -1)), axis=1)
    listed = [question.listed(level, np.arange(n)) for level, n in enumerate(shape.level_sizes)]
    truth = truth[:, np.concatenate(listed)]
    columns = ("estimate", "std_error", "ci_low", "ci_high")
    estimate, error, low, high = (table[c].to_numpy().reshape(truth.shape) for c in columns)
    return estimate - truth, error, (low <= truth) & (truth <= high)


def squared_error_z(errors: Array, stated: Array) -> Array:
    """(nodes,) how far the mean square of each node's errors is from what is stated, in standard
    errors of that mean as the repetitions show it."""
    ratio = (errors / stated) ** 2
    return (ratio.mean(axis=0) - 1) / (ratio.std(axis=0) / np.sqrt(len(ratio)))


def limit(nodes: int) -> float:
    # Squares of Laplace noise have a skewness of 6.6: at 3000 repetitions the tail of a studentised
    # mean is at most 2.4 times that of the normal law there; a tenth allows for that.
    return float(stats.norm.isf(FALSE_ALARM / nodes / 20))


@pytest.mark.parametrize(("form", "measure", "kind", "unit"), STATED)
def test_errors_are_as_large_as_stated(
    form: str, measure: MeasureColumn | None, kind: str, unit: PrivacyUnit
) -> None:
    question, counts = many_trees(form, measure, kind, unit)
    errors, stated, covered = measure_errors(question, counts)
    nodes = errors.shape[1]
    assert np.abs(squared_error_z(errors, stated)).max() < limit(nodes)
    means = errors.mean(axis=0) / (stated[0] / np.sqrt(MANY))
    assert np.abs(means).max() < limit(nodes)
    least = stats.binom.ppf(FALSE_ALARM / nodes, MANY, question.confidence)
    assert covered.sum(axis=0).min() >= least


PLANTED = {"noise 30 % too small": Fraction(7, 10), "a budget counted twice": Fraction(1, 2)}


def scaled(law: Any, factor: Fraction) -> Any:
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(scale=law.scale * factor)
    assert isinstance(law, DiscreteGaussian)
    # A budget spent twice: of rho, sigma goes down by the square root alone.
    return DiscreteGaussian(sigma_squared=law.sigma_squared * factor)


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize(("form", "measure", "kind", "unit"), STATED)
def test_planted_errors_are_found_at_every_node(
    form: str,
    measure: MeasureColumn | None,
    kind: str,
    unit: PrivacyUnit,
    planted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise of variance 30 % too small or less (of the scale, for Laplace noise)."""
    question, counts = many_trees(form, measure, kind, unit)
    draw = "dptrees.dpcore.irregular.forest.add_noise"
    monkeypatch.setattr(
        draw,
        lambda law, *rest, **more: add_noise(scaled(law, PLANTED[planted]), *rest, **more),
    )
    errors, stated, _ = measure_errors(question, counts)
    assert squared_error_z(errors, stated).max() < -limit(errors.shape[1])


def test_keys_have_noise_of_their_own() -> None:
    """The errors of different keys are independent: one draw used for all would be found."""
    question, counts = many_trees("digits", None, "epsilon", ADD_REMOVE_ROW)
    errors, stated, _ = measure_errors(question, counts)
    # The errors of neighboring keys, standardised: the mean of their products is nearly normal.
    products = (errors[1:] * errors[:-1] / stated[1:] ** 2).mean(axis=0)
    spread = (errors[1:] * errors[:-1] / stated[1:] ** 2).std(axis=0) / np.sqrt(MANY - 1)
    assert np.abs(products / spread).max() < limit(errors.shape[1])


def test_any_change_draws_all_noise_afresh() -> None:
    """One row more, another bound, another key of the release: no node keeps its noise."""
    wide = Budget(measure=Measure.EPSILON, amount=Fraction(1, 10**5))
    base = hierarchy_question("digits", budget=wide)
    sums = hierarchy_question("digits", budget=wide, measure=AMOUNT)
    more = hierarchy_question("digits", budget=wide, confidence=0.9)
    counts = np.full(base.forest.chunking.cells, 10**8)
    moved = counts + (np.arange(counts.size) == 3)

    def noise(
        question: HierarchyQuestion[IrregularMechanism],
        exact: Array,
        key: ReleaseKey = KEY,
    ) -> Array:
        release = release_counts(make_release_plan(question), {question.name: exact}, key)
        table = all_nodes(release, question.name)
        leaves = table.filter(np.equal(table["level"].to_numpy(), 3))
        return np.rint(leaves["estimate"].to_numpy() - exact)

    draws = [
        noise(base, counts),
        noise(base, moved),
        noise(base, counts, ReleaseKey(bytes(31) + b"1")),
        noise(sums, counts),
        noise(hierarchy_question("digits", budget=wide, name="other"), counts),
    ]
    for one, other in itertools.combinations(draws, 2):
        assert (one == other).sum() <= 1
    assert noise(more, counts).tolist() == draws[0].tolist()


def test_noise_is_never_that_of_another_tree_of_the_same_release() -> None:
    wide = Budget(measure=Measure.EPSILON, amount=Fraction(1, 10**5))
    names = ("one", "two", "three")
    trees = [hierarchy_question("digits", budget=wide, name=name) for name in names]
    counts = np.full(trees[0].forest.chunking.cells, 10**8)
    release = release_counts(make_release_plan(*trees), dict.fromkeys(names, counts), KEY)
    found = [all_nodes(release, name)["estimate"].to_numpy() for name in names]
    for one, other in itertools.combinations(found, 2):
        assert (one == other).sum() == 0
