"""The budget of a whole release at which no tree is further off than is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.levels.planner import budget_for_target
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.questions.workload import ReleaseTerms, Workload
from dptrees.dpcore.release.composition import Guarantee, plan_release


def release_budget(
    wanted: Mapping[int, float],
    guarantee: Guarantee,
    terms: ReleaseTerms,
    workloads: Sequence[Workload[Any]],
) -> Fraction:
    """The least amount of four significant digits at which trees' predicted errors are as wanted.

    The whole release is planned at every amount that is tried, with its split, its certificate and
    its choice of noise.

    Args:
        wanted: the largest error of some trees, by their places among the workloads, each in the
            unit of `Workload.predicted`.
        guarantee: of whose budget the amount is looked for; a delta beside it stays.
        terms: of the release.
        workloads: of its trees.

    Raises:
        ValueError: an error that is not positive and finite, that needs no budget at all, or
            that no budget reaches; as `plan_release` at an amount of 1.

    >>> from dptrees.dpcore.ordered.make import make_domain
    >>> from dptrees.dpcore.ordered.workload import OrderedWorkload
    >>> from dptrees.dpcore.privacy.budget import Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> trees = [OrderedWorkload(name=name, domain=make_domain(
    ...     {"column": name, "type": "integer", "lower": 0, "upper": 120})) for name in "ab"]
    >>> one = Guarantee(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> float(release_budget({0: 10, 1: 20}, one, ReleaseTerms(unit=ADD_REMOVE_ROW), trees))
    1.367
    """
    measure = guarantee.budget.measure

    def worst(amount: Fraction) -> float:
        at = replace(guarantee, budget=Budget(measure=measure, amount=amount))
        questions = plan_release("budget", at, terms, workloads).questions
        return max(workloads[n].predicted(questions[n]) / most for n, most in wanted.items())

    return budget_for_target(1.0, worst, measure)
