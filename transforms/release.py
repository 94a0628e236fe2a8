"""The whole of a release as one transform, for one's own pipeline or for the command's."""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from dpcore.release_plan import ReleasePlan
from transforms.histogram import CountLeaves
from transforms.key_reference import KeyReference
from transforms.solve import DigestChunks, RecordDraw, SolveTrees
from transforms.sparse import CountShards, PublishShards
from transforms.universe_file import share_universes
from transforms.write import WriteRelease

# Balanced only where the reader told how many rows it gave.
_FROM_READER = "rows"


class ReleaseTrees(beam.PTransform):
    """Record batches to a differentially private release in a folder.

    The input is a PCollection[pa.RecordBatch], or the pair of `transforms.read.ReadBatches`, whose
    balance then takes part in the check that nothing was lost.

    Args:
        plan: the questions and the guarantee.
        key: where the release key lies; loaded on the workers.
        output: the folder, on any Beam filesystem.
        manifest: further entries of the manifest, known before the data is read.

    Returns:
        PCollection[str]: the path of the manifest, once the release is there.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        *,
        key: KeyReference,
        output: str,
        manifest: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        for question in plan.chunked:
            _ = question.widths  # computed once here, not on every worker
        self._plan, self._key, self._output = share_universes(plan, output), key, output
        self._manifest = {"spec": plan.spec()} | dict(manifest or {})

    def expand(self, rows: Any) -> Any:
        batches, given = rows if isinstance(rows, tuple) else (rows, None)
        counts, counted = batches | "Count" >> CountLeaves(self._plan)
        digests = counts | "Chunks" >> DigestChunks(self._plan, self._key)
        shards = None
        if self._plan.sparse:
            shards, more, shard_balance = batches | "Sparse" >> CountShards(self._plan, self._key)
            digests = (digests, more) | "Digests" >> beam.Flatten()
            counted = (counted, shard_balance) | "Counted" >> beam.Flatten()
        if given is None:
            balance = counted | "WithoutReader" >> beam.Filter(lambda part: part[0] != _FROM_READER)
        else:
            balance = (given, counted) | "Balance" >> beam.Flatten()
        recorded = (digests, balance) | "Draw" >> RecordDraw(self._plan, self._key, self._output)
        chunks, spines = (counts, recorded) | "Solve" >> SolveTrees(self._plan, self._key)
        others = []
        if shards is not None:
            publish = PublishShards(self._plan, self._key, self._output)
            others.append((shards, recorded) | "Publish" >> publish)
        return (chunks, spines, recorded, *others) | "Write" >> WriteRelease(
            self._plan, self._key, self._output, self._manifest
        )
