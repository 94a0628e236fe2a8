"""Measurement of a wide table: from its exact counts to released numbers, with noise drawn once.

Every number is a pure function of the exact counts and the key: each step has a stream of its own,
named by its purpose and its number.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.arithmetic.elementary import cube_root
from dpcore.arrays import Floats, Integers
from dpcore.marginals.choosing import choose_forest, independence_score
from dpcore.marginals.column_counts import column_estimate, row_estimate
from dpcore.marginals.groups import grouped_table, pair_groups
from dpcore.marginals.measured import MeasuredTables, PairTable
from dpcore.marginals.plan import MarginalsPlan, mean_size
from dpcore.marginals.shape import Pair
from dpcore.noise.source import NoiseSource, add_noise
from dpcore.privacy.budget import Budget, Measure

# Purposes of streams, in place of chunks.
_COLUMNS, _CHOICES, _PAIRS = 0, 1, 2


def measure_tables(
    counts: Integers, plan: MarginalsPlan, source: NoiseSource, tree: str
) -> MeasuredTables:
    """Measure the columns, choose pairs and measure them.

    Args:
        counts: (length,) int64, exact counters in the layout of the plan's shape.
        plan: what each step spends.
        source: of the noise of these counts.
        tree: the name of the table in the release, part of the names of all streams.

    Raises:
        ValueError: counts of another length.
    """
    if counts.shape != (plan.shape.length,):
        raise ValueError(f"counts: {counts.shape} is not ({plan.shape.length},)")
    columns = tuple(
        add_noise(
            plan.column_law,
            plan.shape.column_counts(counts, column),
            source.stream(tree, 0, _COLUMNS, column),
        )
        for column in range(plan.shape.columns)
    )
    rows = row_estimate(columns)
    estimates = estimated_columns(columns, plan, rows)
    noise = mean_size(plan.law(plan.pair_amount / plan.most_pairs))
    groups = {
        pair: pair_groups(_of_pair(estimates, pair), _ordered(plan, pair), noise)
        for pair in plan.shape.pairs
    }
    scores = {
        pair: independence_score(
            plan.shape.pair_counts(counts, *pair),
            groups[pair],
            _of_pair(estimates, pair),
            rows,
            noise,
        )
        for pair in plan.shape.pairs
    }
    chosen = choose_forest(scores, plan, lambda number: source.stream(tree, 0, _CHOICES, number))
    amounts = pair_amounts([groups[pair] for pair in chosen], plan)
    pairs = []
    for number, (pair, amount) in enumerate(zip(chosen, amounts, strict=True)):
        exact = grouped_table(plan.shape.pair_counts(counts, *pair), *groups[pair])
        noisy = add_noise(plan.law(amount), exact, source.stream(tree, 0, _PAIRS, number))
        pairs.append(
            PairTable(
                first=pair[0],
                second=pair[1],
                rows=groups[pair][0],
                columns=groups[pair][1],
                counts=noisy,
                amount=amount,
            )
        )
    return MeasuredTables(plan=plan, columns=columns, pairs=tuple(pairs))


def estimated_columns(
    columns: tuple[Integers, ...], plan: MarginalsPlan, rows: float
) -> list[Floats]:
    """Estimates of the counts of each column, (n_i,), by its noisy counts alone."""
    variance = plan.column_law.variance
    return [
        column_estimate(each, variance, rows, ordered=plan.shape.is_ordered(column))
        for column, each in enumerate(columns)
    ]


def pair_amounts(
    groups: list[tuple[Integers, Integers]], plan: MarginalsPlan
) -> tuple[Fraction, ...]:
    """Amounts of the chosen pairs, which minimize the sum of all mean sizes of noise.

    With c cells the noise of a pair sums to c / epsilon, or c / sqrt(2 rho), in mean: the optimal
    amounts are proportional to the root of c, or to c^(2/3).

    Args:
        groups: of the cells of each chosen pair.
        plan: the amount of all.
    """
    if not groups:
        return ()
    cells = [float((rows.max() + 1) * (columns.max() + 1)) for rows, columns in groups]
    if plan.budget.measure is Measure.EPSILON:
        weights = [math.sqrt(each) for each in cells]
    else:
        weights = [cube_root(each * each) for each in cells]
    total = math.fsum(weights)
    whole = Budget(measure=plan.budget.measure, amount=plan.pair_amount)
    return whole.split([weight / total for weight in weights])


def _of_pair(estimates: list[Floats], pair: Pair) -> tuple[Floats, Floats]:
    return estimates[pair[0]], estimates[pair[1]]


def _ordered(plan: MarginalsPlan, pair: Pair) -> tuple[bool, bool]:
    return plan.shape.is_ordered(pair[0]), plan.shape.is_ordered(pair[1])
