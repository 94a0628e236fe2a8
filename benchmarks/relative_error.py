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
import numpy.typing as npt

from benchmarks.papers.relative_estimation import smallest_threshold
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.levels.relative_errors import (
    RelativeCandidate,
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


@lru_cache
def noise_errors(name: str, objective: RelativeObjective, digits: int | None) -> dict[str, float]:
    """The least predicted errors of one noise, by column: of Laplace where there are no digits."""
    measure = Measure.EPSILON if digits is None else Measure.RHO
    amount = EPSILON if digits is None else zcdp_rho(EPSILON, Fraction(1, 10**digits))
    plan = IrregularPlan(
        tree=shape(name),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=amount),
    )
    found = noise_candidates(plan, objective)
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
    name: str, objective: RelativeObjective, digits: int, root_bound: int
) -> tuple[ThresholdPlan, float]:
    """The calibrated plan and the bound of its error."""
    found = threshold_candidate(
        shape(name),
        GroupPrivacy(
            epsilon=EPSILON,
            delta=Fraction(1, 10**digits),
            unit=ADD_REMOVE_ROW,
        ),
        objective,
        root_bound=root_bound,
    )
    assert found is not None and isinstance(found.plan, ThresholdPlan)
    return found.plan, found.predicted


def worst_case(alpha: float) -> RelativeObjective:
    """The alpha-mRMSE."""
    return RelativeObjective(metric="alpha_mrmse", alpha=alpha)


def row(name: str, objective: RelativeObjective, digits: int, root_bound: int) -> dict[str, float]:
    """The predicted errors of all candidates."""
    # In the worst case noise does not depend on alpha.
    shared = objective if objective.guess is not None else worst_case(0.5)
    bound = threshold_plan(name, objective, digits, root_bound)[1]
    return {
        **noise_errors(name, shared, None),
        **noise_errors(name, shared, digits),
        "thresholds": bound,
    }


def line(head: str, errors: dict[str, float], measured: str = "-") -> str:
    """One line of a table."""
    cells = "".join(f"{_short(errors[column]):>15}" for column in COLUMNS)
    return f"{head:{HEAD}}{cells}   {best(errors):<14}{measured}"


def best(errors: dict[str, float]) -> str:
    """The column of the least error; where several are printed as 0 there is none."""
    zeros = [column for column, error in errors.items() if _short(error) == "0"]
    return "several" if len(zeros) > 1 else min(errors, key=lambda column: errors[column])


def _short(value: float) -> str:
    return "0" if value < 5e-4 else f"{value:.4g}"


def title(head: str) -> str:
    """The heading of a table."""
    return (
        f"{head:{HEAD}}"
        + "".join(f"{column:>15}" for column in COLUMNS)
        + "   best          measured"
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
        for level, rounds in enumerate(finding_rounds(plan, tree, [counts], [stream])):
            each = plan.estimates[rounds[0]]
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
    return _measured(*worst)


def measured_mean(plan: ThresholdPlan, name: str, alpha: float, rows: int, releases: int) -> str:
    """The objective of a guess on rows spread evenly."""
    tree = shape(name)
    edges: Integers = np.linspace(0, rows, tree.leaves + 1).astype(np.int64)
    counts = edges[1:] - edges[:-1]
    levels = squares(plan, tree, counts, alpha, releases)
    each = np.mean([level.mean(axis=1) for level in levels], axis=0)
    root = math.sqrt(float(each.mean()))
    return _measured(root, float(each.std()) / math.sqrt(releases) / max(2 * root, 1e-9))


def _measured(root: float, error: float) -> str:
    """A measured error and its standard error, which is 0 where only rounding is left of it."""
    return f"{root:.4g} ({error if error > 1e-9 else 0:.2g})"


# --- tables ---


def worst_line(
    name: str, alpha: float, digits: int, bound: int, is_measured: bool, releases: int
) -> str:
    """One line of the worst case."""
    errors = row(name, worst_case(alpha), digits, bound)
    plan = threshold_plan(name, worst_case(alpha), digits, bound)[0]
    measured = measured_worst(plan, name, alpha, bound, releases) if is_measured else "-"
    rows = "2^40" if bound == MAX_COUNT else f"10^{round(math.log10(bound))}"
    return line(f"{name}, alpha {alpha:g}, delta 1e-{digits}, M {rows}", errors, measured)


def guess_line(height: int, alpha: float, digits: int, rows: int, releases: int) -> str:
    """One line of the mean error for rows spread evenly."""
    name = f"binary {height}"
    guess = tuple(rows / 2**level for level in range(height + 1))
    objective = RelativeObjective(metric="alpha_rmse", alpha=alpha, guess=guess)
    errors = row(name, objective, digits, 10 * rows)
    plan = threshold_plan(name, objective, digits, 10 * rows)[0]
    measured = measured_mean(plan, name, alpha, rows, releases)
    head = f"{name}, alpha {alpha:g}, delta 1e-{digits}, N 10^{round(math.log10(rows))}"
    return line(head, errors, measured)


def constants() -> None:
    """The budgets that the paper's constants require, and the result of calibration."""
    tau_min = smallest_threshold(
        depth=20,
        alpha=Fraction(1, 2),
        epsilon=EPSILON,
        delta=Fraction(1, 10**6),
        eta=Fraction(1, 400),
    )
    bound = threshold_plan("comb 19", worst_case(0.5), 6, 10**6)[1]
    print("20 levels, alpha 0.5, delta 1e-6")
    print(f"paper's constants, eta 1/400: threshold {tau_min:,.0f}, error {tau_min / 2:,.0f}")
    print(f"calibrated, M 10^6: largest alpha-RMSE {bound:.1f}\n", flush=True)


def worst_table(releases: int) -> None:
    """The worst case over the counts."""
    print(title("alpha-mRMSE, worst case"))
    for each in WORST:
        print(worst_line(*each, releases), flush=True)


def alpha_table() -> None:
    """Thresholds beside the best of the others, in the worst case, where alpha is near 1."""
    heads = "".join(f"{alpha:>9g}" for alpha in ALPHAS)
    print(f"\n{'alpha-mRMSE by alpha':21}{heads}   least squares   tree")
    for name in NEAR_ONE:
        noise = {**noise_errors(name, worst_case(0.5), None)}
        noise |= noise_errors(name, worst_case(0.5), 6)
        bounds = [threshold_plan(name, worst_case(alpha), 6, 10**4)[1] for alpha in ALPHAS]
        cells = "".join(f"{bound:9.2f}" for bound in bounds)
        squares = min(value for column, value in noise.items() if column.startswith("LS"))
        trees = min(value for column, value in noise.items() if column.endswith("tree"))
        print(f"{'thresholds, ' + name:21}{cells}{squares:16.2f}{trees:7.2f}", flush=True)


def depth_table() -> None:
    """Thresholds beside the Gaussian tree alone, whose error grows with the root of the depth."""
    print(f"\n{'alpha-mRMSE by depth':21}" + "".join(f"{height:>9}" for height in DEPTHS))
    rho = float(zcdp_rho(EPSILON, Fraction(1, 10**6)))
    trees = [math.sqrt((height + 1) / (2 * rho)) for height in DEPTHS]
    print(f"{'Gaussian tree':21}" + "".join(f"{value:9.1f}" for value in trees))
    for alpha in (0.5, 0.9):
        plans = [threshold_plan(f"comb {height}", worst_case(alpha), 6, 10**4) for height in DEPTHS]
        head = f"thresholds, {alpha:g}"
        print(f"{head:21}" + "".join(f"{bound:9.1f}" for _, bound in plans), flush=True)


def guess_table(releases: int) -> None:
    """The mean error for rows spread evenly."""
    print("\n" + title("alpha-RMSE, rows spread evenly"))
    for each in GUESSED:
        print(guess_line(*each, releases), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", type=int, default=RELEASES)
    releases = parser.parse_args().releases
    constants()
    worst_table(releases)
    alpha_table()
    depth_table()
    guess_table(releases)


if __name__ == "__main__":
    main()
