"""The section `privacy`, and bounds that are chosen privately: ``lower: auto``, ``upper: auto``.

A tree's section with such bounds is checked with stand-ins, the widest that may be chosen, and
checked again with the chosen bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.choices.value_bounds import (
    LARGEST_INTEGER,
    LARGEST_NUMBER,
    candidate_bounds,
    candidate_dates,
    common_step,
)
from dptrees.dpcore.privacy.unit import (
    MOST_ROWS,
    Budget,
    Measure,
    Neighbors,
    NullUnits,
    PrivacyUnit,
    UnitType,
)
from dptrees.dpcore.release.split import BudgetSplit
from dptrees.dpcore.rows.numbers import read_moment
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, moment, shown
from dptrees.pipelines.sections.rules import Amount, Section


def _columns(value: object) -> tuple[str, ...]:
    """The columns of a unit; none is the row."""
    if value == "row":
        return ()
    return rules.each_once(tuple(map(rules.text, rules.one_or_several(value))))


def _bound(value: object) -> int:
    """How much of a unit is counted."""
    bound = rules.whole_number(value)
    if not 1 <= bound <= MOST_ROWS:
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to {MOST_ROWS}")
    return bound


AUTO = "auto"
# Of the budget, for a bound of a unit.
UNIT_SHARE = Fraction(3, 20)
DEFAULT_AT_MOST = 10_000


@dataclass(frozen=True, kw_only=True)
class AutoBound:
    """A bound of a unit that is chosen privately.

    Args:
        share: the part of the budget of the release that the choice spends.
        at_most: the largest bound that may be chosen.
    """

    share: Fraction = UNIT_SHARE
    at_most: int = DEFAULT_AT_MOST


def bound_or_auto(value: object) -> int | AutoBound:
    """A bound, ``auto``, or a section of ``fraction`` and ``at_most``."""
    if value == AUTO:
        return AutoBound()
    if isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a whole number from 1 to {MOST_ROWS}, or auto")
    if not isinstance(value, dict):
        return _bound(value)
    section = rules.section(value)
    rules.known_keys(section, ("fraction", "at_most"))
    given: dict[str, object] = {}
    if "fraction" in section:
        given["share"] = rules.at(".fraction", rules.share, section["fraction"])
    if "at_most" in section:
        given["at_most"] = rules.at(".at_most", _at_most, section["at_most"])
    return AutoBound(**given)  # type: ignore[arg-type]


def _at_most(value: object) -> int:
    if _bound(value) < 2:
        raise RuleBroken(f"{shown(value)} must be at least 2, so that there is a choice")
    return _bound(value)


Bound = Annotated[int, PlainValidator(_bound)]
ChosenBound = Annotated[int | AutoBound, PlainValidator(bound_or_auto)]


class PrivacySection(Section):
    """The guarantee of the whole release."""

    epsilon: Amount | None = None
    rho: Amount | None = None
    delta: Annotated[Fraction | None, PlainValidator(rules.delta)] = None
    neighbors: Annotated[str, PlainValidator(rules.choice(*(each.value for each in Neighbors)))]
    split: Annotated[str, PlainValidator(rules.choice(*(each.value for each in BudgetSplit)))] = (
        "weights"
    )
    unit: Annotated[tuple[str, ...], PlainValidator(_columns)] = ()
    max_rows: ChosenBound | None = None
    max_keys: ChosenBound | None = None
    max_rows_per_key: Bound | None = None
    null_unit: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in NullUnits)))
    ] = None
    unit_type: Annotated[
        str | None, PlainValidator(rules.choice(*(each.value for each in UnitType)))
    ] = None

    @section_rule(mode="after")
    def _one_budget(self) -> Self:
        rules.exactly_one(epsilon=self.epsilon, rho=self.rho)
        if self.delta is not None and self.epsilon is None:
            raise RuleBroken("goes with epsilon, not with rho", at=".delta")
        return self

    @section_rule(mode="after")
    def _bounded_unit(self) -> Self:
        for name in ("max_rows", "max_keys", "max_rows_per_key", "null_unit", "unit_type"):
            if not self.unit and getattr(self, name) not in (None, 1):
                raise RuleBroken(
                    "has no effect if the unit is the row; name the column of the unit",
                    at=f".{name}",
                )
        if isinstance(self.max_keys, AutoBound) and self.max_rows_per_key is None:
            raise RuleBroken(
                "auto needs max_rows_per_key: without it, fewer keys per unit do not reduce "
                "the noise",
                at=".max_keys",
            )
        if self.unit_type is not None and self.null_unit == NullUnits.OWN.value:
            raise RuleBroken(
                "own does not go with unit_type: many rows with one value that is not a valid "
                f"{self.unit_type} would be many units; leave null_unit out, or say drop",
                at=".null_unit",
            )
        return self

    @property
    def auto_bounds(self) -> Mapping[str, AutoBound]:
        """The bounds that are chosen privately, by their keys."""
        named = {"max_rows": self.max_rows, "max_keys": self.max_keys}
        return {name: each for name, each in named.items() if isinstance(each, AutoBound)}

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """What the guarantee protects; with 1 in the place of a bound that is yet to be chosen."""
        neighbors = Neighbors(self.neighbors)
        if not self.unit:
            return PrivacyUnit(neighbors=neighbors)
        return PrivacyUnit(
            neighbors=neighbors,
            columns=self.unit,
            rows=_or_one(self.max_rows) or _or_one(self.max_keys) or 1,
            keys=_or_one(self.max_keys),
            rows_per_key=self.max_rows_per_key,
            nulls=NullUnits(self.null_unit or "drop"),
            type=None if self.unit_type is None else UnitType(self.unit_type),
        )

    @property
    def budget(self) -> Budget:
        """The whole release's, but for a delta."""
        if self.epsilon is not None:
            return Budget(measure=Measure.EPSILON, amount=self.epsilon)
        assert self.rho is not None
        return Budget(measure=Measure.RHO, amount=self.rho)


def _or_one(bound: int | AutoBound | None) -> int | None:
    return 1 if isinstance(bound, AutoBound) else bound


LOWER, UPPER = "lower", "upper"
LIMITS = {LOWER: "at_least", UPPER: "at_most"}
_LARGEST = {"number": LARGEST_NUMBER, "integer": LARGEST_INTEGER}
OF_TIME = ("date", "timestamp")
AUTO_TYPES = (*_LARGEST, *OF_TIME)
# The widest range by default: each integer and each day is a cell.
_WIDEST: dict[str, tuple[Any, Any]] = dict.fromkeys(OF_TIME, (date(1800, 1, 1), date(2200, 1, 1)))
_WIDEST |= {"number": (-LARGEST_NUMBER, LARGEST_NUMBER), "integer": (-(10**6), 10**6)}
# Each of their values is a cell.
WHOLE_TYPES = ("integer", "date")
# Keys of a tree that are written for a known number of cells.
_OF_CELLS = ("fanouts", "level_weights", "widths", "level_budgets", "guess")
ONLY_NUMBERS = (
    "auto is only for a tree of type number or integer whose other bound is a number or auto, or "
    "of type date or timestamp (write the type) whose other bound is a date, a time in whole "
    "minutes or auto; write a value here"
)


@dataclass(frozen=True, kw_only=True)
class AutoEnd:
    """One bound of values that is chosen privately.

    Args:
        share: the part of the budget of the release that the choice spends; None: an equal part of
            what all such bounds spend together.
        limit: the farthest value that may be chosen.
    """

    share: Fraction | None
    limit: Any


@dataclass(frozen=True, kw_only=True)
class AutoRange:
    """The bounds of a column that are chosen privately.

    Args:
        column: whose values are bounded.
        kind: the type of its values, of `AUTO_TYPES`.
        ends: the bounds that are chosen, by "lower" and "upper"; at least one.
        given: the bounds that are given, by the same words.
    """

    column: str
    kind: str
    ends: tuple[tuple[str, AutoEnd], ...]
    given: tuple[tuple[str, Any], ...]

    @property
    def share(self) -> Fraction:
        """The part of the budget that the choices spend together."""
        return sum((each.share or Fraction(0) for _, each in self.ends), Fraction(0))

    def with_share(self, share: Fraction) -> AutoRange:
        """The range with a share for the bounds that have none."""
        ends = ((side, replace(end, share=end.share or share)) for side, end in self.ends)
        return replace(self, ends=tuple(ends))

    @property
    def stand_ins(self) -> dict[str, Any]:
        """The farthest values that may be chosen, by bound."""
        return {side: end.limit for side, end in self.ends}

    @property
    def candidates(self) -> tuple[Any, ...]:
        """The values that are chosen from.

        Raises:
            RuleBroken: there are too few, or they are too far from 0.
        """
        ends = self.stand_ins | dict(self.given)
        first = self.ends[0][0]
        numbers = partial(candidate_bounds, integers=self.kind == "integer")
        between: Any = candidate_dates if self.kind in OF_TIME else numbers
        try:
            values = between(ends[LOWER], ends[UPPER])
        except Refusal as refusal:
            raise RuleBroken(refusal.rule, at=f".domain.{refusal.field}") from None
        given = [value for _, value in self.given]
        left = tuple(value for value in values if value not in given)
        if len(left) < 1 + len(self.ends):
            low, high = (shown(ends[side]) for side in (LOWER, UPPER))
            raise RuleBroken(f"auto has no choice between {low} and {high}", at=f".domain.{first}")
        return left

    @property
    def narrowest(self) -> dict[str, Any]:
        """Bounds of the smallest range that may be chosen, near the first candidate."""
        values = iter(self.candidates)
        if len(self.ends) > 1:
            return {LOWER: next(values), UPPER: next(values)}
        side = self.ends[0][0]
        return {side: self.candidates[0 if side == UPPER else -1]}

    def request(self) -> dict[str, object]:
        """The chosen bounds as the request of a configuration has them."""
        return {
            side: {
                AUTO: ({} if end.share is None else {"share": end.share})
                | {LIMITS[side]: end.limit}
            }
            for side, end in self.ends
        }


def auto_range(tree: Mapping[str, Any]) -> AutoRange | None:
    """The bounds of a tree that are chosen privately; None where there are none.

    Args:
        tree: the section of a tree, as `pipelines.sections.document` reads it.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> domain = {"column": "fare", "lower": 0, "upper": "auto", "cells": 10}
    >>> found = auto_range({"name": "fare", "domain": domain})
    >>> found.stand_ins, len(found.candidates)
    ({'upper': 1000000000000}, 181)
    """
    domain = tree.get("domain")
    if not isinstance(domain, Mapping):
        return None
    wanted = [side for side in (LOWER, UPPER) if is_auto(domain.get(side))]
    kind = domain.get("type", "number")
    given = {side: domain.get(side) for side in (LOWER, UPPER) if side not in wanted}
    is_known = kind in AUTO_TYPES and "categories" not in domain and "values" not in domain
    if wanted and "per_unit" in domain:
        raise RuleBroken(
            "auto chooses bounds for values of rows, not of units; write a value here",
            at=f".domain.{wanted[0]}",
        )
    known = {side: _value(kind, each) for side, each in given.items()}
    if not wanted or not is_known or None in known.values():
        return None
    ends = [(side, rules.at(f".domain.{side}", _Ends(side, kind), domain[side])) for side in wanted]
    result = AutoRange(
        column=str(domain.get("column", "")),
        kind=kind,
        ends=tuple(ends),
        given=tuple(known.items()),
    )
    if kind in WHOLE_TYPES:
        _check_cells(tree, domain, wanted[0])
    elif isinstance(guess := tree.get("guess"), Mapping) and "below" in guess:
        raise RuleBroken(f"does not go with {wanted[0]}: auto", at=".guess.below")
    values, cells = result.candidates, domain.get("cells")
    step = common_step(values) if kind == "timestamp" else 0
    if isinstance(cells, int) and cells > 0 and step % cells:
        raise RuleBroken(
            f"{cells} must divide {step:,} microseconds, which divide the distances of all bounds "
            "that may be chosen",
            at=".domain.cells",
        )
    return result


def is_auto(value: object) -> bool:
    """Whether a bound says that it is chosen privately."""
    return value == AUTO or isinstance(value, Mapping)


def _check_cells(tree: Mapping[str, Any], domain: Mapping[str, Any], side: str) -> None:
    for key in sorted({"cells", "days_per_cell"} & domain.keys()):
        raise RuleBroken(
            f"does not go with {side}: auto for integers and dates, each of which is a cell; leave "
            f"{key} out, or use type: number or timestamp",
            at=f".domain.{key}",
        )
    for key in _OF_CELLS:
        if key in tree and not (key == "level_budgets" and isinstance(tree[key], str)):
            raise RuleBroken(
                f"does not go with {side}: auto for integers and dates, whose number is not known "
                "yet",
                at=f".{key}",
            )


def _value(kind: str, value: object) -> Any:
    """A value of a type, as dpcore takes it; None if it is none."""
    if kind == "timestamp":
        time = read_moment(value)
        return time if time and not time.second + time.microsecond else None
    found = moment(value) if kind == "date" else rules.plain_value(value)
    types = date if kind == "date" else (int, float)
    return found if isinstance(found, types) and not isinstance(found, (bool, datetime)) else None


@dataclass(frozen=True)
class _Ends:
    """The rule of one bound: ``auto``, or a section of ``fraction`` and its limit."""

    side: str
    kind: str

    def __call__(self, value: object) -> AutoEnd:
        name = LIMITS[self.side]
        section = {} if value == AUTO else rules.section(value)
        rules.known_keys(section, ("fraction", name))
        given = section.get("fraction")
        share = None if given is None else rules.at(".fraction", rules.share, given)
        limit = section.get(name, _WIDEST[self.kind][self.side == UPPER])
        return AutoEnd(share=share, limit=rules.at(f".{name}", self._limit, limit))

    def _limit(self, value: object) -> Any:
        given = rules.whole_number(value) if self.kind == "integer" else value
        limit, most = _value(self.kind, given), _LARGEST.get(self.kind)
        if limit is None or (most and not abs(limit) <= most):
            rule = f"a number from -{most:,} to {most:,}" if most else "a date or a whole minute"
            raise RuleBroken(f"{shown(value)} must be {rule}")
        return limit
