"""What `mechanism: planned` costs beside the best mechanism of the project, on public shapes.

    python -m benchmarks.regret [--cells 4096] [--measure epsilon] [--releases 20]

measures the counts of every mechanism below on shapes of seven families, at several numbers of rows
times the budget, and prints for each mechanism its *regret*: its error over the smallest of all
mechanisms for the same shape and rows; the mean (geometric) and the worst, over the families, of
the mean over a family's shapes. Two shapes of each family were used to choose the rules of the
planner; the others, *held out*, took no part in it.

Errors are of counts: root mean squares of 2,000 random ranges and of all prefixes, and the mean
distance of nine quantiles' ranks from the requested ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np

from benchmarks.adaptive import (
    AMOUNTS,
    PRODUCTS,
    budget_unit,
    prefix_error,
    range_error,
    released_cells,
)
from benchmarks.harness import print_lines, regret_cells
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, ReleaseTerms, Share
from dptrees.pipelines.kinds.ordered import OrderedTree

COUNTS = {"optimize_for": "counts"}
# By what the tree is for: the keys of its section; ROWS: a right guess of the rows.
ROWS = "rows"
MECHANISMS: Mapping[str, Mapping[str, object]] = {
    "planned": {},
    "planned, guess": {"guess": ROWS},
    "whole levels, for estimates": {"optimize_for": "estimates"},
    "whole levels, for counts, guess": {**COUNTS, "guess": ROWS, "consistency": "shrunk"},
    "adaptive, for counts": {**COUNTS, "mechanism": "adaptive"},
    "adaptive, for counts, guess": {**COUNTS, "mechanism": "adaptive", "guess": ROWS},
}
READ = {"ranges": "ranges", "prefixes": "cdf", "nine quantiles": "quantiles"}
NINE = tuple(decile / 10 for decile in range(1, 10))


def make_shapes(cells: int) -> dict[str, list[Floats]]:
    """The part of the rows in each cell, four shapes a family; the last two are held out."""
    rng = np.random.default_rng(20)
    x = (np.arange(cells) + 0.5) / cells
    cell = np.arange(cells)

    def bump(middle: float, width: float) -> Floats:
        return np.asarray(np.exp(-(((x - middle) / width) ** 2) / 2) / width)

    def heaps(base: Floats, every: Mapping[int, float]) -> Floats:
        return base * (1 + sum(weight * (cell % step == 0) for step, weight in every.items()))

    def points(many: int, tail: float, rest: float) -> Floats:
        shape = np.full(cells, rest / cells)
        places = rng.choice(cells, min(many, cells), replace=False)
        weights = rng.pareto(tail, len(places)) + 0.1
        shape[places] += (1 - rest) * weights / weights.sum()
        return shape

    steps = [np.repeat(rng.gamma(0.7, 1, 64), -(-cells // 64))[:cells] for _ in range(2)]
    families = {
        "smooth": [bump(0.4, 0.1), x * np.exp(-12 * x), bump(0.6, 0.04), x**0.5 * (1 - x) ** 3],
        "heavy-tailed": [
            1 / (1 + 50 * x) ** 3,
            np.exp(-((np.log(x) + 2.5) ** 2)) / x,
            1 / (1.0 + cell) ** 1.1,
            1 / (1 + 300 * x) ** 1.5,
        ],
        "heaped": [
            heaps(bump(0.35, 0.18), {10: 2}),
            heaps(bump(0.4, 0.1), {50: 8, 10: 3}),
            heaps(np.exp(-20 * x), {15: 5}),
            np.where(cell % 48 == 0, bump(0.35, 0.18), 1e-6),
        ],
        "uniform": [
            np.ones(cells),
            np.where(x < 0.5, 1.0, 1e-6),
            np.where((x > 0.3) & (x < 0.37), 1.0, 1e-6),
            steps[0],
        ],
        "spiky": [points(40, 1.0, 0.1), points(12, 0.8, 0.2), points(100, 1.5, 0.3), steps[1] ** 3],
        "multimodal": [
            0.5 * bump(0.2, 0.01) + 0.3 * bump(0.5, 0.05) + 0.2 * bump(0.8, 0.002),
            bump(0.3, 0.03) + bump(0.7, 0.06),
            bump(0.1, 0.02) + bump(0.15, 0.02) + bump(0.9, 0.01),
            bump(0.25, 0.005) + 3 * bump(0.5, 0.2),
        ],
        "sparse": [points(*each, 0) for each in ((40, 1.0), (400, 2.0), (100, 0.7), (15, 3.0))],
    }
    return {name: [each / each.sum() for each in shapes] for name, shapes in families.items()}


@lru_cache(maxsize=256)
def plan(name: str, read: str, cells: int, measure: Measure, rows: int) -> Mechanism:
    """The mechanism that a configuration gets."""
    keys = dict(MECHANISMS[name])
    if keys.get("guess") == ROWS:
        keys["guess"] = {"rows": rows}
    if keys.get("mechanism") != "adaptive":
        keys["objective"] = READ[read]
    return make_mechanism(keys, NINE if read == "nine quantiles" else (), cells, measure)


def make_mechanism(
    keys: Mapping[str, object], quantiles: Sequence[float], cells: int, measure: Measure
) -> Mechanism:
    """The mechanism that a configuration of some quantiles gets."""
    section = {
        "name": "t",
        "domain": {"column": "x", "lower": 0, "upper": cells, "type": "integer"},
    }
    if quantiles:
        section["quantiles"] = [Decimal(str(each)) for each in quantiles]
    tree = OrderedTree.model_validate({**section, **keys})
    share = Share(budget=Budget(measure=measure, amount=AMOUNTS[measure]))
    return tree.workload().planned(share, ReleaseTerms(unit=ADD_REMOVE_ROW)).mechanism


def rank_error(counts: Floats, exact: Integers) -> float:
    """Mean distance of the requested ranks from the ranks of the released cells; at least a
    thousandth of a row, so that a quotient means something."""
    below, true = np.cumsum(counts, axis=1), np.cumsum(exact)
    distances = [0.001]
    for quantile in NINE:
        found = (below < quantile * below[:, -1:]).sum(axis=1).clip(0, exact.size - 1)
        rank = quantile * true[-1]
        first = np.where(found > 0, true[found - 1], 0)
        distances += np.maximum(0, np.maximum(first - rank, rank - true[found])).tolist()
    return math.fsum(distances) / (len(distances) - 1)


ERRORS: Mapping[str, Callable[[Floats, Integers], float]] = {
    "ranges": range_error,
    "prefixes": prefix_error,
    "nine quantiles": rank_error,
}


def measure_shape(
    shape: Floats, product: int, measure: Measure, releases: int, read: str
) -> dict[str, float]:
    """Return the error of each mechanism, in rows times the budget."""
    unit = budget_unit(Budget(measure=measure, amount=AMOUNTS[measure]))
    rows = round(product / unit)
    exact = np.random.default_rng([17, product]).multinomial(rows, shape).astype(np.int64)
    result = {}
    for name in MECHANISMS:
        mechanism = plan(name, read, exact.size, measure, rows)
        layout = ChunkLayout(keys=releases, chunk_leaves=max(exact.size, 2**17))
        counts = released_cells(mechanism.forest(layout), exact, "count")
        result[name] = unit * ERRORS[read](counts, exact)
    return result


def tables(cells: int, measure: Measure, releases: int) -> Iterator[str]:
    """One table for each thing that is read, of the shapes of the rules and of those held out."""
    families = make_shapes(cells)
    for held, part in (("shapes of the rules", slice(0, 2)), ("held out", slice(2, 4))):
        for read in READ:
            yield ""
            yield f"{read}, {held}: error in rows x budget; mean and worst regret"
            heads = (f"{cells} cells, {measure.value}", *(f"{each:,}" for each in PRODUCTS))
            yield f"| {' | '.join(heads)} |"
            yield "|---" * len(heads) + "|"
            found = {
                (family, product): [
                    measure_shape(shape, product, measure, releases, read) for shape in shapes[part]
                ]
                for family, shapes in families.items()
                for product in PRODUCTS
            }
            for name in MECHANISMS:
                yield f"| {name} | {regret_cells(found, name)} |"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, default=20)
    chosen = parser.parse_args()
    print_lines(tables(chosen.cells, Measure(chosen.measure), chosen.releases))


if __name__ == "__main__":
    main()
