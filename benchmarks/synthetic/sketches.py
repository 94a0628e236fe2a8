"""W1 of PrivHP with sketches of many sizes, beside the bound that holds (Theorem 3, corrected).

    python -m benchmarks.synthetic.sketches [--runs 8] [--write docs/synthetic-accuracy.md]

One column, count-min sketches of one row, `mechanism: privhp_paper`. The bound is that of
`dptrees.papers.holland` with the exact tails of the data: to compare with, not to publish.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.harness import show_page, table
from benchmarks.synthetic.__main__ import (
    SOURCES,
    Source,
    line_distance,
    mapped,
    short_number,
    streams,
)
from benchmarks.synthetic.generators import ExactCounts, effective_depth, real
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.papers.holland import (
    candidate_sum,
    gamma,
    privhp,
    row_error,
    tail,
    wasserstein_bound,
)
from dptrees.dpcore.sketches.sketch import SketchKind

ROWS = 100_000
# Of the second the noise of every count is 0.
EPSILONS = {"epsilon 1": 1.0, "no noise": 1e6}
SPLIT, WIDTHS = (64, 1024), (64, 1024, 8192)
HASHES = (1, 4, 16)
WIDE = (2**12, 2**14, 2**16, 2**18, 2**20)
ATOMS = 256


def atoms(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points of 256 random places, of equal masses: nothing is lost by pruning them."""
    return rng.random((ATOMS, dimensions))[rng.integers(0, ATOMS, rows)]


LAWS: dict[str, Source] = {
    "multifractal, B = .8": SOURCES["multifractal, B = .8"],
    f"{ATOMS} atoms": atoms,
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    Attributes:
        source: of the rows.
        noise: a key of `EPSILONS`.
        k: nodes of a level that are split.
        w: cells of a row of a sketch.
        j: rows of a sketch.
        kind: of sketch.
        runs: independent runs.
        rows: n.
    """

    source: str
    noise: str
    k: int
    w: int
    runs: int
    j: int = 1
    kind: SketchKind = SketchKind.COUNT_MIN
    rows: int = ROWS


@dataclass(frozen=True, kw_only=True)
class Found:
    """Means over the runs: W1, its corrected bound, and the theorem as printed."""

    distance: float
    bound: float
    printed: float


def printed_bound(n: int, k: int, w: int, sigmas: Floats, sums: Floats) -> float:
    """Theorem 3 as printed, with the constants of the last line of its proof; it is false.

    Args:
        n, k, w, sigmas: as in `wasserstein_bound`.
        sums: (r + 1,) of Equation (4), over the bottom k candidates of exact pruning.
    """
    r, last = len(sigmas) - 1, k.bit_length() - 1
    sides = np.array([gamma(max(level - 1, 0), 1) for level in range(r + 1)])
    split = np.array([min(2 ** max(level - 1, 0), k) for level in range(r + 1)])
    sketch = 5 / w * sides[last + 1 :].sum()
    pruned = (sums / n * sides / 2)[last + 1 : r].sum()
    return float(
        10 * math.sqrt(2) / n * (split * sides / sigmas).sum() + sketch + pruned + gamma(r, 1)
    )


def candidate_sums(counts: ExactCounts, k: int, r: int) -> Floats:
    """(r + 1,) the rows of the bottom k candidates of each level, pruned by exact counts."""
    nodes, sums = np.zeros(1, np.int64), np.zeros(r + 1)
    for level in range(1, r + 1):
        nodes = ((nodes << 1)[:, None] + np.arange(2)).ravel()
        rows = counts(nodes, level)
        sums[level] = candidate_sum(rows, k, 2 * k - 1)
        nodes = nodes[np.argsort(-rows, kind="stable")[:k]]
    return sums


def run_cell(cell: Cell) -> Found:
    """Return the means of a cell, the same however many cells are run."""
    r, epsilon, found = effective_depth(cell.rows, 1.0), EPSILONS[cell.noise], []
    sigmas = np.array(privhp(k=cell.k, r=r, epsilon=Fraction(epsilon)).amounts, np.float64)
    if cell.noise == "no noise":
        sigmas[:] = math.inf
    sketch = {"most": cell.k, "width": cell.w, "hash_rows": cell.j, "sketch": cell.kind}
    generator = real("PrivHP", "privhp_paper", depth=r, **sketch)
    for run in range(cell.runs):
        data, noise = streams(cell.source, cell.rows, cell.k, cell.w, cell.j, run)
        points = LAWS[cell.source](data, cell.rows, 1)
        distance = line_distance(points, generator.release(points, epsilon, noise))
        counts = ExactCounts(points)
        tails = np.array([tail(counts.cells(level)[1], cell.k) for level in range(r + 1)])
        bound = wasserstein_bound(
            cell.rows,
            k=cell.k,
            gammas=np.array([gamma(level, 1) for level in range(r + 1)]),
            sigmas=sigmas,
            collisions=row_error(cell.rows, 0, cell.w),
            tails=tails,
        )
        sums = candidate_sums(counts, cell.k, r)
        printed = printed_bound(cell.rows, cell.k, cell.w, sigmas, sums)
        found.append((distance, bound.total, printed))
    means = np.mean(found, axis=0)
    return Found(distance=float(means[0]), bound=float(means[1]), printed=float(means[2]))


def sizes(runs: int) -> str:
    """W1 and its bound by k and w, and how far W1 is from both theorems."""
    cells = [
        Cell(source=source, noise=noise, k=k, w=w, runs=runs)
        for source, noise, k, w in itertools.product(LAWS, EPSILONS, SPLIT, WIDTHS)
    ]
    found = mapped(run_cell, cells)
    shown = [f"{short_number(each.distance)} ({short_number(each.bound)})" for each in found]
    lines = [
        [f"{cell.source}, {cell.noise}, k {cell.k:,}", *shown[place : place + len(WIDTHS)]]
        for place, cell in list(enumerate(cells))[:: len(WIDTHS)]
    ]
    worst = {
        name: max(each.distance / getattr(each, name) for each in found)
        for name in ("bound", "printed")
    }
    return (
        f"{table(['source, noise, k', *(f'w {w:,}' for w in WIDTHS)], lines)}\n\n"
        f"W1 is at most {worst['bound']:.2f} times the bound that holds, and up to "
        f"{worst['printed']:.1f} times Theorem 3 as printed with the constants of its proof."
    )


def sketch_table(runs: int) -> str:
    """W1 of count sketches of as many cells in one row or more, k = 64."""
    lines = []
    for source, cells in itertools.product(LAWS, (1024, 16_384)):
        made = [
            Cell(
                source=source,
                noise="epsilon 1",
                k=64,
                w=cells // j,
                j=j,
                kind=SketchKind.COUNT_SKETCH,
                runs=runs,
            )
            for j in HASHES
        ]
        found = mapped(run_cell, made)
        lines.append([f"{source}, {cells:,}", *(short_number(each.distance) for each in found)])
    return table(["source, j w", *(f"j {j}" for j in HASHES)], lines)


def widths(runs: int) -> str:
    """W1 of count sketches by their width, of a million rows, k = 1,024."""
    lines = []
    for source in LAWS:
        given = {"source": source, "noise": "epsilon 1", "kind": SketchKind.COUNT_SKETCH}
        made = [Cell(k=1024, w=w, runs=runs, rows=10**6, **given) for w in WIDE]
        lines.append([source, *(short_number(each.distance) for each in mapped(run_cell, made))])
    return table(["source", *(f"w 2^{w.bit_length() - 1}" for w in WIDE)], lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables or writes them between the marks of a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic.sketches", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=8, help="of each cell (8)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    options = parser.parse_args(arguments)
    text = (
        f"{sizes(options.runs)}\n\nCount sketches of j rows, as many cells in all, k 64, "
        f"epsilon 1: W1.\n\n{sketch_table(options.runs)}\n\n"
        "Count sketches by their width, a million rows, k 1,024, epsilon 1: W1. The default is "
        f"2^18.\n\n{widths(max(2, options.runs // 2))}\n"
    )
    show_page(text, options.write, "sketches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
