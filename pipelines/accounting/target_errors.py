"""The errors that ``dptrees plan --target-error`` is given: of all trees alike, or some trees'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dptrees.dpcore.questions.planning import Workload
from dptrees.pipelines.sections.error import nearest
from dptrees.pipelines.user_error import UserError


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
