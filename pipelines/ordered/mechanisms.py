"""The mechanisms of a tree over an ordered domain, by their names in a configuration.

A new mechanism is a room of dpcore with a workload, an entry here, and its own entry of
`pipelines.kinds` for what a person sees of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

from dpcore.adaptive_ordered.workload import AdaptiveWorkload
from dpcore.exponential.workload import ExponentialWorkload
from dpcore.factorised_ordered.workload import FactorisedWorkload
from dpcore.ordered.make import OrderedDomain
from dpcore.ordered.workload import OrderedWorkload
from dpcore.planned_ordered.for_counts import CountsWorkload
from dpcore.planned_ordered.for_estimates import EstimatesWorkload
from dpcore.planned_ordered.guessed import GuessedWorkload
from dpcore.questions.workload import Noise, Workload
from dpcore.rows.keys import Keys
from dpcore.uniform.objectives import Objective, QuantileObjective
from dpcore.uniform.plan import Consistency, Estimator


class ReadAs(Enum):
    """Which of the two numbers of a node most readers will take."""

    COUNTS = "counts"  # nonnegative integers that add up
    ESTIMATES = "estimates"  # unbiased, with intervals


@dataclass(frozen=True, kw_only=True)
class OrderedAsked:
    """What a section asks of a tree over an ordered domain, whatever its mechanism.

    Attributes:
        read_as: what the plan is best for; None: what is best for the mechanism.
        guessed_rows: a public guess of the rows of a tree (of each key), or None.
        interval_share: of the budget, where intervals are paid for; else 0.
        chosen: the keys of the section that stand in it.
    """

    name: str
    domain: OrderedDomain
    keys: Keys | None
    weight: Fraction
    noise: Noise
    objective: Objective
    quantiles: tuple[float, ...]
    fanouts: tuple[int, ...] | None
    level_budgets: Literal["equal", "optimal"] | tuple[Fraction, ...] | None
    estimator: Estimator
    consistency: Consistency
    read_as: ReadAs | None
    guessed_rows: Fraction | None
    interval_share: Fraction
    chosen: frozenset[str]

    @property
    def guesses_values(self) -> bool:
        """Whether it is guessed where quantiles lie, and not only how many rows there are."""
        return isinstance(self.objective, QuantileObjective) and bool(self.objective.guesses)


def uniform_levels(mechanism: str, asked: OrderedAsked) -> OrderedWorkload:
    """A tree of which whole levels are measured."""
    return OrderedWorkload(
        name=asked.name,
        domain=asked.domain,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        objective=asked.objective,
        quantiles=asked.quantiles,
        mechanism=mechanism,
        fanouts=asked.fanouts,
        level_budgets=asked.level_budgets,
        estimator=asked.estimator,
        consistency=asked.consistency,
        for_counts=asked.read_as is ReadAs.COUNTS,
        guessed_rows=_rows_for_counts(asked),
    )


def _rows_for_counts(asked: OrderedAsked) -> int | None:
    """The guessed rows, unless they only say how far apart quantiles lie."""
    if asked.guessed_rows is None or (asked.guesses_values and asked.read_as is None):
        return None
    return max(1, round(asked.guessed_rows))


def exponential_quantiles(asked: OrderedAsked) -> ExponentialWorkload:
    """Quantiles alone, chosen one after the other."""
    return ExponentialWorkload(
        name=asked.name,
        domain=asked.domain,
        keys=asked.keys,
        weight=asked.weight,
        quantiles=asked.quantiles,
        interval_share=asked.interval_share,
    )


def adaptive(asked: OrderedAsked) -> AdaptiveWorkload:
    """A tree that is divided only where rows are."""
    return AdaptiveWorkload(
        name=asked.name,
        domain=asked.domain,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        quantiles=asked.quantiles,
        counts=asked.read_as is ReadAs.COUNTS,
        guessed_rows=None if asked.guessed_rows is None else float(asked.guessed_rows),
        fanouts=asked.fanouts,
    )


# What a person who chose it chose of whole levels.
_OF_WHOLE_LEVELS = {"fanouts", "level_budgets", "estimation", "consistency", "widths"}


def planned(asked: OrderedAsked) -> Workload[Any]:
    """What is closest: whole levels, or what a public guess of the rows or the errors of estimates
    say is closer."""
    whole = uniform_levels("planned", asked)
    is_cdf = asked.domain.is_ordered and asked.objective.kind in ("cdf", "ranges", "quantiles")
    if asked.guesses_values or not is_cdf or asked.chosen & _OF_WHOLE_LEVELS:
        return whole
    for_counts = asked.read_as is ReadAs.COUNTS
    if asked.guessed_rows is not None and not for_counts:
        return _guessed(asked, whole, asked.guessed_rows)
    if asked.read_as is None or (asked.noise is Noise.LAPLACE and not for_counts):
        return whole
    return _or_past_trees(asked, whole, for_counts=for_counts)


def _or_past_trees(
    asked: OrderedAsked, whole: OrderedWorkload, *, for_counts: bool
) -> Workload[Any]:
    """Whole levels, or a strategy past trees."""
    either = CountsWorkload if for_counts else EstimatesWorkload
    return either(
        name=asked.name,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        whole=whole,
        factorised=factorised(asked),
    )


def _guessed(asked: OrderedAsked, whole: OrderedWorkload, rows: Fraction) -> GuessedWorkload:
    """What a guess chooses among. Quantiles are read off counts, and so are judged by them."""
    by_counts = asked.objective.kind == "quantiles" and asked.read_as is None
    counts = uniform_levels("planned", replace(asked, read_as=ReadAs.COUNTS))
    few = by_counts and asked.noise is Noise.BEST
    return GuessedWorkload(
        name=asked.name,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        whole=_or_past_trees(asked, counts, for_counts=True) if by_counts else whole,
        guessed_rows=rows,
        adaptive=None if by_counts else adaptive(asked),
        exponential=exponential_quantiles(asked) if few else None,
    )


def factorised(asked: OrderedAsked) -> FactorisedWorkload:
    """A strategy past trees: weighted sums of cells."""
    return FactorisedWorkload(
        name=asked.name,
        domain=asked.domain,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        objective=asked.objective,
        quantiles=asked.quantiles,
    )


class Mechanism(NamedTuple):
    """A mechanism of a tree over an ordered domain.

    Attributes:
        workload: what is asked of the tree.
        refused: the keys of a section that stand for nothing, and why.
        allowed: values of these keys that may be said all the same.
    """

    workload: Callable[[OrderedAsked], Workload[Any]]
    refused: Mapping[str, str] = {}
    allowed: Mapping[str, tuple[object, ...]] = {}


_OF_PAPERS = ("tree", "binary", "histogram", "independent")
UNIFORM_LEVELS = ("planned", *_OF_PAPERS)

_OWN = "the mechanism adaptive has its own"
_NO_TREE = "the exponential mechanism has no tree of counts, whose levels would be measured"
_QUANTILES_ALONE = "the exponential mechanism releases quantiles alone, no CDF and no counts"
_NO_LEVELS = "is for trees; the mechanism factorised measures no levels"
_OF_LEVELS = ("level_budgets", "estimation", "consistency")

_FREE = {"intervals": "goes with the mechanism exponential; others have intervals without a share"}

MECHANISMS: Mapping[str, Mechanism] = {
    "planned": Mechanism(planned, refused=_FREE),
    **{name: Mechanism(partial(uniform_levels, name), refused=_FREE) for name in _OF_PAPERS},
    "adaptive": Mechanism(
        adaptive,
        refused={
            "objective": "the mechanism adaptive has one plan for CDF, ranges and quantiles",
            **dict.fromkeys(_OF_LEVELS, _OWN),
            **_FREE,
        },
        allowed={"objective": ("cdf", "ranges", "quantiles")},
    ),
    "exponential": Mechanism(
        exponential_quantiles,
        refused={
            **dict.fromkeys(("fanouts", *_OF_LEVELS), _NO_TREE),
            **dict.fromkeys(("objective", "read_as"), _QUANTILES_ALONE),
            "guess": "the exponential mechanism is planned without one",
            "noise": "the exponential mechanism adds none",
        },
        allowed={"objective": ("quantiles",), "noise": ("best",)},
    ),
    "factorised": Mechanism(
        factorised,
        refused={
            "objective": "the mechanism factorised is planned for CDF, quantiles and ranges alone",
            **dict.fromkeys(("fanouts", "level_weights", *_OF_LEVELS), _NO_LEVELS),
            "guess": "the mechanism factorised is planned for data that may lie anywhere",
            "read_as": "the mechanism factorised has one plan for counts and estimates",
            **_FREE,
        },
        allowed={"objective": ("cdf", "quantiles", "ranges")},
    ),
}


def refused_choice(mechanism: str, chosen: Mapping[str, object]) -> tuple[str, str] | None:
    """The first choice that a mechanism does not have, and why; None where there is none.

    Args:
        mechanism: of the section.
        chosen: its keys that stand in it, with their values.
    """
    own = MECHANISMS[mechanism]
    for key, reason in own.refused.items():
        if key in chosen and chosen[key] not in own.allowed.get(key, ()):
            return key, reason
    return None
