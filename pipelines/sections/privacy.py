"""The section `privacy`: the guarantee of the whole release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

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
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Amount, Section


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
DEFAULT_SHARE = Fraction(1, 20)
DEFAULT_AT_MOST = 10_000


@dataclass(frozen=True, kw_only=True)
class AutoBound:
    """A bound of a unit that is chosen privately.

    Args:
        share: the part of the budget of the release that the choice spends.
        at_most: the largest bound that may be chosen.
    """

    share: Fraction = DEFAULT_SHARE
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
        if self.unit and self.max_rows is None:
            raise RuleBroken(
                f"is required if the unit is not the row ({', '.join(self.unit)}): the number of "
                "its rows that a tree counts",
                at=".max_rows",
            )
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
            rows=_or_one(self.max_rows) or 1,
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
