"""How often intervals of quantiles hold, and how wide they are, on public shapes of data.

    python -m benchmarks.quantile_intervals [--cells 4096] [--measure epsilon] [--releases 160]
        [--plans NAME ...] [--quantiles N ...] [--write docs/quantiles.md]

measures 95 % intervals on the shapes of `benchmarks.regret`: seven families of four shapes, at
several numbers of rows times the budget. For each way of planning and each number of quantiles it
prints, over the shapes: the part of the intervals that hold the quantile of the rows, its mean and
the least of a shape; and their width in values beside that of the intervals of before, which take
the limits of prefixes as they are (geometric mean). Of 99 quantiles every tenth is looked at.

The least part is of RELEASES releases divided by the quantiles, at least 20. Of 160 intervals its
standard error is .017 at 95 %, so the least of 28 shapes would be .91 on the average if each shape
held exactly as stated; intervals of one release are not independent, which makes it less.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.adaptive import AMOUNTS, PRODUCTS
from benchmarks.quantiles import even_quantiles
from benchmarks.regret import make_shapes
from dptrees.dpcore.adaptive.widths import AdaptiveWidths
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.factorised.widths import NormalWidths
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.quantiles import QuantileCells, Totals, chunk_quantiles
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.uniform.widths import IntervalWidths
from dptrees.pipelines.ordered.section import OrderedTree

CONFIDENCE = 0.95
NUMBERS = (1, 3, 9, 99)
QUANTILES = {"objective": "quantiles"}
WHOLE = {**QUANTILES, "consistency": "top_down"}
PLANS: Mapping[Measure, Mapping[str, Mapping[str, object]]] = {
    Measure.EPSILON: {
        "whole levels": WHOLE,
        "adaptive, averaged": {**QUANTILES, "for": "counts"},
        "adaptive": {"mechanism": "adaptive"},
    },
    Measure.RHO: {
        "whole levels": WHOLE,
        "adaptive": {"mechanism": "adaptive"},
        "matrix mechanism": {"mechanism": "factorised"},
    },
}
BEGIN, END = "<!-- intervals: begin -->\n", "<!-- intervals: end -->\n"


class Measured(NamedTuple):
    """The intervals of one shape: which hold, and their widths over the widths of before."""

    held: Flags
    ratio: Floats


def make_mechanism(
    keys: Mapping[str, object], quantiles: tuple[float, ...], cells: int, measure: Measure
) -> Mechanism[Any, Any]:
    """The mechanism that a configuration gets."""
    section = OrderedTree.model_validate(
        {
            "name": "t",
            "domain": {"column": "x", "lower": 0, "upper": cells, "type": "integer"},
            "quantiles": [Decimal(str(each)) for each in quantiles],
            **keys,
        }
    )
    share = Share(budget=Budget(measure=measure, amount=AMOUNTS[measure]))
    mechanism: Mechanism[Any, Any] = (
        section.workload().planned(share, ReleaseTerms(unit=ADD_REMOVE_ROW)).mechanism
    )
    return mechanism


def widths_of_before(widths: Any) -> Any:
    """The widths that a plan of an earlier version has."""
    if isinstance(widths, NormalWidths):
        return replace(widths, closer=False)
    assert isinstance(widths, (IntervalWidths, AdaptiveWidths))
    return replace(widths, quantile=None)


def measure_shape(
    mechanism: Mechanism[Any, Any], quantiles: tuple[float, ...], exact: Integers, releases: int
) -> Measured:
    """Measure the intervals of all quantiles, in some releases of the same counts."""
    cells, widths = exact.size, mechanism.widths(CONFIDENCE)
    forest = mechanism.forest(ChunkLayout(keys=releases, chunk_leaves=2**17))
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="intervals", spec_digest=b"", global_digest=b""
    )
    rules = [mechanism.intervals(forest, each) for each in (widths, widths_of_before(widths))]
    upto = np.cumsum(exact)
    ranks = [max(1, math.ceil(each * upto[-1] - 1e-9)) for each in quantiles]
    true = np.searchsorted(upto, ranks)
    held, ratios = [], []
    for chunk in forest.chunking:
        counts = np.tile(exact, chunk.rows)
        measured = forest.measure("t", chunk, counts, noise)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, counts)
        solved, _ = forest.solve_spine("t", chunk.key, roots, totals, noise)
        levels, prefixes = forest.solve(chunk, measured, solved)
        solved = solved.with_counts(levels[0])
        all_rows = Totals(count=solved.total_count, before_count=solved.before_count)
        now, before = (
            chunk_quantiles(
                quantiles,
                prefixes.count,
                all_rows,
                first_leaf=0,
                leaves=cells,
                ends=rule.differences(prefixes, solved),
            )
            for rule in rules
        )
        held.append((now.low <= true) & (true <= now.high))
        ratios.append(_width(now) / _width(before))
    return Measured(np.concatenate(held), np.concatenate(ratios))


def _width(cells: QuantileCells) -> Floats:
    return np.asarray(np.maximum(cells.high - cells.low, 0) + 1.0)


def lines(
    cells: int, measure: Measure, releases: int, plans: list[str], numbers: list[int]
) -> Iterator[str]:
    """The table, in Markdown."""
    amount = float(AMOUNTS[measure])
    unit = amount if measure is Measure.EPSILON else math.sqrt(2 * amount)
    heads = ("plan", "quantiles", *(f"{each:,}" for each in PRODUCTS))
    yield f"| {' | '.join(heads)} |"
    yield "|---|---:" + "|---" * len(PRODUCTS) + "|"
    shapes = {
        (family, place): shape
        for family, each in make_shapes(cells).items()
        for place, shape in enumerate(each)
    }
    for name in plans:
        keys = PLANS[measure][name]
        for number in numbers:
            every = even_quantiles(number)
            looked_at = every if number < 99 else every[4::10]
            mechanism = make_mechanism(keys, every, cells, measure)
            row = []
            for product in PRODUCTS:
                rng = np.random.default_rng([17, product])
                found = {
                    key: measure_shape(
                        mechanism,
                        looked_at,
                        rng.multinomial(round(product / unit), shape).astype(np.int64),
                        max(20, releases // len(looked_at)),
                    )
                    for key, shape in shapes.items()
                }
                parts = {key: float(each.held.mean()) for key, each in found.items()}
                ratio = np.mean([np.log(each.ratio).mean() for each in found.values()])
                least = min(parts, key=lambda key: parts[key])
                row.append(
                    f"{np.mean(list(parts.values())):.3f}, {parts[least]:.3f} ({least[0]}); "
                    f"{math.exp(float(ratio)):.2f}"
                )
            yield f"| {name} | {number} | " + " | ".join(row) + " |"


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, default=160, help="of one quantile")
    parser.add_argument("--plans", nargs="+", help="some of the names in the first column")
    parser.add_argument("--quantiles", type=int, nargs="+", default=NUMBERS)
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the marks")
    chosen = parser.parse_args()
    table = []
    measure = Measure(chosen.measure)
    plans = chosen.plans or list(PLANS[measure])
    for line in lines(chosen.cells, measure, chosen.releases, plans, chosen.quantiles):
        print(line, flush=True)
        table.append(f"{line}\n")
    if chosen.write is not None:
        before, _, rest = chosen.write.read_text(encoding="utf-8").partition(BEGIN)
        page = before + BEGIN + "\n" + "".join(table) + "\n" + END + rest.partition(END)[2]
        chosen.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
