"""The mechanisms of a tree over an ordered domain, by their names in a configuration.

A new mechanism is a room of dpcore with a workload, an entry here, and its own entry of
`pipelines.kinds` for what a person sees of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from dpcore.adaptive_ordered.workload import AdaptiveWorkload, GuessedWorkload
from dpcore.factorised_ordered.workload import FactorisedWorkload
from dpcore.ordered.make import OrderedDomain
from dpcore.ordered.workload import OrderedWorkload
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
    chosen: frozenset[str]


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
    """What is closest: whole levels, or by a public guess of the rows an adaptive tree."""
    whole = uniform_levels("planned", asked)
    objective = asked.objective
    is_cdf = objective.kind in ("cdf", "ranges", "quantiles")
    guessed_values = isinstance(objective, QuantileObjective) and objective.guesses
    if asked.guessed_rows is None or guessed_values or not is_cdf:
        return whole
    if asked.chosen & _OF_WHOLE_LEVELS:
        return whole
    return GuessedWorkload(
        name=asked.name,
        domain=asked.domain,
        keys=asked.keys,
        weight=asked.weight,
        noise=asked.noise,
        quantiles=asked.quantiles,
        whole=whole,
        adaptive=adaptive(asked),
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


MECHANISMS: Mapping[str, Callable[[OrderedAsked], Workload[Any]]] = {
    "planned": planned,
    **{
        name: partial(uniform_levels, name)
        for name in ("tree", "binary", "histogram", "independent")
    },
    "adaptive": adaptive,
    "factorised": factorised,
}

_OWN = "the mechanism adaptive has its own"
_NO_LEVELS = "is for trees; the mechanism factorised measures no levels"
# Of a mechanism the keys of a section that stand for nothing, and why.
_NOT_ASKED: Mapping[str, Mapping[str, str]] = {
    "adaptive": {
        "objective": "the mechanism adaptive has one plan for CDF, ranges and quantiles; leave it "
        "out",
        "level_budgets": _OWN,
        "estimation": _OWN,
        "consistency": _OWN,
    },
    "factorised": {
        "fanouts": _NO_LEVELS,
        "level_budgets": _NO_LEVELS,
        "level_weights": _NO_LEVELS,
        "estimation": _NO_LEVELS,
        "consistency": _NO_LEVELS,
        "guess": "the mechanism factorised is planned for data that may lie anywhere",
        "read_as": "the mechanism factorised has one plan for counts and estimates",
    },
}


def refused_choice(mechanism: str, chosen: Mapping[str, object]) -> tuple[str, str] | None:
    """The first choice that a mechanism does not have, and why; None where there is none.

    Args:
        mechanism: of the section.
        chosen: its keys that stand in it, with their values.
    """
    for key, reason in _NOT_ASKED.get(mechanism, {}).items():
        if key in chosen:
            return key, reason
    return None
