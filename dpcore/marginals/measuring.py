"""Measurement of a wide table: from its exact counts to released numbers, with noise drawn once.

Every number is a pure function of the exact counts and the key: each step has a stream of its own,
named by its purpose and its number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dptrees.dpcore.arithmetic.elementary import cube_root
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.choosing import choose_pairs, choose_score, is_small, pair_score
from dptrees.dpcore.marginals.column_counts import row_estimate
from dptrees.dpcore.marginals.groups import (
    grouped_estimates,
    grouped_table,
    pair_groups,
)
from dptrees.dpcore.marginals.measured import MeasuredTables, PairTable
from dptrees.dpcore.marginals.model import TableModel
from dptrees.dpcore.marginals.plan import MarginalsPlan, PairDesign, mean_size
from dptrees.dpcore.marginals.shape import Pair
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.privacy.budget import Budget, Measure

# Purposes of streams, in place of chunks.
_COLUMNS, _CHOICES, _PAIRS = 0, 1, 2

Groups = tuple[Integers, Integers]


@dataclass(frozen=True, kw_only=True)
class _Round:
    """Choices of pairs by one model.

    Attributes:
        first: the number of the first choice.
        pairs: the most that are chosen.
        amount: for the counts of all of them.
        clique_columns: the most columns of a clique.
    """

    first: int
    pairs: int
    amount: Fraction
    clique_columns: int


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
    measured = MeasuredTables(plan=plan, columns=columns, pairs=())
    design = plan.design(row_estimate(columns))
    for each in _rounds(plan, design):
        measured = _extended(counts, measured, each, design, source, tree)
    return measured


def _rounds(plan: MarginalsPlan, design: PairDesign) -> list[_Round]:
    further = plan.pair_amount * design.further_part
    tree = _Round(
        first=0, pairs=plan.tree_pairs, amount=plan.pair_amount - further, clique_columns=2
    )
    if not further:
        return [tree]
    second = _Round(
        first=tree.pairs,
        pairs=design.further_pairs,
        amount=further,
        clique_columns=design.clique_columns,
    )
    return [tree, second]


def _extended(
    counts: Integers,
    measured: MeasuredTables,
    each: _Round,
    design: PairDesign,
    source: NoiseSource,
    tree: str,
) -> MeasuredTables:
    """The numbers released so far, and the pairs of one round more."""
    plan = measured.plan
    model = TableModel.fitted(measured)
    noise = mean_size(plan.law(each.amount / each.pairs))
    groups = _groups(measured, model, noise)
    exact = {
        pair: grouped_table(plan.shape.pair_counts(counts, *pair), *labels)
        for pair, labels in groups.items()
    }
    scores = {
        pair: pair_score(table, grouped_estimates(model.pair(*pair), *groups[pair]), noise)
        for pair, table in exact.items()
    }
    rate = plan.choice_rate(design)

    def choose(values: Integers, number: int) -> int:
        stream = source.stream(tree, 0, _CHOICES, number)
        return choose_score(values, rate, stream, flips=plan.flips)

    chosen = choose_pairs(
        scores,
        model.graph,
        lambda clique: is_small(clique, measured.base_sizes, each.clique_columns),
        choose,
        range(each.first, each.first + each.pairs),
    )
    amounts = pair_amounts([exact[pair].size for pair in chosen], plan, each.amount)
    tables = [
        PairTable(
            first=pair[0],
            second=pair[1],
            rows=groups[pair][0],
            columns=groups[pair][1],
            counts=add_noise(
                plan.law(amount), exact[pair], source.stream(tree, 0, _PAIRS, each.first + number)
            ),
            amount=amount,
        )
        for number, (pair, amount) in enumerate(zip(chosen, amounts, strict=True))
    ]
    return replace(measured, pairs=(*measured.pairs, *tables))


def _groups(measured: MeasuredTables, model: TableModel, noise: float) -> dict[Pair, Groups]:
    """The groups of the cells of all pairs that are not measured yet."""
    shape, bases = measured.plan.shape, measured.base_groups
    return {
        (first, second): pair_groups(
            (bases[first], bases[second]),
            (model.column(first), model.column(second)),
            (shape.is_ordered(first), shape.is_ordered(second)),
            noise,
        )
        for first, second in shape.pairs
        if second not in model.graph.neighbors[first]
    }


def pair_amounts(
    cells: Sequence[int], plan: MarginalsPlan, amount: Fraction
) -> tuple[Fraction, ...]:
    """Amounts of the chosen pairs, which minimize the sum of all mean sizes of noise.

    With c cells the noise of a pair sums to c / epsilon, or c / sqrt(2 rho), in mean: the optimal
    amounts are proportional to the root of c, or to c^(2/3).

    Args:
        cells: of each chosen pair's table.
        plan: the measure of its budget.
        amount: of all pairs.
    """
    if not cells:
        return ()
    if plan.budget.measure is Measure.EPSILON:
        weights = [math.sqrt(each) for each in cells]
    else:
        weights = [cube_root(float(each * each)) for each in cells]
    total = math.fsum(weights)
    whole = Budget(measure=plan.budget.measure, amount=amount)
    return whole.split([weight / total for weight in weights])
