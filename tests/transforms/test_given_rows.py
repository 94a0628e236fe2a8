"""Rows that this process holds: read like the rows of files, and reported where they are not."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from dptrees.transforms.errors import InputError
from dptrees.transforms.held import GivenRows, held, held_rows

BATCHES = [pa.record_batch({"age": [30, 41]}), pa.record_batch({"age": [7]})]


def test_batches_and_their_balance() -> None:
    with held(BATCHES) as number, beam.Pipeline() as pipeline:
        batches, balance = pipeline | GivenRows(number)
        numbers = batches | beam.Map(lambda batch: batch.column("age").to_pylist())
        assert_that(numbers, equal_to([[30, 41], [7]]), "batches")
        assert_that(balance, equal_to([("rows", 3)]), "balance")


def test_held_no_longer_than_the_block() -> None:
    with held(BATCHES) as number, held(BATCHES[:1]) as other:
        assert number != other and held_rows(number) is BATCHES
    with pytest.raises(InputError, match="memory of the process that started the job"):
        held_rows(number)
