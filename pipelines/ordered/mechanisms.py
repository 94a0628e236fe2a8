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
        for_counts=asked.read_as is ReadAs.COUNTS,
        guessed_rows=_rows_for_counts(asked),
    )


def _rows_for_counts(asked: OrderedAsked) -> int | None:
    """The guessed rows, unless they only say how far apart quantiles lie."""
    objective = asked.objective
    of_values = isinstance(objective, QuantileObjective) and bool(objective.guesses)
    if asked.guessed_rows is None or (of_values and asked.read_as is None):
        return None
    return max(1, round(asked.guessed_rows))


UNIFORM_LEVELS = ("planned", "tree", "binary", "histogram", "independent")

MECHANISMS: Mapping[str, Callable[[OrderedAsked], Workload[Any]]] = {
    name: partial(uniform_levels, name) for name in UNIFORM_LEVELS
}
