"""The registry of descriptions of plans, by the class of the mechanism in dpcore."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.pipelines.show.description import Description
from dptrees.pipelines.show.targets import ErrorTarget


class Described(NamedTuple):
    """What the commands need of a mechanism.

    Attributes:
        describe: gives the description of a question's plan.
        target: gives the budget of one tree alone for an error.
    """

    describe: Callable[[Any], Description]
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry


def _later(describe: str, target: str | None = None) -> Callable[[], Described]:
    """What imports a mechanism's functions when a plan first has it: all take longer than a plan.

    Args:
        describe, target: each a module of `pipelines.show`, a colon, and the name of a function.
    """

    def imported(place: str) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(f"dptrees.pipelines.show.{module}"), name)

    if target is None:
        return lambda: Described(imported(describe))
    return lambda: Described(imported(describe), imported(target))


# By the name of the class.
MECHANISMS: dict[str, Callable[[], Described]] = {
    "UniformMechanism": _later("levels:uniform_description", "levels:uniform_target"),
    "IrregularMechanism": _later("irregular:irregular_description", "irregular:irregular_target"),
    "ThresholdMechanism": _later("irregular:threshold_description", "irregular:irregular_target"),
    "AdaptiveMechanism": _later("adaptive:adaptive_description", "adaptive:adaptive_target"),
    "FactorizedMechanism": _later("levels:factorized_description"),
    "ExponentialMechanism": _later("quantiles:exponential_description"),
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
