"""Quantiles by the exponential mechanism beside quantiles of a tree for counts, on public shapes.

    python -m benchmarks.quantile_choice [--quantiles 9 15] [--releases 6] [--held-out]

prints for each number of quantiles, and of rows times epsilon, the mean distance of their ranks
from the requested ones, in rows times epsilon: geometric means over two shapes of each of the seven
families of `benchmarks.regret`, or over two others that are held out; and the mean quotient of both
errors. `dpcore.exponential.better` decides by these.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.adaptive import AMOUNTS, released_cells
from benchmarks.quantile_intervals import QUANTILES, make_mechanism
from benchmarks.quantiles import even_quantiles
from benchmarks.regret import COUNTS, make_shapes, mean
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choosing import chosen_quantiles
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.mechanism import ChunkLayout

CELLS = 4096
PRODUCTS = (100, 300, 1_000, 3_000, 10_000, 100_000)
EPSILON = AMOUNTS[Measure.EPSILON]
# So small an error that quotients below it mean nothing, in rows times epsilon.
LEAST = 0.01


def rank_error(cells: Integers, quantiles: tuple[float, ...], exact: Integers) -> float:
    """Mean distance of the requested ranks from the ranks of cells, (releases, quantiles)."""
    upto = np.cumsum(exact)
    ranks = np.array(quantiles) * upto[-1]
    return float(
        np.maximum(np.maximum((upto - exact)[cells] - ranks, ranks - upto[cells]), 0).mean()
    )


def exponential_error(quantiles: tuple[float, ...], exact: Integers, releases: int) -> float:
    """The error of the exponential mechanism."""
    plan = ExponentialPlan(
        cells=exact.size,
        unit=ADD_REMOVE_ROW,
        quantiles=tuple(Fraction(str(each)) for each in quantiles),
        budget=Budget(measure=Measure.EPSILON, amount=EPSILON),
    )
    streams = (RandomStream(number.to_bytes(32, "big")) for number in range(releases))
    cells = np.stack([chosen_quantiles(exact, plan, each).cells for each in streams])
    return rank_error(cells, quantiles, exact)


def tree_error(quantiles: tuple[float, ...], exact: Integers, releases: int) -> float:
    """The error of a tree that is planned for counts."""
    keys = {**QUANTILES, **COUNTS}
    mechanism = make_mechanism(keys, quantiles, exact.size, Measure.EPSILON)
    forest = mechanism.forest(ChunkLayout(keys=releases, chunk_leaves=2**17))
    below: Floats = np.cumsum(released_cells(forest, exact, "count"), axis=1)
    wanted = [np.maximum(1, each * below[:, -1:]) for each in quantiles]
    cells = np.stack([(below < each).sum(axis=1) for each in wanted], axis=1)
    return rank_error(cells.clip(0, exact.size - 1), quantiles, exact)


def lines(numbers: list[int], releases: int, shapes: slice) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| quantiles | rows x epsilon | exponential | tree for counts | quotient |"
    yield "|---:|---:|---:|---:|---:|"
    families = [shape for each in make_shapes(CELLS).values() for shape in each[shapes]]
    for number in numbers:
        quantiles = even_quantiles(number)
        for product in PRODUCTS:
            errors = []
            for shape in families:
                rng = np.random.default_rng([17, product])
                exact = rng.multinomial(round(product / EPSILON), shape).astype(np.int64)
                both = [
                    max(LEAST, float(EPSILON) * error(quantiles, exact, releases))
                    for error in (exponential_error, tree_error)
                ]
                errors.append(both)
            own, tree = (mean([each[place] for each in errors]) for place in (0, 1))
            yield f"| {number} | {product:,} | {own:.2f} | {tree:.2f} | {own / tree:.2f} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quantiles", type=int, nargs="+", default=[9, 15])
    parser.add_argument("--releases", type=int, default=6)
    parser.add_argument("--held-out", action="store_true")
    chosen = parser.parse_args()
    shapes = slice(2, 4) if chosen.held_out else slice(0, 2)
    for line in lines(chosen.quantiles, chosen.releases, shapes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
