"""Cost of a release's noise by basic composition, beside the certified guarantee.

Each tree alone keeps an epsilon and a delta, which add up (basic composition); or the rho that
trees share is converted as a whole. What a release states was certified for the laws of all counts
together (`dpcore.privacy.loss`), and is never more than either where trees share a rho.

Sources: Dwork, Roth 2014, Theorem 3.16 (basic composition); Canonne, Kamath, Steinke 2020,
Proposition 12 (conversion).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dptrees.dpcore.privacy.conversion import zcdp_epsilon
from dptrees.dpcore.privacy.least_epsilon import least_epsilon
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.questions.roles import TreePrivacy
from dptrees.dpcore.release.plan import ReleasePlan, total_spending


@dataclass(frozen=True, kw_only=True)
class Classical:
    """Cost of a release's noise by basic composition.

    Args:
        trees: what each tree alone keeps: an epsilon and a delta, or a rho where the release states
            a rho.
        converted: of all together, with the conversion of the rho that trees share; None where the
            release states no delta, or none of them share a rho.
    """

    trees: tuple[Spending, ...]
    converted: Spending | None

    @property
    def basic(self) -> Spending:
        """The sum of what the trees keep."""
        return sum(self.trees, start=Spending())


def classical_composition(plan: ReleasePlan) -> Classical:
    """Return the cost of a release's noise by basic composition.

    Trees that share a rho have parts of the delta that others leave in proportion to their rho; the
    epsilon of each alone is certified, so that what the sum is more is the composition's alone.

    Args:
        plan: of the release.

    >>> from dptrees.dpcore.ordered.make import make_domain
    >>> from dptrees.dpcore.ordered.workload import OrderedWorkload
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.questions.workload import Noise, ReleaseTerms
    >>> from dptrees.dpcore.release.composition import Guarantee, plan_release
    >>> domain = make_domain({"column": "age", "type": "integer", "lower": 0, "upper": 120})
    >>> plan = plan_release(
    ...     "ages", Guarantee(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                       delta=Fraction(1, 10**6)),
    ...     ReleaseTerms(unit=ADD_REMOVE_ROW),
    ...     [OrderedWorkload(name=name, domain=domain, noise=Noise.GAUSSIAN) for name in "ab"])
    >>> found = classical_composition(plan)
    >>> float(found.basic.epsilon), round(float(found.converted.epsilon), 3)
    (1.429, 1.078)
    """
    if plan.stated is None:
        return Classical(trees=tuple(each.spending for each in plan.questions), converted=None)
    shared = total_spending(plan.composed)
    alone = total_spending(each for each in plan.questions if each not in plan.composed)
    left = plan.stated[1] - alone.delta

    def kept(question: TreePrivacy) -> Spending:
        own = question.spending
        if not own.rho:
            return own
        delta = left * own.rho / shared.rho
        epsilon = least_epsilon(own.moved, own.rho, delta)
        return Spending(epsilon=own.epsilon + epsilon, delta=own.delta + delta)

    converted = None
    if shared.rho:
        epsilon = Fraction(zcdp_epsilon(shared.rho, left))
        converted = alone + Spending(epsilon=shared.epsilon + epsilon, delta=shared.delta + left)
    return Classical(trees=tuple(map(kept, plan.questions)), converted=converted)
