"""Regret of the default for ranges and prefixes of one ordered column, on public shapes of data.

    python -m benchmarks.regret [--cells 4096] [--releases 20] [--families spiky,sparse]

Measures the counts of the mechanism that a configuration gets by default, and of the project's
other mechanisms, at several numbers of rows times epsilon. The *regret* of the default is its error
over the least of all mechanisms for the same shape and rows. Each line has, for one family of
shapes and each number of rows, the default's error in rows times epsilon and its regret, geometric
means over the family's shapes. The last lines have the means over families with their standard
errors, and the worst regret of a single shape. Two shapes of each family were used to find the
rules of the planner. The two others took no part, nor did the families of "held out".
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, Setting
from dptrees.pipelines.kinds.ordered import OrderedTree

EPSILON = Fraction(1, 10)
PRODUCTS = (100, 1_000, 10_000, 100_000)
ROWS = "rows"  # means a right guess of the rows
COUNTS = {"optimize_for": "counts"}
MECHANISMS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "whole levels": {**COUNTS, "guess": ROWS, "consistency": "shrunk"},
    "whole levels, top_down": {**COUNTS, "guess": ROWS, "consistency": "top_down"},
    "adaptive, shrunk": {**COUNTS, "mechanism": "adaptive", "consistency": "shrunk"},
    "adaptive, guess": {**COUNTS, "guess": ROWS, "mechanism": "adaptive"},
    "whole levels for estimates": {"optimize_for": "estimates"},
}
READ = {"ranges": "ranges", "prefixes": "cdf"}
HELD_OUT = ("one spike", "shuffled", "walk")


def make_shapes(cells: int) -> dict[str, list[Floats]]:
    """The part of the rows in each cell, four shapes a family."""
    rng = np.random.default_rng(20)
    x, cell = (np.arange(cells) + 0.5) / cells, np.arange(cells)

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

    def spike(place: int, part: float, rest: Floats) -> Floats:
        return (1 - part) * rest / rest.sum() + part * (cell == place)

    def walk(step: float, noise: float, zero: float) -> Floats:
        shape = np.exp(np.cumsum(rng.normal(0, step, cells))) * rng.lognormal(0, noise, cells)
        return np.asarray(shape * (rng.random(cells) >= zero))

    steps = [np.repeat(rng.gamma(0.7, 1, 64), -(-cells // 64))[:cells] for _ in range(2)]
    ripples = [bump(each / 10, 0.004) for each in (2, 5, 8)]
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
        "one spike": [
            spike(0, 0.95, points(300, 1.0, 0) * (x > 0.3) * (x < 0.6)),
            spike(100, 0.9, points(120, 1.5, 0)),
            spike(0, 0.8, bump(0.4, 0.2)),
            spike(cells // 2, 0.97, points(60, 0.8, 0)),
        ],
        "shuffled": [rng.permutation(1 / (1.0 + cell) ** each) for each in (0.7, 1.1, 1.6, 2.2)],
        "walk": [
            walk(0.03, 0.5, 0.2),
            walk(0.05, 1.0, 0.5),
            walk(0.02, 0.3, 0),
            sum(ripples) + 1e-3,
        ],
    }
    return {name: [each / each.sum() for each in shapes] for name, shapes in families.items()}


@lru_cache(maxsize=256)
def plan(name: str, read: str, cells: int, rows: int) -> Mechanism:
    """The mechanism that a configuration gets."""
    keys = dict(MECHANISMS[name])
    if keys.get("guess") == ROWS:
        keys["guess"] = {"rows": rows}
    if keys.get("mechanism") != "adaptive":
        keys["objective"] = READ[read]
    domain = {"column": "x", "lower": 0, "upper": cells, "type": "integer"}
    tree = OrderedTree.model_validate({"name": "t", "domain": domain, **keys})
    budget = Budget(measure=Measure.EPSILON, amount=EPSILON)
    workload = tree.workload().under(Measure.EPSILON, delta=False)
    return workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget)).mechanism


def released_cells(mechanism: Mechanism, counts: Integers, releases: int) -> Floats:
    """(releases, cells) counts of each cell, by a key that everybody knows."""
    layout = ChunkLayout(keys=releases, chunk_leaves=max(counts.size, 2**17))
    forest, found = mechanism.forest(layout), []
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="regret", spec_digest=b"", global_digest=b""
    )
    for chunk in forest.chunking:
        exact = np.tile(counts, chunk.rows)
        measured = forest.measure("t", chunk, exact, noise)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
        solved, _ = forest.solve_spine("t", chunk.key, roots, totals, noise)
        found.append(np.asarray(forest.solve(chunk, measured, solved)[0][-1].count, np.float64))
    return np.concatenate(found).reshape(releases, -1)


def range_error(cells: Floats, exact: Integers) -> float:
    """Root mean square over 2,000 ranges and all releases."""
    prefixes = np.cumsum(np.pad(cells - exact, ((0, 0), (1, 0))), axis=1)
    ends = np.sort(np.random.default_rng(3).integers(0, exact.size + 1, (2, 2_000)), axis=0)
    return math.sqrt(float(np.mean(np.square(prefixes[:, ends[1]] - prefixes[:, ends[0]]))))


def prefix_error(cells: Floats, exact: Integers) -> float:
    """Root mean square over all prefixes and releases."""
    return math.sqrt(float(np.mean(np.square(np.cumsum(cells - exact, axis=1)))))


ERRORS: Mapping[str, Callable[[Floats, Integers], float]] = {
    "ranges": range_error,
    "prefixes": prefix_error,
}


def measure_shape(shape: Floats, product: int, releases: int, read: str) -> dict[str, float]:
    """Return the error of each mechanism, in rows times epsilon."""
    rows = round(product / float(EPSILON))
    exact = np.random.default_rng([17, product]).multinomial(rows, shape).astype(np.int64)
    return {
        name: float(EPSILON)
        * ERRORS[read](released_cells(plan(name, read, exact.size, rows), exact, releases), exact)
        for name in MECHANISMS
    }


def means(values: Sequence[float]) -> str:
    """The geometric mean, with its standard error over the values in percent."""
    logs = np.log(values)
    error = 100 * float(np.std(logs, ddof=1)) / math.sqrt(len(values))
    return f"{math.exp(float(np.mean(logs))):.3g} +- {error:.0f} %"


def lines(cells: int, releases: int, wanted: Sequence[str], read: str) -> Iterator[str]:
    """The tables of what is read."""
    yield f"{read}, {cells} cells: error of the default in rows x epsilon; regret; the best"
    every: dict[tuple[bool, int], list[dict[str, float]]] = {}
    for family, shapes in make_shapes(cells).items():
        if wanted and family not in wanted:
            continue
        parts = []
        for product in PRODUCTS:
            found = [measure_shape(shape, product, releases, read) for shape in shapes]
            for place, each in enumerate(found):
                held = place > 1 or family in HELD_OUT
                every.setdefault((held, product), []).append(each)
            error, regret = (
                math.exp(float(np.mean(np.log([of(each) for each in found]))))
                for of in (lambda e: e["default"], lambda e: e["default"] / min(e.values()))
            )
            parts.append(f"{error:.3g}; {regret:.2f}")
        yield f"| {family} | {' | '.join(parts)} |"
    for held in (False, True):
        for name in MECHANISMS:
            if any(key[0] is held for key in every):
                texts = [means([e[name] for e in every[held, each]]) for each in PRODUCTS]
                yield f"| {'held out' if held else 'of the rules'}: {name} | {' | '.join(texts)} |"
        texts = []
        for each in PRODUCTS:
            regrets = [e["default"] / min(e.values()) for e in every.get((held, each), [])]
            texts.append(f"{means(regrets)}, worst {max(regrets):.2f}" if regrets else "")
        yield f"| {'held out' if held else 'of the rules'}: regret | {' | '.join(texts)} |"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--families", type=lambda text: text.split(","), default=())
    chosen = parser.parse_args()
    for read in READ:
        for line in lines(chosen.cells, chosen.releases, chosen.families, read):
            print(line, flush=True)


if __name__ == "__main__":
    main()
