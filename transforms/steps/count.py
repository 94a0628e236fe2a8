"""Exact counts of every place, of at most so many rows of each privacy unit.

    batches -> partial counts ((tree, place), bytes) -> GroupByKey -> counts of a place, digest
    batches -> rows of units by shard ((tree, shard), bytes) -> GroupByKey -> kept -> counts

The second way is that of releases whose unit is not the row: the rows of a unit meet in one
shard, and which are kept is a keyed function of their multiset (`dpcore.bounding`). Engines
count elements: places and shards get empty ones, so that known leaves that fit memory, and
sparse trees, reveal nothing about where rows are; trees of more cells show which places a bundle
touched (docs/engines.md).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dptrees.dpcore.bounding.row_choice import (
    MOST_SHARDS,
    WAITING_ROWS,
    CountedUnits,
    TreeBounding,
)
from dptrees.dpcore.bounding.unit_ids import NEEDED, UnitIds, Units, check_unit_types
from dptrees.dpcore.privacy.unit import NullUnits, PrivacyUnit
from dptrees.dpcore.questions.messages import BUFFERED_ROWS, UNIT_SHARDS, Place
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import (
    balance_name,
    residue,
    taken_off,
    tree_chunks,
    tree_partials,
    unit_rows,
    unit_shards,
)
from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.carry import EARLIER, ShardKey
from dptrees.transforms.steps.counting import (
    SLOTS,
    CountingStep,
    EmptyPlaces,
    KeyedStep,
    MatchLeaves,
    PlaceKey,
    matched_trees,
    read_rows,
)
from dptrees.transforms.steps.record import pack_digest

_COUNTS, _DIGEST, _UNITS = "counts", "digest", "units"
# Sorted counts wait for so many shards; how many must not depend on their rows.
_SHARDS_AT_ONCE = 8


def check_shards(number: int | None) -> None:
    """Refuse a number of shards of units that is out of range; None is any.

    Raises:
        InputError: it is.
    """
    if number is not None and not 1 <= number <= MOST_SHARDS:
        raise InputError(f"--unit_shards: {number} is not from 1 to {MOST_SHARDS}")


class BoundRows(flow.Transform):
    """Record batches to partial counts of the rows that stay.

    Args:
        plan: the questions and the unit.
        key: where the release key lies.
        nonce: of the folder.
        earlier: what runs before counted of every unit, `transforms.steps.carry.OpenUnits`; None:
            it does not matter.

    Returns:
        by name: `counts`, Collection[tuple[PlaceKey, bytes]]; the balance
        Collection[tuple[str, int]]; where a series bounds the periods of a unit also `units`, what
        the next run must know, Collection[tuple[ShardKey, bytes]] with each tree and shard once,
        and `digest`, Collection[bytes], a digest of each.

    Raises:
        InputError: a number of shards out of range, or another one than that in which a series
            remembers its units.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        key: KeyReference,
        nonce: bytes,
        earlier: flow.Transform | None = None,
    ) -> None:
        self._plan, self._key, self._earlier, self._nonce = plan, key, earlier, nonce

    def expand(self, batches: Any) -> Any:
        remembers, own = bool(self._plan.remembering), batches.flow
        shards = own.unit_shards or (UNIT_SHARDS if remembers else own.planned_shards)
        if remembers and shards != UNIT_SHARDS:
            raise InputError(
                f"--unit_shards: {shards} is not {UNIT_SHARDS}, in which a series with "
                f"{self._plan.remembering_key} remembers its units"
            )
        remembered = (_DIGEST, _UNITS) if remembers else ()
        earlier: tuple[Any, ...] = ()
        if self._earlier is not None:
            earlier = batches.flow | "Earlier" >> self._earlier
        sent = (
            batches
            # pa.RecordBatch -> (ShardKey, bytes); counts of rows that are units of their own
            | "ByUnit"
            >> flow.Each(
                SendRows(self._plan, self._key, shards, self._nonce),
                also=(BALANCE, _COUNTS),
                main="rows",
            )
        )
        empty = (
            batches.flow
            | "Trees" >> flow.Given(range(len(self._plan.questions)))
            # tree -> (ShardKey, b"")
            | "EmptyShards"
            >> flow.Each(EmptyShards(self._plan, shards), also=(BALANCE,), main="rows")
        )
        bounded = (
            (sent["rows"], empty["rows"], *earlier[:1])
            | "AllShards" >> flow.Join()
            # -> (ShardKey, [bytes])
            | "ByShard" >> flow.Group()
            # -> (PlaceKey, bytes)
            | "Stay"
            >> flow.Each(
                CountBounded(self._plan, self._key, self._nonce),
                also=(BALANCE, *remembered),
                main=_COUNTS,
            )
        )
        parts = (sent[BALANCE], empty[BALANCE], bounded[BALANCE], *earlier[1:])
        return {
            **{name: bounded[name] for name in remembered},
            _COUNTS: (sent[_COUNTS], bounded[_COUNTS]) | "Counts" >> flow.Join(),
            BALANCE: parts | "Balance" >> flow.Join(),
        }


@flow.gives(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int]})
class EmptyShards(flow.Step):
    """Gives every shard of a tree, without rows, so that each exists."""

    def __init__(self, plan: ReleasePlan, shards: int) -> None:
        self._plan, self._shards = plan, shards

    def process(self, tree: int) -> Iterator[Any]:
        name = self._plan.questions[tree].name
        for shard in range(self._shards):
            yield (name, shard), b""
        for balance in (unit_rows(name), unit_shards(name)):
            yield flow.Tagged(BALANCE, (balance, self._shards))


@flow.gives(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int], _COUNTS: tuple[PlaceKey, bytes]})
class SendRows(CountingStep):
    """Sends the rows of a bundle to the shards of their units, and counts those without a unit
    where each is its own."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, shards: int, nonce: bytes) -> None:
        names = {"rows", *(unit_rows(each.name) for each in plan.questions)}
        super().__init__(plan, key, names, nonce)
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
                        yield flow.Tagged(_COUNTS, counts)
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
        yield from self._sent()
        for counts in self.rest():
            yield flow.Tagged(_COUNTS, counts)
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


@flow.gives(
    tuple[PlaceKey, bytes],
    **{BALANCE: tuple[str, int], _DIGEST: bytes, _UNITS: tuple[ShardKey, bytes]},
)
class CountBounded(CountingStep):
    """Counts the rows of shards that stay."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> None:
        names = {name(each.name) for each in plan.questions for name in (unit_rows, unit_shards)}
        super().__init__(plan, key, names, nonce)

    def start_bundle(self) -> None:
        super().start_bundle()
        self._waiting = dict.fromkeys((each.name for each in self._plan.questions), 0)

    def process(self, element: tuple[ShardKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, shard), messages = element
        question = self._plan.question(name)
        bounding, received = TreeBounding(question, self._choices), list(messages)
        earlier = [each for each in received if each.startswith(EARLIER)]
        rows = [each for each in received if not each.startswith(EARLIER)]
        # The balance shows whether it came once.
        counted = CountedUnits.from_bytes(earlier[0][len(EARLIER) :]) if earlier else None
        bounded = bounding.bounded(rows, counted)
        self._balance[unit_shards(name)] -= 1
        self._balance[unit_rows(name)] -= bounded.rows + len(received)
        if bounded.units is not None:
            yield flow.Tagged(_UNITS, ((name, shard), bounded.units.to_bytes()))
            digest = bounded.units.digest(self._key, self._plan.name, name, shard)
            yield flow.Tagged(_DIGEST, pack_digest(digest, 1))
        # Also without rows: the messages must not reveal whether there are any.
        self.counter(question)
        if bounded.increments is not None:
            yield from self.counted(question, bounded.increments, 0)
        self._waiting[name] += 1
        is_dense = self._dense and question.dense_cells > 0
        if not is_dense and self._waiting[name] == _SHARDS_AT_ONCE:
            self._waiting[name] = 0
            yield from self.taken(question)


# From the plan, the place of the release key and the nonce of the folder.
MakeCounting = Callable[[ReleasePlan, KeyReference, bytes], flow.Transform]


@dataclass(frozen=True)
class CountRows(flow.Transform):
    """Record batches to the exact counts of every place of a plan.

    Args:
        plan: the questions.
        key: where the release key lies.
        nonce: of the folder.
        carry: what else is counted: what an earlier run carried on; None: nothing.
        earlier: what runs before counted of every unit; None: it does not matter.
        counting: the transform that makes partial counts, if another engine counts the rows; None:
            the steps here.

    Returns:
        by name: `counts`, Collection[tuple[PlaceKey, bytes]] with every place of the plan once;
        `digest`, Collection[bytes], a digest of each; the balance Collection[tuple[str, int]];
        and `units`, what the next run of a series must know of units, None where that is nothing.
    """

    plan: ReleasePlan
    key: KeyReference
    nonce: bytes
    carry: flow.Transform | None = None
    earlier: flow.Transform | None = None
    counting: MakeCounting | None = None

    def expand(self, batches: Any) -> Any:
        carried = None if self.carry is None else batches.flow | "Carry" >> self.carry
        # pa.RecordBatch -> (PlaceKey, bytes), and the balance
        if self.counting is not None:
            partial = batches | "Partial" >> self.counting(self.plan, self.key, self.nonce)
        elif self.plan.unit.is_row:
            tags = [BALANCE, *([SLOTS] if matched_trees(self.plan) else [])]
            step = CountBundle(self.plan, self.key, self.nonce)
            partial = batches | "Partial" >> flow.Each(step, also=tags, main="counts")
        else:
            partial = batches | "Bound" >> BoundRows(self.plan, self.key, self.nonce, self.earlier)
        empty = (
            batches.flow
            | "Trees" >> flow.Given([question.name for question in self.plan.questions])
            # tree -> (PlaceKey, b"")
            | "Empty" >> flow.Each(EmptyPlaces(self.plan))
        )
        counts, balances = [partial["counts"], empty], [partial[BALANCE]]
        if carried is not None:
            counts.append(carried[0])
            balances.append(carried[1])
        if matched_trees(self.plan):
            matched = partial[SLOTS] | "Match" >> MatchLeaves(self.plan, self.key)
            counts.append(matched["counts"])
            balances.append(matched[BALANCE])
        merged = (
            counts
            | "AllPlaces" >> flow.Join()
            # -> (PlaceKey, [bytes])
            | "ByPlace" >> flow.Group()
            # -> (PlaceKey, bytes)
            | "Merge"
            >> flow.Each(
                _MergePlace(self.plan, self.key),
                also=(BALANCE, _DIGEST),
                main="counts",
            )
        )
        result = {
            "counts": merged["counts"],
            _DIGEST: merged[_DIGEST],
            BALANCE: [*balances, merged[BALANCE]] | "Balance" >> flow.Join(),
            "units": None,
        }
        if self.plan.remembering:
            both = (merged[_DIGEST], partial[_DIGEST])
            result |= {_DIGEST: both | "Digests" >> flow.Join(), "units": partial["units"]}
        return result


@flow.gives(tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], SLOTS: tuple[PlaceKey, bytes]})
class CountBundle(CountingStep):
    """Counts a bundle's rows."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> None:
        super().__init__(plan, key, {"rows"}, nonce)

    def start_bundle(self) -> None:
        super().start_bundle()
        for question in self._plan.questions:
            self.counter(question)

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        self._balance["rows"] -= batch.num_rows
        # Usually one part: no batch is so large that its sums come near 64 bits.
        for start in range(0, batch.num_rows, BUFFERED_ROWS):
            part = batch.slice(start, BUFFERED_ROWS)
            for question in self._questions:
                increments = read_rows(question, question.increments, part)
                yield from self.counted(question, increments, part.num_rows)


@flow.gives(tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], _DIGEST: bytes})
class _MergePlace(KeyedStep):
    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, *numbers), received = element
        question, place = self._plan.question(name), Place(*numbers)
        # One is the empty partial.
        balance = {tree_chunks(name): 1, tree_partials(name): 1}
        counts = question.merge(place, taken_off(balance, tree_partials(name), received))
        yield (name, *place), counts.to_bytes()
        digest = counts.digest(self._key, self._plan.name, name, place)
        yield flow.Tagged(_DIGEST, pack_digest(digest, 1))
        # Of the exact sums: saturation does not stop the job, which would reveal something of the
        # data.
        balance[balance_name(question, place)] = residue(-counts.total)
        for increment in balance.items():
            yield flow.Tagged(BALANCE, increment)
