"""The answer as files: parts first, the manifest last.

    answers -> tables -> parts, each whole or not at all -> receipts -> all together -> manifest

A release exists once its manifest does. The manifest is written after every part of the plan has a
receipt, at once, and never over another; whatever else lies in the folder is no part of it.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.arrays import Integers
from dpcore.noise.source import NoiseSource
from dpcore.questions.question import ChunkedQuestion
from dpcore.questions.tables import NODES
from dpcore.release.guarantee import CHECKSUM, checksum_of
from dpcore.release.plan import ReleasePlan
from dpcore.rows.packing import pack, unpack
from transforms import files
from transforms.conservation import check_once
from transforms.errors import ReleaseError
from transforms.histogram import ChunkKey
from transforms.key_reference import KeyReference
from transforms.layout import SPINE_INDEX, Part, Receipt, parquet_bytes, planned_parts, sha256
from transforms.metrics import BYTES_WRITTEN, PARTS_WRITTEN
from transforms.progress import advance
from transforms.record import MANIFEST, check_recorded, is_manifest_of
from transforms.solve import KeyedDoFn, SpineKey, chunk_of, read_answer
from transforms.standing import read_manifest
from transforms.sweep import QUANTILES, sweep_unnamed
from transforms.universe_file import universe_files


class WriteRelease(beam.PTransform):
    """Writes all parts and then the manifest.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder of the release.
        manifest: what the manifest says beside the list of parts; holds nothing of the data.

    Returns:
        PCollection[str]: the path of the manifest, once it is there.
    """

    def __init__(
        self, plan: ReleasePlan, key: KeyReference, output: str, manifest: Mapping[str, object]
    ) -> None:
        super().__init__()
        self._plan, self._key, self._output, self._manifest = plan, key, output, manifest

    def expand(self, inputs: Any) -> Any:
        chunks, spines, recorded, *others = inputs
        receipts = (
            # (ChunkKey, [bytes, bytes]) -> bytes
            chunks | "WriteChunk" >> beam.ParDo(_WriteChunk(self._plan, self._output)),
            # (SpineKey, bytes) -> bytes
            spines | "WriteSpine" >> beam.ParDo(_WriteSpine(self._plan, self._output)),
            *others,
        ) | "Receipts" >> beam.Flatten()
        return (
            receipts
            | "OneKey" >> beam.WithKeys(0).with_output_types(tuple[int, bytes])
            # -> (0, [bytes])
            | "Together" >> beam.GroupByKey()
            # -> path
            | "Commit"
            >> beam.ParDo(
                _Commit(self._plan, self._key, self._output, self._manifest),
                beam.pvalue.AsList(recorded),
            )
        )


@beam.typehints.with_output_types(bytes)
class PartsWriter(beam.DoFn):
    """A step that writes parts of a release."""

    def __init__(self, plan: ReleasePlan, output: str) -> None:
        self._plan, self._output = plan, output

    def write(self, part: Part, rows: int, data: bytes, note: str = "") -> bytes:
        """Writes a part and returns its receipt."""
        written = Receipt(part=part, rows=rows, sha256=sha256(data), note=note)
        files.write_whole(files.join(self._output, *written.file_name.split("/")), data)
        PARTS_WRITTEN.inc()
        BYTES_WRITTEN.inc(len(data))
        advance("write", 1)
        return written.to_bytes()


@beam.typehints.with_output_types(bytes)
class _WriteChunk(PartsWriter):
    def process(self, element: tuple[ChunkKey, Iterable[bytes]]) -> Iterator[bytes]:
        key, messages = element
        question, chunk = chunk_of(self._plan, key)
        measured, roots = read_answer(self._plan, key, messages)
        answer = question.chunk_answer(chunk, measured, roots)
        for kind, table in answer.tables.items():
            part = Part(kind=kind, tree=question.name, key=chunk.key, index=chunk.index)
            packed = _packed(answer.note) if kind == question.tables[-1] else ""
            yield self.write(part, table.num_rows, parquet_bytes(table), packed)


def _packed(note: Integers | None) -> str:
    return "" if note is None else base64.b64encode(pack(note)).decode()


@beam.typehints.with_output_types(bytes)
class _WriteSpine(PartsWriter):
    def process(self, element: tuple[SpineKey, bytes]) -> Iterator[bytes]:
        (name, key), data = element
        part = Part(kind=NODES, tree=name, key=key, index=SPINE_INDEX)
        yield self.write(part, pq.read_metadata(pa.BufferReader(data)).num_rows, data)


class CommitError(ReleaseError):
    """The folder holds another release."""


@beam.typehints.with_output_types(str)
class _Commit(KeyedDoFn):
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
        if self._stands(path, source.record()):
            self._mend(path, extra)
        else:
            self._commit(path, source, receipts, extra)
        sweep_unnamed(self._output, self._plan)
        yield path

    def _beside_parts(self, receipts: Mapping[Part, Receipt]) -> dict[str, bytes]:
        """The files that are made of what all parts of a tree told, by name."""
        concluded = [each.conclude(_notes(each, receipts)) for each in self._plan.chunked]
        tables = [table for table in concluded if table is not None]
        return {QUANTILES: parquet_bytes(pa.concat_tables(tables))} if tables else {}

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
        entries = {**self._manifest, "nonce": source.nonce.hex()}
        manifest = manifest_text(entries, record, receipts.values(), checksums)
        if not files.write_once(path, manifest):
            self._stands(path, record)

    def _mend(self, path: str, extra: Mapping[str, bytes]) -> None:
        """Writes again those files that the manifest which stands names by these very bytes."""
        named = read_manifest(path).get("files", {})
        for name, data in extra.items():
            if named.get(name) == sha256(data):
                files.write_whole(files.join(self._output, name), data)

    def _stands(self, path: str, record: bytes) -> bool:
        """Whether this very draw is released already: its manifest then stays as it is, even where
        another version or processor would write its floats with other last bits.

        Raises:
            CommitError: another release is there.
        """
        if not files.exists(path):
            return False
        if not is_manifest_of(path, record):
            # This draw lost, and none of its parts may lie beside the one that stands.
            sweep_unnamed(self._output, self._plan)
            raise CommitError(f"output: {self._output} holds another release; it stays as it is")
        return True


def _by_part(receipts: Iterable[Receipt]) -> dict[Part, Receipt]:
    """One receipt per part, in order; of retries that differ (never in their noise: in the last bit
    of a float between processors) the one of the least name, whichever came first."""
    chosen: dict[Part, Receipt] = {}
    for each in receipts:
        if each.part not in chosen or each.sha256 < chosen[each.part].sha256:
            chosen[each.part] = each
    return dict(sorted(chosen.items()))


def _notes(question: ChunkedQuestion, receipts: Mapping[Part, Receipt]) -> list[list[Integers]]:
    """What the chunks of each (first) key told, in the order of keys and chunks."""
    notes: list[list[Integers]] = []
    for chunk in question.forest.chunking:
        kind = question.tables[-1]
        part = Part(kind=kind, tree=question.name, key=chunk.key, index=chunk.index)
        if chunk.index == 0:
            notes.append([])
        if receipts[part].note:
            notes[-1].append(unpack(base64.b64decode(receipts[part].note)))
    return notes


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
    entries[CHECKSUM] = checksum_of(entries)
    return (json.dumps(entries, indent=1) + "\n").encode()
