"""Which mechanism is best for errors relative to the counts: predicted, and for some rows measured.

    python benchmarks/relative_error.py [--releases 40]

Every candidate of `dpcore.relative_planner` at epsilon = 1, add_remove: the Laplace and the
Gaussian tree, least squares on either (the better of an equal and of the best split of the budget),
and counts between thresholds (Ghazi et al., calibrated). Errors are in rows.

The first table is the worst case over the counts (alpha-mRMSE) by shape, alpha, delta and M, the
most rows of a tree. "binary 16" has 2^16 leaves at level 16; "comb 64" has 65 leaves, one ending at
every level. In the worst case alpha matters for thresholds only. The second table sets thresholds
beside the Gaussian tree alone, by depth. The third is the mean error (alpha-RMSE over the nodes of
a level, then over the levels) for a public guess, N rows spread evenly over a binary tree. The last
searches the least alpha from which thresholds win in the worst case. For
thresholds the figures are upper bounds; "measured" is a simulation of the data sets named, with its
standard error: the largest error of any node over hard data sets, or the mean for the guess.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpcore.accounting import rho_of
from dpcore.irregular_tree import IrregularTree
from dpcore.noise import MAX_COUNT
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.randomness import public_stream
from dpcore.relative_objective import RelativeObjective
from dpcore.relative_planner import RelativeCandidate, noise_candidates
from dpcore.threshold_calibration import calibrate
from dpcore.threshold_error import ThresholdErrors
from dpcore.threshold_plan import ThresholdPlan, threshold_estimates

Integers = npt.NDArray[np.int64]

EPSILON = Fraction(1)
# Shape, alpha, digits of delta, the most rows.
WORST = (
    ("binary 4", 0.5, 6, 10**4),
    ("binary 8", 0.5, 6, 10**4),
    ("binary 12", 0.5, 6, 10**4),
    ("binary 16", 0.5, 6, 10**4),
    ("comb 64", 0.5, 6, 10**4),
    ("binary 12", 0.5, 6, 10**2),
    ("binary 12", 0.5, 6, 10**3),
    ("binary 12", 0.5, 6, MAX_COUNT),
    ("binary 12", 0.5, 3, 10**4),
    ("binary 12", 0.5, 9, 10**4),
    ("binary 12", 0.1, 6, 10**4),
    ("binary 12", 0.9, 6, 10**4),
    ("binary 12", 0.99, 6, 10**4),
    ("comb 64", 0.9, 6, 10**4),
    ("comb 64", 0.99, 6, 10**4),
)
CROSSINGS = ("binary 8", "binary 16", "comb 64")
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
    (8, 0.9, 6, 10**3),
    (8, 0.5, 6, 10**5),
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


@lru_cache
def noise_errors(name: str, objective: RelativeObjective, digits: int | None) -> dict[str, float]:
    """The least predicted errors of one noise, by column: of Laplace where there are no digits."""
    measure = Measure.EPSILON if digits is None else Measure.RHO
    amount = EPSILON if digits is None else rho_of(EPSILON, Fraction(1, 10**digits))
    found = noise_candidates(
        tree=shape(name),
        neighbors=Neighbors.ADD_REMOVE,
        budget=Budget(measure=measure, amount=amount),
        objective=objective,
    )
    errors: dict[str, float] = {}
    for each in found:
        column = _column(each)
        errors[column] = min(errors.get(column, math.inf), each.predicted)
    return errors


def _column(candidate: RelativeCandidate) -> str:
    noise = "Laplace" if "Laplace" in candidate.label else "Gaussian"
    return f"{noise} tree" if candidate.estimation == "none" else f"LS, {noise}"


@lru_cache
def threshold_plan(
    height: int, objective: RelativeObjective, digits: int, root_bound: int
) -> tuple[ThresholdPlan, float]:
    """The calibrated plan and the bound of its error."""
    alpha = objective.alpha or 0.0
    plan = calibrate(
        height=height,
        epsilon=EPSILON,
        delta=Fraction(1, 10**digits),
        neighbors=Neighbors.ADD_REMOVE,
        alpha=min(alpha, 0.98),
        root_bound=root_bound,
        score=lambda errors: objective.of_thresholds(errors, height),
    )
    errors = ThresholdErrors(plan, height=height, root_bound=root_bound)
    return plan, objective.of_thresholds(errors, height)


def row(name: str, objective: RelativeObjective, digits: int, root_bound: int) -> dict[str, float]:
    """The predicted errors of all candidates."""
    # In the worst case noise does not depend on alpha.
    shared = objective
    if objective.guess is None:
        shared = RelativeObjective(metric=objective.metric, alpha=0.5)
    bound = threshold_plan(shape(name).height, objective, digits, root_bound)[1]
    return {
        **noise_errors(name, shared, None),
        **noise_errors(name, shared, digits),
        "thresholds": bound,
    }


def line(head: str, errors: dict[str, float], measured: str = "-") -> str:
    """One line of a table."""
    winner = min(errors, key=lambda column: errors[column])
    cells = "".join(f"{_short(errors[column]):>15}" for column in COLUMNS)
    return f"{head:39}{cells}   {winner:<14}{measured}"


def _short(value: float) -> str:
    return "0" if value < 5e-4 else f"{value:.4g}"


def title(head: str) -> str:
    """The heading of a table."""
    return (
        f"{head:39}" + "".join(f"{column:>15}" for column in COLUMNS) + "   best          measured"
    )


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
) -> list[npt.NDArray[np.float64]]:
    """Per level, (releases, n) the squared errors beyond what alpha forgives."""
    exact = tree.level_counts(counts)
    found: list[list[npt.NDArray[np.float64]]] = [[] for _ in exact]
    for release in range(releases):
        stream = public_stream("relative", repr(counts[:2].tolist()), release)
        for level, each in enumerate(threshold_estimates(plan, tree, counts, stream)):
            beyond = np.maximum(np.abs(each - exact[level]) - alpha * exact[level], 0.0)
            found[level].append(beyond**2)
    return [np.array(level) for level in found]


def measured_worst(plan: ThresholdPlan, name: str, alpha: float, bound: int, releases: int) -> str:
    """The largest RMSE_alpha of a node over the hard data sets."""
    worst = (0.0, 0.0)
    for counts in hard_counts(plan, shape(name), bound):
        for level in squares(plan, shape(name), counts, alpha, releases):
            means = level.mean(axis=0)
            place = int(means.argmax())
            root = math.sqrt(float(means[place]))
            if root > worst[0]:
                error = float(level[:, place].std()) / math.sqrt(releases) / (2 * root)
                worst = root, error
    return f"{worst[0]:.4g} ({worst[1]:.2g})"


def measured_mean(plan: ThresholdPlan, name: str, alpha: float, rows: int, releases: int) -> str:
    """The objective of a guess on rows spread evenly."""
    tree = shape(name)
    counts = np.diff(np.linspace(0, rows, tree.leaves + 1).astype(np.int64))
    levels = squares(plan, tree, counts, alpha, releases)
    each = np.mean([level.mean(axis=1) for level in levels], axis=0)
    root = math.sqrt(float(each.mean()))
    return f"{root:.4g} ({float(each.std()) / math.sqrt(releases) / max(2 * root, 1e-9):.2g})"


# --- tables ---


def worst_table(releases: int) -> None:
    """The worst case over the counts."""
    print(title("alpha-mRMSE, worst case"))
    for name, alpha, digits, bound in WORST:
        objective = RelativeObjective(metric="alpha_mrmse", alpha=alpha)
        errors = row(name, objective, digits, bound)
        plan = threshold_plan(shape(name).height, objective, digits, bound)[0]
        measured = "-"
        if shape(name).height <= 8:  # a comb takes long
            measured = measured_worst(plan, name, alpha, bound, releases)
        rows = "2^40" if bound == MAX_COUNT else f"10^{round(math.log10(bound))}"
        head = f"{name}, alpha {alpha:g}, delta 1e-{digits}, M {rows}"
        print(line(head, errors, measured), flush=True)


def crossing_table() -> None:
    """The least alpha, of two digits, from which thresholds win in the worst case."""
    print("\nleast alpha from which thresholds win   (delta 1e-6, M 10^4)")
    for name in CROSSINGS:
        objective = RelativeObjective(metric="alpha_mrmse", alpha=0.5)
        noise = {**noise_errors(name, objective, None), **noise_errors(name, objective, 6)}
        trees, best = (noise["Gaussian tree"], min(noise.values()))
        height = shape(name).height
        found = [_crossing(height, target) for target in (best, min(trees, noise["Laplace tree"]))]
        print(f"{name:20}against all {found[0]:<8}against trees without estimation {found[1]}")


def _crossing(height: int, target: float) -> str:
    low, high = 50, 100  # hundredths
    while high - low > 1:
        middle = (low + high) // 2
        objective = RelativeObjective(metric="alpha_mrmse", alpha=middle / 100)
        wins = threshold_plan(height, objective, 6, 10**4)[1] < target
        low, high = (low, middle) if wins else (middle, high)
    return f"{high / 100:g}" if high < 100 else "none"


def depth_table() -> None:
    """Thresholds beside the Gaussian tree alone, whose error grows with the root of the depth."""
    print("\nalpha-mRMSE by depth" + "".join(f"{height:>9}" for height in DEPTHS))
    rho = float(rho_of(EPSILON, Fraction(1, 10**6)))
    trees = [math.sqrt((height + 1) / (2 * rho)) for height in DEPTHS]
    print(f"{'Gaussian tree':20}" + "".join(f"{value:9.1f}" for value in trees))
    for alpha in (0.5, 0.9):
        objective = RelativeObjective(metric="alpha_mrmse", alpha=alpha)
        bounds = [threshold_plan(height, objective, 6, 10**4)[1] for height in DEPTHS]
        head = f"thresholds, {alpha:g}"
        print(f"{head:20}" + "".join(f"{value:9.1f}" for value in bounds), flush=True)


def guess_table(releases: int) -> None:
    """The mean error for rows spread evenly."""
    print("\n" + title("alpha-RMSE, rows spread evenly"))
    for height, alpha, digits, rows in GUESSED:
        name = f"binary {height}"
        guess = tuple(rows / 2**level for level in range(height + 1))
        objective = RelativeObjective(metric="alpha_rmse", alpha=alpha, guess=guess)
        errors = row(name, objective, digits, 10 * rows)
        plan = threshold_plan(height, objective, digits, 10 * rows)[0]
        measured = measured_mean(plan, name, alpha, rows, releases)
        head = f"{name}, alpha {alpha:g}, delta 1e-{digits}, N 10^{round(math.log10(rows))}"
        print(line(head, errors, measured), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", type=int, default=40)
    releases = parser.parse_args().releases
    worst_table(releases)
    depth_table()
    guess_table(releases)
    crossing_table()


if __name__ == "__main__":
    main()
