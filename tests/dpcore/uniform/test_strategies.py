"""The search finds the best shapes and shares for continuous noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, Measure, PrivacyUnit
from dptrees.dpcore.uniform.objectives import Guess, Objective, QuantileObjective, RangeObjective
from dptrees.dpcore.uniform.prefix_errors import TreeBatch, level_parts, prefix_variance
from dptrees.dpcore.uniform.strategies import TreeStrategy, one_level, search_strategies
from tests.dpcore.tree_settings import PUBLIC, tree_setting
from tests.processor import takes_less

EPSILON, RHO = Measure.EPSILON, Measure.RHO
EXPONENT = {EPSILON: 2, RHO: 1}
# 1 / variance of one level at a budget of 1: substitute is Laplace of scale 2, sigma^2 = 1.
PRECISION = {EPSILON: 1 / 8, RHO: 1.0}


def best_public(leaves: int, measure: Measure) -> TreeStrategy:
    return search_strategies(tree_setting(leaves, PUBLIC, measure))[0]


def mean_variance(
    leaves: int, fanouts: tuple[int, ...], shares: np.ndarray, measure: Measure
) -> float:
    precisions = PRECISION[measure] * shares ** EXPONENT[measure]
    precisions[0] = np.inf
    return float(prefix_variance(TreeBatch(leaves=leaves, fanouts=(fanouts,)), precisions[None])[0])


# Mean squared error of a CDF point at a budget of 1, substitute, N public.
FIGURES = [
    (256, EPSILON, 159.5),
    (1024, EPSILON, 315.4),
    (4096, EPSILON, 527.5),
    (65536, EPSILON, 1237.6),
    (2**20, EPSILON, 2402.3),
    (1024, RHO, 9.58),
    (65536, RHO, 23.3),
]


@pytest.mark.parametrize(("leaves", "measure", "figure"), FIGURES)
def test_reaches_the_figures_of_the_design(leaves: int, measure: Measure, figure: float) -> None:
    best = best_public(leaves, measure)
    assert best.mean_variance <= figure
    recomputed = mean_variance(leaves, best.fanouts, np.array(best.shares), measure)
    assert best.mean_variance == pytest.approx(recomputed, rel=1e-12)


def all_shapes(leaves: int) -> list[tuple[int, ...]]:
    """Every shape in which no level repeats the root."""
    shapes, lower = [], [()]
    while lower:
        shape = lower.pop()
        below = math.prod(shape)
        shapes.append((-(-leaves // below), *shape))
        lower += [(fanout, *shape) for fanout in range(2, -(-leaves // below))]
    return shapes


@pytest.mark.parametrize("leaves", [2, 3, 5, 12, 17, 30, 45])
@pytest.mark.parametrize("measure", [EPSILON, RHO])
def test_is_the_best_of_all_shapes(leaves: int, measure: Measure) -> None:
    shapes = all_shapes(leaves)
    height = max(map(len, shapes))
    padded = tuple((1,) * (height - len(shape)) + shape for shape in shapes)
    batch = TreeBatch(leaves=leaves, fanouts=padded)
    shares = np.pad((np.array(padded) > 1).astype(float), ((0, 0), (1, 0)))
    for _ in range(30):
        shares /= shares.sum(axis=1, keepdims=True)
        precisions = PRECISION[measure] * shares ** EXPONENT[measure]
        precisions[:, 0] = np.inf
        parts = level_parts(prefix_variance, batch, precisions)
        shares = (shares ** EXPONENT[measure] * parts) ** (1 / (EXPONENT[measure] + 1))
    least = parts.sum(axis=1).min()
    assert best_public(leaves, measure).mean_variance <= least * (1 + 1e-5)


@pytest.mark.parametrize("leaves", [100, 997])
@pytest.mark.parametrize("measure", [EPSILON, RHO])
def test_no_other_shares_are_better(leaves: int, measure: Measure) -> None:
    best = best_public(leaves, measure)
    shares = np.array(best.shares)
    for giver, taker in itertools.permutations(range(1, len(shares)), 2):
        moved = shares.copy()
        moved[giver] -= 0.05 * shares[giver]
        moved[taker] += 0.05 * shares[giver]
        error = mean_variance(leaves, best.fanouts, moved, measure)
        assert error > best.mean_variance * (1 - 1e-6)


def test_detects_shares_that_are_not_best() -> None:
    best = best_public(997, EPSILON)
    equal = np.array([0, 1, 1, 1]) / 3
    assert mean_variance(997, best.fanouts, equal, EPSILON) > best.mean_variance * 1.001


@pytest.mark.parametrize("measure", [EPSILON, RHO])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_private_roots(unit: PrivacyUnit, keyed: bool, measure: Measure) -> None:
    private = search_strategies(tree_setting(200, (unit, False, keyed), measure))[0]
    assert sum(private.shares) == pytest.approx(1)
    if unit == SUBSTITUTE_ROW:
        assert private.mean_variance > best_public(200, measure).mean_variance
        # A root without keys moves by one row at most, so it is cheap and always worth measuring.
        assert keyed or private.shares[0] > 0.05


def test_order_and_heights() -> None:
    strategies = search_strategies(tree_setting(1000, PUBLIC, EPSILON))
    variances = [strategy.mean_variance for strategy in strategies]
    assert variances == pytest.approx(sorted(variances), rel=1e-9)
    assert {1, 2, 3, 4} <= {len(strategy.fanouts) for strategy in strategies}
    assert len({strategy.fanouts for strategy in strategies}) == len(strategies)


def test_search_is_deterministic() -> None:
    first = best_public(5000, RHO)
    search_strategies.cache_clear()
    assert best_public(5000, RHO) == first


def test_shares_fit_the_fanouts() -> None:
    with pytest.raises(ValueError, match="shares"):
        TreeStrategy(fanouts=(2, 2), shares=(0.0, 1.0), mean_variance=1.0)
    assert one_level(1).fanouts == ()


MANY = QuantileObjective(
    quantiles=tuple((place + 1) / 116 for place in range(115)),
    guesses=tuple(Guess(stop=8000 * place + 7, density=1.0) for place in range(115)),
)


@pytest.mark.parametrize(
    ("objective", "measure"), [(RangeObjective(widths=(1, 100, 100_000)), RHO), (MANY, EPSILON)]
)
def test_objectives_that_look_at_places_are_searched_fast(
    objective: Objective, measure: Measure
) -> None:
    setting = tree_setting(999_983, PUBLIC, measure)

    def search() -> None:
        found = search_strategies(setting, objective=objective)
        assert all(math.isfinite(each.mean_variance) for each in found)

    # About 1 s on a quiet machine; what was found is remembered.
    assert takes_less(10, search, runs=1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("measure", [EPSILON, RHO])
@pytest.mark.parametrize(
    "objective",
    [
        RangeObjective(widths=(97,)),
        QuantileObjective(quantiles=(1.0,), guesses=(Guess(stop=97, density=1e-9),)),
    ],
)
def test_what_is_known_exactly_has_shares_all_the_same(
    objective: Objective, measure: Measure
) -> None:
    for fanouts in (None, (10, 10)):
        for found in search_strategies(
            tree_setting(97, PUBLIC, measure),
            objective=objective,
            fanouts=fanouts,
        ):
            assert found.mean_variance == 0
            assert len(set(found.shares[1:])) == 1 and sum(found.shares) == pytest.approx(1)
