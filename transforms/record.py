"""The record of a draw: written beside the output before anything noisy leaves the job.

It is a keyed digest of the release's id, the folder's nonce, the specification and the exact
counts: equal for every run that would draw the same noise, different for any other, and meaningless
without the key. A later run into the same folder with another record is refused, since it would be
a second release of changed data (or of another specification) under the budget of one.

The refusal reveals that the exact counts changed, and its absence that they did not: to anyone who
can run the job again on data of their choice, in a folder whose release was begun and not finished
(`transforms.existing_release` answers for finished ones, before a row is read), as a repair, or by
a job that was described and is run again. A folder that no longer has the job's nonce is refused.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from dptrees.dpcore.noise.source import combine_digests
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import files
from dptrees.transforms.conservation import check_balance, check_digests
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.kept_plan import check_kept
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.layout import MANIFEST, RECORD
from dptrees.transforms.nonce import check_begun

# Who learns of a draw, by its record, before its noise is drawn, and may refuse it by raising. It
# travels to the worker, and every retry calls it again.
Witness = Callable[[bytes], None]


class RecordError(ReleaseError):
    """The folder belongs to another draw."""


def check_record(folder: str, record: bytes) -> None:
    """Records a draw, or sees that the same one was recorded before.

    Raises:
        RecordError: another draw was recorded here.
        OutputError: the record cannot be written.
    """
    _check_manifest(folder, record)
    path = files.join(folder, RECORD)
    if not files.exists(path):
        files.write_once(path, _data(record))
    # Read again, by any writer: an object store does not distinguish two writers at once.
    check_recorded(folder, record)


def check_recorded(folder: str, record: bytes) -> None:
    """Sees that this very draw is recorded still: somebody may have discarded it meanwhile.

    Raises:
        RecordError: another draw is, or none.
    """
    path = files.join(folder, RECORD)
    if not files.exists(path) or files.read_bytes(path) != _data(record):
        raise _another_draw(folder)


def _data(record: bytes) -> bytes:
    return json.dumps({"record": record.hex()}).encode()


def _check_manifest(folder: str, record: bytes) -> None:
    """Check that a release that exists here, even without its record, is of the same draw."""
    path = files.join(folder, MANIFEST)
    if files.exists(path) and not is_recorded_manifest(path, record):
        raise _another_draw(folder)


def is_recorded_manifest(path: str, record: bytes) -> bool:
    """Whether a file is the manifest of the draw of a record."""
    try:
        return bool(json.loads(files.read_bytes(path))["record"] == record.hex())
    except (ValueError, TypeError, KeyError):
        return False


def _another_draw(folder: str) -> RecordError:
    return RecordError(
        f"output: {folder} contains a release, or the beginning of one, made from other data, "
        "with another key or another configuration; a second release spends its budget again, so "
        "choose another output, or start an unfinished one again with --discard"
    )


def pack_digest(digest: int, chunks: int) -> bytes:
    """A sum of keyed digests, and of how many chunks, as bytes."""
    return combine_digests(digest) + chunks.to_bytes(8, "big")


def unpack_digest(data: bytes) -> tuple[int, int]:
    """The inverse of `pack_digest`.

    >>> unpack_digest(pack_digest(5, 2))
    (5, 2)
    """
    return int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big")


class SumDigests(beam.CombineFn):
    """Sums keyed digests modulo 2^256, and counts their chunks: the same whatever their order."""

    def create_accumulator(self) -> bytes:
        return pack_digest(0, 0)

    def add_input(self, accumulator: bytes, element: bytes) -> bytes:
        (total, chunks), (digest, more) = unpack_digest(accumulator), unpack_digest(element)
        return pack_digest(total + digest, chunks + more)

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged = self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


class RecordDraw(beam.PTransform):
    """Lets noise be drawn: nothing was lost, and the draw is recorded beside the output.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.
        nonce: of the folder.
        witness: gets the draw's record before the folder does.

    Returns:
        PCollection[bytes] of one element: the nonce and the global digest, after the draw was
        recorded. The input is PCollection[bytes], a digest of each chunk and shard, and the
        balance.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        key: KeyReference,
        output: str,
        nonce: bytes,
        witness: Witness | None = None,
    ) -> None:
        super().__init__()
        self._plan, self._key, self._output, self._nonce = plan, key, output, nonce
        self._witness = witness

    def expand(self, inputs: Any) -> Any:
        digests, balance = inputs
        balanced = balance | "SumBalance" >> beam.CombinePerKey(sum)
        return (
            digests
            | "GlobalDigest" >> beam.CombineGlobally(SumDigests()).without_defaults()
            # bytes -> the nonce and the same bytes, once the balance holds and the draw is recorded
            | "Record"
            >> beam.ParDo(
                _Record(self._plan, self._key, self._output, self._nonce, self._witness),
                beam.pvalue.AsDict(balanced),
            )
        )


@beam.typehints.with_output_types(bytes)
class _Record(KeyedDoFn):
    """Lets the noise be drawn once nothing was lost and the draw is recorded."""

    def __init__(
        self,
        plan: ReleasePlan,
        key: KeyReference,
        output: str,
        nonce: bytes,
        witness: Witness | None = None,
    ) -> None:
        super().__init__(plan, key)
        self._output, self._nonce, self._witness = output, nonce, witness

    def process(self, summed: bytes, balance: Mapping[str, int]) -> Iterator[bytes]:
        check_balance(self._plan, balance)
        total, chunks = unpack_digest(summed)
        check_digests(self._plan, chunks)
        check_begun(self._output, self._nonce)
        check_kept(self._output, self._plan.digest)
        draw = self._nonce + combine_digests(total)
        record = self.source([draw]).record()
        if self._witness is not None:
            # First: what it refuses must leave no record that would refuse the right draw.
            self._witness(record)
        check_record(self._output, record)
        yield draw
