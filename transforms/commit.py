"""The commit: the manifest last, once every part of the plan has a receipt.

    receipts -> all together -> manifest

A release exists once its manifest does. It is written at once, and never over another; whatever
else lies in the folder is no part of it.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.question import TreeTables
from dptrees.dpcore.release.guarantee import CHECKSUM, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import files
from dptrees.transforms.conservation import check_once
from dptrees.transforms.errors import ConservationError, ReleaseError
from dptrees.transforms.existing_release import read_manifest
from dptrees.transforms.key_reference import KeyReference
from dptrees.transforms.keyed import KeyedDoFn
from dptrees.transforms.layout import (
    MANIFEST,
    Receipt,
    concluded_file,
    parquet_bytes,
    planned_parts,
    sha256,
)
from dptrees.transforms.record import check_recorded, is_recorded_manifest
from dptrees.transforms.sweep import sweep_unnamed
from dptrees.transforms.universe_file import universe_files


class Commit(beam.PTransform):
    """Makes the release exist, once all its parts do.

    The input is the receipts of all parts, PCollection[bytes], and what
    `transforms.record.RecordDraw` gives.

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
        receipts, recorded = inputs
        commit = _Commit(self._plan, self._key, self._output, self._manifest)
        return (
            receipts
            | "OneKey" >> beam.WithKeys(0).with_output_types(tuple[int, bytes])
            # -> (0, [bytes])
            | "Together" >> beam.GroupByKey()
            # -> path
            | "Commit" >> beam.ParDo(commit, beam.pvalue.AsList(recorded))
        )


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
        entries = {
            **self._manifest,
            "nonce": source.nonce.hex(),
            "key_id": source.key.key_id,
        }
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


def _notes(question: TreeTables, receipts: Mapping[Part, Receipt]) -> dict[Part, bytes]:
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
