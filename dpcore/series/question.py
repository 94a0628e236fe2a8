"""A tree that is released period after period: counted once, measured node by temporal node.

    rows of period t -> exact counts of the period
    + counts carried on from the periods before -> exact counts of each open temporal node
    of nodes that close: noise, estimates, tables, as of any tree;   of the others: sealed state

Each temporal node gets its noise once, in the run in which it closes, by the question of its
level: the tree planned with the level's part of the budget. A row is in one node of each level,
so what the levels spend adds up. The state holds exact counts; it is encrypted under the release
key, and as large whatever the counts are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, counts_digest
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import periods_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.messages import (
    STATE,
    UNIT_SHARDS,
    UNITS,
    ChunkCounts,
    Counts,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
    merged_chunk,
    pack_dense,
)
from dptrees.dpcore.questions.question import PublicTable, Question, SeriesRun
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.columns import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.rows.policies import RowOutcome
from dptrees.dpcore.series.runs import (
    CARRIED,
    Lateness,
    counts_new_units,
    set_aside,
    with_span,
)
from dptrees.dpcore.series.temporal import (
    Span,
    TemporalTree,
    Window,
    leaf_variance,
    level_factors,
    mean_variance,
    window_weights,
    windowed,
)

S = TypeVar("S", bound="SeriesQuestion")


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesCounts:
    """The exact counts of one place: of the period, and of every temporal node that holds it.

    Args:
        own: of the period.
        levels: of the nodes of the counted levels, (leaves,) each.
    """

    own: ChunkCounts
    levels: tuple[Integers, ...]

    @property
    def total(self) -> int:
        """Sum the counts of the period's rows; carried counts were balanced in their own run."""
        return self.own.total

    def to_bytes(self) -> bytes:
        return pack_many([pack(each) for each in self.levels])

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, np.concatenate(self.levels))


@dataclass(frozen=True, kw_only=True)
class CarriedCounts:
    """Exact counts at hand, as `SeriesQuestion.split_counts` takes them.

    Args:
        period: of the period, as the question of a level takes them.
        carried: by place, what runs before carried on (`SeriesQuestion.opened`), one message from
            each of `SeriesQuestion.state_runs`.
    """

    period: object
    carried: Mapping[Place, Sequence[bytes]]


class _FirstLevel:
    """A member that a tree of a series has from the tree of its first temporal level."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, question: Any, owner: type) -> Any:
        return self if question is None else getattr(question.levels[0], self._name)


def first_level() -> Any:
    """Return a member of a class of trees of a series, a property or a method, that is the member
    of this name of its first temporal level."""
    return _FirstLevel()


# The least number of units to which a shard is filled up.
_LEAST_UNITS = 2**8


@dataclass(frozen=True, kw_only=True)
class SeriesQuestion(Question):
    """One period of a tree that is released over the periods of a series.

    Args:
        temporal: the tree over the periods.
        period: t, the one whose rows are counted, from 1 on.
        levels: for each temporal level, the tree as it is measured at a node of it; rows are read
            as the first one reads them. They differ in their budgets alone, which are for a unit's
            rows of one period.
        lateness: which rows of earlier periods are counted; None: all are.
        max_periods, window: as of `Series`.

    Raises:
        ValueError: a period that is none of the tree's, or levels that do not fit it.
    """

    kind = "series"
    output_only = ()

    temporal: TemporalTree
    period: int
    levels: tuple[Question, ...]
    lateness: Lateness | None = None
    max_periods: int | None = None
    window: int | None = None

    counts_rows = first_level()
    regrouped = first_level()
    unit_increments = first_level()
    unit_value = first_level()
    cell_keys = first_level()
    counter = first_level()
    dense_cells = first_level()
    places = first_level()
    is_matched = first_level()
    match = first_level()
    gathered_by = first_level()
    holds_upper = first_level()
    public_tables = first_level()
    unit = first_level()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.period <= self.temporal.periods:
            raise ValueError(f"period: {self.period} is not from 1 to {self.temporal.periods}")
        if len(self.levels) != len(self.temporal.spans):
            raise ValueError(f"levels: {len(self.levels)} for {len(self.temporal.spans)} spans")
        if not 1 <= (self.max_periods or 1) <= self.temporal.periods:
            raise ValueError(f"max_periods: {self.max_periods} is no number of the periods")
        if self.max_periods is None and counts_new_units(self.levels[0]):
            raise ValueError("max_periods: units that are new are those of all periods together")
        if any(level.branches for level in self.levels):
            raise ValueError(f"domain: tree {self.name} is too large to be released in a series")

    @classmethod
    def from_trees(
        cls: type[S],
        temporal: TemporalTree,
        period: int,
        levels: Sequence[Question],
        name: str,
        *,
        max_periods: int | None = None,
        lateness: Lateness | None = None,
        **more: Any,
    ) -> S:
        """The question of some trees, whose names become the names of temporal levels.

        Args:
            temporal, period, max_periods, lateness: as of the class.
            levels: for each temporal level.
            name: of the tree.
            more: what a derived class has beside.
        """
        first: Any = levels[0]
        # A universe is held once.
        shared = {"domain": first.domain, "keys": first.keys} if len(levels) > 1 else {}
        return cls(
            name=name,
            keys=first.keys,
            confidence=first.confidence,
            weight=first.weight,
            temporal=temporal,
            period=period,
            max_periods=max_periods,
            lateness=lateness,
            **more,
            # Streams of noise are distinguished by the names of trees.
            levels=tuple(
                replace(each, name=cls.level_name(name, span), **shared)
                for span, each in zip(temporal.spans, levels, strict=True)
            ),
        )

    @staticmethod
    def level_name(name: str, span: int) -> str:
        """The name of the tree of a temporal level.

        Args:
            name: of the whole.
            span: the periods of a node.
        """
        return f"{name}@{span}"

    @property
    def run(self) -> SeriesRun:
        return SeriesRun(self.period, self.temporal.periods, self.max_periods)

    @property
    def unit_periods(self) -> int:
        """In how many periods a unit's rows move the counts at most.

        Where units count that are new, in one, however many periods of rows the release counts: a
        unit adds 1 to the count of its first period, which follows from its own rows alone, and
        nothing to others' first periods.
        """
        return 1 if counts_new_units(self.levels[0]) else self.max_periods or 1

    @property
    def needs_one_key(self) -> bool:
        # Units are known by ids under it.
        return self.counted_periods is not None

    @property
    def adds_up(self) -> bool:
        """Whether answers of several periods can be put together."""
        return True

    @property
    def released_spans(self) -> Sequence[Span]:
        """The spans of periods that its tables have rows of, all periods to date or nodes that make
        them up among them; none where all rows are of its own period."""
        return self.closing

    @property
    def trees(self) -> tuple[TreeQuestion[Any], ...]:
        """The tree of each temporal level, whose answers add up over periods."""
        return tuple(each for each in self.levels if isinstance(each, TreeQuestion))

    @property
    def node_variances(self) -> tuple[float, ...]:
        """The variance of the noise of a finest node at each temporal level, in rows^2."""
        return tuple(leaf_variance(each) for each in self.trees)

    @property
    def measured_trees(self) -> Sequence[Question]:
        return self.levels

    @property
    def closing(self) -> list[Span]:
        """The temporal nodes that are measured in this run."""
        levels = self.temporal.closing(self.period)
        return [self.temporal.find_span(level, self.period) for level in levels]

    def closed_tree(self, span: Span) -> Any:
        """The tree as it is measured at one of `closing`."""
        return self.levels[span.level]

    def released_tree(self, span: Span) -> Any:
        """The tree as it is released of one of `released_spans`, for the errors of its answers."""
        return self.shown(span.level)

    def shown(self, level: int) -> Any:
        """The tree of a temporal level under the name of the whole, for what reads tables."""
        own: Any = self.levels[level]
        result = replace(own, name=self.name)
        if "widths" in own.__dict__:
            result.remember_widths(own.widths)
        return result

    # Windows of periods

    def mean_error(self, window: int | None = None) -> float:
        """The root of the mean variance of totals to date, where the whole budget would give one
        period a variance of 1.

        Args:
            window: of the last so many periods in their place.
        """
        whole, own = self.budget, self.level_budgets
        assert whole is not None
        factors = [float(whole.amount / each.amount) for each in own]
        is_pure = whole.measure is Measure.EPSILON
        variances = tuple(
            (each * each * l1 * l1 if is_pure else each * l2_squared)
            for each, (l1, l2_squared) in zip(factors, self._sensitivities, strict=True)
        )
        mean = mean_variance(self.temporal, variances, from_below=self.adds_up, window=window)
        return math.sqrt(mean)

    def window_weights(self, window: Window) -> dict[Span, float]:
        """The weights of what was released of spans of periods in the estimate of a window."""
        return window_weights(self.temporal, self.node_variances, window)

    def window_tree(self, window: Window) -> TreeQuestion[Any]:
        """The tree whose noise has the variance of a window's, for the errors of its estimates."""
        shown = [self.shown(level) for level in range(len(self.levels))]
        return windowed(shown, level_factors(self.temporal, self.window_weights(window)))

    # From rows to exact counts

    def with_choices(self, choices: KeyedChoices) -> SeriesQuestion:
        first = self.levels[0].with_choices(choices)
        if first is self.levels[0]:
            return self
        return replace(self, levels=(first, *self.levels[1:]))

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        if self.lateness is None:
            return self.levels[0].row_outcomes(columns)
        on_time = self.lateness.on_time(columns[self.lateness.column], self.period)
        late = RowOutcome(self.lateness.column, "late, or of no date", "drop", ~on_time)
        own = self.levels[0].row_outcomes(columns)
        return [late, *(each._replace(rows=each.rows & on_time) for each in own)]

    @property
    def columns(self) -> tuple[str, ...]:
        more = () if self.lateness is None else (self.lateness.column,)
        return tuple(dict.fromkeys((*self.levels[0].columns, *more)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        more = {} if self.lateness is None else {self.lateness.column: pa.date32()}
        return more | self.levels[0].value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.levels[0].check_types(types)
        if self.lateness is not None:
            self.lateness.check_type(types[self.lateness.column])

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        if self.lateness is not None:
            columns, _ = self.lateness.filtered(columns, self.period)
        return self.levels[0].increments(columns)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.lateness is None:
            return self.levels[0].row_increments(columns)
        columns, on_time = self.lateness.filtered(columns, self.period)
        increments, rows = self.levels[0].row_increments(columns)
        places = np.flatnonzero(on_time)
        return RowIncrements(increments, places if rows is None else places[rows])

    @property
    def state_runs(self) -> Sequence[int]:
        """The runs whose state this one goes on from."""
        return (self.period - 1,) if self.carried_places else ()

    @property
    def carried_places(self) -> Sequence[Place]:
        return self.places if self.temporal.carried(self.period - 1) else ()

    @property
    def left_places(self) -> Sequence[Place]:
        """The places whose counts this run leaves to the next one."""
        return self.places if self.temporal.carried(self.period) else ()

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        carried: list[bytes] = []
        own = self.levels[0].merge(place, set_aside(partials, carried))
        assert isinstance(own, ChunkCounts)
        before = self.temporal.carried(self.period - 1)
        levels = []
        for level in self.temporal.counted(self.period):
            parts = [pack_dense(own.counts)]
            # That they came once is seen as of any counts, by the balance.
            for each in carried if level in before else ():
                parts.append(pack_dense(unpack(unpack_many(each)[before.index(level)])))
            levels.append(merged_chunk(own.counts.size, parts).counts)
        return SeriesCounts(own=own, levels=tuple(levels))

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the counts of the period, or `CarriedCounts`, into partial counts.

        Raises:
            ValueError: they are none of this tree, or those that are carried on are missing.
        """
        carried = counts.carried if isinstance(counts, CarriedCounts) else {}
        if set(carried) != set(self.carried_places):
            raise ValueError(f"counts: what tree {self.name} carried on is not at hand")
        for place, messages in carried.items():
            yield from (Partial(place, data) for data in messages)
        counts = counts.period if isinstance(counts, CarriedCounts) else counts
        yield from self.levels[0].split_counts(counts, choices)

    def opened(self, place: Place, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        """The counts that the next run merges with the partial counts of a place.

        Args:
            place: which.
            sealed: of the part `STATE` of this run.
            key: the release key.
            name: the release and the nonce of this run's folder.

        Raises:
            ValueError: it was sealed under another key, or in another run.
        """
        flat = np.frombuffer(key.opened(sealed, *self._state_name(place, *name)), dtype="<i8")
        arrays = flat.reshape(len(self.temporal.carried(self.period)), -1)
        return CARRIED + pack_many([pack(each) for each in arrays.astype(np.int64)])

    def _state_name(self, place: Place, *name: bytes | str) -> tuple[bytes | str | int, ...]:
        return ("series state", *name, self.name, self.period, *place)

    # In how many periods units have been counted

    @property
    def counted_periods(self) -> int | None:
        most = None if self.max_periods is None else self.unit_periods
        return most if most is not None and most < self.temporal.periods else None

    @property
    def leaves_units(self) -> bool:
        return self.counted_periods is not None and self.period < self.temporal.periods

    def seal_units(
        self, shard: int, units: bytes, noise: NoiseSource, largest: int
    ) -> ReleasedPart:
        size = noise.padded_size(largest, _LEAST_UNITS, self.name)
        plain = CountedUnits.from_bytes(units).to_bytes(size)
        sealed = noise.key.seal(plain, *self._units_name(shard, noise.release, noise.nonce))
        table = pa.table({"sealed": pa.array([sealed], pa.large_binary())})
        return ReleasedPart(self._units_part(shard), table)

    def opened_units(self, shard: int, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        return key.opened(sealed, *self._units_name(shard, *name))

    def _units_name(self, shard: int, *name: bytes | str) -> tuple[bytes | str | int, ...]:
        return ("series units", *name, self.name, self.period, shard)

    def _units_part(self, shard: int) -> Part:
        return Part(kind=UNITS, tree=self.name, key=0, index=shard)

    # From exact counts to what is released

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        by_level = self._by_level(counts)
        drawn = [
            self.closed_tree(span).draw(place, by_level[span.level], noise) for span in self.closing
        ]
        kept = [b"" if each.kept is None else each.kept for each in drawn]
        open_ = [unpack(by_level[level]) for level in self.temporal.carried(self.period)]
        if open_:
            # Every count is as wide as any: the size reveals nothing.
            plain = np.concatenate(open_).astype("<i8").tobytes()
            name = self._state_name(place, noise.release, noise.nonce)
            kept.append(noise.key.seal(plain, *name))
        return Drawn(sent=pack_many([each.sent for each in drawn]), kept=pack_many(kept))

    def _by_level(self, counts: bytes) -> dict[int, bytes]:
        return dict(zip(self.temporal.counted(self.period), unpack_many(counts), strict=True))

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        messages = {place: unpack_many(data) for place, data in sent.items()}
        returned: dict[Place, list[bytes]] = {place: [] for place in sent}
        released = []
        for number, span in enumerate(self.closing):
            own = {place: each[number] for place, each in messages.items()}
            gathered = self.closed_tree(span).gather(group, own, noise)
            for place, data in gathered.returned.items():
                returned[place].append(data)
            released.append(gathered.released)
        packed = {place: pack_many(each) for place, each in returned.items()}
        return Gathered(packed, self._together(released))

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        own, back = unpack_many(kept), unpack_many(returned)
        spans = self.closing
        parts = self._together(
            [
                self._finished(span, place, own[number], back[number])
                for number, span in enumerate(spans)
            ]
        )
        if len(own) > len(spans):
            table = pa.table({"sealed": pa.array([own[-1]], pa.large_binary())})
            parts.append(ReleasedPart(self._state_part(place), table))
        return parts

    def _finished(
        self, span: Span, place: Place, kept: bytes, returned: bytes
    ) -> Sequence[ReleasedPart]:
        """The parts of one of `closing` at a place."""
        parts: Sequence[ReleasedPart] = self.closed_tree(span).finish(place, kept, returned)
        return parts

    def _together(self, by_span: Sequence[Sequence[ReleasedPart]]) -> list[ReleasedPart]:
        """Parts of all that is released; the parts of one place are in one table."""
        result = []
        for same in zip(*by_span, strict=True):
            tables = [
                with_span(each.table, self.name, span)
                for each, span in zip(same, self.released_spans, strict=True)
            ]
            notes = [each.note for each in same]
            part = replace(same[0].part, tree=self.name)
            note = pack_many(notes) if any(notes) else b""
            result.append(ReleasedPart(part, pa.concat_tables(tables), note))
        return result

    def _state_part(self, place: Place) -> Part:
        return Part(kind=STATE, tree=self.name, key=place.group, index=place.number)

    def parts(self) -> Iterator[Part]:
        for part in self.levels[0].parts():
            yield replace(part, tree=self.name)
        yield from map(self._state_part, self.left_places)
        if self.leaves_units:
            yield from map(self._units_part, range(UNIT_SHARDS))

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {}
        unpacked = {part: unpack_many(note) for part, note in notes.items()}
        for number, span in enumerate(self.closing):
            own = {part: each[number] for part, each in unpacked.items()}
            for name, table in self.closed_tree(span).conclude(own).items():
                found.setdefault(name, []).append(with_span(table, self.name, span))
        return {name: pa.concat_tables(tables) for name, tables in found.items()}

    # What follows from the plan, but is large or takes long

    def prepare(self) -> None:
        for span in self.closing:
            self.closed_tree(span).prepare()

    def recall(self, entry: Mapping[str, Any]) -> None:
        for span, released in zip(self.closing, entry["released"], strict=True):
            self.closed_tree(span).recall(released)

    def follow(self, entry: Mapping[str, Any]) -> None:
        for span, released in zip(self.closing, entry["released"], strict=True):
            self.closed_tree(span).follow(released)

    def with_public_tables(self, shared: Callable[[PublicTable], PublicTable]) -> SeriesQuestion:
        first: Any = self.levels[0].with_public_tables(shared)
        later: Any = self.levels[1:]
        others = [replace(each, domain=first.domain) for each in later]
        for before, after in zip(later, others, strict=True):
            if "widths" in before.__dict__:
                after.remember_widths(before.widths)
        return replace(self, levels=(first, *others))

    # What it spends, and how it is described

    @property
    def budget(self) -> Budget | None:
        own = self.level_budgets
        if not own:
            return None
        return replace(own[0], amount=sum((each.amount for each in own), Fraction(0)))

    @property
    def level_budgets(self) -> list[Budget]:
        """What each temporal level spends on a unit over all periods in which it is counted; empty
        where trees spend a delta of their own."""
        found = []
        for level, (l1, l2_squared) in zip(self.levels, self._sensitivities, strict=True):
            own = level.budget
            if own is None:
                return []
            factor = l1 if own.measure is Measure.EPSILON else l2_squared
            found.append(replace(own, amount=own.amount * factor))
        return found

    @property
    def spending(self) -> Spending:
        spent = (
            each.spending.for_periods(*factors)
            for each, factors in zip(self.levels, self._sensitivities, strict=True)
        )
        return sum(spent, start=Spending())

    @property
    def _sensitivities(self) -> list[tuple[int, int]]:
        """The factors by which L1 and the squared L2 of one period grow, for each level."""
        return [periods_sensitivity(self.unit_periods, span) for span in self.temporal.spans]

    @property
    def declared_public(self) -> str | None:
        words: str | None = self.shown(0).declared_public
        return words

    @property
    def clamped(self) -> str | None:
        words: str | None = self.shown(0).clamped
        return words

    def entry(self) -> dict[str, object]:
        levels = [
            {"periods": span, own.measure.value: str(own.amount)}
            for span, own in zip(self.temporal.spans, self.level_budgets, strict=False)
        ]
        released = [
            {"first": span.first, "last": span.last} | self.released_tree(span).entry()
            for span in self.closing
        ]
        late = {} if self.lateness is None else {"lateness": self.lateness.spec()}
        return {"name": self.name, "temporal_levels": levels, "released": released, **late}

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values; `dpcore.series.workload`
        reads it back."""
        return self._spec([each.spec() for each in self.levels])

    def law_spec(self) -> dict[str, object]:
        return self._spec([each.law_spec() for each in self.levels])

    def _spec(self, levels: list[dict[str, object]]) -> dict[str, object]:
        return {
            "name": self.name,
            "domain": {"kind": self.kind},
            "periods": self.temporal.periods,
            "spans": list(self.temporal.spans),
            "period": self.period,
            "levels": levels,
            **({} if self.max_periods is None else {"max_periods": self.max_periods}),
            **({} if self.window is None else {"window": self.window}),
            **({} if self.lateness is None else {"lateness": self.lateness.spec()}),
        }
