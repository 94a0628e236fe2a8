"""The section `series`: the runs that one budget is for, and which of them is made."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.series.runs import Lateness, Series
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Section, Text


def _day(value: object) -> date | None:
    """A day, written as one or as a text; None where it is none."""
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _start(value: object) -> date:
    day = _day(value)
    if day is None:
        raise RuleBroken(f"{shown(value)} must be a date such as 2013-01-01")
    return day


def _period(value: object) -> int | date:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        return int(value)
    day = _day(value)
    if day is None:
        raise RuleBroken(
            f"{shown(value)} must be a whole number, or a date such as 2013-01-05 beside start"
        )
    return day


PER_PERIOD, PER_SERIES = "per_period", "per_series"


class LatenessSection(Section):
    """Which rows of earlier days are counted in a period."""

    column: Text
    periods: Annotated[int, PlainValidator(rules.whole_number)]

    @section_rule(mode="after")
    def _check_periods(self) -> Self:
        if self.periods < 0:
            raise RuleBroken(f"{self.periods} is below 0", at=".periods")
        return self


class SeriesSection(Section):
    """The runs that one budget is for, and which of them is made."""

    periods: Annotated[int, PlainValidator(rules.whole_number)]
    period: Annotated[int | date, PlainValidator(_period)]
    start: Annotated[date | None, PlainValidator(_start)] = None
    fanout: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    unit: Annotated[str, PlainValidator(rules.choice(PER_PERIOD, PER_SERIES))] = PER_PERIOD
    max_periods: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    lateness: LatenessSection | None = None

    @section_rule(mode="after")
    def _check_series(self) -> Self:
        if isinstance(self.period, date) and self.start is None:
            raise RuleBroken(
                "is required if the period is a date: the date of period 1", at=".start"
            )
        if self.lateness is not None and self.start is None:
            raise RuleBroken("is required with lateness: the day of period 1", at=".start")
        if self.max_periods is not None and self.unit == PER_PERIOD:
            raise RuleBroken(
                "goes with unit: per_series; a unit of one period is counted in every period",
                at=".max_periods",
            )
        try:
            _ = self.series
        except Refusal as refusal:
            is_day = refusal.field == "period" and isinstance(self.period, date)
            day = f"{self.period} is period {self.number}, and " if is_day else ""
            raise RuleBroken(f"{day}{refusal.rule}", at=f".{refusal.field}") from None
        return self

    @property
    def number(self) -> int:
        """The period, from 1 on; a date is the day that it is, counted from the start."""
        if isinstance(self.period, int):
            return self.period
        assert self.start is not None
        return (self.period - self.start).days + 1

    @property
    def series(self) -> Series:
        """The runs.

        Raises:
            Refusal: a number out of range.
        """
        return Series(
            periods=self.periods,
            period=self.number,
            fanout=self.fanout,
            max_periods=self._max_periods,
            lateness=self._lateness,
        )

    @property
    def _lateness(self) -> Lateness | None:
        if self.lateness is None or self.start is None:
            return None
        return Lateness(
            column=self.lateness.column,
            start=self.start.isoformat(),
            periods=self.lateness.periods,
        )

    @property
    def _max_periods(self) -> int | None:
        """In how many periods a unit is counted, where all its rows are protected together."""
        if self.unit == PER_PERIOD:
            return None
        return self.periods if self.max_periods is None else self.max_periods
