"""The whole of a release as one transform, for one's own pipeline or for the command's."""

from typing import Any

import apache_beam as beam

from dpcore.release.guarantee import manifest_of
from dpcore.release.plan import ReleasePlan
from transforms import files
from transforms.errors import InputError
from transforms.histogram import CountLeaves
from transforms.key_reference import KeyReference
from transforms.nonce import folder_nonce, restored_nonce
from transforms.record import MANIFEST
from transforms.solve import DigestChunks, RecordDraw, SolveTrees
from transforms.sparse import CountShards, PublishShards
from transforms.standing import read_manifest, stands
from transforms.universe_file import share_universes
from transforms.write import WriteRelease

# Balanced only where the reader told how many rows it gave.
_FROM_READER = "rows"


class ReleaseTrees(beam.PTransform):
    """Record batches to a differentially private release in a folder.

    The input is a PCollection[pa.RecordBatch], or the pair of
    `transforms.readers.read.ReadBatches`, whose balance then takes part in the check that nothing
    was lost.

    When the graph is built, the folder gets its nonce and the public universes. Where the finished
    release of this very specification stands there already, the rows are not counted: what they are
    now must not be compared with what they were. (Steps of one's own before this one still run; the
    command does not even open the files.)

    Args:
        plan: the questions and the guarantee.
        key: where the release key lies; loaded on the workers.
        output: the folder, on any Beam filesystem.
        nonce: of the folder, only to compare engines or files; None: drawn, or the one it has.
        repair: make the parts of a finished release again. The job fails where the rows are others
            than they were, which tells whoever may run it that they are.

    Returns:
        PCollection[str]: the path of the manifest, once the release is there.

    Raises:
        InputError: the rows are windowed or unbounded: a release counts all rows once.
        StandingError, NonceError, OutputError: the folder cannot take this release.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        *,
        key: KeyReference,
        output: str,
        nonce: bytes | None = None,
        repair: bool = False,
    ) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output
        self._nonce, self._repair = nonce, repair

    def expand(self, rows: Any) -> Any:
        batches, given = rows if isinstance(rows, tuple) else (rows, None)
        check_whole(batches)
        manifest = files.join(self._output, MANIFEST)
        if not stands(self._output, self._plan):
            nonce = folder_nonce(self._output, self._nonce)
        elif self._repair:
            nonce = restored_nonce(self._output, read_manifest(manifest)["nonce"])
        else:
            return batches.pipeline | "Stands" >> beam.Create([manifest], reshuffle=False)
        for question in self._plan.chunked:
            _ = question.widths  # computed once here, not on every worker
        return self._released(batches, given, share_universes(self._plan, self._output), nonce)

    def _released(self, batches: Any, given: Any, plan: ReleasePlan, nonce: bytes) -> Any:
        counts, counted = batches | "Count" >> CountLeaves(plan)
        digests = counts | "Chunks" >> DigestChunks(plan, self._key)
        shards = None
        if plan.sparse:
            shards, more, shard_balance = batches | "Sparse" >> CountShards(plan, self._key)
            digests = (digests, more) | "Digests" >> beam.Flatten()
            counted = (counted, shard_balance) | "Counted" >> beam.Flatten()
        if given is None:
            balance = counted | "WithoutReader" >> beam.Filter(lambda part: part[0] != _FROM_READER)
        else:
            balance = (given, counted) | "Balance" >> beam.Flatten()
        record = RecordDraw(plan, self._key, self._output, nonce)
        recorded = (digests, balance) | "Draw" >> record
        chunks, spines = (counts, recorded) | "Solve" >> SolveTrees(plan, self._key)
        others = []
        if shards is not None:
            publish = PublishShards(plan, self._key, self._output)
            others.append((shards, recorded) | "Publish" >> publish)
        return (chunks, spines, recorded, *others) | "Write" >> WriteRelease(
            plan, self._key, self._output, manifest_of(plan)
        )


def check_whole(batches: Any) -> None:
    """Refuses rows that come in windows or without an end.

    Raises:
        InputError: in one sentence, when the graph is built.
    """
    if not batches.windowing.is_default():
        raise InputError(
            "rows: they are windowed or triggered, but a release counts all rows once: apply "
            "beam.WindowInto(beam.window.GlobalWindows()) before it"
        )
    if not batches.is_bounded:
        raise InputError("rows: they have no end, but a release counts all rows once: bound them")
