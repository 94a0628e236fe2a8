"""A tiny wide table to attack: what is read are the noisy counts of its one pair of columns."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.audit.claim import Claim
from benchmarks.audit.target import NAME, Target
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.release import ReleaseReader
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.noisy_sums import NoisySum
from dptrees.dpcore.table.question import TableQuestion

# Rows of cells (0, 0), (0, 1), (1, 0) and (1, 1): so dependent that the pair is chosen for sure.
_ROWS = (4000, 3, 2, 4000)
# A model is fitted in each release, which takes longer than other releases do.
COST = 3


@dataclass(frozen=True, kw_only=True)
class TableTarget(Target):
    """A wide table of two columns of two cells each.

    Args:
        one, two: the rows of every cell of the pair.
    """

    def released(self, which: str, key: ReleaseKey) -> Floats:
        # Intervals follow from the laws alone, and to compute them takes half of the time.
        with patch.object(NoisySum, "half_width", lambda self, confidence: 0.0):
            return super().released(which, key)

    def data(self, which: str) -> dict[str, Any]:
        joint = super().data(which)["counts"][NAME].reshape(2, 2)
        counts = np.concatenate([joint.sum(axis=1), joint.sum(axis=0), joint.reshape(-1)])
        return {"counts": {NAME: counts}}


def wide_table(budget: Budget) -> TableTarget:
    """Nearly all of the budget is spent on the pair, and a row more in one of its cells."""
    axes = tuple(IntegerDomain(column=name, lower=0, upper=2) for name in ("x", "y"))
    domain = TableDomain(axes=axes)
    plan = MarginalsPlan(
        shape=domain.shape,
        unit=ADD_REMOVE_ROW,
        budget=budget,
        column_amount=budget.amount / 80,
        choice_amount=budget.amount / 40,
        pair_amount=budget.amount * Fraction(19, 20),
    )
    question = TableQuestion(name=NAME, domain=domain, plan=plan)
    return TableTarget(
        plan=ReleasePlan(name="r", unit=plan.unit, budget=budget, questions=(question,)),
        claim=Claim(measure=budget.measure.value, amount=budget.amount),
        one=_ROWS,
        two=(_ROWS[0], _ROWS[1] + 1, *_ROWS[2:]),
        read=_read_pair,
        cost=COST,
    )


def _read_pair(release: ReleaseReader) -> Floats:
    """The noisy counts of the pair; -1 where it is not measured."""
    pair = release._read("nodes", NAME, 0, 2)
    noisy = dict(zip(pair["node"].to_pylist(), pair["estimate"].to_pylist(), strict=True))
    return np.array([noisy.get(node, -1.0) for node in range(4, 8)])
