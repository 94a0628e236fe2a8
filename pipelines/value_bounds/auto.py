"""Bounds of an ordered tree's domain that are chosen privately: ``lower: auto``, ``upper: auto``.

The section of a tree with such bounds is checked with stand-ins for them, the widest that may be
chosen, and checked again with the bounds that were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dptrees.dpcore.choices.value_bounds import LARGEST_INTEGER, LARGEST_NUMBER, candidate_bounds
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.privacy import AUTO, DEFAULT_SHARE

LOWER, UPPER = "lower", "upper"
LIMITS = {LOWER: "at_least", UPPER: "at_most"}
_SIGNS = {LOWER: -1, UPPER: 1}
# The widest range of integers by default: each of them is a cell.
_MOST_INTEGERS = 10**6
AUTO_TYPES = ("number", "integer")
# Keys of a tree that are written for a known number of cells.
_OF_CELLS = ("fanouts", "level_weights", "widths", "level_budgets", "guess")
ONLY_NUMBERS = (
    "auto is only for a tree of type number or integer whose other bound is a number or "
    "auto; write a value here"
)


@dataclass(frozen=True, kw_only=True)
class AutoEnd:
    """One bound of values that is chosen privately.

    Args:
        share: the part of the budget of the release that the choice spends.
        limit: the farthest value that may be chosen.
    """

    share: Fraction
    limit: float


@dataclass(frozen=True, kw_only=True)
class AutoRange:
    """The bounds of a column that are chosen privately.

    Args:
        column: whose values are bounded.
        integers: integers are counted, not numbers.
        ends: the bounds that are chosen, by "lower" and "upper"; at least one.
        given: the bounds that are given, by the same words.
    """

    column: str
    integers: bool
    ends: tuple[tuple[str, AutoEnd], ...]
    given: tuple[tuple[str, float], ...]

    @property
    def share(self) -> Fraction:
        """The part of the budget that the choices spend together."""
        return sum((each.share for _, each in self.ends), Fraction(0))

    @property
    def stand_ins(self) -> dict[str, float]:
        """The farthest values that may be chosen, by bound."""
        return {side: end.limit for side, end in self.ends}

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values that are chosen from.

        Raises:
            RuleBroken: there are too few, or they are too far from 0.
        """
        ends = self.stand_ins | dict(self.given)
        first = self.ends[0][0]
        try:
            values = candidate_bounds(ends[LOWER], ends[UPPER], integers=self.integers)
        except Refusal as refusal:
            raise RuleBroken(refusal.rule, at=f".domain.{refusal.field}") from None
        given = [value for _, value in self.given]
        left = tuple(value for value in values if value not in given)
        if len(left) < 1 + len(self.ends):
            raise RuleBroken(
                f"auto has no choice between {ends[LOWER]:,} and {ends[UPPER]:,}",
                at=f".domain.{first}",
            )
        return left

    @property
    def narrowest(self) -> dict[str, float]:
        """Bounds of the smallest range that may be chosen, near the first candidate."""
        values = iter(self.candidates)
        if len(self.ends) > 1:
            return {LOWER: next(values), UPPER: next(values)}
        side = self.ends[0][0]
        return {side: self.candidates[0 if side == UPPER else -1]}

    def request(self) -> dict[str, object]:
        """The chosen bounds as the request of a configuration has them."""
        return {
            side: {AUTO: {"share": end.share, LIMITS[side]: end.limit}} for side, end in self.ends
        }


def auto_range(tree: Mapping[str, Any]) -> AutoRange | None:
    """The bounds of a tree that are chosen privately; None where there are none.

    Args:
        tree: the section of a tree, as `pipelines.sections.yaml_document` reads it.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> domain = {"column": "fare", "lower": 0, "upper": "auto", "cells": 10}
    >>> found = auto_range({"name": "fare", "domain": domain})
    >>> found.stand_ins, len(found.candidates)
    ({'upper': 1000000000000}, 145)
    """
    domain = tree.get("domain")
    if not isinstance(domain, Mapping):
        return None
    wanted = [side for side in (LOWER, UPPER) if is_auto(domain.get(side))]
    kind = domain.get("type", "number")
    given = {side: domain.get(side) for side in (LOWER, UPPER) if side not in wanted}
    is_known = kind in AUTO_TYPES and "categories" not in domain and "values" not in domain
    if not wanted or not is_known or not all(map(_is_number, given.values())):
        return None
    integers = kind == "integer"
    ends = [
        (side, rules.at(f".domain.{side}", _Ends(side, integers), domain[side])) for side in wanted
    ]
    result = AutoRange(
        column=str(domain.get("column", "")),
        integers=integers,
        ends=tuple(ends),
        given=tuple((side, rules.plain_value(each)) for side, each in given.items()),  # type: ignore[misc]
    )
    if integers:
        _check_cells(tree, domain, wanted[0])
    elif isinstance(guess := tree.get("guess"), Mapping) and "below" in guess:
        raise RuleBroken(f"does not go with {wanted[0]}: auto", at=".guess.below")
    _ = result.candidates
    return result


def is_auto(value: object) -> bool:
    """Whether a bound says that it is chosen privately."""
    return value == AUTO or isinstance(value, Mapping)


def _check_cells(tree: Mapping[str, Any], domain: Mapping[str, Any], side: str) -> None:
    if "cells" in domain:
        raise RuleBroken(
            f"does not go with {side}: auto for integers, each of which is a cell; leave cells "
            "out, or use type: number",
            at=".domain.cells",
        )
    for key in _OF_CELLS:
        if key in tree and not (key == "level_budgets" and isinstance(tree[key], str)):
            raise RuleBroken(
                f"does not go with {side}: auto for integers, whose number is not known yet",
                at=f".{key}",
            )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


@dataclass(frozen=True)
class _Ends:
    """The rule of one bound: ``auto``, or a section of ``fraction`` and its limit."""

    side: str
    integers: bool

    def __call__(self, value: object) -> AutoEnd:
        name = LIMITS[self.side]
        section = {} if value == AUTO else rules.section(value)
        rules.known_keys(section, ("fraction", name))
        share = rules.at(".fraction", rules.share, section.get("fraction", Decimal("0.05")))
        assert "fraction" in section or share == DEFAULT_SHARE
        if name in section:
            return AutoEnd(share=share, limit=rules.at(f".{name}", self._limit, section[name]))
        most = _MOST_INTEGERS if self.integers else LARGEST_NUMBER
        return AutoEnd(share=share, limit=_SIGNS[self.side] * most)

    def _limit(self, value: object) -> float:
        most = LARGEST_INTEGER if self.integers else LARGEST_NUMBER
        number = rules.whole_number(value) if self.integers else rules.plain_value(value)
        if not _is_number(number) or not abs(number) <= most:  # type: ignore[arg-type]
            raise RuleBroken(f"{shown(value)} must be a number from -{most:,} to {most:,}")
        return number  # type: ignore[return-value]
