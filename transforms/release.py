"""The whole of a release as one transform, for one's own pipeline or for the command's."""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from dpcore.release.guarantee import manifest_of
from dpcore.release.plan import ReleasePlan
from transforms import files
from transforms.carry import Carry, carries, check_turn
from transforms.commit import Commit
from transforms.count import CountRows
from transforms.draw import DrawTrees
from transforms.errors import InputError
from transforms.key_reference import KeyReference
from transforms.layout import MANIFEST
from transforms.nonce import folder_nonce, restored_nonce
from transforms.record import RecordDraw, Witness
from transforms.standing import read_manifest, stands
from transforms.universe_file import share_universes

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
        witness: who is told of the draw, by its record, before any noise is drawn; a ledger.
        parameters: public, of the configuration; the manifest holds them.
        report: public texts of the page, by name; likewise.
        again: the folder of a finished release, which is made another time from its rows, to be
            compared; whose turn it is in a series is then not asked.

    Returns:
        PCollection[str]: the path of the manifest, once the release is there.

    Raises:
        InputError: the rows are windowed or unbounded: a release counts all rows once.
        StandingError, NonceError, OutputError: the folder cannot take this release.
        SeriesError: it is not the turn of this run of a series.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        *,
        key: KeyReference,
        output: str,
        nonce: bytes | None = None,
        repair: bool = False,
        witness: Witness | None = None,
        parameters: Mapping[str, str] | None = None,
        report: Mapping[str, str] | None = None,
        again: str | None = None,
    ) -> None:
        super().__init__()
        self._public = {"parameters": dict(parameters or {}), "report": dict(report or {})}
        self._plan, self._key, self._output = plan, key, output
        self._again = again
        self._nonce, self._repair, self._witness = nonce, repair, witness

    def expand(self, rows: Any) -> Any:
        batches, given = rows if isinstance(rows, tuple) else (rows, None)
        check_whole(batches)
        manifest = files.join(self._output, MANIFEST)
        if not stands(self._output, self._plan):
            if self._again is None:
                check_turn(self._plan, self._output)
            nonce = folder_nonce(self._output, self._nonce, self._key.key_id)
        elif self._repair:
            standing = read_manifest(manifest)
            nonce = restored_nonce(self._output, standing["nonce"], standing.get("key_id", ""))
        else:
            return batches.pipeline | "Stands" >> beam.Create([manifest], reshuffle=False)
        for question in self._plan.questions:
            question.prepare()
        return self._released(batches, given, share_universes(self._plan, self._output), nonce)

    def _released(self, batches: Any, given: Any, plan: ReleasePlan, nonce: bytes) -> Any:
        own = self._again or self._output
        carry = Carry(plan, self._key, own) if carries(plan) else None
        counts, digests, counted = batches | "Count" >> CountRows(plan, self._key, carry)
        if given is None:
            balance = counted | "WithoutReader" >> beam.Filter(lambda part: part[0] != _FROM_READER)
        else:
            balance = (given, counted) | "Balance" >> beam.Flatten()
        record = RecordDraw(plan, self._key, self._output, nonce, self._witness)
        recorded = (digests, balance) | "Record" >> record
        receipts = (counts, recorded) | "Draw" >> DrawTrees(plan, self._key, self._output)
        entries = manifest_of(plan) | {name: each for name, each in self._public.items() if each}
        commit = Commit(plan, self._key, self._output, entries)
        return (receipts, recorded) | "Commit" >> commit


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
