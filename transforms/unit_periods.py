"""In how many periods of a series each unit has been counted: from run to run, under seal.

    the run's folder before this one -> sealed units of every shard -> (ShardKey, bytes)
    bounded shards -> what the next run must know ((tree, shard), bytes) -> parts of the run

It is read where rows are bounded (`transforms.bound`), and is a part of what the record of the draw
is made from: a run that is started again with rows of other units is refused, even where its counts
are the same. It is written once the draw is recorded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.bounding.unit_ids import mixed_families
from dptrees.dpcore.questions.messages import UNITS
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import files
from dptrees.transforms.carry import (
    SeriesError,
    left_by_run,
    run_before,
    run_folder_before,
    sealed_part,
)
from dptrees.transforms.conservation import tree_units, unit_rows
from dptrees.transforms.draw import write_part
from dptrees.transforms.errors import InputError
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.nonce import key_id_of_folder
from dptrees.transforms.readers.read import BALANCE

ShardKey = tuple[str, int]  # tree, and the shard of units
# No rows of a shard begin so: it would be a length of 4 GB.
EARLIER = b"\xff\xff\xff\xff"


def has_earlier_units(plan: ReleasePlan) -> bool:
    """Whether it matters in which periods before this run units were counted."""
    return plan.is_later_run and bool(plan.remembering)


def leaves_units(plan: ReleasePlan) -> bool:
    """Whether the next run needs to know in how many periods units have been counted."""
    return any(question.leaves_units for question in plan.questions)


def series_families(plan: ReleasePlan, output: str) -> Mapping[str, str]:
    """Return the families of types that the unit's columns have in the runs of a series so far.

    Args:
        plan: of the run, with the families in its rows.
        output: its folder.

    Raises:
        SeriesError: the run before counted units of other families, whose ids differ.
        InputError: the families in the rows of this run are not known.
    """
    if plan.unit_families is None:
        raise InputError(
            "series.max_periods: remembers units, so the types of their columns must be known "
            f"before the job: give schema=pa.schema(...) of {', '.join(plan.columns)}"
        )
    if not has_earlier_units(plan):
        return plan.unit_families
    assert plan.run is not None
    left = left_by_run(output, plan.run.period - 1, UNITS)
    for column, family in plan.unit_families.items():
        if left.unit_families.get(column, family) != family:
            error = mixed_families(column, family, left.unit_families[column])
            raise SeriesError(f"series: {left.folder} counted other units: {error}")
    return {**left.unit_families, **plan.unit_families}


def begun_key_id(plan: ReleasePlan, output: str) -> str | None:
    """The id of the key under which a run is to be made: its own, or `before_key_id`.

    Args:
        plan: of the run.
        output: its folder.
    """
    found = key_id_of_folder(output)
    return before_key_id(plan, output) if found is None else found


def before_key_id(plan: ReleasePlan, output: str) -> str | None:
    """The id of the key of the run before, where a run must be made under it; None where any key
    will do."""
    return key_id_of_folder(run_folder_before(plan, output)) if plan.keeps_key else None


class OpenUnits(beam.PTransform):
    """What the runs before counted of every unit.

    The input is the pipeline.

    Args:
        plan: of the run.
        key: where the release key lies: that of the run before, since units are known by ids under
            it.
        output: the folder of the run.

    Returns:
        PCollection[tuple[ShardKey, bytes]], one for each tree and shard; and the balance
        PCollection[tuple[str, int]].

    Raises:
        SeriesError: the run before was made under another key.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output

    def expand(self, pipeline: Any) -> Any:
        assert self._plan.run is not None
        left = left_by_run(self._output, self._plan.run.period - 1, UNITS)
        if self._key.key_id != left.key_id:
            raise SeriesError(
                f"series: units are known by the release key {left.key_id}, under which "
                f"{left.folder} was made; this run is to be made under {self._key.key_id}"
            )
        opened = (
            pipeline
            | "Sealed" >> beam.Create(left.parts, reshuffle=False)
            # (tree, group, shard, file, checksum) -> (ShardKey, bytes)
            | "Open"
            >> beam.ParDo(
                _OpenUnits(run_before(self._plan), self._key, left.folder, left.nonce)
            ).with_outputs(BALANCE, main="units")
        )
        return opened["units"], opened[BALANCE]


@beam.typehints.with_output_types(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int]})
class _OpenUnits(KeyedDoFn):
    """Reads and opens what is known of the units of a shard."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, folder: str, nonce: bytes) -> None:
        super().__init__(plan, key)
        self._folder, self._nonce = folder, nonce

    def process(self, element: tuple[str, int, int, str, str]) -> Iterator[Any]:
        tree, _, shard, file, checksum = element
        sealed = sealed_part(files.join(self._folder, *file.split("/")), checksum)
        question = self._plan.question(tree)
        try:
            units = question.opened_units(shard, sealed, self._key, self._plan.name, self._nonce)
        except ValueError:
            raise SeriesError(
                f"series: the units of {self._folder} are not what the run of its nonce sealed "
                "under this key: a part of the folder is of another backup or draw; restore the "
                "whole folder, or run that period with --repair"
            ) from None
        yield (tree, shard), EARLIER + units
        # A message to a shard, as those with rows; and one of all that the run before left.
        for name in (unit_rows(tree), tree_units(tree)):
            yield beam.pvalue.TaggedOutput(BALANCE, (name, 1))


class SealUnits(beam.PTransform):
    """Writes what the next run must know of units.

    The input is PCollection[tuple[ShardKey, bytes]], each tree and shard once, and what
    `transforms.record.RecordDraw` gives. All shards of a tree become files of one size, so the
    largest is found first: sizes of single shards would add up to the number of units.

    Args:
        plan: of the run.
        key: where the release key lies.
        output: the folder of the run.

    Returns:
        PCollection[bytes]: the receipts of the parts.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output

    def expand(self, inputs: Any) -> Any:
        units, recorded = inputs
        # (ShardKey, bytes) -> (tree, units of the shard) -> (tree, the most)
        sizes = units | "Sizes" >> beam.Map(_unit_number).with_output_types(tuple[str, int])
        largest = sizes | "Largest" >> beam.CombinePerKey(max)
        step = beam.ParDo(
            _SealUnits(self._plan, self._key, self._output),
            beam.pvalue.AsList(recorded),
            beam.pvalue.AsDict(largest),
        )
        return units | "Seal" >> step


def _unit_number(element: tuple[ShardKey, bytes]) -> tuple[str, int]:
    (tree, _), units = element
    return tree, len(CountedUnits.from_bytes(units).units)


@beam.typehints.with_output_types(bytes)
class _SealUnits(KeyedDoFn):
    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__(plan, key)
        self._output = output

    def process(
        self, element: tuple[ShardKey, bytes], draw: Sequence[bytes], largest: Mapping[str, int]
    ) -> Iterator[bytes]:
        (tree, shard), units = element
        question = self._plan.question(tree)
        if question.leaves_units:
            part = question.seal_units(shard, units, self.source(draw), largest[tree])
            yield write_part(self._output, part)
