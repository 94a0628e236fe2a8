"""A tree whose periods are released each by itself: of kinds whose answers do not add up.

    rows of period t -> exact counts -> noise, estimates, tables of period t

Thresholds, private choices and rounds are made anew in every period. Where a unit's rows of one
period are protected, they are in one release alone, which has the whole budget. Where all rows of a
unit are protected together, it is counted in at most p periods, and these are p releases, whose
budgets add up: each has a p-th part of epsilon, delta or rho.

Source: basic composition, and composition of zCDP (Bun, Steinke 2016, Lemma 1.7), over the periods
in which a unit is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.questions.place import (
    Counts,
    Drawn,
    Gathered,
    Part,
    Partial,
    Place,
    ReleasedPart,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.series.accumulated import AccumulatedPeriods
from dptrees.dpcore.series.carried_counts import CarriedCounts
from dptrees.dpcore.series.lateness import Lateness
from dptrees.dpcore.series.linear import adds_up
from dptrees.dpcore.series.period_sums import PeriodSums
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.spans import with_name
from dptrees.dpcore.series.temporal import Span, TemporalTree
from dptrees.dpcore.series.weighted import WeightedPeriods


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

    @property
    def is_keyed(self) -> bool:
        return self.levels[0].is_keyed

    @property
    def counts_unit_cells(self) -> bool:
        return self.levels[0].counts_unit_cells

    def place_balance(self, place: Place) -> int:
        return self.levels[0].place_balance(place)

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        return self.levels[0].merge(place, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        own = counts.period if isinstance(counts, CarriedCounts) else counts
        yield from self.levels[0].split_counts(own, choices)

    @property
    def rounds(self) -> int:
        return self.levels[0].rounds

    def answer(self, place: Place, counts: bytes, request: bytes, noise: NoiseSource) -> bytes:
        return self.levels[0].answer(place, counts, request, noise)

    def next_request(
        self, group: int, answers: Mapping[Place, bytes], request: bytes, noise: NoiseSource
    ) -> bytes:
        return self.levels[0].next_request(group, answers, request, noise)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        return self.levels[0].draw(place, counts, noise)

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
    more: dict[str, Any] = {}
    if "sums" in spec:
        made, more = WeightedPeriods, {"sums": PeriodSums.from_spec(spec["sums"])}
    return made.from_trees(
        TemporalTree(periods=int(spec["periods"]), spans=tuple(spec["spans"])),
        int(spec["period"]),
        levels,
        str(spec["name"]),
        max_periods=None if spec.get("max_periods") is None else int(spec["max_periods"]),
        lateness=Lateness.from_spec(spec["lateness"]) if "lateness" in spec else None,
        **more,
    )
