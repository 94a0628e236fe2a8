"""Exact counts of every place: record batches to partial counts, and their sum.

    batches -> partial counts ((tree, place), bytes) -> GroupByKey -> counts of a place, its digest

Partial counts are made where the rows are read, for all trees at once. Every place of the plan also
gets an empty partial, so that empty ones exist.

Engines count elements. Where known leaves fit memory, and of sparse trees, counts leave a bundle
for every place, with rows or without, so that these counters reveal nothing about where rows are;
else, for trees of more cells, they reveal which places a bundle touched. How often sparse counts
leave before a bundle ends depends on how many leaves its rows touch (docs/engines.md).

For a tree whose leaves no process holds, `transforms.match` comes before the sum.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.questions.messages import BUFFERED_ROWS, Place
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.bound import BoundRows
from dptrees.transforms.conservation import (
    balance_name,
    residue,
    taken_off,
    tree_chunks,
    tree_partials,
)
from dptrees.transforms.counting import SLOTS, CountingDoFn, PlaceKey, read_rows
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.match import MatchLeaves, matched_trees
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.record import pack_digest

_DIGEST = "digest"
# From the plan and the place of the release key.
MakeCounting = Callable[[ReleasePlan, KeyReference], beam.PTransform]


class CountRows(beam.PTransform):
    """Record batches to the exact counts of every place of a plan.

    Args:
        plan: the questions.
        key: where the release key lies.
        carry: what else is counted: what an earlier run carried on; None: nothing.
        earlier: what runs before counted of every unit; None: it does not matter.
        counting: the transform that makes partial counts, if another engine counts the rows; None:
            the steps here.

    Returns:
        by name: `counts`, PCollection[tuple[PlaceKey, bytes]] with every place of the plan once;
        `digest`, PCollection[bytes], a digest of each; the balance PCollection[tuple[str, int]];
        and `units`, what the next run of a series must know of units, None where that is nothing.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        key: KeyReference,
        carry: beam.PTransform | None = None,
        earlier: beam.PTransform | None = None,
        counting: MakeCounting | None = None,
    ) -> None:
        super().__init__()
        self._plan, self._key, self._carry, self._earlier = plan, key, carry, earlier
        self._counting = counting

    def expand(self, batches: Any) -> Any:
        carried = [] if self._carry is None else [batches.pipeline | "Carry" >> self._carry]
        # pa.RecordBatch -> (PlaceKey, bytes), and the balance
        if self._counting is not None:
            partial = batches | "Partial" >> self._counting(self._plan, self._key)
        elif self._plan.unit.is_row:
            step = beam.ParDo(CountBundle(self._plan, self._key))
            tags = [BALANCE, *([SLOTS] if matched_trees(self._plan) else [])]
            partial = batches | "Partial" >> step.with_outputs(*tags, main="counts")
        else:
            partial = batches | "Bound" >> BoundRows(self._plan, self._key, self._earlier)
        empty = (
            batches.pipeline
            | "Trees" >> beam.Create(range(len(self._plan.questions)), reshuffle=False)
            # tree -> (PlaceKey, b"")
            | "Empty" >> beam.ParDo(_EmptyPlaces(self._plan))
        )
        results = []
        if matched_trees(self._plan):
            results = [partial[SLOTS] | "Match" >> MatchLeaves(self._plan, self._key)]
        merged = (
            (
                partial["counts"],
                empty,
                *(counts for counts, _ in carried),
                *(each["counts"] for each in results),
            )
            | "AllPlaces" >> beam.Flatten()
            # -> (PlaceKey, [bytes])
            | "ByPlace" >> beam.GroupByKey()
            # -> (PlaceKey, bytes)
            | "Merge"
            >> beam.ParDo(_MergePlace(self._plan, self._key)).with_outputs(
                BALANCE, _DIGEST, main="counts"
            )
        )
        balances = (
            partial[BALANCE],
            merged[BALANCE],
            *(balance for _, balance in carried),
            *(each[BALANCE] for each in results),
        )
        result = {
            "counts": merged["counts"],
            _DIGEST: merged[_DIGEST],
            BALANCE: balances | "Balance" >> beam.Flatten(),
            "units": None,
        }
        if self._plan.remembering:
            both = (merged[_DIGEST], partial[_DIGEST])
            result |= {_DIGEST: both | "Digests" >> beam.Flatten(), "units": partial["units"]}
        return result


@beam.typehints.with_output_types(tuple[PlaceKey, bytes])
class _EmptyPlaces(beam.DoFn):
    def __init__(self, plan: ReleasePlan) -> None:
        self._plan = plan

    def process(self, tree: int) -> Iterator[tuple[PlaceKey, bytes]]:
        question = self._plan.questions[tree]
        for place in question.places:
            yield (question.name, *place), b""


@beam.typehints.with_output_types(
    tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], SLOTS: tuple[PlaceKey, bytes]}
)
class CountBundle(CountingDoFn):
    """Counts a bundle's rows."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        super().__init__(plan, key, {"rows"})

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


@beam.typehints.with_output_types(
    tuple[PlaceKey, bytes], **{BALANCE: tuple[str, int], _DIGEST: bytes}
)
class _MergePlace(KeyedDoFn):
    def process(self, element: tuple[PlaceKey, Iterable[bytes]]) -> Iterator[Any]:
        (name, *numbers), received = element
        question, place = self._plan.question(name), Place(*numbers)
        # One is the empty partial.
        balance = {tree_chunks(name): 1, tree_partials(name): 1}
        counts = question.merge(place, taken_off(balance, tree_partials(name), received))
        yield (name, *place), counts.to_bytes()
        digest = counts.digest(self._key, self._plan.name, name, place)
        yield beam.pvalue.TaggedOutput(_DIGEST, pack_digest(digest, 1))
        # Of the exact sums: saturation does not stop the job, which would reveal something of the
        # data.
        balance[balance_name(question, place)] = residue(-counts.total)
        for increment in balance.items():
            yield beam.pvalue.TaggedOutput(BALANCE, increment)
