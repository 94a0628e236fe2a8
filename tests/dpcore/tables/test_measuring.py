"""Measurement of wide tables: which numbers are released, and that noise is drawn once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.tables.estimates import MeasuredTables, grouped_table
from dptrees.dpcore.tables.model import ChordalGraph, TableModel
from dptrees.dpcore.tables.plan import cell_amounts
from dptrees.dpcore.tables.question import choose_pairs, choose_score, measure_tables
from tests.dpcore.tables.tiny_tables import (
    SHAPE,
    chained_rows,
    count_rows,
    former_plan,
    make_plan,
    make_source,
)

COUNTS = count_rows(SHAPE, chained_rows())


def released_arrays(measured: MeasuredTables) -> list[Integers]:
    """All released numbers: one-way counts, and the groups, amounts and counts of pairs."""
    pairs = measured.pairs
    parts = [each.amount / measured.plan.pair_amount for each in pairs]
    none = [np.zeros(0, np.int64)]
    return [
        np.concatenate(measured.columns),
        np.array([[*each.pair, *each.counts.shape] for each in pairs], np.int64).reshape(-1, 4),
        np.array([[part.numerator, part.denominator] for part in parts], np.int64).reshape(-1, 2),
        np.concatenate(none + [own for each in pairs for own in (each.rows, each.columns)]),
        np.concatenate(none + [each.counts.reshape(-1) for each in pairs]),
    ]


def digest(measured: MeasuredTables) -> str:
    """A digest of all released numbers, of their model and of rows of it, to the last bit."""
    model = TableModel.fitted(measured)
    parts = [each.tobytes() for each in released_arrays(measured)]
    parts += [model.pair(*pair).tobytes() for pair in SHAPE.pairs]
    parts += [each.tobytes() for each in model.sample(1000, public_stream("rows"))]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("amount", [Fraction(1, 20), 1, 20])
def test_the_noise_is_that_of_the_plan(measure: Measure, amount: Fraction | int) -> None:
    plan = make_plan(amount, measure)
    measured = measure_tables(COUNTS, plan, make_source(), "t")
    assert sum(each.amount for each in measured.pairs) <= plan.pair_amount
    assert len(measured.pairs) <= plan.most_pairs
    pairs = [each.pair for each in measured.pairs]
    ChordalGraph(SHAPE.columns, pairs)
    for column, noisy in enumerate(measured.columns):
        off = np.abs(noisy - SHAPE.column_counts(COUNTS, column))
        assert off.max() <= measured.column_law(column).bound(1e-9)
    for each in measured.pairs:
        exact = grouped_table(SHAPE.pair_counts(COUNTS, *each.pair), each.rows, each.columns)
        assert np.abs(each.counts - exact).max() <= plan.law(each.amount).bound(1e-9)


def test_dependent_pairs_are_chosen() -> None:
    measured = measure_tables(COUNTS, make_plan(1), make_source(), "t")
    pairs = {each.pair for each in measured.pairs}
    assert {(0, 1), (1, 2)} <= pairs
    assert len(pairs) > 3
    few = count_rows(SHAPE, chained_rows(300))
    assert len(measure_tables(few, make_plan(1), make_source(), "t").pairs) <= 3


def test_no_more_pairs_are_chosen_where_none_pays() -> None:
    """Scores far below 0, beside one that pays."""
    plan = make_plan(1)
    scores = {pair: 10**6 if pair == (1, 3) else -(10**6) for pair in SHAPE.pairs}
    graph = ChordalGraph(SHAPE.columns)

    def choose(values: Integers, number: int) -> int:
        stream = public_stream("choices", number)
        rate = plan.choice_rate(plan.designs[0])
        return choose_score(values, rate, stream, flips=plan.flips)

    assert choose_pairs(scores, graph, lambda clique: True, choose, range(3)) == [(1, 3)]
    assert graph.neighbors[1] == {3}


def test_noise_is_drawn_once() -> None:
    plan = make_plan(1)
    first = measure_tables(COUNTS, plan, make_source(), "t")
    assert digest(first) == digest(measure_tables(COUNTS.copy(), plan, make_source(), "t"))
    others = [
        measure_tables(COUNTS, plan, make_source(1), "t"),
        measure_tables(COUNTS, plan, make_source(digest=b"other"), "t"),
        measure_tables(COUNTS, plan, make_source(), "u"),
    ]
    for other in others:
        same = [a == b for a, b in zip(first.columns[0], other.columns[0], strict=True)]
        assert not all(same)


def test_no_two_numbers_share_their_noise() -> None:
    measured = measure_tables(
        np.zeros_like(COUNTS), make_plan(Fraction(1, 100)), make_source(), "t"
    )
    drawn = np.concatenate(measured.columns)
    assert len(np.unique(drawn)) > 0.8 * len(drawn)


def test_amounts_follow_the_cells() -> None:
    plan = make_plan(1)
    amounts = cell_amounts([100, 400], replace(plan.budget, amount=Fraction(3)))
    assert sum(amounts) == 3
    assert float(amounts[1] / amounts[0]) == pytest.approx(2, rel=1e-4)
    whole = Budget(measure=Measure.RHO, amount=Fraction(5))
    amounts = cell_amounts([1000, 8000], whole)
    assert float(amounts[1] / amounts[0]) == pytest.approx(4, rel=1e-4)
    assert cell_amounts([], whole) == ()


def test_other_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="counts"):
        measure_tables(COUNTS[1:], make_plan(1), make_source(), "t")
    with pytest.raises(TypeError, match="int64"):
        measure_tables(COUNTS.astype(np.float64), make_plan(1), make_source(), "t")


@pytest.mark.parametrize(
    ("measure", "wanted", "former"),
    [
        (Measure.EPSILON, "53b06792c458b2d6", "0663236a0f8b2a94"),
        (Measure.RHO, "90a26489577eebf1", "b2fef7bc3f49ac99"),
    ],
)
def test_numbers_are_the_same_on_every_machine(measure: Measure, wanted: str, former: str) -> None:
    """Released numbers, a model and its rows, to the last bit; by a plan of before 0063 too."""
    plan = make_plan(1, measure)
    for each, known in ((former_plan(plan), former), (plan, wanted)):
        assert digest(measure_tables(COUNTS, each, make_source(), "t")) == known
