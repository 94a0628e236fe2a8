"""The registry of mechanisms: what the commands need of each, by its class in dpcore.

A new mechanism is a module beside this one and a line here; its name in a configuration is in
`pipelines.ordered.mechanisms`, or in the section of a hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.pipelines.description.description import Description
from dptrees.pipelines.target import ErrorTarget


class Described(NamedTuple):
    """What the commands need of a mechanism.

    Attributes:
        describe: gives the description of a question's plan.
        target: gives the budget of one tree alone for an error.
    """

    describe: Callable[[Any], Description]
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry


# Each is imported when a plan first has it: all of them take longer than most plans.


def _uniform() -> Described:
    from dptrees.pipelines.mechanisms.levels import uniform_description, uniform_target

    return Described(uniform_description, uniform_target)


def _irregular() -> Described:
    from dptrees.pipelines.mechanisms.irregular import irregular_description, irregular_target

    return Described(irregular_description, irregular_target)


def _thresholds() -> Described:
    from dptrees.pipelines.mechanisms.irregular import irregular_target
    from dptrees.pipelines.mechanisms.thresholds import threshold_description

    return Described(threshold_description, irregular_target)


def _adaptive() -> Described:
    from dptrees.pipelines.mechanisms.adaptive import adaptive_description, adaptive_target

    return Described(adaptive_description, adaptive_target)


def _factorized() -> Described:
    from dptrees.pipelines.mechanisms.factorised import factorized_description

    return Described(factorized_description)


def _exponential() -> Described:
    from dptrees.pipelines.mechanisms.exponential import exponential_description

    return Described(exponential_description)


# By the name of the class.
MECHANISMS: dict[str, Callable[[], Described]] = {
    "UniformMechanism": _uniform,
    "IrregularMechanism": _irregular,
    "ThresholdMechanism": _thresholds,
    "AdaptiveMechanism": _adaptive,
    "FactorizedMechanism": _factorized,
    "ExponentialMechanism": _exponential,
}


def mechanism_description(question: TreeQuestion[Any]) -> Description:
    """Return what the mechanism of a question says of its plan."""
    return _described(question).describe(question)


def mechanism_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of one tree alone for an error.

    Raises:
        UserError: there is none.
    """
    return _described(target.question).target(target)


def _described(question: TreeQuestion[Any]) -> Described:
    return MECHANISMS[type(question.mechanism).__name__]()
