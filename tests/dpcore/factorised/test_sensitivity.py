"""The sensitivity of strategies, compared with all that a small privacy unit can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.factorised.optimum import Read
from dptrees.dpcore.factorised.plan import strategy_law, strategy_sensitivity
from dptrees.dpcore.factorised.strategies import MatrixStrategy, ToeplitzStrategy, best_strategy
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from tests.dpcore.cases import for_each

STRATEGIES = [
    ToeplitzStrategy.from_size(3),
    best_strategy(3, Read(kind="cdf")),
    best_strategy(3, Read(kind="quantiles", shares=(0.5, 1.0))),
]
KEYS = 2


def units() -> Iterator[tuple[PrivacyUnit, bool]]:
    for neighbors in Neighbors:
        row = PrivacyUnit(neighbors=neighbors)
        for keyed in (False, True):
            yield row, keyed
            person = replace(row, columns=("person",))
            for rows in (2, 3):
                yield replace(person, rows=rows), keyed
                if keyed:
                    yield replace(person, rows=rows, rows_per_key=2), keyed
                    yield replace(person, rows=rows, keys=1), keyed


def moved_by(unit: PrivacyUnit, strategy: MatrixStrategy, keyed: bool) -> list[Integers]:
    """All that a unit can add to the sums of all keys, (keys, K) each; dropped rows add nothing."""
    columns = strategy.dense().T.astype(object)
    keys = KEYS if keyed else 1
    cells = list(product(range(keys), range(strategy.leaves)))
    found = []
    for rows in range(unit.rows + 1):
        for chosen in combinations_with_replacement(cells, rows):
            per_key = [sum(key == each for key, _ in chosen) for each in range(keys)]
            if keyed and max(per_key) > (unit.rows_per_key or unit.rows):
                continue
            if keyed and unit.keys is not None and sum(map(bool, per_key)) > unit.keys:
                continue
            sums = np.zeros((keys, strategy.leaves), object)
            for key, cell in chosen:
                sums[key] += columns[cell]
            found.append(sums)
    return found


def brute_force(unit: PrivacyUnit, strategy: MatrixStrategy, keyed: bool) -> int:
    own = moved_by(unit, strategy, keyed)
    if not unit.substitutes:
        return int(max((each**2).sum() for each in own))
    flat = np.array([each.ravel().astype(float) for each in own])
    squares = (flat**2).sum(axis=1)
    apart = squares[:, None] + squares - 2 * flat @ flat.T
    first, second = np.unravel_index(apart.argmax(), apart.shape)
    return int(((own[first] - own[second]) ** 2).sum())


@for_each("strategy", STRATEGIES)
@for_each(("unit", "keyed"), list(units()))
def test_nothing_moves_more_than_the_sensitivity(
    strategy: MatrixStrategy, unit: PrivacyUnit, keyed: bool
) -> None:
    stated, moved = (
        strategy_sensitivity(unit, strategy, keyed=keyed),
        brute_force(unit, strategy, keyed),
    )
    assert moved <= stated
    is_exact = strategy.spec()["kind"] == "optimum" and not unit.heaviest(keyed=keyed)[2]
    if is_exact or not unit.substitutes:
        assert moved == stated


def test_a_rho_gives_the_noise_of_the_exact_sensitivity() -> None:
    strategy, unit = ToeplitzStrategy.from_size(9), PrivacyUnit(neighbors=Neighbors.ADD_REMOVE)
    budget = Budget(measure=Measure.RHO, amount=Fraction(1, 8))
    law = strategy_law(unit, strategy, budget, keyed=False)
    assert law == DiscreteGaussian(sigma_squared=Fraction(4 * strategy.column_norm))
