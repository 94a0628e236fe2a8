"""The record of a draw, written before anything noisy leaves the job; and the commit.

The record is a keyed digest of the release's id, the nonce, the specification and the exact
counts. A later run into the folder with another record is refused: it would be a second release
of changed data under the budget of one. The refusal reveals that the counts changed, to anyone
who can run the job again in a folder whose release was begun and not finished, as a repair, or
from a described job. A release exists once its manifest does, which is never written over
another.
"""

import base64
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dptrees.dpcore.noise.source import NoiseSource, combine_digests
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import check_balance, check_digests, check_once
from dptrees.transforms.errors import ConservationError, ReleaseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import check_begun, read_manifest, sweep_unnamed
from dptrees.transforms.folder.layout import Receipt, parquet_bytes, planned_parts, sha256
from dptrees.transforms.folder.names import MANIFEST, RECORD, concluded_file
from dptrees.transforms.folder.universe import universe_files
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.steps.counting import KeyedStep
from dptrees.transforms.steps.kept_plan import check_kept

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
    manifest, path = files.join(folder, MANIFEST), files.join(folder, RECORD)
    # A release that exists here, even without its record, must be of the same draw.
    if files.exists(manifest) and not is_recorded_manifest(manifest, record):
        raise _another_draw(folder)
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


def add_digests(one: bytes, other: bytes) -> bytes:
    """The sum of two packed digests modulo 2^256, and of their numbers of chunks: the same in any
    order.

    >>> unpack_digest(add_digests(pack_digest(5, 2), pack_digest(1, 1)))
    (6, 3)
    """
    (total, chunks), (digest, more) = unpack_digest(one), unpack_digest(other)
    return pack_digest(total + digest, chunks + more)


@dataclass(frozen=True)
class RecordDraw(flow.Transform):
    """Lets noise be drawn: nothing was lost, and the draw is recorded beside the output.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.
        nonce: of the folder.
        witness: gets the draw's record before the folder does.

    Returns:
        Collection[bytes] of one element: the nonce and the global digest, after the draw was
        recorded. The input is Collection[bytes], a digest of each chunk and shard, and the
        balance.
    """

    plan: ReleasePlan
    key: KeyReference
    output: str
    nonce: bytes
    witness: Witness | None = None

    def expand(self, inputs: Any) -> Any:
        digests, balance = inputs
        balanced = balance | "SumBalance" >> flow.Combine(operator.add, int)
        step = _Record(self.plan, self.key, self.output, self.nonce, self.witness)
        return (
            digests
            | "GlobalDigest" >> flow.Combine(add_digests, bytes, by_key=False)
            # bytes -> the nonce and the same bytes, once the balance holds and the draw is recorded
            | "Record" >> flow.Each(step, flow.AsDict(balanced))
        )


@flow.gives(bytes)
class _Record(KeyedStep):
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


class Commit(flow.Transform):
    """Makes the release exist, once all its parts do.

    The input is the receipts of all parts, Collection[bytes], and what
    `RecordDraw` gives.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.
        manifest: what the manifest says beside the list of parts; holds nothing of the data.

    Returns:
        Collection[str]: the path of the manifest, once it is there.
    """

    def __init__(
        self, plan: ReleasePlan, key: KeyReference, output: str, manifest: Mapping[str, object]
    ) -> None:
        self._step = _Commit(plan, key, output, manifest)

    def expand(self, inputs: Any) -> Any:
        receipts, recorded = inputs
        return (
            receipts
            | "OneKey" >> flow.Each(_OneKey())
            # -> (0, [bytes])
            | "Together" >> flow.Group()
            # -> path
            | "Commit" >> flow.Each(self._step, flow.AsList(recorded))
        )


@flow.gives(tuple[int, bytes])
class _OneKey(flow.Step):
    def process(self, element: bytes) -> Iterator[tuple[int, bytes]]:
        yield 0, element


class CommitError(ReleaseError):
    """The folder holds another release."""


def check_committed(folder: str) -> None:
    """Check that a finished job left a release: no step after the commit could notice its absence.

    Raises:
        ConservationError: nothing came to a commit.
        OutputError: the filesystem does not let it be read.
    """
    if not files.exists(files.join(folder, MANIFEST)):
        raise ConservationError("the engine lost or repeated data: nothing arrived at the commit")


@flow.gives(str)
class _Commit(KeyedStep):
    """Makes the release exist, when all its parts do."""

    def __init__(
        self, plan: ReleasePlan, key: KeyReference, output: str, manifest: Mapping[str, object]
    ) -> None:
        super().__init__(plan, key)
        self._output, self._manifest = output, manifest

    def process(self, element: tuple[int, Iterable[bytes]], draw: Sequence[bytes]) -> Iterator[str]:
        path, source = files.join(self._output, MANIFEST), self.source(draw)
        receipts = _by_part(map(Receipt.from_bytes, element[1]))
        check_once("the parts of the release", receipts, planned_parts(self._plan))
        extra = self._beside_parts(receipts)
        if self._is_committed(path, source.record()):
            self._restore_files(path, extra)
        else:
            self._commit(path, source, receipts, extra)
        sweep_unnamed(self._output, self._plan)
        yield path

    def _beside_parts(self, receipts: Mapping[Part, Receipt]) -> dict[str, bytes]:
        """The files made from the notes of all parts of a tree, by name."""
        tables: dict[str, list[pa.Table]] = {}
        for question in self._plan.questions:
            for name, table in question.conclude(_notes(question, receipts)).items():
                tables.setdefault(concluded_file(name), []).append(table)
        return {name: parquet_bytes(pa.concat_tables(each)) for name, each in tables.items()}

    def _commit(
        self,
        path: str,
        source: NoiseSource,
        receipts: Mapping[Part, Receipt],
        extra: Mapping[str, bytes],
    ) -> None:
        record = source.record()
        # Object stores let two jobs at once both record their draw; the last one's stays.
        check_recorded(self._output, record)
        for name, data in extra.items():
            files.write_whole(files.join(self._output, name), data)
        checksums = universe_files(self._plan)
        checksums |= {name: sha256(data) for name, data in extra.items()}
        entries = {**self._manifest, "nonce": source.nonce.hex(), "key_id": source.key.key_id}
        manifest = manifest_text(entries, record, receipts.values(), checksums)
        if not files.write_once(path, manifest):
            self._is_committed(path, record)

    def _restore_files(self, path: str, extra: Mapping[str, bytes]) -> None:
        """Write again the files that the existing manifest names with exactly these bytes."""
        named = read_manifest(path).get("files", {})
        for name, data in extra.items():
            if named.get(name) == sha256(data):
                files.write_whole(files.join(self._output, name), data)

    def _is_committed(self, path: str, record: bytes) -> bool:
        """Whether this very draw is released already: its manifest then stays as it is, even where
        another version or processor would write its floats with other last bits.

        Raises:
            CommitError: another release is there.
        """
        if not files.exists(path):
            return False
        if not is_recorded_manifest(path, record):
            # This draw lost, and none of its parts may lie beside the existing one.
            sweep_unnamed(self._output, self._plan)
            raise CommitError(
                f"output: {self._output} contains another release; it was not changed"
            )
        return True


def _by_part(receipts: Iterable[Receipt]) -> dict[Part, Receipt]:
    """One receipt per part, in order; of retries that differ (never in their noise: in the last bit
    of a float between processors) the one of the least name, whichever came first."""
    chosen: dict[Part, Receipt] = {}
    for each in receipts:
        if each.part not in chosen or each.sha256 < chosen[each.part].sha256:
            chosen[each.part] = each
    return dict(sorted(chosen.items()))


def _notes(question: Question, receipts: Mapping[Part, Receipt]) -> dict[Part, bytes]:
    """Return the notes of the parts of a tree, in their order."""
    return {
        part: base64.b64decode(receipt.note)
        for part, receipt in receipts.items()
        if part.tree == question.name and receipt.note
    }


def manifest_text(
    manifest: Mapping[str, object],
    record: bytes,
    receipts: Iterable[Receipt],
    checksums: Mapping[str, str],
) -> bytes:
    """The manifest's bytes: the same for every run that makes the same release."""
    listed = [
        {"file": each.file_name, "rows": each.rows, "sha256": each.sha256}
        | {"tree": each.part.tree, "key": each.part.key, "chunk": each.part.index}
        for each in receipts
    ]
    entries: dict[str, object] = dict(manifest)
    entries |= {"record": record.hex(), "parts": listed, "files": dict(checksums)}
    entries[CHECKSUM] = manifest_checksum(entries)
    return (json.dumps(entries, indent=1) + "\n").encode()
