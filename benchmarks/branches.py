"""A tree of 10^9 leaves: what one worker holds, and takes, for a chunk, a branch and the spine.

    python benchmarks/branches.py

The shape alone is made, with sizes as of a country whose blocks are cut a hundredfold: no labels,
no rows. Nothing here has the size of the leaves. The first chunk that a worker measures also
computes what the plan says of all nodes above the leaves, once.
"""

from __future__ import annotations

import resource
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from dptrees.dpcore.irregular.forest import IrregularForest  # noqa: E402
from dptrees.dpcore.irregular.plan import IrregularPlan  # noqa: E402
from dptrees.dpcore.irregular.planner import with_equal_shares  # noqa: E402
from dptrees.dpcore.noise.randomness import ReleaseKey  # noqa: E402
from dptrees.dpcore.noise.source import NoiseSource  # noqa: E402
from dptrees.dpcore.privacy.budget import Budget, Measure  # noqa: E402
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW  # noqa: E402
from dptrees.dpcore.trees.irregular import IrregularTree  # noqa: E402


def country() -> IrregularTree:
    """Some 10^9 blocks in 29 million block groups, 10 million tracts and 390,000 counties."""
    rng = np.random.default_rng(0)
    starts, size = [], 1
    for least, most in ((60, 61), (100, 101), (20, 110), (1, 50), (1, 6), (1, 70)):
        fanouts = rng.integers(least, most, size)
        if most == 50:
            fanouts[::50_000] = 6_000  # a few counties that no chunk holds
        starts.append(np.concatenate([[0], np.cumsum(fanouts)]))
        size = int(starts[-1][-1])
    return IrregularTree(child_starts=tuple(starts))


class Watch:
    """Prints the seconds since its last call, and the peak memory."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        print(f"{'step':<44}{'s':>7}{'peak MB':>9}")

    def __call__(self, step: str) -> None:
        now, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{step:<44}{now - self._last:>7.1f}{peak / 1024:>9.0f}", flush=True)
        self._last = time.perf_counter()


def main() -> None:
    """Print the table."""
    report = Watch()
    tree = country()
    report(f"shape of {tree.leaves:,} leaves")
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    plan = with_equal_shares(IrregularPlan(tree=tree, unit=ADD_REMOVE_ROW, budget=budget))
    forest = IrregularForest(plan)
    chunking, rng = forest.chunking, np.random.default_rng(1)
    report(f"{len(chunking):,} chunks, {chunking.branches} branches")
    branch, chunk = chunking.branch(0, 3), chunking[chunking.branch_chunks(3)[0]]
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=bytes(32)
    )
    measured = forest.measure("t", chunk, rng.poisson(3, chunk.leaves), noise)
    forest.chunk_roots(chunk, measured)
    report(f"a chunk of {chunk.leaves:,} leaves, measured")
    totals = rng.poisson(300, branch.leaves)
    known = [
        *forest.measure_branch("t", branch, totals, noise),
        totals.astype(np.float64)[None, :],
    ]
    forest.chunk_roots(branch, known)
    report(f"a branch of {branch.leaves:,} chunk roots, measured")
    top = rng.poisson(3000, chunking.spine.leaves)
    solved, _ = forest.solve_spine("t", 0, top.astype(np.float64), top, noise)
    report(f"the spine above {chunking.spine.leaves:,} roots of branches")
    roots, _ = forest.solve_branch(
        branch, known, solved.slice(branch.first, branch.first + branch.units)
    )
    report("the branch, solved")
    first = chunk.first - chunking.node_ranges(branch)[-1][0]
    forest.solve(chunk, measured, roots.slice(first, first + chunk.units))
    report("the chunk, solved")


if __name__ == "__main__":
    main()
