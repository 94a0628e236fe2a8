"""At most so many rows of each privacy unit: record batches to partial counts of what stays.

    batches -> rows of units by shard ((tree, shard), bytes) -> GroupByKey -> what stays -> partial
    counts ((tree, place), bytes)

The rows of a unit meet in one shard, whichever files and bundles they were in; which of them stay
is a keyed function of their multiset (`dpcore.bounding.row_choice`). In a release whose unit is the
row these steps are not there.

Engines count elements. Every bundle sends every shard of every tree, with rows or without, as often
as the number of its rows makes due, so these counters reveal nothing about where rows are. How many
bytes a shard has depends on them, as everything in an engine's shuffle does (docs/engines.md).
"""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    WorkerOptions,
)

from dptrees.dpcore.bounding.row_choice import (
    MOST_SHARDS,
    SHARDS,
    WAITING_ROWS,
    CountedUnits,
    TreeBounding,
    planned_shards,
)
from dptrees.dpcore.bounding.unit_ids import NEEDED, UnitIds, Units, check_unit_types
from dptrees.dpcore.privacy.unit import NullUnits, PrivacyUnit
from dptrees.dpcore.questions.messages import BUFFERED_ROWS, UNIT_SHARDS
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import unit_rows, unit_shards
from dptrees.transforms.counting import CountingDoFn, PlaceKey, in_window, read_rows
from dptrees.transforms.errors import InputError
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.record import pack_digest
from dptrees.transforms.unit_periods import EARLIER, ShardKey

_COUNTS, _DIGEST, _UNITS = "counts", "digest", "units"
# Sorted counts wait for so many shards; how many must not depend on their rows.
_SHARDS_AT_ONCE = 8


class UnitOptions(PipelineOptions):
    """How units are bounded; no result depends on it."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--unit_shards",
            type=int,
            help="Number of shards in which the rows of privacy units are bounded; more shards "
            "need less memory. Default: 4 for each worker in the options, at least 64; 128 in "
            "this process.",
        )
        # Set where one process holds all parts: fewer rows of each are then in memory at once.
        parser.add_argument("--least_unit_shards", type=int, default=SHARDS, help=argparse.SUPPRESS)


class BoundRows(beam.PTransform):
    """Record batches to partial counts of the rows that stay.

    Args:
        plan: the questions and the unit.
        key: where the release key lies.
        earlier: what runs before counted of every unit, `transforms.unit_periods.OpenUnits`; None:
            it does not matter.

    Returns:
        by name: `counts`, PCollection[tuple[PlaceKey, bytes]]; the balance
        PCollection[tuple[str, int]]; where a series bounds the periods of a unit also `units`, what
        the next run must know, PCollection[tuple[ShardKey, bytes]] with each tree and shard once,
        and `digest`, PCollection[bytes], a digest of each.

    Raises:
        InputError: a number of shards out of range, or another one than that in which a series
            remembers its units.
    """

    def __init__(
        self, plan: ReleasePlan, key: KeyReference, earlier: beam.PTransform | None = None
    ) -> None:
        super().__init__()
        self._plan, self._key, self._earlier = plan, key, earlier

    def expand(self, batches: Any) -> Any:
        options = batches.pipeline.options
        remembers = bool(self._plan.remembering)
        shards = unit_shard_count(options, default=UNIT_SHARDS if remembers else None)
        if remembers and shards != UNIT_SHARDS:
            raise InputError(
                f"--unit_shards: {shards} is not {UNIT_SHARDS}, in which a series with max_periods "
                "remembers its units"
            )
        remembered = (_DIGEST, _UNITS) if remembers else ()
        earlier: tuple[Any, ...] = ()
        if self._earlier is not None:
            earlier = batches.pipeline | "Earlier" >> self._earlier
        sent = (
            batches
            # pa.RecordBatch -> (ShardKey, bytes); counts of rows that are units of their own
            | "ByUnit"
            >> beam.ParDo(SendRows(self._plan, self._key, shards)).with_outputs(
                BALANCE, _COUNTS, main="rows"
            )
        )
        empty = (
            batches.pipeline
            | "Trees" >> beam.Create(range(len(self._plan.questions)), reshuffle=False)
            # tree -> (ShardKey, b"")
            | "EmptyShards"
            >> beam.ParDo(EmptyShards(self._plan, shards)).with_outputs(BALANCE, main="rows")
        )
        bounded = (
            (sent["rows"], empty["rows"], *earlier[:1])
            | "AllShards" >> beam.Flatten()
            # -> (ShardKey, [bytes])
            | "ByShard" >> beam.GroupByKey()
            # -> (PlaceKey, bytes)
            | "Stay"
            >> beam.ParDo(CountBounded(self._plan, self._key)).with_outputs(
                BALANCE, *remembered, main=_COUNTS
            )
        )
        parts = (sent[BALANCE], empty[BALANCE], bounded[BALANCE], *earlier[1:])
        return {
            **{name: bounded[name] for name in remembered},
            _COUNTS: (sent[_COUNTS], bounded[_COUNTS]) | "Counts" >> beam.Flatten(),
            BALANCE: parts | "Balance" >> beam.Flatten(),
        }


def unit_shard_count(options: PipelineOptions, default: int | None = None) -> int:
    """In how many parts the rows of units are bounded.

    Args:
        options: Beam's.
        default: where no number is given; None: it follows from the number of workers.

    Raises:
        InputError: a number out of range.
    """
    chosen = options.view_as(UnitOptions)
    shards = chosen.unit_shards
    if shards is None:
        planned = planned_shards(workers=_named_workers(options))
        return default or min(max(planned, chosen.least_unit_shards), MOST_SHARDS)
    if not 1 <= shards <= MOST_SHARDS:
        raise InputError(f"--unit_shards: {shards} is not from 1 to {MOST_SHARDS}")
    return int(shards)


def _named_workers(options: PipelineOptions) -> int:
    """The most workers that an option of an engine names; 1 where none does."""
    cloud, flink = options.view_as(WorkerOptions), options.view_as(FlinkRunnerOptions)
    named = (cloud.num_workers, cloud.max_num_workers, flink.parallelism)
    return max(1, *(int(each or 0) for each in named))


@beam.typehints.with_output_types(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int]})
class EmptyShards(beam.DoFn):
    """Gives every shard of a tree, without rows, so that each exists."""

    def __init__(self, plan: ReleasePlan, shards: int) -> None:
        self._plan, self._shards = plan, shards

    def process(self, tree: int) -> Iterator[Any]:
        name = self._plan.questions[tree].name
        for shard in range(self._shards):
            yield (name, shard), b""
        for balance in (unit_rows(name), unit_shards(name)):
            yield beam.pvalue.TaggedOutput(BALANCE, (balance, self._shards))


@beam.typehints.with_output_types(
    tuple[ShardKey, bytes], **{BALANCE: tuple[str, int], _COUNTS: tuple[PlaceKey, bytes]}
)
class SendRows(CountingDoFn):
    """Sends the rows of a bundle to the shards of their units, and counts those without a unit
    where each is its own."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, shards: int) -> None:
        super().__init__(plan, key, {"rows", *(unit_rows(each.name) for each in plan.questions)})
        self._shards = shards
        self._own = plan.unit.nulls is NullUnits.OWN
        self._most = max(1, WAITING_ROWS // len(plan.questions))

    def start_bundle(self) -> None:
        super().start_bundle()
        choices, questions = self._choices, self._plan.questions
        self._ids, self._rows = UnitIds(choices, self._plan.unit.type), 0
        self._bounding = {
            each.name: TreeBounding(each, choices, self._shards) for each in questions
        }
        for question in questions if self._own else ():
            self.counter(question)

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        self._balance["rows"] -= batch.num_rows
        size = min(self._most, BUFFERED_ROWS)
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            units = _read_units(self._ids, self._plan.unit, part)
            for question in self._questions:
                rows = read_rows(question, question.row_increments, part)
                alone = self._bounding[question.name].add(rows, units)
                if self._own:
                    for counts in self.counted(question, alone, part.num_rows):
                        yield beam.pvalue.TaggedOutput(_COUNTS, counts)
            self._rows += part.num_rows
            if self._rows >= self._most:
                yield from self._sent()

    def _sent(self) -> Iterator[tuple[ShardKey, bytes]]:
        """All rows that wait."""
        self._rows = 0
        for name, bounding in self._bounding.items():
            for shard, data, rows in bounding.take():
                self._balance[unit_rows(name)] += rows + 1
                yield (name, shard), data

    def finish_bundle(self) -> Iterator[Any]:
        for element in self._sent():
            yield in_window(element)
        for counts in self.rest():
            yield beam.pvalue.TaggedOutput(_COUNTS, in_window(counts))
        yield from self.balances()
        self.start_bundle()


def _read_units(ids: UnitIds, unit: PrivacyUnit, batch: pa.RecordBatch) -> Units:
    columns = unit.columns
    try:
        check_unit_types(unit, {name: batch.schema.field(name).type for name in columns})
        return ids.row_ids([batch.column(name) for name in columns])
    except (pa.ArrowException, ValueError, OverflowError):
        # The library's message may show a value.
        raise InputError(
            f"input: the privacy unit cannot be read from {', '.join(columns)}, which needs "
            f"{NEEDED}"
        ) from None


@beam.typehints.with_output_types(
    tuple[PlaceKey, bytes],
    **{BALANCE: tuple[str, int], _DIGEST: bytes, _UNITS: tuple[ShardKey, bytes]},
)
class CountBounded(CountingDoFn):
    """Counts the rows of shards that stay."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        names = {name(each.name) for each in plan.questions for name in (unit_rows, unit_shards)}
        super().__init__(plan, key, names)

    def start_bundle(self) -> None:
        super().start_bundle()
        self._waiting = dict.fromkeys((each.name for each in self._plan.questions), 0)

    def process(self, element: tuple[ShardKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, shard), messages = element
        question = self._plan.question(name)
        bounding, received = TreeBounding(question, self._choices), list(messages)
        earlier = [each for each in received if each.startswith(EARLIER)]
        rows = [each for each in received if not each.startswith(EARLIER)]
        bounded = bounding.bounded(rows, _counted_units(earlier))
        self._balance[unit_shards(name)] -= 1
        self._balance[unit_rows(name)] -= bounded.rows + len(received)
        if bounded.units is not None:
            yield beam.pvalue.TaggedOutput(_UNITS, ((name, shard), bounded.units.to_bytes()))
            digest = bounded.units.digest(self._key, self._plan.name, name, shard)
            yield beam.pvalue.TaggedOutput(_DIGEST, pack_digest(digest, 1))
        self.counter(
            question
        )  # also without rows: the messages must not reveal whether there are any
        if bounded.increments is not None:
            yield from self.counted(question, bounded.increments, 0)
        self._waiting[name] += 1
        is_dense = self._dense and question.dense_cells > 0
        if not is_dense and self._waiting[name] == _SHARDS_AT_ONCE:
            self._waiting[name] = 0
            yield from self.taken(question)


def _counted_units(messages: list[bytes]) -> CountedUnits | None:
    """What runs before counted of a shard's units; that it came once is seen by the balance."""
    if not messages:
        return None
    return CountedUnits.from_bytes(messages[0][len(EARLIER) :])
