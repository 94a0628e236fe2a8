"""The whole law of what a tiny partition releases, by enumeration: noise that is drawn only where
nodes are looked at keeps the epsilon of the whole noisy tree, and an adaptive partition, whose
requests follow from earlier answers, keeps epsilon on any way through the tree.

Every requested number takes each value of a window in turn, so that all ways are gone. Ways that
release the same are one outcome, whose probabilities are added up. That an outcome is cut off by
the window is of no matter: the inequality holds for the part of every outcome within it.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, Estimates, NodeNoise, Nodes
from dptrees.dpcore.boxes.plan import Estimation, GrowthRule, PartitionPlan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    PrivacyUnit,
)

EPSILON = Fraction(3, 2)
# Rows by cell, and a neighbor of each relation.
ROWS = {0: 2, 1: 1}
NEIGHBORS = {ADD_REMOVE_ROW: {0: 2, 1: 2}, SUBSTITUTE_ROW: {0: 2, 3: 1}}
# Two columns of two cells: halves, and the cells of the halves that are split.
DOMAIN = HypercubeDomain(
    axes=tuple(StepDomain(kind="integer", column=name, lower=0, upper=2) for name in ("x", "y")),
    depths=(1, 1),
)
SOURCE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")
NOTHING = CodeCounts.from_codes(2, np.empty(0, np.uint64), np.empty(0, np.int64))
Plan = PartitionPlan | AdaptivePartitionPlan


@dataclass(kw_only=True)
class Run:
    """One way: the values of the numbers in turn, and the requests."""

    values: tuple[tuple[int, ...], ...]
    requests: list[tuple[DiscreteLaplace, int, list[int]]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prescribed(NodeNoise):
    """Numbers in place of measured ones: the first of a run, then there are no more."""

    run: Run

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        law = self.laws[level]
        if law is None:
            return Estimates(np.zeros(len(nodes)), np.full(len(nodes), np.inf))
        assert isinstance(law, DiscreteLaplace)
        self.run.requests.append((law, depth, nodes.tolist()))
        if len(self.run.requests) > len(self.run.values):
            raise LookupError
        value = np.array(self.run.values[len(self.run.requests) - 1], np.float64)
        return Estimates(value, np.full(len(nodes), law.variance))


def ways(plan: Plan, window: Sequence[int]) -> Iterator[tuple[Run, bytes]]:
    """Every way through the tree, and the nodes, estimates and counts that it releases."""
    waiting: list[tuple[tuple[int, ...], ...]] = [()]
    while waiting:
        run = Run(values=waiting.pop())
        noise = Prescribed(tree="t", counts=NOTHING, laws=plan.laws, source=SOURCE, run=run)
        try:
            found = plan.estimated(DOMAIN, noise)
        except LookupError:
            more = itertools.product(window, repeat=len(run.requests[-1][2]))
            waiting += [(*run.values, values) for values in more]
            continue
        levels = zip(found.tree.levels, found.estimates, found.counts, strict=True)
        reported = [
            np.asarray(each).tobytes() for own, *rest in levels for each in (own.nodes, *rest)
        ]
        yield run, b"".join(reported)


def probability(run: Run, rows: dict[int, int]) -> float:
    """Return the probability of the noisy counts that a run drew, given the rows of each cell."""
    found = 1.0
    for (law, depth, nodes), values in zip(run.requests, run.values, strict=True):
        rate = float(1 / law.scale)
        for node, value in zip(nodes, values, strict=True):
            exact = sum(count for cell, count in rows.items() if cell >> (2 - depth) == node)
            found *= math.tanh(rate / 2) * math.exp(-rate * abs(value - exact))
    return found


def largest_loss(plan: Plan, window: Sequence[int]) -> float:
    """max |log P / Q| over all outcomes."""
    laws: dict[bytes, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for run, outcome in ways(plan, window):
        for place, rows in enumerate((ROWS, NEIGHBORS[plan.unit])):
            laws[outcome][place] += probability(run, rows)
    return max(abs(math.log(first / second)) for first, second in laws.values())


def with_less_noise(plan: Plan, name: str, factor: Fraction) -> Plan:
    """Plant a fault: the laws of this name have a smaller scale."""
    laws = tuple(law and replace(law, scale=law.scale * factor) for law in getattr(plan, name))
    plan.__dict__[name] = laws
    return plan


# --- partitions ---

COUNTS = range(3)
RULES = {
    "the largest": GrowthRule(most=1),
    "those of half of all rows": GrowthRule(most=2, parts=2),
}


def partition_plan(unit: PrivacyUnit, rule: GrowthRule, estimation: Estimation) -> PartitionPlan:
    """A plan of three levels."""
    known = estimation is Estimation.EVEN_SHARES or rule.parts is not None
    root = EPSILON / 4 if known else Fraction(0)
    return PartitionPlan(
        depths=(0, 1, 2),
        amounts=(root, EPSILON / 2 - root, EPSILON / 2),
        measure=Measure.EPSILON,
        unit=unit,
        rule=rule,
        estimation=estimation,
    )


@pytest.mark.parametrize("estimation", list(Estimation))
@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("rule", RULES)
def test_no_outcome_reveals_more_than_epsilon(
    rule: str, unit: PrivacyUnit, estimation: Estimation
) -> None:
    loss = largest_loss(partition_plan(unit, RULES[rule], estimation), COUNTS)
    assert 0.5 * EPSILON < loss <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_half_the_noise_is_found(unit: PrivacyUnit) -> None:
    plan = partition_plan(unit, RULES["the largest"], Estimation.LEAST_SQUARES)
    assert largest_loss(with_less_noise(plan, "laws", Fraction(1, 2)), COUNTS) > EPSILON


# --- adaptive partitions ---

# On both sides of every threshold, and as far apart as exact counts may be.
ENDS = (0, 2)
# What the whole, halves, and cells of the halves that are split spend.
AMOUNTS = {
    "no root": (Fraction(0), EPSILON / 2, EPSILON / 2),
    "all": (EPSILON / 4, EPSILON / 4, EPSILON / 2),
    "halves only where they end": (EPSILON / 4, Fraction(0), 3 * EPSILON / 4),
}


def adaptive_plan(unit: PrivacyUnit, amounts: str, part: Fraction) -> AdaptivePartitionPlan:
    """A plan of three levels."""
    return AdaptivePartitionPlan(
        depths=(0, 1, 2),
        amounts=AMOUNTS[amounts],
        thresholds=(1, 0),
        most=2,
        measure=Measure.EPSILON,
        unit=unit,
        decision_part=part,
    )


@pytest.mark.parametrize(
    ("amounts", "part"),
    [
        ("no root", Fraction(0)),
        ("all", Fraction(0)),
        ("no root", Fraction(3, 10)),
        ("halves only where they end", Fraction(0)),
        ("halves only where they end", Fraction(3, 10)),
    ],
)
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_no_outcome_of_an_adaptive_partition_reveals_more_than_epsilon(
    unit: PrivacyUnit, amounts: str, part: Fraction
) -> None:
    loss = largest_loss(adaptive_plan(unit, amounts, part), ENDS)
    assert 0.5 * EPSILON < loss <= EPSILON * (1 + 1e-9)


PLANTED = {
    "30 % less noise of what is measured first": ("laws", Fraction(7, 10)),
    "30 % less noise of what is measured again": ("last_laws", Fraction(7, 10)),
    "all of the budget for what is measured again": ("last_laws", Fraction(1, 2)),
}


# A substitution does not move the root, and so less than the budget where that is measured.
@pytest.mark.parametrize(
    ("unit", "amounts"),
    [
        (ADD_REMOVE_ROW, "no root"),
        (SUBSTITUTE_ROW, "no root"),
        (ADD_REMOVE_ROW, "halves only where they end"),
    ],
)
@pytest.mark.parametrize("planted", PLANTED)
def test_too_little_noise_is_found(unit: PrivacyUnit, planted: str, amounts: str) -> None:
    plan = with_less_noise(adaptive_plan(unit, amounts, Fraction(0)), *PLANTED[planted])
    assert largest_loss(plan, ENDS) > EPSILON * (1 + 1e-9)


def test_a_decision_that_is_not_paid_for_is_found() -> None:
    """The numbers that decide beside a first measurement with all of its level's budget."""
    plan = adaptive_plan(ADD_REMOVE_ROW, "no root", Fraction(3, 10))
    plan.__dict__["laws"] = adaptive_plan(ADD_REMOVE_ROW, "no root", Fraction(0)).laws
    assert largest_loss(plan, ENDS) > EPSILON * (1 + 1e-9)
