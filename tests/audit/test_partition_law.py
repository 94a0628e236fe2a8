"""The whole law of what a tiny partition releases, by enumeration: noise that is drawn only where
nodes are looked at keeps the epsilon of the whole noisy tree.

Every node that the growing partition requests takes each value of a window in turn, so that all its
ways through the tree are gone. Ways that release the same are one outcome, whose probabilities are
added up. That an outcome is cut off by the window is of no matter: the inequality holds for the
part of every outcome in which the noisy counts are within the window.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import MeasuredNodes
from dptrees.dpcore.boxes.plan import Estimation, GrowthRule, PartitionPlan
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    PrivacyUnit,
)

# Of noisy counts.
WINDOW = range(3)
EPSILON = Fraction(3, 2)
# Rows by cell, and a neighbor of each relation.
ROWS = {0: 2, 1: 1}
NEIGHBORS = {ADD_REMOVE_ROW: {0: 2, 1: 2}, SUBSTITUTE_ROW: {0: 2, 3: 1}}


def make_question(unit: PrivacyUnit, rule: GrowthRule, estimation: Estimation) -> HypercubeQuestion:
    """Two columns of two cells: halves, and the cells of the halves that are split."""
    axes = tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y"))
    known = estimation is Estimation.EVEN_SHARES or rule.parts is not None
    root = EPSILON / 4 if known else Fraction(0)
    plan = PartitionPlan(
        depths=(0, 1, 2),
        amounts=(root, EPSILON / 2 - root, EPSILON / 2),
        measure=Measure.EPSILON,
        unit=unit,
        rule=rule,
        estimation=estimation,
    )
    return HypercubeQuestion(
        name="box", domain=HypercubeDomain(axes=axes, depths=(1, 1)), plan=plan
    )


@dataclass(kw_only=True)
class Prescribed:
    """Noisy counts in place of measured ones, for the first levels only."""

    question: HypercubeQuestion
    values: tuple[tuple[int, ...], ...]
    requests: list[tuple[int, int, list[int]]] = field(default_factory=list)

    def at(self, level: int, depth: int, nodes: Any) -> MeasuredNodes:
        law = self.question.plan.laws[level]
        if law is None:
            return MeasuredNodes(np.zeros(len(nodes)), np.full(len(nodes), np.inf))
        self.requests.append((level, depth, nodes.tolist()))
        if len(self.requests) > len(self.values):
            raise LookupError
        value = np.array(self.values[len(self.requests) - 1], np.float64)
        return MeasuredNodes(value, np.full(len(nodes), law.variance))

    def variance(self, level: int) -> float:
        """Variance of the noise at a level."""
        law = self.question.plan.laws[level]
        assert law is not None
        return law.variance


def ways(question: HypercubeQuestion) -> Iterator[tuple[Prescribed, bytes]]:
    """Every way through the tree, and the nodes, estimates and counts that it releases."""
    waiting: list[tuple[tuple[int, ...], ...]] = [()]
    while waiting:
        run = Prescribed(question=question, values=waiting.pop())
        try:
            found = question.plan.estimated(question.domain, run)
        except LookupError:
            more = itertools.product(WINDOW, repeat=len(run.requests[-1][2]))
            waiting += [(*run.values, values) for values in more]
            continue
        levels = zip(found.tree.levels, found.estimates, found.counts, strict=True)
        yield (
            run,
            b"".join(
                np.asarray(part).tobytes() for node, *rest in levels for part in (node.nodes, *rest)
            ),
        )


def run_probability(run: Prescribed, rows: dict[int, int]) -> float:
    """Return the probability of the noisy counts that a run requested."""
    found = 1.0
    for (level, depth, nodes), values in zip(run.requests, run.values, strict=True):
        law = run.question.plan.laws[level]
        assert isinstance(law, DiscreteLaplace)
        rate = float(1 / law.scale)
        for node, value in zip(nodes, values, strict=True):
            exact = sum(count for cell, count in rows.items() if cell >> (2 - depth) == node)
            found *= math.tanh(rate / 2) * math.exp(-rate * abs(value - exact))
    return found


def largest_loss(question: HypercubeQuestion, one: dict[int, int], two: dict[int, int]) -> float:
    """max |log P / Q| over all outcomes."""
    laws: dict[bytes, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for run, outcome in ways(question):
        for place, rows in enumerate((one, two)):
            laws[outcome][place] += run_probability(run, rows)
    return max(abs(math.log(first / second)) for first, second in laws.values())


RULES = {
    "the largest": GrowthRule(most=1),
    "those of half of all rows": GrowthRule(most=2, parts=2),
}


@pytest.mark.parametrize("estimation", list(Estimation))
@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("rule", RULES)
def test_no_outcome_reveals_more_than_epsilon(
    rule: str, unit: PrivacyUnit, estimation: Estimation
) -> None:
    question = make_question(unit, RULES[rule], estimation)
    loss = largest_loss(question, ROWS, NEIGHBORS[unit])
    assert 0.5 * EPSILON < loss <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_half_the_noise_is_found(unit: PrivacyUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    question = make_question(unit, RULES["the largest"], Estimation.LEAST_SQUARES)
    laws = tuple(law and replace(law, scale=law.scale / 2) for law in question.plan.laws)  # type: ignore[call-arg]
    monkeypatch.setitem(question.plan.__dict__, "laws", laws)
    assert largest_loss(question, ROWS, NEIGHBORS[unit]) > EPSILON
