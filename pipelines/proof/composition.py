"""What all trees spend together, added up anew and certified anew, against what is stated."""

from __future__ import annotations

import math
from fractions import Fraction

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.composition import MovedCounts, certified_delta
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import ReleasePlan, total_spending
from dptrees.pipelines.proof.check import CheckFailed

# dp-accounting takes time and memory in proportion to sigma, and to the number of counts.
_LARGEST_SIGMA, _MOST_COUNTS = 3000.0, 200
# Its losses lie on a grid, each rounded up by at most a step: so much further on, it can say no
# delta that is larger than the true one, but for the tails that it cuts off and for rounding.
_STEP, _TAILS, _ROUNDING = 1e-4, 1e-13, 1.001


def check_composition(plan: ReleasePlan) -> str:
    """The trees' budgets add up to no more than is stated."""
    spent = total_spending(plan.questions)
    if plan.stated is None:
        rho = plan.budget.measure is Measure.RHO
        amount, other = (spent.rho, spent.epsilon) if rho else (spent.epsilon, spent.rho)
        if amount > plan.budget.amount or other or spent.delta:
            raise CheckFailed(f"the trees spend {amount}, above {plan.budget.amount}")
        name = plan.budget.measure.value
        return f"the trees spend {name} {_short(amount)} of {_short(plan.budget.amount)}"
    epsilon, delta = plan.stated
    if not plan.composed and plan.budget.amount != epsilon:
        raise CheckFailed(f"the specification's budget {plan.budget.amount} is not {epsilon}")
    left, left_delta = epsilon - spent.epsilon, delta - spent.delta
    if left < 0 or left_delta < 0:
        raise CheckFailed(
            f"the trees spend epsilon {spent.epsilon} and delta {spent.delta}, above {epsilon} and "
            f"{delta}"
        )
    if not spent.rho:
        return f"the trees spend epsilon {_short(spent.epsilon)} and delta {_short(spent.delta)}"
    return _certified(spent.moved, max(spent.rho, plan.budget.amount), left, left_delta)


def _certified(moved: MovedCounts | None, rho: Fraction, epsilon: Fraction, delta: Fraction) -> str:
    """The delta that a rho has at an epsilon, by conversion, by certificate, and by dp-accounting
    where it is installed and can say."""
    if moved is None:
        if rho > zcdp_rho(epsilon, delta):
            raise CheckFailed(f"rho {rho} does not convert to delta {delta} at epsilon {epsilon}")
        return f"rho {_short(rho)} converts to delta {_short(delta)} at epsilon {_short(epsilon)}"
    actual = certified_delta(moved, epsilon)
    if actual > delta and rho > zcdp_rho(epsilon, delta):
        raise CheckFailed(
            f"the noise has delta {actual:g} at epsilon {_short(epsilon)}, above {_short(delta)}"
        )
    sentence = f"certified delta {actual:g} at epsilon {_short(epsilon)}, at most {_short(delta)}"
    second = _by_dp_accounting(moved, float(epsilon))
    if second is None:
        return sentence
    if second > float(delta) * _ROUNDING + _TAILS:
        raise CheckFailed(f"dp-accounting computes delta {second:g}, above {_short(delta)}")
    return f"{sentence}; dp-accounting: {second:g}"


def _by_dp_accounting(moved: MovedCounts, epsilon: float) -> float | None:
    """A second opinion; None where it cannot be had."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        return None
    counts = sum(count for _, count in moved)
    if counts > _MOST_COUNTS:
        return None
    composed = pld.identity(value_discretization_interval=_STEP)
    for law, count in moved:
        if isinstance(law, DiscreteGaussian):
            sigma = math.sqrt(law.sigma_squared)
            if sigma > _LARGEST_SIGMA:
                return None
            one = pld.from_discrete_gaussian_mechanism(
                sigma, sensitivity=1, value_discretization_interval=_STEP
            )
        elif isinstance(law, DiscreteLaplace):
            one = pld.from_discrete_laplace_mechanism(
                float(1 / law.scale), sensitivity=1, value_discretization_interval=_STEP
            )
        else:
            return None
        composed = composed.compose(one.self_compose(count))
    return float(composed.get_delta_for_epsilon(epsilon + counts * _STEP))


def _short(amount: Fraction) -> str:
    return f"{float(amount):g}"
