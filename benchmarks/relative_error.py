"""Which mechanism is best for errors relative to the counts: predicted, and for some rows measured.

    python -m benchmarks.relative_error [--releases 10]

Every candidate of `dpcore.levels.relative_errors` at epsilon = 1, add_remove: the Laplace and
the Gaussian tree, least squares on either (the better of an equal and of the best split of the
budget; above 24 levels Laplace's equal split alone), and counts between thresholds (Ghazi et al.,
calibrated). Errors are in rows.

- The smallest threshold of the paper's constants, and the bound of a calibrated plan beside it.
- The worst case over the counts (alpha-mRMSE) by shape, alpha, delta and M, the most rows of a
  tree. "binary 12" has 2^12 leaves at level 12; "comb 32" has 33 leaves, one ending at every level
  from 1 to 31 and two at 32. In the worst case alpha matters for thresholds only.
- The same by alpha near 1, where thresholds come to win, and by depth, beside the Gaussian tree.
- The mean error (alpha-RMSE over the nodes of a level, then over the levels) for a public guess, N
  rows spread evenly over a binary tree, where thresholds take M = 10 N.

For thresholds the figures are upper bounds; "measured" is a simulation of thresholds, with its
standard error: the largest error of any node over hard data sets, or the mean for the guess.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np

from benchmarks.harness import print_lines
from benchmarks.papers.relative_estimation import smallest_threshold
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.levels.relative_errors import (
    RelativeObjective,
    noise_candidates,
    threshold_candidate,
)
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.thresholds.forest import finding_rounds
from dptrees.dpcore.thresholds.plan import ThresholdPlan
from dptrees.dpcore.trees.shapes import IrregularTree

EPSILON = Fraction(1)
RELEASES = 10
# The width of a line's first column.
HEAD = 42
# Shape, alpha, digits of delta, the most rows, and whether thresholds are measured too.
WORST = (
    ("binary 4", 0.5, 6, 10**4, True),
    ("binary 8", 0.5, 6, 10**4, True),
    ("binary 12", 0.5, 6, 10**4, False),
    ("binary 14", 0.5, 6, 10**4, False),
    ("comb 32", 0.5, 6, 10**4, True),
    ("binary 8", 0.5, 6, 10**2, True),
    ("binary 8", 0.5, 6, 10**3, True),
    ("binary 8", 0.5, 6, MAX_COUNT, False),
    ("binary 8", 0.5, 3, 10**4, True),
    ("binary 8", 0.5, 9, 10**4, True),
    ("binary 8", 0.1, 6, 10**4, True),
    ("binary 8", 0.9, 6, 10**4, True),
    ("binary 8", 0.99, 6, 10**4, True),
    ("comb 32", 0.9, 6, 10**4, True),
    ("comb 32", 0.99, 6, 10**4, False),
)
NEAR_ONE = ("binary 8", "binary 12", "comb 32")
ALPHAS = (0.9, 0.95, 0.96, 0.97, 0.98, 0.99)
DEPTHS = (32, 64, 128, 256, 512, 1024, 2048)
# Level, alpha, digits of delta, rows.
GUESSED = (
    (6, 0.1, 6, 10**3),
    (6, 0.5, 6, 10**3),
    (6, 0.9, 6, 10**3),
    (6, 0.99, 6, 10**3),
    (6, 0.5, 6, 10**5),
    (8, 0.5, 6, 10**3),
    (8, 0.5, 3, 10**3),
)
COLUMNS = ("Laplace tree", "Gaussian tree", "LS, Laplace", "LS, Gaussian", "thresholds")


@lru_cache
def shape(name: str) -> IrregularTree:
    """A tree by its name."""
    kind, levels = name.split()
    height = int(levels)
    if kind == "comb":
        return IrregularTree.from_fanouts([[2]] + [[2, 0]] * (height - 1))
    return IrregularTree.from_fanouts([[2] * 2**level for level in range(height)])


def worst_case(alpha: float) -> RelativeObjective:
    """The alpha-mRMSE."""
    return RelativeObjective(metric="alpha_mrmse", alpha=alpha)


@lru_cache
def noise_errors(name: str, objective: RelativeObjective, digits: int) -> dict[str, float]:
    """The least predicted errors of both noises, by column."""
    errors: dict[str, float] = {}
    rho = zcdp_rho(EPSILON, Fraction(1, 10**digits))
    for measure, amount in ((Measure.EPSILON, EPSILON), (Measure.RHO, rho)):
        budget = Budget(measure=measure, amount=amount)
        plan = IrregularPlan(tree=shape(name), unit=ADD_REMOVE_ROW, budget=budget)
        for each in noise_candidates(plan, objective):
            noise = "Laplace" if "Laplace" in each.label else "Gaussian"
            column = f"{noise} tree" if each.estimation == "none" else f"LS, {noise}"
            errors[column] = min(errors.get(column, math.inf), each.predicted)
    return errors


@lru_cache
def threshold_plan(
    name: str, objective: RelativeObjective, digits: int, root_bound: int
) -> tuple[ThresholdPlan, float]:
    """The calibrated plan and the bound of its error."""
    delta = Fraction(1, 10**digits)
    unit = GroupPrivacy(epsilon=EPSILON, delta=delta, unit=ADD_REMOVE_ROW)
    found = threshold_candidate(shape(name), unit, objective, root_bound=root_bound)
    assert found is not None and isinstance(found.plan, ThresholdPlan)
    return found.plan, found.predicted


def _short(value: float) -> str:
    return "0" if value < 5e-4 else f"{value:.4g}"


def line(
    head: str, name: str, objective: RelativeObjective, digits: int, bound: int, measured: str
) -> str:
    """One line of a table; where several errors are printed as 0 there is no best one."""
    # In the worst case noise does not depend on alpha.
    shared = objective if objective.guess is not None else worst_case(0.5)
    errors = noise_errors(name, shared, digits) | {
        "thresholds": threshold_plan(name, objective, digits, bound)[1]
    }
    zeros = [column for column, error in errors.items() if _short(error) == "0"]
    best = "several" if len(zeros) > 1 else min(errors, key=lambda column: errors[column])
    cells = "".join(f"{_short(errors[column]):>15}" for column in COLUMNS)
    return f"{head:{HEAD}}{cells}   {best:<14}{measured}"


def title(head: str) -> str:
    """The heading of a table."""
    cells = "".join(f"{column:>15}" for column in COLUMNS)
    return f"{head:{HEAD}}{cells}   best          measured"


# --- simulated releases ---


def hard_counts(plan: ThresholdPlan, tree: IrregularTree, root_bound: int) -> Iterator[Integers]:
    """Data sets at the edges of the first rounds: all rows in one leaf, or in two."""
    for each in plan.rounds[:2]:
        for edge in (each.acceptance, each.tau, each.tau + each.noise.radius // 2):
            counts = np.zeros(tree.leaves, dtype=np.int64)
            counts[0] = min(edge, root_bound)
            yield counts.copy()
            counts[tree.leaves // 2] = max(0, min(each.acceptance, root_bound - counts[0]))
            yield counts
    yield np.zeros(tree.leaves, dtype=np.int64)


def squares(
    plan: ThresholdPlan, tree: IrregularTree, counts: Integers, alpha: float, releases: int
) -> list[Floats]:
    """Per level, (releases, n) the squared errors beyond what alpha forgives."""
    exact = tree.level_counts(counts)
    found: list[list[Floats]] = [[] for _ in exact]
    for release in range(releases):
        stream = public_stream("relative", repr(counts[:2].tolist()), release)
        for level, rounds in enumerate(finding_rounds(plan, tree, [counts], [stream])):
            each = plan.estimates[rounds[0]]
            beyond = np.maximum(np.abs(each - exact[level]) - alpha * exact[level], 0.0)
            found[level].append(beyond**2)
    return [np.array(level) for level in found]


def _measured(runs: Floats) -> str:
    """The root of the mean of squares and its standard error, 0 where only rounding is left."""
    root = math.sqrt(float(runs.mean()))
    error = float(runs.std()) / math.sqrt(len(runs)) / max(2 * root, 1e-9)
    return f"{root:.4g} ({error if error > 1e-9 else 0:.2g})"


def measured_worst(plan: ThresholdPlan, name: str, alpha: float, bound: int, releases: int) -> str:
    """The largest RMSE_alpha of a node over the hard data sets."""
    nodes = (
        level[:, level.mean(axis=0).argmax()]
        for counts in hard_counts(plan, shape(name), bound)
        for level in squares(plan, shape(name), counts, alpha, releases)
    )
    return _measured(max(nodes, key=lambda runs: float(runs.mean())))


def measured_mean(plan: ThresholdPlan, name: str, alpha: float, rows: int, releases: int) -> str:
    """The objective of a guess on rows spread evenly."""
    tree = shape(name)
    edges: Integers = np.linspace(0, rows, tree.leaves + 1).astype(np.int64)
    levels = squares(plan, tree, np.diff(edges), alpha, releases)
    return _measured(np.mean([level.mean(axis=1) for level in levels], axis=0))


# --- tables ---


def worst_line(
    name: str, alpha: float, digits: int, bound: int, is_measured: bool, releases: int
) -> str:
    """One line of the worst case."""
    plan = threshold_plan(name, worst_case(alpha), digits, bound)[0]
    measured = measured_worst(plan, name, alpha, bound, releases) if is_measured else "-"
    rows = "2^40" if bound == MAX_COUNT else f"10^{round(math.log10(bound))}"
    head = f"{name}, alpha {alpha:g}, delta 1e-{digits}, M {rows}"
    return line(head, name, worst_case(alpha), digits, bound, measured)


def guess_line(height: int, alpha: float, digits: int, rows: int, releases: int) -> str:
    """One line of the mean error for rows spread evenly."""
    name = f"binary {height}"
    guess = tuple(rows / 2**level for level in range(height + 1))
    objective = RelativeObjective(metric="alpha_rmse", alpha=alpha, guess=guess)
    plan = threshold_plan(name, objective, digits, 10 * rows)[0]
    measured = measured_mean(plan, name, alpha, rows, releases)
    head = f"{name}, alpha {alpha:g}, delta 1e-{digits}, N 10^{round(math.log10(rows))}"
    return line(head, name, objective, digits, 10 * rows, measured)


def lines(releases: int) -> Iterator[str]:
    """Yield the budgets that the paper's constants require and the result of calibration, then all
    tables."""
    given = {"depth": 20, "alpha": Fraction(1, 2), "epsilon": EPSILON}
    tau = smallest_threshold(**given, delta=Fraction(1, 10**6), eta=Fraction(1, 400))
    yield "20 levels, alpha 0.5, delta 1e-6"
    yield f"paper's constants, eta 1/400: threshold {tau:,.0f}, error {tau / 2:,.0f}"
    bound = threshold_plan("comb 19", worst_case(0.5), 6, 10**6)[1]
    yield f"calibrated, M 10^6: largest alpha-RMSE {bound:.1f}\n"
    yield title("alpha-mRMSE, worst case")
    for each in WORST:
        yield worst_line(*each, releases)

    def bounds(name: str, alpha: float) -> float:
        return threshold_plan(name, worst_case(alpha), 6, 10**4)[1]

    heads = "".join(f"{alpha:>9g}" for alpha in ALPHAS)
    yield f"\n{'alpha-mRMSE by alpha':21}{heads}   least squares   tree"
    for name in NEAR_ONE:
        noise = noise_errors(name, worst_case(0.5), 6)
        least, tree = (
            min(value for column, value in noise.items() if word in column)
            for word in ("LS", "tree")
        )
        cells = "".join(f"{bounds(name, alpha):9.2f}" for alpha in ALPHAS)
        yield f"{'thresholds, ' + name:21}{cells}{least:16.2f}{tree:7.2f}"
    yield f"\n{'alpha-mRMSE by depth':21}" + "".join(f"{height:>9}" for height in DEPTHS)
    rho = float(zcdp_rho(EPSILON, Fraction(1, 10**6)))
    trees = [math.sqrt((height + 1) / (2 * rho)) for height in DEPTHS]
    yield f"{'Gaussian tree':21}" + "".join(f"{value:9.1f}" for value in trees)
    for alpha in (0.5, 0.9):
        cells = "".join(f"{bounds(f'comb {height}', alpha):9.1f}" for height in DEPTHS)
        yield f"{f'thresholds, {alpha:g}':21}{cells}"
    yield "\n" + title("alpha-RMSE, rows spread evenly")
    for guessed in GUESSED:
        yield guess_line(*guessed, releases)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", type=int, default=RELEASES)
    print_lines(lines(parser.parse_args().releases))


if __name__ == "__main__":
    main()
