"""Chosen bounds against the best bound: how much larger the error of a release is, in Markdown.

    python -m benchmarks.auto_bounds

For each population of units the law of the chosen bound is exact (no release is made), and the
error of a release with a bound t is that of an average prefix: the root of the squares of its noise
(c t, with c as `dptrees plan` predicts it for a tree of 200 cells) and of what it loses of the rows
that are left out (B(t) / sqrt(3), where values do not depend on the unit). The mean error of the
chosen bound is divided by the error of the best bound of all, which is known from the exact counts
and has the whole budget. The rule was chosen on the populations above the first mean; those below
it took no part. "plan --units" is the bound that is recommended from a noisy release of the numbers
of rows of units, which spends an epsilon of 0.1 beside the release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.choices.unit_bounds import BoundPlan, BoundQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import CDF
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.pipelines.config.configuration import Configuration, parse_configuration
from dptrees.pipelines.report.planning import UnitNumbers
from dptrees.pipelines.sections.first_stages import tolerated_units

AT_MOST, MOST_SEEN = 10_000, 500
UNITS = 20_000
RELEASES = 5

CONFIG = """
release: bounds
input: {{format: csv, path: rows.csv}}
output: out/bounds
key_file: release.key
privacy: {{{budget}, neighbors: add_remove, unit: unit, max_rows: {bound}}}
trees:
  - {{name: value, domain: {{column: value, type: integer, lower: 0, upper: 1000, cells: 200}}}}
"""
UNITS_CONFIG = f"""
release: units
input: {{format: csv, path: rows.csv}}
output: out/units
key_file: release.key
privacy: {{epsilon: 0.1, neighbors: add_remove, unit: unit, max_rows: 1}}
trees:
  - name: units
    domain: {{type: unit_rows, column: unit, most: {MOST_SEEN}}}
    objective: quantiles
    quantiles: [0.5, 0.9, 0.99]
"""
Draw = Callable[[np.random.Generator, int], Integers]

FIRST: dict[str, Draw] = {
    "lognormal (1, 0.5)": lambda rng, n: np.ceil(rng.lognormal(1, 0.5, n)).astype(np.int64),
    "lognormal (2, 1.5)": lambda rng, n: np.ceil(rng.lognormal(2, 1.5, n)).astype(np.int64),
    "lognormal (3, 1)": lambda rng, n: np.ceil(rng.lognormal(3, 1, n)).astype(np.int64),
    "zipf 2": lambda rng, n: rng.zipf(2.0, n),
    "zipf 2.5": lambda rng, n: rng.zipf(2.5, n),
    "zipf 3.5": lambda rng, n: rng.zipf(3.5, n),
    "geometric, mean 10": lambda rng, n: rng.geometric(0.1, n),
    "geometric, mean 50": lambda rng, n: rng.geometric(0.02, n),
    "95 % mean 2, 5 % mean 100": lambda rng, n: np.where(
        rng.random(n) < 0.95, rng.geometric(0.5, n), rng.geometric(0.01, n)
    ),
    "uniform to 100": lambda rng, n: rng.integers(1, 101, n),
    "20 each": lambda rng, n: np.full(n, 20),
}
LATER: dict[str, Draw] = {
    "Pareto 1.2 to 200": lambda rng, n: np.minimum(rng.pareto(1.2, n) + 1, 200).astype(np.int64),
    "Weibull 0.5, scale 10": lambda rng, n: np.ceil(10 * rng.weibull(0.5, n) + 1e-9).astype(
        np.int64
    ),
    "negative binomial 0.3, mean 15": lambda rng, n: 1 + rng.negative_binomial(0.3, 0.02, n),
    "log-logistic 1.8, scale 8": lambda rng, n: np.ceil(
        8 * (1 / np.maximum(rng.random(n), 1e-9) - 1) ** (1 / 1.8) + 1e-9
    ).astype(np.int64),
    "Poisson 30": lambda rng, n: np.maximum(rng.poisson(30, n), 1),
}
BUDGETS = ("epsilon: 1", "epsilon: 0.1", "rho: 0.1")
SHARES = (0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Population:
    """Units with their numbers of rows.

    Attributes:
        rows: (units,)
        lost: (AT_MOST + 1,) the rows that a bound of 0, 1, ... leaves out.
    """

    rows: Integers
    lost: Floats

    @classmethod
    def from_rows(cls, rows: Integers) -> Population:
        """Sum what each bound leaves out."""
        capped = np.minimum(rows, AT_MOST)
        with_more = len(rows) - np.cumsum(np.bincount(capped, minlength=AT_MOST + 1))
        beyond = float((rows - capped).sum())
        lost = np.append(np.cumsum(with_more[:-1][::-1])[::-1], 0) + beyond
        return cls(rows=rows, lost=lost.astype(np.float64))

    def errors(self, error: float) -> Floats:
        """(AT_MOST + 1,) the error of each bound, where that of one row is given."""
        result: Floats = np.hypot(self.lost / math.sqrt(3), error * np.arange(AT_MOST + 1))
        return result


@lru_cache
def configured(budget: str, bound: str) -> Configuration:
    """The release whose bound is chosen."""
    return parse_configuration(CONFIG.format(budget=budget, bound=bound))


def choice_of(configuration: Configuration) -> BoundPlan:
    """The plan of its choice."""
    bounds = configuration.bounds
    assert bounds is not None
    (question,) = bounds.plan.questions
    assert isinstance(question, BoundQuestion)
    return question.plan


def chosen_ratio(population: Population, budget: str, share: float) -> float:
    """The mean error of the chosen bound, beside that of the best one with the whole budget."""
    chosen = configured(budget, f"{{fraction: {share}, at_most: {AT_MOST}}}")
    plan, error = choice_of(chosen), chosen.error_of_one_row
    counts = np.bincount(plan.cell_ids(population.rows), minlength=plan.cells)
    law = np.array([float(each) for each in plan.probabilities(counts)])
    best = population.errors(configured(budget, "1").error_of_one_row)[1:].min()
    return float((law * population.errors(error)[list(plan.sizes)]).sum() / best)


@lru_cache
def units_plan() -> ReleasePlan:
    """The release of the numbers of rows of units."""
    return parse_configuration(UNITS_CONFIG).plan()


def recommended_ratio(population: Population, generator: np.random.Generator) -> float:
    """The mean error of the bound that is recommended from noisy numbers, beside the best."""
    error = configured("epsilon: 1", "1").error_of_one_row
    errors, ratios, plan = population.errors(error), [], units_plan()
    cells = np.minimum(population.rows, MOST_SEEN) - 1
    counts = {"units": np.bincount(cells, minlength=MOST_SEEN)}
    for _ in range(RELEASES):
        release = release_counts(plan, counts, ReleaseKey(generator.bytes(32)))
        parts = [each for each in plan.questions[0].parts() if each.kind == CDF]
        tables = [release._read(CDF, each.tree, each.key, each.index) for each in parts]
        units = UnitNumbers.from_table(pa.concat_tables(tables))
        bound = units.recommended(float(tolerated_units(error)))
        ratios.append(errors[bound] / errors[1:].min())
    return float(np.mean(ratios))


def table() -> Iterator[str]:
    """The lines of the table."""
    columns = [f"{budget}, share {share}" for budget in BUDGETS for share in SHARES]
    yield f"| rows of a unit | best bound | {' | '.join(columns)} | plan --units |"
    yield "|---|---:|" + "---:|" * (len(columns) + 1)
    generator = np.random.default_rng(28)
    for name, families in (("mean", FIRST), ("mean of those that took no part", LATER)):
        found = []
        for family, draw in families.items():
            population = Population.from_rows(draw(generator, UNITS))
            ratios = [
                chosen_ratio(population, budget, share) for budget in BUDGETS for share in SHARES
            ]
            ratios.append(recommended_ratio(population, generator))
            best = population.errors(configured("epsilon: 1", "1").error_of_one_row)
            found.append(ratios)
            yield f"| {family} | {int(best[1:].argmin()) + 1} | {_cells(ratios)} |"
        means = np.mean(found, axis=0).tolist()
        yield f"| **{name}** | | {_cells(means)} |"


def _cells(ratios: list[float]) -> str:
    return " | ".join(f"{each:.2f}" for each in ratios)


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
