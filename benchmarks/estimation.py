"""Estimation after noise: seconds and memory for a tree of 2^24 leaves, as the chunks run it.

Run as ``python benchmarks/estimation.py [--leaves 16777216]``. One process, one thread: pass up,
spine, pass down with the variances of every node, top-down integer consistency, CDF points.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from fractions import Fraction

import numpy as np

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.uniform.forest import UniformForest
from dptrees.dpcore.uniform.setting import TreeSetting

NOISE = NoiseSource(
    key=ReleaseKey(bytes(32)), release="benchmark", spec_digest=b"", global_digest=b""
)


def peak() -> float:
    """The process's peak memory in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leaves", type=int, default=2**24)
    leaves = parser.parse_args().leaves
    print(f"{leaves:,} leaves; seconds by step, and peak memory over that before, per leaf")
    print(
        f"{'shape':<24} {'counts':<7} {'noise':>6} {'up':>6} {'spine':>6} {'down':>6} "
        f"{'integers':>8} {'cdf':>6} {'whole':>6} {'B/leaf':>7}"
    )
    for measure in Measure:
        for rows_per_leaf in (0.1, 3):
            # A process each, so that its peak memory is its own.
            process = multiprocessing.Process(target=_run, args=(leaves, measure, rows_per_leaf))
            process.start()
            process.join()
    return 0


def _run(leaves: int, measure: Measure, rows_per_leaf: float) -> None:
    budget = Budget(measure=measure, amount=Fraction(1))
    plan = plan_tree(TreeSetting(leaves=leaves, budget=budget, unit=ADD_REMOVE_ROW))
    forest = UniformForest(plan)
    generator = np.random.default_rng(1)
    counts = generator.poisson(rows_per_leaf, leaves)
    before, seconds = (
        peak(),
        dict.fromkeys(("noise", "up", "spine", "down", "integers", "cdf"), 0.0),
    )

    def timed(step, call):  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        result = call()
        seconds[step] += time.perf_counter() - start
        return result

    measured, roots, totals = {}, [], []
    for chunk in forest.chunking:
        part = counts[chunk.start : chunk.start + chunk.leaves]
        noisy = timed("noise", lambda c=chunk, p=part: forest.measure("t", c, p, NOISE))
        measured[chunk] = [None if level is None else level.astype(np.int32) for level in noisy]
        roots.append(timed("up", lambda c=chunk, m=noisy: forest.chunk_roots(c, m)))
        totals.append(part.reshape(chunk.units, -1).sum(axis=1))
    solutions, _ = timed(
        "spine",
        lambda: forest.solve_spine("t", 0, np.concatenate(roots), np.concatenate(totals), NOISE),
    )
    start = 0
    for chunk in forest.chunking:
        root = solutions.slice(start, start + chunk.units)
        start += chunk.units
        estimates = timed("down", lambda c=chunk, r=root: forest.estimate_chunk(c, measured[c], r))
        solved = timed(
            "integers", lambda c=chunk, e=estimates, r=root: forest.resolve_chunk(c, e, r)
        )
        timed("cdf", lambda c=chunk, s=solved, r=root: forest.solve_prefixes(c, s[-1], r))
    shape = "x".join(map(str, plan.tree.fanouts))
    shape = shape if len(shape) < 24 else f"2^{plan.tree.height} or so, {measure.value}"
    print(
        f"{shape:<24} {rows_per_leaf:<7g} "
        + " ".join(f"{seconds[s]:>6.2f}" for s in ("noise", "up", "spine", "down"))
        + f" {seconds['integers']:>8.2f} {seconds['cdf']:>6.2f} {sum(seconds.values()):>6.2f}"
        + f" {(peak() - before) * 2**20 / leaves:>7.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
