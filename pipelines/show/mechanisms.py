"""Descriptions of mechanisms, by their class in dpcore, and target errors of trees.

A target error is for all trees alike, or for one tree: the smallest budget that meets it is
found. A mechanism that is not in `MECHANISMS` is described by its entry in the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.planning import UNPREDICTED, Setting, Workload
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.pipelines.process import Later, UserError
from dptrees.pipelines.sections.document import nearest, to_refusal
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.show.description import (
    Description,
    entry_description,
    plain_description,
    summary_lines,
)


@dataclass(frozen=True, kw_only=True)
class TargetError:
    """An error that a tree shall have at most.

    Args:
        amount: of the tree's unit, or a part of the guessed rows.
        is_part: which of the two.
    """

    amount: float
    is_part: bool

    def to_tree_unit(self, workload: Workload[Any], rows_guess: float) -> float:
        """The error in the unit of a tree's.

        Raises:
            UserError: it is a part of the rows, and the tree's is in something else.
        """
        if not self.is_part:
            return self.amount
        if workload.error_unit not in (None, "rows"):
            raise UserError(
                f"--target-error: that of {workload.name} is in {workload.error_unit}, so it "
                "cannot be a part of the rows"
            )
        return self.amount * rows_guess


@dataclass(frozen=True, kw_only=True)
class TargetErrors:
    """Errors that trees of a release shall have at most.

    Args:
        each: of every tree, or None.
        named: of some trees, by name, where there is none of every tree.
    """

    each: TargetError | None
    named: Mapping[str, TargetError]

    @classmethod
    def from_text(cls, text: str) -> TargetErrors:
        """What the option of the command says.

        Args:
            text: ``25``, ``1%``, or ``NAME=25,NAME=1%``.

        Raises:
            ValueError: a sentence about a text that says something else.

        >>> found = TargetErrors.from_text("age=25,home=1%")
        >>> found.named["home"], found.each
        (TargetError(amount=0.01, is_part=True), None)
        """
        if "=" not in text:
            return cls(each=_parse_error(text), named={})
        named: dict[str, TargetError] = {}
        for part in text.split(","):
            name, equals, error = part.rpartition("=")
            if not equals or name in named:
                raise ValueError(f"{part!r} must be NAME=ERROR, of each tree once")
            named[name] = _parse_error(error)
        return cls(each=None, named=named)

    def by_tree(
        self, workloads: Sequence[Workload[Any]], rows_guess: float | None
    ) -> dict[int, float]:
        """Return the target error of each tree, in its units, by the tree's place.

        Args:
            workloads: of the trees.
            rows_guess: a public guess of the number of rows, for errors that are fractions of it.

        Raises:
            UserError: no tree has a given name; one error is given for several units; a guess comes
                without a fraction, or a fraction without a guess; or a fraction is given for an
                error that is not in rows.
        """
        places = {workload.name: index for index, workload in enumerate(workloads)}
        for name in self.named:
            if name not in places:
                known = nearest(name, places)
                raise UserError(f"--target-error: there is no tree {name!r}; {known}")
        wanted = self.named if self.each is None else dict.fromkeys(places, self.each)
        units = {each.error_unit: each.name for each in workloads if each.error_unit is not None}
        if self.each is not None and len(units) > 1:
            each_unit = " and ".join(f"{name}'s in {unit}" for unit, name in units.items())
            raise UserError(
                f"--target-error: errors of trees have several units ({each_unit}); name the tree "
                "of each error"
            )
        if not any(error.is_part for error in wanted.values()):
            if rows_guess is not None:
                raise UserError("--rows-guess: goes with a --target-error such as 1%")
            rows_guess = 1.0  # of nothing
        elif rows_guess is None:
            raise UserError("--target-error: a part of the rows needs --rows-guess")
        elif not 0 < rows_guess < math.inf:
            raise UserError(f"--rows-guess: {rows_guess:g} is not a positive number of rows")
        return {
            places[name]: error.to_tree_unit(workloads[places[name]], rows_guess)
            for name, error in wanted.items()
        }


def _parse_error(text: str) -> TargetError:
    is_part = text.endswith("%")
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"invalid float value: {text!r}") from None
    return TargetError(amount=number / 100 if is_part else number, is_part=is_part)


@dataclass(frozen=True, kw_only=True)
class ErrorTarget:
    """An error that one tree alone shall have.

    Args:
        rmse: the error, in the unit of what the tree is for.
        place: of the tree in its configuration.
        section: of the tree.
        question: as it was planned with the others.
        setting: of the tree, with a budget of the measure that is looked for.
        delta: that the release states, None where it states none.
    """

    rmse: float
    place: str
    section: TreeSection
    question: Any
    setting: Setting
    delta: Fraction | None

    def planned(self, amount: Fraction) -> Any:
        """The tree's question with a budget of its own."""
        budget = Budget(measure=self.measure, amount=amount)
        return self._workload.planned(replace(self.setting, budget=budget))

    @property
    def measure(self) -> Measure:
        """The measure of the budget that is looked for."""
        return self.setting.budget.measure

    @cached_property
    def _workload(self) -> Workload[Any]:
        """Workload of the mechanism that the tree was planned with."""
        return self.section.workload().resolved(self.question)

    @cached_property
    def amount(self) -> Fraction:
        """The smallest amount at which the predicted error is the wanted one.

        Raises:
            UserError: there is none.
        """
        # Imported here: few plans are for an error.
        from dptrees.dpcore.levels.planner import budget_for_target

        workload = self._workload
        if workload.error_unit is None and workload.predicted(self.question) == UNPREDICTED:
            raise UserError(f"--target-error: tree {workload.name} has no predicted error")
        try:
            return budget_for_target(
                self.rmse, lambda amount: workload.predicted(self.planned(amount)), self.measure
            )
        except ValueError as problem:
            refusal = to_refusal(problem)
            reason = refusal.rule if refusal.field == "rmse" else str(problem)
            raise UserError(f"--target-error: {reason}") from None

    def to_entry(self, unit: str = "rows") -> dict[str, Any]:
        """The amount as plain values.

        Args:
            unit: of the error.

        Raises:
            UserError: there is none.
        """
        found: dict[str, Any] = {
            "rmse": self.rmse,
            "unit": unit,
            self.measure.value: float(self.amount),
        }
        condition = self._workload.condition(self.question)
        return found if condition is None else found | {"condition": condition}


@dataclass(frozen=True, kw_only=True)
class KindLines:
    """The lines of a kind of tree on the terminal, or of a mechanism, which has no summary.

    Attributes:
        describe: gives the description of a question's plan.
        target: the budget of one tree alone for an error, as plain values.
        summary: the summary of a released tree.
        drawn: what synthetic rows of a released tree keep of it, and what they do not.
    """

    describe: Callable[[Any], Description] = plain_description
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry
    summary: Callable[[Any], Iterator[str]] = summary_lines
    drawn: Callable[[Any], Iterator[str]] = lambda tree: iter(())


def _later(describe: str, target: str | None = None) -> Callable[[], KindLines]:
    """Functions of a mechanism, each by its module in `pipelines.show`, a colon and its name."""
    given = {"describe": describe} | ({} if target is None else {"target": target})
    return lambda: KindLines(**{name: Later(f"show.{at}").load() for name, at in given.items()})


# By the name of the class; others are described by their entry in the manifest.
MECHANISMS: dict[str, Callable[[], KindLines]] = {
    "UniformMechanism": _later("levels:uniform_description", "levels:uniform_target"),
    "IrregularMechanism": _later("irregular:irregular_description", "irregular:irregular_target"),
    "ThresholdMechanism": _later("irregular:threshold_description", "irregular:irregular_target"),
    "AdaptiveMechanism": _later("adaptive:adaptive_description", "adaptive:adaptive_target"),
    "FactorizedMechanism": _later("levels:factorized_description"),
    "ExponentialMechanism": _later("levels:exponential_description"),
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


def _described(question: TreeQuestion[Any]) -> KindLines:
    own = MECHANISMS.get(type(question.mechanism).__name__)
    return KindLines(describe=entry_description) if own is None else own()
