"""The whole of a release as one transform, for one's own pipeline or for the command's."""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dpcore.release.guarantee import plan_manifest
from dpcore.release.plan import ReleasePlan
from transforms import files
from transforms.carry import Carry, carries, check_turn
from transforms.commit import Commit
from transforms.count import CountRows
from transforms.draw import DrawTrees
from transforms.errors import InputError
from transforms.existing_release import is_released, read_manifest
from transforms.kept_plan import another_plan, kept_by
from transforms.key_reference import KeyReference
from transforms.layout import MANIFEST
from transforms.nonce import folder_nonce, restored_nonce
from transforms.readers.collection import ReadCollection
from transforms.readers.read import BALANCE
from transforms.record import RecordDraw, Witness
from transforms.rounds import Rounds, round_count
from transforms.unit_periods import (
    OpenUnits,
    SealUnits,
    begun_key_id,
    has_earlier_units,
    leaves_units,
)
from transforms.universe_file import share_universes


class ReleaseTrees(beam.PTransform):
    """Rows to a differentially private release in a folder.

    The input is a PCollection of Arrow record batches, dictionaries, `beam.Row` or NamedTuples, or
    the pair of `transforms.readers.read.ReadBatches`, whose balance takes part in the check that
    nothing was lost. The same rows, key and nonce give the same files as the command.

    When the graph is built, the folder gets its nonce and the public universes. Where the finished
    release of this very specification exists already, the rows are not counted: what they are now
    must not be compared with what they were. (Steps of one's own before this one still run; the
    command does not even open the files.)

    Args:
        plan: the questions and the guarantee.
        key: where the release key lies; loaded on the workers, and here once, to name the right key
            to them, unless the reference names it already.
        output: the folder, on any Beam filesystem.
        nonce: of the folder, only to compare engines or files; None: drawn, or the one it has.
        repair: make the parts of a finished release again. The job fails where the rows have
            changed, which reveals the change to anyone who can run it.
        witness: gets the draw's record before any noise is drawn; a ledger.
        parameters: public, of the configuration; the manifest holds them.
        report: public strings of the page, by name; likewise.
        request: what the plan answers, in plain JSON values; the folder then keeps both. None: it
            keeps neither, and a release is recognized by its specification alone.
        schema: the types of the columns of rows, by name; None: as the type of the elements has
            them. Dictionaries need one.
        again: the folder of a finished release, which is made another time from its rows, to be
            compared; the turn of a run in a series is then not checked.

    Returns:
        PCollection[str]: the path of the manifest, once the release is there.

    Raises:
        InputError: the rows are windowed or unbounded: a release counts all rows once; a column is
            missing or of a type that cannot be used; the plan waits for a selection of keys.
        KeyReferenceError: the key cannot be loaded.
        ExistingReleaseError, NonceError, OutputError: the folder cannot take this release.
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
        request: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        again: str | None = None,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._public = {"parameters": dict(parameters or {}), "report": dict(report or {})}
        self._plan, self._key, self._output, self._request = plan, key, output, request
        self._again = again
        self._nonce, self._repair, self._witness = nonce, repair, witness

    def expand(self, rows: Any) -> Any:
        check_whole(rows[0] if isinstance(rows, tuple) else rows)
        _check_listed(self._plan)
        manifest = files.join(self._output, MANIFEST)
        exists = is_released(self._output, self._plan)
        if exists and not self._repair:
            pipeline = (rows[0] if isinstance(rows, tuple) else rows).pipeline
            return pipeline | "Stands" >> beam.Create([manifest], reshuffle=False)
        # Before anything is written: what is wrong with the key or the rows leaves no folder.
        key = self._key
        if not key.check_value:
            key = key.checked(begun_key_id(self._plan, self._again or self._output))
        if not isinstance(rows, tuple):
            rows = rows | "Rows" >> ReadCollection(self._plan, self._schema)
        if exists:
            found = read_manifest(manifest)
            nonce = restored_nonce(self._output, found["nonce"], found.get("key_id", ""))
        else:
            if self._again is None:
                check_turn(self._plan, self._output)
            self._keep_plan(key)
            nonce = folder_nonce(self._output, self._nonce, key.key_id)
        for question in self._plan.questions:
            question.prepare()
        return self._released(rows, share_universes(self._plan, self._output), key, nonce)

    def _keep_plan(self, key: KeyReference) -> None:
        """Let the folder keep the plan.

        Raises:
            KeptPlanError: it keeps another one.
        """
        if self._request is None:
            return
        kept = kept_by(self._output, self._plan, self._request, key)
        if kept.digest != self._plan.digest.hex():
            raise another_plan(self._output)

    def _released(self, rows: Any, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> Any:
        batches, given = rows
        own = self._again or self._output
        carry = Carry(plan, key, own) if carries(plan) else None
        earlier = OpenUnits(plan, key, own) if has_earlier_units(plan) else None
        counted = batches | "Count" >> CountRows(plan, key, carry, earlier)
        counts, digests = counted["counts"], counted["digest"]
        balance = (given, counted[BALANCE]) | "Balance" >> beam.Flatten()
        record = RecordDraw(plan, key, self._output, nonce, self._witness)
        recorded = (digests, balance) | "Record" >> record
        if round_count(plan):
            counts = (counts, recorded) | "Rounds" >> Rounds(plan, key)
        receipts = (counts, recorded) | "Draw" >> DrawTrees(plan, key, self._output)
        if leaves_units(plan):
            step = SealUnits(plan, key, self._output)
            units = (counted["units"], recorded) | "Units" >> step
            receipts = (receipts, units) | "Receipts" >> beam.Flatten()
        entries = plan_manifest(plan) | {name: each for name, each in self._public.items() if each}
        commit = Commit(plan, key, self._output, entries)
        return (receipts, recorded) | "Commit" >> commit


def _check_listed(plan: ReleasePlan) -> None:
    """Refuses a plan that was made before its keys were selected, or its bounds chosen.

    Raises:
        InputError: naming the tree, or the bounds.
    """
    if plan.bounds is not None and plan.bounds.values is None:
        of_unit = "" if plan.bounds.of_values else " of the unit"
        raise InputError(
            f"privacy: {plan.bounds.in_words}{of_unit} is yet to be chosen from the rows, by a "
            "release of its own: dptrees release makes both, this transform one"
        )
    for question in plan.questions:
        keys = getattr(question, "keys", None)
        if keys is not None and not keys.is_listed:
            raise InputError(
                f"trees: the keys of {question.name} are yet to be selected from the rows, by a "
                "release of their own: dptrees release makes both, this transform one"
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
