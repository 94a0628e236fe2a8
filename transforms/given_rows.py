"""Rows that this process holds, as a job reads them: no file, and no copy.

A graph travels pickled, also within one process. So what it holds is the number under which the
rows are held; workers of an engine, which are other processes, find none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dptrees.transforms.errors import InputError
from dptrees.transforms.metrics import advance
from dptrees.transforms.readers.read import BALANCE

_held: dict[int, Sequence[pa.RecordBatch]] = {}
_numbers = count()


@contextmanager
def held(batches: Sequence[pa.RecordBatch]) -> Iterator[int]:
    """Holds rows until the block ends, under a number of this process.

    >>> with held([pa.record_batch({"age": [30, 41]})]) as number:
    ...     [batch.num_rows for batch in held_rows(number)]
    [2]
    """
    number = next(_numbers)
    _held[number] = batches
    try:
        yield number
    finally:
        del _held[number]


def held_rows(number: int) -> Sequence[pa.RecordBatch]:
    """The rows that are held under a number.

    Raises:
        InputError: they are held in another process.
    """
    if number not in _held:
        raise InputError(
            "rows: they are held in the memory of the process that started the job, where this "
            "engine's workers cannot read them; write them to files and give their paths"
        )
    return _held[number]


class GivenRows(beam.PTransform):
    """The record batches that are held under a number.

    Args:
        number: as `held` gives it.

    Returns:
        as `transforms.readers.read.ReadBatches`: PCollection[pa.RecordBatch], and the balance
        PCollection[tuple[str, int]].
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def expand(self, pbegin: Any) -> Any:
        given = (
            pbegin
            | "Number" >> beam.Create([self._number], reshuffle=False)
            # int -> pa.RecordBatch
            | "Give" >> beam.ParDo(_Give()).with_outputs(BALANCE, main="batches")
        )
        return given["batches"], given[BALANCE]


@beam.typehints.with_output_types(pa.RecordBatch, **{BALANCE: tuple[str, int]})
class _Give(beam.DoFn):
    def process(self, number: int) -> Iterator[Any]:
        rows = 0
        for batch in held_rows(number):
            rows += batch.num_rows
            yield batch
            advance("read", batch.nbytes)
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows", rows))
