"""The registry of mechanisms: what the commands need of each, by its class in dpcore.

A new mechanism is a module beside this one and a line here; its name in a configuration is in
`pipelines.ordered.mechanisms`, or in the section of a hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.exponential.mechanism import ExponentialMechanism
from dpcore.factorised.mechanism import FactorizedMechanism
from dpcore.levels.irregular import IrregularMechanism
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.levels.uniform import UniformMechanism
from dpcore.questions.mechanism import Mechanism
from dpcore.questions.tree_question import TreeQuestion
from pipelines.description.description import Description
from pipelines.mechanisms.adaptive import adaptive_description, adaptive_target
from pipelines.mechanisms.exponential import exponential_description
from pipelines.mechanisms.factorised import factorized_description
from pipelines.mechanisms.levels import (
    irregular_description,
    irregular_target,
    uniform_description,
    uniform_target,
)
from pipelines.mechanisms.thresholds import threshold_description
from pipelines.target import ErrorTarget


class Described(NamedTuple):
    """What the commands need of a mechanism.

    Attributes:
        describe: gives the description of a question's plan.
        target: gives the budget of one tree alone for an error.
    """

    describe: Callable[[Any], Description]
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry


MECHANISMS: Mapping[type[Mechanism[Any, Any]], Described] = {
    UniformMechanism: Described(uniform_description, uniform_target),
    IrregularMechanism: Described(irregular_description, irregular_target),
    ThresholdMechanism: Described(threshold_description, irregular_target),
    AdaptiveMechanism: Described(adaptive_description, adaptive_target),
    FactorizedMechanism: Described(factorized_description),
    ExponentialMechanism: Described(exponential_description),
}


def mechanism_description(question: TreeQuestion[Any]) -> Description:
    """Return what the mechanism of a question says of its plan."""
    return MECHANISMS[type(question.mechanism)].describe(question)


def mechanism_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one tree alone for an error.

    Raises:
        UserError: there is none.
    """
    return MECHANISMS[type(target.question.mechanism)].target(target)
