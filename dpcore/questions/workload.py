"""A workload: what is to be released of one tree, before there is a budget.

The word is the matrix mechanism's. `dpcore.release.composition` shares a budget among workloads,
and each makes the question of its own share. Implemented by `dpcore.ordered.workload`,
`dpcore.hierarchy.workload` and `dpcore.sparse.workload`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any, Generic, TypeVar

from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import Keys

Planned = TypeVar("Planned", bound=Question)


class Way(Enum):
    """A way in which a tree can spend beside a delta."""

    SHARED = "shared"  # a part of a rho that trees share under one certificate
    LAPLACE = "laplace"  # a part of epsilon, and no delta
    OWN = "own"  # a part of epsilon and a part of delta


class Noise(Enum):
    """The noise that is requested."""

    BEST = "best"
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"

    @property
    def ways(self) -> frozenset[Way]:
        """Ways in which a tree with this noise can spend beside a delta."""
        own = {Noise.LAPLACE: {Way.LAPLACE}, Noise.GAUSSIAN: {Way.SHARED}}
        return frozenset(own.get(self, {Way.SHARED, Way.LAPLACE}))


@dataclass(frozen=True, kw_only=True)
class ReleaseTerms:
    """Terms that all trees of a release have in common, beside the budget.

    Args:
        unit: what neighbors differ in.
        confidence: of the intervals.
        drops_rows: rows may be left out before any tree sees them, so that the number of those
            that are counted is never public.
        has_delta: the release states a delta, so that a rho is only behind it.
    """

    unit: PrivacyUnit
    confidence: float = 0.95
    drops_rows: bool = False
    has_delta: bool = False


@dataclass(frozen=True, kw_only=True)
class Share:
    """One tree's share of the budget.

    Args:
        budget: an epsilon or a rho.
        delta: beside an epsilon that is the tree's own; None where it spends none.
    """

    budget: Budget
    delta: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class Workload(ABC, Generic[Planned]):
    """The workload of one tree.

    Args:
        name: of the tree.
        keys: the public group-by keys, None for one tree over all rows.
        weight: its part of the budget, relative to the others', above 0.
        noise: that is requested.

    Raises:
        Refusal: a choice that has no effect, or that does not go with another.
    """

    name: str
    keys: Keys | None = None
    weight: Fraction = Fraction(1)
    noise: Noise = Noise.BEST

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise Refusal("weight", f"{self.weight} is not above 0")

    @property
    def ways(self) -> frozenset[Way]:
        """Ways in which the tree can spend beside a delta."""
        return self.noise.ways

    @property
    def has_fixed_amounts(self) -> bool:
        """Whether the budgets of its levels are given as numbers."""
        return False

    @property
    def error_unit(self) -> str | None:
        """The unit of `predicted`; None where it is no error that other trees' can be compared
        with."""
        return None

    def check(self, measure: Measure, *, delta: bool) -> None:
        """Refuse choices that the guarantee of the release does not have.

        Args:
            measure: of the release's budget.
            delta: whether a delta accompanies it.

        Raises:
            Refusal: naming the choice.
        """
        if delta:
            if self.has_fixed_amounts and self.noise is not Noise.LAPLACE:
                raise Refusal(
                    "level_budgets",
                    "with a delta they must be equal or optimal, because the budget of the levels "
                    "is a rho that is computed; or choose laplace noise",
                )
            return
        is_pure = measure is Measure.EPSILON
        if self.noise is (Noise.GAUSSIAN if is_pure else Noise.LAPLACE):
            needed = "rho, or epsilon with a delta" if is_pure else "epsilon"
            raise Refusal("noise", f"{self.noise.value} noise needs {needed}")

    def under(self, measure: Measure, *, delta: bool) -> Workload[Any]:
        """The workload without the mechanisms that a guarantee rules out.

        Args:
            measure: of the release's budget.
            delta: whether a delta accompanies it.
        """
        return self

    @abstractmethod
    def planned(self, share: Share, terms: ReleaseTerms) -> Planned:
        """The question with its plan.

        Raises:
            ValueError: the share is too small or too large, or choices do not fit each other; a
                `Refusal` where one choice is at fault.
        """

    def predicted(self, question: Planned) -> float:
        """The error of a plan in what it is for, in its unit; 1 where plans are not compared.

        Args:
            question: one of `planned`.
        """
        return 1.0

    def error_in_rows(self, question: Planned) -> float:
        """The typical error of a plan in rows, by which bounds of a unit are chosen: what is
        predicted, where that is in rows, else the noise of one count that has the whole share.

        Args:
            question: one of `planned`.
        """
        if self.error_unit == "rows":
            return self.predicted(question)
        spent = question.spending
        if spent.rho:
            return 1 / math.sqrt(2 * spent.rho)
        return math.sqrt(2) / float(spent.epsilon)

    def condition(self, question: Planned) -> str | None:
        """Condition under which the predicted error of a plan holds; None where it holds whatever
        the data.

        Args:
            question: one of `planned`.
        """
        return None

    def with_keys(self, keys: Keys) -> Workload[Planned]:
        """The same of other keys.

        Args:
            keys: in place of those there are.
        """
        return replace(self, keys=keys)

    def resolved(self, question: Planned) -> Workload[Any]:
        """The workload of the mechanism that a plan has, where several are open.

        Args:
            question: one of `planned`.
        """
        return self

    @property
    def may_add_up(self) -> bool:
        """Whether the answers of several periods of a series can be put together."""
        return False

    @property
    def may_accumulate(self) -> bool:
        """Whether it plans `dpcore.questions.accumulated.AccumulatedTree`s that can be released of
        all periods of a series so far."""
        return False

    def linear(self) -> Workload[Any]:
        """The workload over the periods of a series, which are added up."""
        return self

    def why(self, question: Planned) -> str | None:
        """Why a plan has its mechanism, in one line; None where no other was open.

        Args:
            question: one of `planned`.
        """
        return None
