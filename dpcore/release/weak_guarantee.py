"""Budgets that hardly protect anybody, in a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dpcore.privacy.budget import Measure
from dpcore.privacy.conversion import zcdp_epsilon
from dpcore.release.plan import ReleasePlan

# Above, an output may be 20,000 times as likely with a unit as without it.
LARGE_EPSILON = 10
# Above, one unit in a thousand may be published whole.
LARGE_DELTA = Fraction(1, 1000)
# At which a rho is converted.
_DELTA = Fraction(1, 10**6)


def weak_guarantees(plan: ReleasePlan, rows: float | None = None) -> Iterator[str]:
    """Return what makes a guarantee weak: an epsilon above 10, a delta above 1e-3 or one over the
    rows.

    Args:
        plan: of the release.
        rows: how many there are, from a public guess or a released total; None where neither is.
    """
    epsilon, delta, of_rho = _stated(plan)
    unit = plan.unit.name
    if epsilon > LARGE_EPSILON:
        stated = f"rho = {float(plan.budget.amount):g} implies " if of_rho else ""
        at = " at delta = 1e-06, which" if of_rho else ""
        yield (
            f"{stated}epsilon = {epsilon:g}{at} is above {LARGE_EPSILON}: one {unit} may make an "
            f"output e^{epsilon:g} times as likely"
        )
    if delta > LARGE_DELTA:
        yield (
            f"delta = {float(delta):g} is above {float(LARGE_DELTA):g}: with this probability the "
            f"epsilon protects no {unit}; take far less than one over the number of them"
        )
    elif rows is not None and rows >= 1 and float(delta) * rows > 1:
        yield (
            f"delta = {float(delta):g} is above one over the number of rows (about {rows:,.0f}): a "
            "release that publishes a random row would keep it; take far less"
        )


def _stated(plan: ReleasePlan) -> tuple[float, Fraction, bool]:
    """Return epsilon and delta, and whether they are converted from a rho."""
    if plan.promised is not None:
        epsilon, delta = plan.promised
        return float(epsilon), delta, False
    if plan.budget.measure is Measure.EPSILON:
        return float(plan.budget.amount), Fraction(0), False
    return float(f"{zcdp_epsilon(plan.budget.amount, _DELTA):.4g}"), Fraction(0), True
