"""The workload of a tree over the periods of a series, its plan, and periods released separately.

Trees whose answers do not add up (thresholds, private choices, rounds) are released in every
period by itself. Where a unit's rows of one period are protected, they are in one release alone,
which has the whole budget. Where all its rows are protected, it counts in at most p periods, and
each has a p-th part of epsilon, delta or rho: basic composition, and that of zCDP (Bun, Steinke
2016, lemma 1.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import pyarrow as pa

from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.messages import (
    Gathered,
    Part,
    Partial,
    Place,
    ReleasedPart,
)
from dptrees.dpcore.questions.planning import Setting, Way, Workload
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.series.question import CarriedCounts, SeriesQuestion, first_level
from dptrees.dpcore.series.runs import (
    Lateness,
    Series,
    check_late_rows,
    check_whole_units,
    counts_new_units,
    with_name,
)
from dptrees.dpcore.series.temporal import (
    Span,
    TemporalSetting,
    TemporalSplit,
    TemporalTree,
    adds_up,
    best_split,
    scaled,
    split_of_fanout,
    with_shares,
)
from dptrees.dpcore.series.totals_to_date import (
    MOST_PERIODS_TOGETHER,
    AccumulatedPeriods,
    PeriodSums,
    WeightedPeriods,
    sums_fit,
)
from dptrees.dpcore.specification import Refusal

S = TypeVar("S", bound=SeriesQuestion)


@dataclass(frozen=True, kw_only=True)
class SeparatePeriods(SeriesQuestion):
    """One period of a tree that is released by itself in every period of a series.

    Args:
        temporal: of periods alone.
        period, max_periods: as of `SeriesQuestion`.
        levels: the tree of a period.

    Raises:
        ValueError: as `SeriesQuestion`, or a temporal tree with more than periods.
    """

    is_keyed = first_level()
    counts_unit_cells = first_level()
    place_balance = first_level()
    merge = first_level()
    rounds = first_level()
    answer = first_level()
    next_request = first_level()
    draw = first_level()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temporal.spans != (1,):
            raise ValueError(f"temporal: the periods of tree {self.name} do not add up")

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def released_spans(self) -> Sequence[Span]:
        return ()

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        own = counts.period if isinstance(counts, CarriedCounts) else counts
        yield from self.levels[0].split_counts(own, choices)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        gathered = self.levels[0].gather(group, sent, noise)
        return Gathered(gathered.returned, list(map(self._named, gathered.released)))

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        return list(map(self._named, self.levels[0].finish(place, kept, returned)))

    def _named(self, released: ReleasedPart) -> ReleasedPart:
        """A part of the tree under its own name; its tables have no columns of periods."""
        part = replace(released.part, tree=self.name)
        return ReleasedPart(part, with_name(released.table, self.name), released.note)

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        found = self.levels[0].conclude(notes)
        return {name: with_name(table, self.name) for name, table in found.items()}


def series_question_from_spec(
    spec: Mapping[str, Any], level: Callable[[Mapping[str, Any]], Question]
) -> SeriesQuestion:
    """The question of a specification, as `SeriesQuestion.spec` writes it.

    Args:
        spec: of the whole.
        level: makes the question of a temporal level from its specification.
    """
    levels: list[Any] = [level(each) for each in spec["levels"]]
    made: type[SeriesQuestion] = SeriesQuestion if adds_up(levels[0]) else SeparatePeriods
    if spec.get("accumulated"):
        made = AccumulatedPeriods
    more: dict[str, Any] = {"window": spec.get("window")}
    if "sums" in spec:
        made, more["sums"] = WeightedPeriods, PeriodSums.from_spec(spec["sums"])
    return made.from_trees(
        TemporalTree(periods=int(spec["periods"]), spans=tuple(spec["spans"])),
        int(spec["period"]),
        levels,
        str(spec["name"]),
        max_periods=None if spec.get("max_periods") is None else int(spec["max_periods"]),
        lateness=Lateness.from_spec(spec["lateness"]) if "lateness" in spec else None,
        **more,
    )


@dataclass(frozen=True, kw_only=True)
class SeriesWorkload(Workload[SeriesQuestion]):
    """A tree over the periods of a series.

    Args:
        own: the workload of the tree.
        series: the runs.
        was_open: other mechanisms were open, which no series can have.
    """

    own: Workload[Any]
    series: Series
    was_open: bool = False

    @classmethod
    def from_workload(cls, own: Workload[Any], series: Series) -> SeriesWorkload:
        """The workload of a tree, over the periods of a series."""
        linear = own.linear()
        return cls(
            name=own.name,
            keys=own.keys,
            weight=own.weight,
            noise=own.noise,
            own=linear,
            series=series,
            was_open=linear is not own,
        )

    def why(self, question: SeriesQuestion) -> str | None:
        if not self.was_open:
            return None
        if isinstance(question, AccumulatedPeriods):
            return (
                "PrivHP in any case: a partition of all periods so far needs noise that does not "
                "depend on what was split"
            )
        return (
            "whole levels in any case: answers of other mechanisms do not add up over the periods "
            "of a series"
        )

    @property
    def error_unit(self) -> str | None:
        return self.own.error_unit

    @property
    def ways(self) -> frozenset[Way]:
        if not self.own.may_add_up or self.own.ways == {Way.OWN}:
            return self.own.ways
        return self.own.ways - {Way.OWN}

    @property
    def has_fixed_amounts(self) -> bool:
        return self.own.has_fixed_amounts

    def check(self, measure: Measure, *, delta: bool) -> None:
        if self.own.has_fixed_amounts:
            raise Refusal(
                "level_budgets",
                "in a series they must be equal or optimal: each temporal level "
                "gets its part of the budget",
            )
        self.own.check(measure, delta=delta)

    def planned(self, setting: Setting) -> SeriesQuestion:
        if self.series.max_periods is not None:
            check_whole_units(setting.unit)
        if self.series.lateness is not None:
            check_late_rows(setting.unit)
            setting = replace(setting, drops_rows=True)
        if setting.delta is not None or not (self.own.may_add_up or self.own.may_accumulate):
            return self._separate(setting)
        split = self._split(setting.budget.measure)
        budgets = self._units.level_budgets(setting.budget, split)
        # One plan for all levels, so that their errors are in proportion: what is best in time and
        # what is best within the tree can then be had one after the other.
        if self.own.may_accumulate:
            to_date = replace(setting, budget=_budget_to_date(setting.budget, split))
            tree: Any = self.own.planned(to_date)
            made: type[SeriesQuestion] = AccumulatedPeriods
            levels = [tree.with_budget(budget) for budget in budgets]
        else:
            sums = self._sums(setting, split.error)
            if sums is not None:
                return sums
            largest = max(budgets, key=lambda each: each.amount)
            planned = self._planned(replace(setting, budget=largest))
            if not adds_up(planned):
                return self._separate(setting)
            made, levels = SeriesQuestion, [scaled(planned, budget) for budget in budgets]
        return self._made(made, split.tree, levels)

    def _made(
        self, made: type[S], temporal: TemporalTree, levels: Sequence[Question], **more: Any
    ) -> S:
        """The question of a kind of the trees of temporal levels."""
        return made.from_trees(
            temporal,
            self.series.period,
            levels,
            self.name,
            max_periods=self.series.max_periods,
            lateness=self.series.lateness,
            window=self.series.window,
            **more,
        )

    def _planned(self, setting: Setting) -> Any:
        """The tree of a period, which has noise that can be added up.

        Raises:
            Refusal: its one count is public.
        """
        tree = self.own.planned(setting)
        mechanism = getattr(tree, "mechanism", None)
        if mechanism is not None and mechanism.public_total and mechanism.plan.tree.leaves == 1:
            raise Refusal(
                "domain",
                "one cell whose count is public has no noise that periods of a series could add "
                "up; use more cells, or leave the tree out",
            )
        return tree

    def _split(self, measure: Measure) -> TemporalSplit:
        """The temporal tree and the shares of its levels."""
        return self._units.split(measure, from_below=not self.own.may_accumulate)

    @property
    def _units(self) -> Series:
        """The runs, with the number of periods in which a unit counts in this tree."""
        return replace(self.series, max_periods=1) if counts_new_units(self.own) else self.series

    def _sums(self, setting: Setting, error: float) -> WeightedPeriods | None:
        """The tree by weighted sums of periods, where these are closer than a temporal tree.

        Args:
            setting: of the tree.
            error: of what is wanted, by a temporal tree.
        """
        series, most = self._units, self._units.max_periods or 1
        if series.fanout is not None or setting.budget.measure is not Measure.RHO:
            return None
        if series.periods < 2 or (most > 1 and series.periods > MOST_PERIODS_TOGETHER):
            return None
        sums = PeriodSums.for_periods(series.periods)
        by_sums = sums.mean_error(most, series.window)
        if by_sums >= error:
            return None
        factor = Fraction(round(by_sums, 3))
        to_date = replace(setting.budget, amount=setting.budget.amount / (factor * factor))
        tree = self._planned(replace(setting, budget=to_date))
        if not sums_fit(tree, series.periods):
            return None
        _, l2_squared = sums.sensitivities(most)
        measured = replace(setting.budget, amount=setting.budget.amount / l2_squared)
        temporal = TemporalTree(periods=series.periods)
        return self._made(WeightedPeriods, temporal, [scaled(tree, measured)], sums=sums)

    def _separate(self, setting: Setting) -> SeriesQuestion:
        """The tree that is released by itself in every period, with what that may spend on a unit's
        rows of it."""
        periods = self.series.max_periods or 1
        of_period = replace(
            setting,
            budget=replace(setting.budget, amount=setting.budget.amount / periods),
            delta=None if setting.delta is None else setting.delta / periods,
        )
        temporal = TemporalTree(periods=self.series.periods)
        return self._made(SeparatePeriods, temporal, [self.own.planned(of_period)])

    def predicted(self, question: SeriesQuestion) -> float:
        """The error of the tree at what the series is planned for, such as a total to date, on
        average over the periods; of periods that do not add up, at one of them."""
        if isinstance(question, SeparatePeriods):
            return self.own.predicted(question.levels[0])
        assert question.budget is not None
        measure = question.budget.measure
        if isinstance(question, WeightedPeriods):
            _, l2_squared = question.sums.sensitivities(question.unit_periods)
            whole = question.mean_error(self.series.window) / math.sqrt(l2_squared)
            return float(whole * self.own.predicted(question.levels[0]))
        split = self._split(measure)
        # A tree is planned for a unit's rows of one period; of all periods there are p times more.
        first = split.shares[0] / question.unit_periods
        whole = first if measure is Measure.EPSILON else math.sqrt(first)
        return float(split.error * whole * self.own.predicted(question.levels[0]))


def _budget_to_date(budget: Budget, split: TemporalSplit) -> Budget:
    """The budget of one release whose noise is that of totals to date, on average over periods: how
    fine a partition of all rows so far may be follows from it."""
    factor = Fraction(round(split.error, 3))
    lost = factor if budget.measure is Measure.EPSILON else factor * factor
    return replace(budget, amount=budget.amount / lost)


def whole_units_cost(question: SeriesQuestion) -> float | None:
    """The growth of errors where all rows of a unit are protected, and not one period of them.

    It is the ratio of the root mean squares of the errors of totals to date, each planned for what
    the series is planned for, by trees of the given fan-out if it has one; of trees that are
    released by themselves, of the errors of one period. Under epsilon every level moves p times as
    far, so the plans are the same, and the ratio is p. None where a unit's rows of one period are
    protected, or trees spend a delta of their own.

    Args:
        question: a tree of a series.
    """
    whole = question.budget
    if question.max_periods is None or whole is None:
        return None
    most, periods, window = question.unit_periods, question.temporal.periods, question.window
    if most == 1 or whole.measure is Measure.EPSILON:
        return float(most)
    if isinstance(question, SeparatePeriods):
        return math.sqrt(most)
    own, setting = question.mean_error(), TemporalSetting(power=1, from_below=question.adds_up)
    fits = question.adds_up and sums_fit(question.levels[0], periods)
    sums = PeriodSums.for_periods(periods) if fits else None

    def totals_error(split: TemporalSplit, counted: int) -> float:
        found = with_shares(split.tree, split.shares, replace(setting, max_periods=counted))
        return found.error

    def planned(counted: int) -> float:
        split = best_split(periods, replace(setting, max_periods=counted, window=window))
        is_short = counted == 1 or periods <= MOST_PERIODS_TOGETHER
        if sums is not None and is_short and sums.mean_error(counted, window) < split.error:
            return sums.mean_error(counted)
        return totals_error(split, counted)

    if math.isclose(own, planned(most), rel_tol=1e-6):
        return own / planned(1)
    # The fan-out was given. One above the number of periods makes a tree of periods alone.
    fanout = (*question.temporal.spans, periods + 1)[1]
    return own / totals_error(split_of_fanout(periods, fanout, replace(setting, window=window)), 1)
