"""Generators of synthetic rows of cells, for `machine_learning`: the wide table, and its peers.

The wide table (`kind: table`) is planned, measured and sampled by this project's
own code. The peers are of dpmm 0.1.9 and run in a Python that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.synthetic.machine_learning import Synthesize
from benchmarks.wide_tables import DELTA, peer_rows
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.measuring import measure_tables
from dptrees.dpcore.marginals.model import TableModel
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.marginals.shape import TableShape
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW


def by_table(shape: TableShape, budget: Budget) -> Synthesize:
    """Rows of a wide table's model.

    Args:
        shape: of the columns.
        budget: of all measurements together.
    """
    plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget)

    def synthesize(rows: Integers, rng: np.random.Generator) -> Integers:
        key = ReleaseKey(rng.bytes(32))
        source = NoiseSource(key=key, release="r", spec_digest=b"", global_digest=b"")
        counts = shape.counted(list(rows.T))
        model = TableModel.fitted(measure_tables(counts, plan, source, "t"))
        return np.stack(model.sample(len(rows), key.stream("rows")), axis=1)

    return synthesize


def pure_budget(epsilon: float) -> Budget:
    """The budget of a pure epsilon."""
    return Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))


def stated_budget(epsilon: float) -> Budget:
    """The largest rho that is known to be (epsilon, 1e-5)-DP, the peers' guarantee."""
    rho = Fraction(zcdp_rho(Fraction(str(epsilon)), DELTA)).limit_denominator(10**9)
    return Budget(measure=Measure.RHO, amount=rho)


def by_peer(
    name: str, sizes: Sequence[int], epsilon: float, python: Path, *, limit: float
) -> Synthesize:
    """Rows of a generator of dpmm.

    Args:
        name: of `benchmarks.wide_tables.PEERS`.
        sizes: of each column, the number of cells.
        epsilon: with delta 1e-5, where the peer has a delta.
        python: has dpmm 0.1.9.
        limit: the most seconds; beyond, `subprocess.TimeoutExpired` is raised.
    """

    def synthesize(rows: Integers, rng: np.random.Generator) -> Integers:
        seed = int(rng.integers(2**31))
        return peer_rows(rows, sizes, epsilon, name, python, seed=seed, limit=limit)

    return synthesize
