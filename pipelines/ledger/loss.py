"""What a release costs its data set, and how costs add up: exact rationals, never floats.

A data set counts in (epsilon, delta) or in rho. What is counted is a *privacy filter*: each
release's budget may be chosen after looking at all earlier releases, and the release is made only
where the sum of all budgets, its own included, stays within the total.

**Why sums hold for budgets that are chosen adaptively.** Let D, D' be neighbors, o_1, ..., o_k all
outputs, and P, P' their laws. Whether the next release is made, and which, is a function of the
outputs so far; a release that is refused is one of budget 0, so take k fixed.

- *Pure epsilon.* Given o_1, ..., o_i-1 the budget e_i is a number, and the ratio of the conditional
  laws of o_i is at most exp(e_i). The ratio of the joint laws is the product of these, at most
  exp(sum e_i), and the filter keeps the sum of *every* path within the total.
- *(epsilon, delta).* Given the past, the law of o_i on D is, but for a part of mass d_i, at most
  exp(e_i) times that on D'. Write it as a sum of two measures, m_i <= exp(e_i) P'_i and a rest of
  mass d_i. The product of the m_i is at most exp(sum e_i) P' on every path; what a path loses is,
  by a union over the steps, at most the largest sum of the d_i along any path. Both sums stay
  within their totals: Rogers, Roth, Ullman, Vadhan 2016, "Privacy Odometers and Filters:
  Pay-as-you-Go Composition" (the filter of basic composition).
- *rho.* For every order a > 1, E_P'[(P / P')^a] is the expectation over o_1 of the first ratio^a
  times the conditional expectation of the rest. By induction from the last step the rest is at most
  exp(a (a - 1) (total - rho_1)), since rho_1, and so what is left of the total, is known before
  o_1 is drawn; and the first factor contributes exp(a (a - 1) rho_1): Feldman, Zrnic 2021,
  "Individual Privacy Accounting via a Renyi Filter"; Whitehouse, Ramdas, Rogers, Wu 2023,
  "Fully-Adaptive Composition in Differential Privacy".

**A series of k runs** protects a unit's rows of one period, and its data set the whole unit, which
may have rows in each: k steps of neighbors, so k epsilon, and k^2 rho (Bun, Steinke 2016,
Proposition 1.9). Where the data set is entered with units of one period they are alike. A row is in
one period, and costs no more than is stated. A delta of k units grows beyond use: refused.

A series with `unit: per_series` protects all rows of a unit together, and costs what it states.

**From one measure to the other.** A tree that is e-DP is (e^2 / 2)-zCDP (Bun, Steinke 2016,
Proposition 1.4), and the rhos of a release add up. Trees that share a rho, behind an epsilon and a
delta that the release states, cost a data set in rho that rho. What spends a delta of its own is
not zCDP, and a rho has an epsilon only beside a delta that somebody chooses: both are refused, with
a sentence that says what to state instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import ReleasePlan

NAMES = ("epsilon", "delta", "rho")


class LossRefused(ValueError):
    """A release states its budget in a measure that its data set does not count."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A sum of privacy losses, in the measure of a data set; the others are 0.

    Args:
        epsilon, delta: where it counts in these.
        rho: where it counts in rho.

    >>> third = Loss(epsilon=Fraction(1, 3))
    >>> (third + third + third).within(Loss(epsilon=Fraction(1)))
    True
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def __add__(self, other: Loss) -> Loss:
        return Loss(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def __sub__(self, other: Loss) -> Loss:
        return Loss(**{name: getattr(self, name) - getattr(other, name) for name in NAMES})

    def within(self, total: Loss) -> bool:
        """Whether it is at most a total."""
        return all(getattr(self, name) <= getattr(total, name) for name in NAMES)

    def texts(self) -> dict[str, str]:
        """The exact amounts, as they are stored.

        >>> Loss(rho=Fraction(1, 3)).texts()["rho"]
        '1/3'
        """
        return {name: str(amount) for name, amount in asdict(self).items()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, Any], *, prefix: str = "") -> Loss:
        """The inverse of `texts`.

        Args:
            texts: the amounts by name.
            prefix: of the names.
        """
        return cls(**{name: Fraction(texts[prefix + name]) for name in NAMES})

    def in_words(self, measure: Measure) -> str:
        """For a person, to six digits; the delta only where there is one.

        >>> Loss(epsilon=Fraction(1, 3), delta=Fraction(1, 10**6)).in_words(Measure.EPSILON)
        'epsilon = 0.333333, delta = 1e-06'
        """
        shown = self.counted(measure)
        return ", ".join(f"{name} = {float(amount):g}" for name, amount in shown.items())

    def counted(self, measure: Measure) -> dict[str, Fraction]:
        """The amounts that are counted in a measure, by name; a delta only where there is one."""
        amounts = {measure.value: self.rho if measure is Measure.RHO else self.epsilon}
        return amounts | ({"delta": self.delta} if self.delta else {})


def release_loss(plan: ReleasePlan, measure: Measure, *, per_period: bool = False) -> Loss:
    """What a release costs a data set that counts in a measure.

    Args:
        plan: of the release.
        measure: the data set's.
        per_period: its unit is a unit's rows of one period, as that of a series is.

    Raises:
        LossRefused: the release states another measure that is not soundly converted; the message
            is the rest of a sentence about ``privacy``.
    """
    run = plan.run
    several = run is not None and run.max_periods is None and not plan.unit.is_row
    periods = run.periods if run is not None and several and not per_period else 1
    if measure is Measure.RHO:
        return Loss(rho=periods**2 * _release_rho(plan))
    if plan.stated is not None and periods > 1:
        raise LossRefused(
            "delta: a series protects a unit's rows of one period, its data set the whole unit; "
            f"of {periods} periods the deltas do not add up, so state epsilon alone, or rho"
        )
    if plan.stated is not None:
        epsilon, delta = plan.stated
        return Loss(epsilon=epsilon, delta=delta)
    if plan.budget.measure is Measure.RHO:
        raise LossRefused("rho: its data set counts epsilon and delta, so state these instead")
    return Loss(epsilon=periods * plan.budget.amount)


def _release_rho(plan: ReleasePlan) -> Fraction:
    """The zCDP loss of a release: what trees share, and e^2 / 2 of each tree that is e-DP."""
    if plan.spending.delta:
        raise LossRefused(
            "delta: its data set counts rho, and a tree of this release spends a delta of its own, "
            "which no rho represents; state rho instead"
        )
    shared = plan.budget.measure is Measure.RHO and bool(plan.composed)
    pure = sum((each.spending.epsilon**2 for each in plan.questions), start=Fraction(0))
    return (plan.budget.amount if shared else Fraction(0)) + pure / 2
