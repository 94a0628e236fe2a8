"""Errors by default, of peers, and of the best in hindsight, on families no rule was tuned on.

    python -m benchmarks.peers means|quantiles|tables [--releases 20]

Run ``make peers peers-dpmm`` first. A line has the family, what the error depends on, our error,
the peer's and the best in hindsight, each with its standard error over releases (seeds 0, 1, ...
where a package takes one), and last the number of releases.

- means: the root mean square error of a mean in percent of the mean at epsilon 1, by n. Both bounds
  are `auto`; PyDP's BoundedMean has no bounds; the best are the bounds in hindsight, with the whole
  budget. OpenDP chooses no bounds. ``lost`` is the part of releases that a side refuses.
- quantiles: the mean distance of the requested ranks from the ranks of the released cells, in rows
  times epsilon .1, by n epsilon, by default and with `optimize_for: quantiles`: a geometric mean
  (of .01 more) over the held-out families of `benchmarks.quantiles`. OpenDP has a
  `make_private_quantile` over the cells for each; the best is our closest plan on a family.
- tables: the mean total variation of all pairs of columns between rows and synthetic rows, by
  epsilon; AIM and MST by dpmm at delta 1e-9, two releases with 200 iterations and, of AIM, two
  rounds a column and 8 MB (more take minutes). The best is the closer of our table and of columns
  that are measured alone.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dptrees
from benchmarks.accuracy.cases import Case, DataSet, Privacy
from benchmarks.accuracy.packages import PYTHON, Packages
from benchmarks.harness import PROJECT
from benchmarks.quantiles import EPSILON, PLANS, even, question, rank_errors, released, shapes
from benchmarks.wide_tables import alone, counted, distance, source_under
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.plan import MarginalsPlan, TableShape
from dptrees.dpcore.tables.question import measure_tables

DPMM = PROJECT / "build" / "peers-dpmm" / "bin" / "python"
# Of quantiles: what a configuration gets by default, with `optimize_for: quantiles`, and others.
TRIED = ("default", "quantiles", "guess", "whole levels")
VALUES: Mapping[str, Any] = {
    "Fisk 2": lambda rng, n: 500 * (1 / np.maximum(rng.random(n), 1e-9) - 1) ** 0.5,
    "temperatures": lambda rng, n: rng.normal(9, 8, n),
    "fares": lambda rng, n: 2.5 + rng.gamma(1.3, 9, n) + 40 * (rng.random(n) < 0.03),
    "inverse Gaussian": lambda rng, n: rng.wald(120, 90, n),
}


def peer(python: Path, rows: Any, **request: Any) -> Any:
    """What a peer answers."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "rows.npy"), rows)
        Path(folder, "request.json").write_text(json.dumps(request), encoding="utf-8")
        program = str(Path(__file__).with_name("peer_releases.py"))
        subprocess.run([str(python), program, folder], check=True, stderr=subprocess.DEVNULL)
        return np.load(Path(folder, "answers.npy"))


def mean(found: Sequence[float] | Floats) -> str:
    """A mean and its standard error."""
    return f"{np.mean(found):.4g} ± {np.std(found, ddof=1) / math.sqrt(len(found)):.2g}"


# --- means ---


def root(found: Sequence[float] | Floats, truth: float) -> str:
    """A root mean square in percent of a mean, its standard error, and the part that is lost."""
    kept = np.array(found, float)
    kept = kept[~np.isnan(kept)]
    lost = f", lost {1 - len(kept) / len(found):.0%}" if len(kept) < len(found) else ""
    if len(kept) < 2:
        return "all lost"
    squares = (100 * (kept / truth - 1)) ** 2
    error = math.sqrt(squares.mean())
    return f"{error:.3g} ± {squares.std(ddof=1) / math.sqrt(len(kept)) / 2 / error:.2g}{lost}"


def our_mean(rows: pa.Table) -> float:
    """A mean with chosen bounds; not a number: refused, as too few rows."""
    try:
        answer = dptrees.of(rows, epsilon=1).mean("x", ("auto", "auto")).release()["x"].mean()
    except dptrees.Error:
        return math.nan
    return float(answer.value)


def best_mean(values: Floats) -> str:
    """The error with the best bounds, at no cost; what both sides move does not cancel."""
    n, truth, found = len(values), float(values.mean()), []
    places = np.unique([0, *np.geomspace(1, n / 2, 40).round().astype(int)])
    for lower in {0.0, *values[places].tolist()}:
        for upper in {0.0, *values[n - 1 - places].tolist()}:
            if lower < upper:
                middle = float(values.clip(lower, upper).mean())
                moved = float(np.abs(values.clip(lower, upper) - values).mean())
                noise = math.sqrt(2) / n * math.hypot(middle - lower, upper - middle)
                found.append(math.hypot(moved, noise))
    return f"{100 * min(found) / abs(truth):.3g}"


def mean_lines(chosen: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Lines of means."""
    yield "values; n", "dptrees", "PyDP", "best bounds"
    for name, draw in VALUES.items():
        for n in chosen.products or (1_000, 10_000):
            values = np.sort(draw(np.random.default_rng([n, *name.encode()]), n).round(2))
            rows, truth = pa.table({"x": values}), float(values.mean())
            ours = [our_mean(rows) for _ in range(chosen.releases)]
            theirs = peer(PYTHON, values, method="PyDP", epsilon=1.0, releases=chosen.releases)
            yield f"{name}; {n:,}", root(ours, truth), root(theirs, truth), best_mean(values)


# --- quantiles ---


@dataclass(frozen=True, kw_only=True)
class Even(Case):
    """A case of any number of evenly spread quantiles."""

    @property
    def quantiles(self) -> tuple[Fraction, ...]:
        """Quantiles that a method has to name."""
        number = self.quantile_count
        return tuple(Fraction(each, number + 1) for each in range(1, number + 1))


def quantile_lines(chosen: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Lines of quantiles: each a geometric mean of (.01 more than) the errors of families."""
    yield "quantiles; n epsilon", "dptrees", "`optimize_for`", "OpenDP", "best of ours"
    packages, scale = Packages(PYTHON), float(EPSILON)
    for number in chosen.quantiles:
        for product in chosen.products or (100, 1_000, 10_000):
            found = []
            for name, shape in shapes()["held out"].items():
                case = Even(
                    data=DataSet(name=name, group="4096", shape=shape),
                    rows=round(product / EPSILON),
                    privacy=Privacy(measure="epsilon", amount=str(scale)),
                    quantile_count=number,
                )
                truth, plans = case.counts, []
                for plan in TRIED:
                    tree = question(PLANS[plan], even(number), case.rows)
                    cells = released(tree, truth, chosen.releases)[0]
                    plans.append(scale * rank_errors(cells, even(number), truth) + 0.01)
                answers = packages.run("OpenDP, quantiles", case, range(chosen.releases))
                cells = np.array([[*each[""].quantiles.values()] for each in answers])
                theirs = scale * rank_errors(cells, even(number), truth) + 0.01
                best = min(plans, key=lambda each: float(each.mean()))
                found.append([*plans[:2], theirs, best])
            yield f"{number}; {product:,}", *(geometric(each) for each in zip(*found, strict=True))


def geometric(found: Sequence[Floats]) -> str:
    """The geometric mean of the means of families, and its standard error."""
    means = np.array([each.mean() for each in found])
    errors = [each.std(ddof=1) / math.sqrt(len(each)) / each.mean() for each in found]
    middle = math.exp(np.log(means).mean())
    return f"{middle:.3g} ± {middle * math.hypot(*errors) / len(errors):.2g}"


# --- tables ---


def made_tables() -> Iterator[tuple[str, TableShape, list[Integers]]]:
    """Families of ten thousand rows: a tree of columns, a score with a target, correlated steps."""
    rng, rows = np.random.default_rng(48), 10_000
    sizes = (6, 4, 8, 5, 3, 10, 2, 7)
    tree = [rng.integers(0, sizes[0], rows)]
    for place, size in enumerate(sizes[1:], 1):
        above = rng.integers(0, place)
        laws = rng.dirichlet(np.full(size, 0.6), sizes[above]).cumsum(axis=1)
        tree.append((rng.random(rows)[:, None] > laws[tree[above]]).sum(axis=1).clip(0, size - 1))
    yield "tree", generated_shape(sizes, ordered=False), tree
    parts = [rng.integers(0, 8, rows) for _ in range(8)]
    odds = sum((place % 3 - 1) * (each - 3.5) for place, each in enumerate(parts)) / 2
    target = (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    yield "score", generated_shape((*(8,) * 8, 2), ordered=True), [*parts, target]
    shared = rng.normal(0, 1, (rows, 3)) @ rng.normal(0, 1, (3, 10))
    steps = np.floor(8 + 2 * (shared + rng.normal(0, 1, (rows, 10)))).clip(0, 15)
    yield "factors", generated_shape((16,) * 10, ordered=True), list(steps.astype(np.int64).T)


def generated_shape(sizes: tuple[int, ...], *, ordered: bool) -> TableShape:
    """Columns that are all of one kind."""
    return TableShape(sizes=sizes, ordered=(ordered,) * len(sizes))


def variation(shape: TableShape, counts: Integers, rows: Integers) -> float:
    """Mean total variation of all pairs."""
    off = np.abs(counts - counted(shape, list(rows.T)))
    total = float(np.mean([off[shape.pair_slice(*pair)].sum() for pair in shape.pairs]))
    return total / 2 / len(rows)


def table_lines(chosen: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Lines of wide tables."""
    yield "table; epsilon", "dptrees", "AIM", "MST", "best of ours and of columns alone"
    for name, shape, columns in made_tables():
        counts, rows = counted(shape, columns), len(columns[0])
        for epsilon in (0.1, 1.0):
            budget = Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))
            plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget)
            found: list[list[float]] = [[], []]
            for number in range(chosen.releases):
                source = source_under(ReleaseKey(number.to_bytes(32, "big")))
                ways = measure_tables(counts, plan, source, "t"), alone(plan, counts, source)
                for kept, each in zip(found, ways, strict=True):
                    kept.append(distance(shape, counts, each, rows))
            cells = [mean(found[0])]
            for method in ("AIM", "MST"):
                answers = peer(
                    DPMM,
                    np.stack(columns, axis=1),
                    method=method,
                    epsilon=epsilon,
                    sizes=shape.sizes,
                    releases=min(2, chosen.releases),
                )
                cells.append(mean([variation(shape, counts, each) for each in answers]))
            yield f"{name}; {epsilon:g}", *cells, mean(min(found, key=lambda each: sum(each)))


LINES = {"means": mean_lines, "quantiles": quantile_lines, "tables": table_lines}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subject", choices=list(LINES))
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--products", type=int, nargs="+", help="n, or n epsilon")
    parser.add_argument("--quantiles", type=int, nargs="+", default=[1, 3, 7, 9])
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*releases of these rows")
    for place, line in enumerate(LINES[chosen.subject](chosen)):
        head = place == 0
        print(
            f"| {' | '.join([*line, 'releases' if head else str(chosen.releases)])} |", flush=True
        )
        if head:
            print("|---|" + "---:|" * len(line), flush=True)


if __name__ == "__main__":
    main()
