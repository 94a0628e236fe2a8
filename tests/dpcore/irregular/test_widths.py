"""Intervals of irregular trees cover the truth at least as often as stated, at every node."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.intervals import (
    IrregularWidths,
    LevelWidths,
    irregular_widths,
    node_margins,
)
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.trees.error_laws import blurred_excess
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular_trees import (
    EPSILON,
    RHO,
    make_plan,
    node_chains,
    node_variances,
    random_irregular_plan,
    random_irregular_tree,
    rhode_island,
)
from tests.processor import takes_less

Array = np.ndarray[Any, Any]
DATA = Path(__file__).parents[4] / "shared" / "data"


def draws(law: Any, rng: np.random.Generator, shape: tuple[int, int], scale: float) -> Array:
    """Draw noise from the law, or from one whose scale is off."""
    if isinstance(law, DiscreteLaplace):
        p = -math.expm1(-1 / (float(law.scale) * scale))
        return (rng.geometric(p, shape) - rng.geometric(p, shape)).astype(float)
    k = np.arange(-60, 61)
    assert law.bound(1e-15) < 60
    spread = float(law.sigma_squared) * scale**2
    weights = np.exp(-(k**2) / (2 * spread))
    return rng.choice(k, p=weights / weights.sum(), size=shape).astype(float)


def simulated_errors(
    plan: IrregularPlan, rng: np.random.Generator, trials: int, scale: float = 1.0
) -> list[Array]:
    """Per level (trials, n_l) the errors of the estimates, by the estimator itself."""
    tree, chains = plan.tree, node_chains(plan.tree)
    variances = node_variances(plan)
    shape: Any = tree
    noise = []
    for level, size in enumerate(tree.level_sizes):
        drawn, chain = np.zeros((trials, size)), np.array(chains[level])
        for each in np.unique(chain):
            law = plan.law(level, int(each))
            measured = (chain == each) & (variances[level] > 0) & np.isfinite(variances[level])
            if law is not None:
                drawn[:, measured] = draws(law, rng, (trials, int(measured.sum())), scale)
        noise.append(drawn)
    weights = estimation_weights(shape, variances)
    return estimate_down(weights, estimate_up(weights, noise))


def margins_of_nodes(plan: IrregularPlan, widths: IrregularWidths) -> list[Array]:
    margins = node_margins(plan, widths)
    if plan.tree.height:
        margins[-1] = np.repeat(margins[-1], plan.tree.fanouts[-1])
    return margins


def uncovered_nodes(
    plan: IrregularPlan, confidence: float, trials: int, *, scale: float = 1.0, batch: int = 4000
) -> int:
    """Nodes that are covered less often than a binomial variable of the nominal rate would be,
    once in a million over all nodes together."""
    rng = np.random.default_rng(int(1000 * confidence) + trials)
    margins = margins_of_nodes(plan, irregular_widths(plan, confidence))
    hits = [np.zeros(each.shape) for each in margins]
    for _ in range(0, trials, batch):
        errors = simulated_errors(plan, rng, min(batch, trials), scale)
        for hit, error, margin in zip(hits, errors, margins, strict=True):
            hit += (np.abs(error) <= margin + 1e-7).sum(axis=0)
    nodes = sum(plan.tree.level_sizes)
    least = stats.binom.ppf(1e-6 / nodes, trials, confidence)
    return int(sum((hit < least).sum() for hit in hits))


def small_plan(seed: int, *, public: bool = False) -> IrregularPlan:
    rng = np.random.default_rng([7, seed])
    measure = list(Measure)[seed % 2]
    amount = [Fraction(1), Fraction(6), Fraction(30), Fraction(1, 2)][seed % 4]
    return random_irregular_plan(
        rng,
        tree=random_irregular_tree(rng),
        public=public,
        budget=Budget(measure=measure, amount=amount),
    )


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("seed", range(8))
def test_every_node_of_a_small_tree_is_covered(seed: int, confidence: float) -> None:
    plan = small_plan(seed, public=seed in (3, 6))
    assert uncovered_nodes(plan, confidence, 4000) == 0


@pytest.mark.parametrize("measure", list(Measure))
def test_noise_30_percent_off_is_noticed(measure: Measure) -> None:
    plan = make_plan(
        random_irregular_tree(np.random.default_rng(4)),
        *(0, *[Fraction(1, 100)] * 3),
        budget=Budget(measure=measure, amount=Fraction(1, 20)),
    )
    assert uncovered_nodes(plan, 0.95, 4000) == 0
    assert uncovered_nodes(plan, 0.95, 4000, scale=1.3) > sum(plan.tree.level_sizes) / 2


@pytest.fixture(scope="module")
def blocks() -> IrregularTree:
    if not DATA.is_dir():
        pytest.skip("no data")
    return rhode_island(DATA)[0]


@pytest.mark.parametrize("budget, confidence", [(EPSILON, 0.95), (RHO, 0.99)])
def test_every_node_of_the_blocks_is_covered(
    blocks: IrregularTree, budget: Budget, confidence: float
) -> None:
    plan = with_best_shares(make_plan(blocks, budget=budget))
    assert uncovered_nodes(plan, confidence, 240, batch=80) == 0


def covered(law: Any, margin: float) -> float:
    """An upper bound of P(|error| <= margin): a finer inversion than the one that is tested."""
    fine, step, deviation = 0.01, 0.05, math.sqrt(law.variance)
    if margin > 25 * deviation:
        return 1.0
    t = (np.arange(int(30 / fine / step)) + 0.5) * step
    weight = law.characteristic_function(t / deviation) * np.sinc(t * fine / (3 * np.pi)) ** 3 / t
    return float(np.sin(t * (margin / deviation + fine)) @ weight) * 2 * step / np.pi + 2e-5


def middling_plan(seed: int) -> IrregularPlan:
    """Return a random plan of some 2,000 nodes, most with a law of their own."""
    rng = np.random.default_rng([9, seed])
    sizes, count = [], 1
    for mean in (8, 8, 5, 5):
        sizes.append(np.maximum(1, rng.geometric(1 / mean, count)))
        count = int(sizes[-1].sum())
    budget = Budget(measure=list(Measure)[seed % 2], amount=Fraction([1, 8, 1, 20][seed % 4], 2))
    return random_irregular_plan(
        rng, tree=IrregularTree.from_fanouts(sizes), budget=budget, public=False
    )


@pytest.mark.parametrize(("seed", "confidence"), [(0, 0.9), (1, 0.99), (2, 0.99), (3, 0.9)])
def test_laws_that_were_not_inverted_are_covered(seed: int, confidence: float) -> None:
    """Random nodes, each by its own law."""
    plan = middling_plan(seed)
    margins = margins_of_nodes(plan, irregular_widths(plan, confidence))
    errors, rng = IrregularErrors(plan), np.random.default_rng(seed)
    for level, size in enumerate(plan.tree.level_sizes):
        for node in set(rng.integers(0, size, 3).tolist()):
            law = errors.node(level, node)
            assert law.variance < 1e-9 or covered(law.law, margins[level][node]) >= confidence


def test_a_narrower_width_is_seen() -> None:
    plan = middling_plan(0)
    law = IrregularErrors(plan).node(2, 3)
    assert covered(law.law, 0.95 * law.half_width(0.95)) < 0.95


def test_the_width_of_a_level_is_that_of_its_widest_node() -> None:
    """Coverage fails only if intervals are too short; these are no longer than they must be."""
    half, budget = Fraction(1, 2), Budget(measure=Measure.RHO, amount=Fraction(1))
    plan = make_plan([[13], range(1, 14)], 0, half, half, budget=budget)
    errors = IrregularErrors(plan)
    level, moments = irregular_widths(plan, 0.95, errors).levels[1], errors.moments(1)
    assert level.blur == 1.0 and len(level.widths) == 1 and moments.variance.min() > 1 / 4
    # The node with the most children has the widest interval.
    deviation = math.sqrt(moments.variance[-1] + 1 / 12)
    own = errors.node(1, 12).blurred_half_width(0.95) / deviation
    assert level.widest == pytest.approx(own, rel=1e-9)


def test_public_counts_have_no_width() -> None:
    plan = small_plan(2, public=True)
    assert plan.public_level is not None
    margins = margins_of_nodes(plan, irregular_widths(plan, 0.95))
    for level in range(plan.public_level + 1):
        np.testing.assert_array_equal(margins[level], 0.0)
    assert margins[-1].max() > 0


def test_the_widest_serves_all_and_cells_are_found_again() -> None:
    level = LevelWidths(bounds=(1.0, 2.0), widths=(2.0, 2.5, 2.2), blur=1.0)
    variance = np.array([4.0, 4.0, 4.0, 0.0])
    excess = np.array([0.5, 1.0, 9.0, 0.0])
    margins = level.margins(variance, excess)
    np.testing.assert_allclose(
        margins, [*(np.array([2.0, 2.5, 2.2]) * np.sqrt(4 + 1 / 12) + 0.5), 0.0]
    )
    assert (level.margins(variance) >= margins).all() and level.widest == 2.5
    with pytest.raises(ValueError, match="bounds"):
        LevelWidths(bounds=(1.0,), widths=(2.0,), blur=0.0)


def test_refuses_a_confidence() -> None:
    for confidence in (0.0, 1.0, 0.99995, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            irregular_widths(small_plan(0), confidence)


def test_a_tree_of_millions_of_leaves_is_quick() -> None:
    rng = np.random.default_rng(1)
    sizes, count = [np.array([52])], 52
    for mean in (60, 23, 3, 32):
        sizes.append(np.maximum(1, rng.geometric(1 / mean, count)))
        count = int(sizes[-1].sum())
    tree = IrregularTree.from_fanouts(sizes)
    assert count > 7_500_000 and tree.height == 5
    # An epsilon: the laws that are inverted.
    plan = make_plan(tree, *(Fraction(each, 20) for each in (0, 2, 3, 4, 5, 6)))
    found = []
    assert takes_less(25, lambda: found.append(irregular_widths(plan, 0.95)))  # 1.6 to 6 measured
    widths = found[-1]
    errors = IrregularErrors(plan)
    for level, each in enumerate(widths.levels):
        assert np.isfinite(each.margins(errors.moments(level).variance)).all()
        assert np.isfinite(blurred_excess(errors.moments(level))).all()
