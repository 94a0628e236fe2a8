"""The whole law of what a tiny adaptive partition releases, by enumeration: a request follows from
earlier answers, and all requests of any way through the tree keep epsilon.

Every requested number takes each value of a window in turn. Ways that release the same are
one outcome, whose probabilities are added up. That an outcome is cut off by the window is of no
matter: the inequality holds for the part of every outcome within it.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, MeasuredNodes, NodeNoise, Nodes
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    PrivacyUnit,
)

# Of noisy counts: on both sides of every threshold, and as far apart as exact counts may be.
WINDOW = (0, 2)
EPSILON = Fraction(3, 2)
# Rows by cell, and a neighbor of each relation.
ROWS = {0: 2, 1: 1}
NEIGHBORS = {ADD_REMOVE_ROW: {0: 2, 1: 2}, SUBSTITUTE_ROW: {0: 2, 3: 1}}
DOMAIN = HypercubeDomain(
    axes=tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y")), depths=(1, 1)
)
SOURCE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")


# What the whole, halves, and cells of the halves that are split spend.
AMOUNTS = {
    "no root": (Fraction(0), EPSILON / 2, EPSILON / 2),
    "all": (EPSILON / 4, EPSILON / 4, EPSILON / 2),
    "halves only where they end": (EPSILON / 4, Fraction(0), 3 * EPSILON / 4),
}


def make_plan(unit: PrivacyUnit, amounts: str, part: Fraction) -> AdaptivePartitionPlan:
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


@dataclass(kw_only=True)
class Run:
    """One way: the values of the numbers in turn, and the requests."""

    values: tuple[tuple[int, ...], ...]
    requests: list[tuple[DiscreteLaplace, int, list[int]]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prescribed(NodeNoise):
    """Numbers in place of measured ones: the first of a run, then there are no more."""

    run: Run

    def at(self, level: int, depth: int, nodes: Nodes) -> MeasuredNodes:
        law = self.laws[level]
        if law is None:
            return MeasuredNodes(np.zeros(len(nodes)), np.full(len(nodes), np.inf))
        assert isinstance(law, DiscreteLaplace)
        self.run.requests.append((law, depth, nodes.tolist()))
        if len(self.run.requests) > len(self.run.values):
            raise LookupError
        value = np.array(self.run.values[len(self.run.requests) - 1], np.float64)
        return MeasuredNodes(value, np.full(len(nodes), law.variance))


def ways(plan: AdaptivePartitionPlan) -> Iterator[tuple[Run, bytes]]:
    """Every way through the tree, and the nodes, estimates and counts that it releases."""
    nothing = CodeCounts.from_codes(2, np.empty(0, np.uint64), np.empty(0, np.int64))
    waiting: list[tuple[tuple[int, ...], ...]] = [()]
    while waiting:
        run = Run(values=waiting.pop())
        noise = Prescribed(tree="t", counts=nothing, laws=plan.laws, source=SOURCE, run=run)
        try:
            found = plan.estimated(DOMAIN, noise)
        except LookupError:
            more = itertools.product(WINDOW, repeat=len(run.requests[-1][2]))
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


def largest_loss(plan: AdaptivePartitionPlan) -> float:
    """max |log P / Q| over all outcomes."""
    laws: dict[bytes, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for run, outcome in ways(plan):
        for place, rows in enumerate((ROWS, NEIGHBORS[plan.unit])):
            laws[outcome][place] += probability(run, rows)
    return max(abs(math.log(first / second)) for first, second in laws.values())


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
def test_no_outcome_reveals_more_than_epsilon(
    unit: PrivacyUnit, amounts: str, part: Fraction
) -> None:
    loss = largest_loss(make_plan(unit, amounts, part))
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
def test_too_little_noise_is_found(
    unit: PrivacyUnit, planted: str, amounts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(unit, amounts, Fraction(0))
    name, by = PLANTED[planted]
    laws = tuple(law and replace(law, scale=law.scale * by) for law in getattr(plan, name))
    monkeypatch.setitem(plan.__dict__, name, laws)
    assert largest_loss(plan) > EPSILON * (1 + 1e-9)


def test_a_decision_that_is_not_paid_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers that decide beside a first measurement with all of its level's budget."""
    plan = make_plan(ADD_REMOVE_ROW, "no root", Fraction(3, 10))
    whole = make_plan(ADD_REMOVE_ROW, "no root", Fraction(0)).laws
    monkeypatch.setitem(plan.__dict__, "laws", whole)
    assert largest_loss(plan) > EPSILON * (1 + 1e-9)
