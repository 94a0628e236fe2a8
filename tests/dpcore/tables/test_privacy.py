"""What a wide table reveals: sensitivities by brute force, and the whole law of choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.audit.choices import flip_law, law_loss, weight_law
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.exponential.choice import Chosen
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.sensitivity import distance_sensitivity, level_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    SUBSTITUTE_ROW,
    Measure,
    Neighbors,
    PrivacyUnit,
)
from dptrees.dpcore.tables import question
from dptrees.dpcore.tables.estimates import grouped_table
from dptrees.dpcore.tables.model import ChordalGraph
from dptrees.dpcore.tables.plan import MarginalsPlan, Pair, PairDesign, TableShape
from dptrees.dpcore.tables.question import choose_pairs, choose_score, is_small, table_distance
from tests.dpcore.exponential.enumerated_law import Choices
from tests.dpcore.tables.tiny_tables import count_rows, make_plan

UNITS = {
    "row": ADD_REMOVE_ROW,
    "other row": SUBSTITUTE_ROW,
    "two rows": PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), rows=2),
    "other two rows": PrivacyUnit(neighbors=Neighbors.SUBSTITUTE, columns=("person",), rows=2),
}
SHAPE = TableShape(sizes=(2, 2, 2))
KINDS = list(itertools.product(range(2), repeat=3))
AMOUNTS = {Measure.EPSILON: 30, Measure.RHO: 1}


@cache
def counted(rows: tuple[int, ...]) -> Integers:
    """All counters of rows, each by the number of its cells in `KINDS`."""
    cells = np.array([KINDS[each] for each in rows], np.int64).reshape(-1, 3)
    return count_rows(SHAPE, list(cells.T))


def neighbors(unit: PrivacyUnit, shared: int) -> Iterator[tuple[Integers, Integers]]:
    """Counters of pairs of data sets that differ in what one unit has."""
    bags = [
        bag
        for number in range(unit.rows + 1)
        for bag in itertools.combinations_with_replacement(range(len(KINDS)), number)
    ]
    for rest in itertools.combinations_with_replacement(range(len(KINDS)), shared):
        for own, other in itertools.product(bags, bags if unit.substitutes else [()]):
            yield counted(rest + own), counted(rest + other)


def tables(counts: Integers) -> Iterator[Integers]:
    """The counts of each column and each pair, and of a pair in groups."""
    for column in range(3):
        yield SHAPE.column_counts(counts, column)
    for pair in SHAPE.pairs:
        table = SHAPE.pair_counts(counts, *pair)
        yield table
        yield grouped_table(table, np.array([0, 0]), np.array([0, 1]))


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_counts_move_by_their_sensitivity(unit: PrivacyUnit) -> None:
    """No further, and as far: brute force over all neighbors of a few rows."""
    most = [0, 0]
    for one, two in neighbors(unit, 0):
        for a, b in zip(tables(one), tables(two), strict=True):
            moved = np.abs(a - b)
            most = [max(most[0], int(moved.sum())), max(most[1], int((moved**2).sum()))]
    assert tuple(most) == level_sensitivity(unit, single_node=False)


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_distances_move_by_their_sensitivity(unit: PrivacyUnit) -> None:
    """No further, and as far, in either direction, from a few public tables."""
    rng = np.random.default_rng(1)
    moves: list[int] = [0]
    for number, (one, two) in enumerate(neighbors(unit, 1)):
        if unit.rows > 1 and number % 97:
            continue
        for a, b in zip(tables(one), tables(two), strict=True):
            for public in (np.zeros_like(a), rng.integers(0, 3, a.shape)):
                moves.append(table_distance(a, public) - table_distance(b, public))
    assert max(map(abs, moves)) == distance_sensitivity(unit)


def score_law(scores: list[int], plan: MarginalsPlan, design: PairDesign) -> list[Fraction]:
    """The exact law of one choice, from the weights that the code has for it."""
    seen: list[list[Fraction]] = []

    def noted(weights: np.ndarray, stream: RandomStream) -> Chosen:
        seen.append([Fraction(float(each)) for each in weights])
        return Chosen(0, 1)

    with patch.object(question, "weighed", noted), patch.object(question, "flipped", noted):
        choose_score(
            np.array(scores, np.int64),
            plan.choice_rate(design),
            RandomStream(bytes(32)),
            flips=plan.flips,
        )
    return flip_law(seen[0]) if plan.flips else weight_law(seen[0])


def part_lost(
    one: list[Fraction], two: list[Fraction], amount: Fraction, measure: Measure
) -> float:
    """The loss between two laws, in parts of an amount."""
    return law_loss(one, two, measure) / float(amount)


def worst_choice(plan: MarginalsPlan, moved: int) -> float:
    """The part of a choice's amount that is lost at most, over scores that move by so much."""
    design = plan.designs[0]
    amount = plan.choices_amount(design) / plan.choices(design)
    starts = [[0, 0, 0], [0, 5, 9], [40, 0, -3], [0, 400, 400], [2000, 0, 0], [7]]
    lost = []
    for start in starts:
        before = score_law(start, plan, design)
        for move in itertools.product((-moved, 0, moved), repeat=len(start)):
            after = score_law([a + b for a, b in zip(start, move, strict=True)], plan, design)
            lost.append(part_lost(before, after, amount, plan.budget.measure))
    return max(lost)


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_choice_loses_no_more_than_its_amount(unit: PrivacyUnit, measure: Measure) -> None:
    plan = make_plan(AMOUNTS[measure], measure, shape=SHAPE, unit=unit)
    assert worst_choice(plan, distance_sensitivity(unit)) <= 1


def test_a_choice_loses_nearly_its_amount_and_a_fault_is_found() -> None:
    """Scores that are far apart lose it all; half of the sensitivity loses twice the amount."""
    plan = make_plan(30, shape=SHAPE)
    moved = distance_sensitivity(plan.unit)
    assert worst_choice(plan, moved) > 0.99
    assert worst_choice(plan, 2 * moved) > 1.9
    rho = make_plan(Fraction(1, 2), Measure.RHO, shape=SHAPE)
    assert worst_choice(rho, 2 * moved) > 1.5


def forest_law(
    counts: Integers, plan: MarginalsPlan, predicted: dict[Pair, Integers]
) -> dict[tuple[Pair, ...], Fraction]:
    """The exact probability of every list of chosen pairs, by running every choice."""
    design = plan.designs[0]
    scores = {
        pair: table_distance(SHAPE.pair_counts(counts, *pair), table)
        for pair, table in predicted.items()
    }
    law: dict[tuple[Pair, ...], Fraction] = {}
    prescribed: list[int] | None = []
    while prescribed is not None:
        run = Choices(prescribed)
        with (
            patch.object(question, "weighed", run.by_weight),
            patch.object(question, "flipped", run.by_flips),
        ):
            chosen = choose_pairs(
                scores,
                ChordalGraph(3),
                lambda clique: is_small(clique, SHAPE.sizes, 2),
                lambda values, number: choose_score(
                    values, plan.choice_rate(design), RandomStream(bytes(32)), flips=plan.flips
                ),
                range(plan.first_pairs(design)),
            )
        law[tuple(chosen)] = law.get(tuple(chosen), Fraction(0)) + run.probability
        prescribed = run.following()
    assert sum(law.values()) == 1
    return law


@pytest.mark.parametrize("measure", Measure)
def test_all_choices_lose_no_more_than_their_amount(measure: Measure) -> None:
    """The whole law of forests of tiny tables, over neighbors; a planted fault is found."""
    plan = make_plan(AMOUNTS[measure], measure, shape=SHAPE)
    faulty = replace(plan, choice_amount=3 * plan.choice_amount, column_amount=Fraction(1, 100))
    predicted = {pair: np.array([[1, 0], [2, 1]]) for pair in SHAPE.pairs}
    lost, faults = [], []
    for own, rest in itertools.product((0, 5), [(1, 2, 2, 6)]):
        pair = counted((*rest, own)), counted(rest)
        for each, losses in ((plan, lost), (faulty, faults)):
            laws = [forest_law(counts, each, predicted) for counts in pair]
            outcomes = laws[0].keys() | laws[1].keys()
            one, two = ([law[outcome] for outcome in outcomes] for law in laws)
            amount = plan.choices_amount(plan.designs[0])
            losses.append(part_lost(one, two, amount, measure))
    assert max(lost) <= 1
    assert max(faults) > 1
