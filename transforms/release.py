"""The Beam transform that makes a whole release, for any pipeline and for the command."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    ExistingReleaseError,
    folder_nonce,
    is_released,
    read_manifest,
    restored_nonce,
)
from dptrees.transforms.folder.layout import MANIFEST
from dptrees.transforms.folder.universe import share_universes
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.carry import (
    UNIT_FAMILIES,
    Carry,
    OpenUnits,
    SealUnits,
    begun_key_id,
    carries,
    check_turn,
    has_earlier_units,
    leaves_units,
    series_families,
)
from dptrees.transforms.steps.collection import ReadCollection
from dptrees.transforms.steps.count import CountRows, MakeCounting
from dptrees.transforms.steps.draw import DrawTrees, Rounds, round_count
from dptrees.transforms.steps.kept_plan import another_plan, kept_by
from dptrees.transforms.steps.record import Commit, RecordDraw, Witness

_LOG = logging.getLogger(__name__)


class ReleaseTrees(beam.PTransform):
    """A Beam transform from rows to a differentially private release in a folder.

    The input is a PCollection of Arrow record batches, dictionaries, `beam.Row` or NamedTuples, or
    the pair of `transforms.readers.read.ReadBatches`, whose balance takes part in the check that no
    row was lost. For the same rows, key and nonce, the files equal the files of the command.

    When the graph is built, the folder gets its nonce and the public universes. If the finished
    release of this specification exists already, the rows are never counted: the rows of today must
    not be compared with the rows of the release.

    Args:
        plan: the plan: the trees, their noise and the guarantee.
        key: the place of the release key. Workers load the key from there. It is loaded here once,
            too, to identify it for the workers, unless the reference identifies it already.
        output: the folder, on any filesystem that Beam supports.
        nonce: the nonce of the folder, only to compare engines or files; None: a new one, or the
            nonce that the folder has.
        repair: make the parts of a finished release again. The job fails if the rows have changed,
            which reveals the change to anyone who can run it.
        witness: a receiver of the record of the draw before any noise is drawn, such as a ledger.
        parameters: public parameters of the configuration; the manifest contains them.
        report: public strings of the page, by name; the manifest contains them.
        request: the request that the plan answers, in plain JSON values; the folder then keeps
            both. None: it keeps neither, and a release is recognized by its specification only.
        schema: the types of the columns of rows, by name; None: from the type of the elements.
            Dictionaries need a schema.
        if_exists: what to do if the folder contains the finished release of this plan. "error":
            raise an error. "use": return its manifest, and count no row, with a warning in the log;
            earlier steps of your pipeline still run.
        counting: the transform that makes partial counts of the input, if another engine counts the
            rows, such as `transforms.held.GivenCounts`; None: the steps here count them.
        again: the folder of a finished release, to make the release another time from its rows and
            compare both; the turn of a run in a series is then not checked.

    Returns:
        PCollection[str]: the path of the manifest, once the release is complete.

    Raises:
        InputError: if the rows are windowed or unbounded, because a release counts all rows once;
            if a column is missing or has a type that cannot be used; or if the plan waits for a
            selection of keys.
        KeyReferenceError: if the key cannot be loaded.
        ExistingReleaseError, NonceError, OutputError: if the folder cannot take this release, or
            contains it already.
        SeriesError: if it is not the turn of this run of a series.
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
        counting: MakeCounting | None = None,
        if_exists: Literal["error", "use"] = "error",
    ) -> None:
        super().__init__()
        if if_exists not in ("error", "use"):
            raise InputError(f"if_exists: {if_exists!r} is not 'error' or 'use'")
        self._if_exists = if_exists
        self._schema = schema
        self._public = {"parameters": dict(parameters or {}), "report": dict(report or {})}
        self._plan, self._key, self._output, self._request = plan, key, output, request
        self._again, self._counting = again, counting
        self._nonce, self._repair, self._witness = nonce, repair, witness

    def expand(self, rows: Any) -> Any:
        check_whole(rows[0] if isinstance(rows, tuple) else rows)
        _check_listed(self._plan)
        manifest = files.join(self._output, MANIFEST)
        exists = is_released(self._output, self._plan)
        if exists and not self._repair:
            if self._if_exists == "error":
                raise ExistingReleaseError(
                    f"output: {self._output} contains the finished release of this plan, so no row "
                    'would be counted: choose another output, or give if_exists="use"'
                )
            _LOG.warning("dptrees: %s contains the release; no row is counted", self._output)
            pipeline = (rows[0] if isinstance(rows, tuple) else rows).pipeline
            return pipeline | "Stands" >> beam.Create([manifest], reshuffle=False)
        # Before anything is written: an error in the key or the rows leaves no folder.
        key = self._key
        if not key.check_value:
            key = key.checked(begun_key_id(self._plan, self._again or self._output))
        plan = self._plan
        if not isinstance(rows, tuple):
            read = ReadCollection(plan, self._schema)
            plan = replace(plan, unit_families=read.unit_families(rows))
            rows = rows | "Rows" >> read
        if not exists and self._again is None:
            check_turn(plan, self._output)
        if plan.remembering and self._again is None:
            self._public[UNIT_FAMILIES] = dict(series_families(plan, self._output))
        if exists:
            found = read_manifest(manifest)
            nonce = restored_nonce(self._output, found["nonce"], found.get("key_id", ""))
        else:
            self._keep_plan(key)
            nonce = folder_nonce(self._output, self._nonce, key.key_id)
        for question in plan.questions:
            question.prepare()
        return self._released(rows, share_universes(plan, self._output), key, nonce)

    def _keep_plan(self, key: KeyReference) -> None:
        """Write the plan to the folder.

        Raises:
            KeptPlanError: if the folder has another plan.
        """
        if self._request is None:
            return
        kept = kept_by(self._output, self._plan, self._request, key)
        if kept.digest != self._plan.digest.hex():
            raise another_plan(self._output)

    def _released(self, rows: Any, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> Any:
        """The whole flow of the data; a comment has the elements after each step.

        A place is a tree, a group and a number in it, such as a chunk of a tree's leaves.
        """
        # pa.RecordBatch; (name, number) of the rows that the readers gave
        batches, given = rows
        own = self._again or self._output
        carry = Carry(plan, key, own) if carries(plan) else None
        earlier = OpenUnits(plan, key, own) if has_earlier_units(plan) else None

        counted = batches | "Count" >> CountRows(plan, key, carry, earlier, self._counting)
        # counts: (place, exact counts as bytes), each place of the plan once
        # digest: 40 bytes for each place
        # units: (tree and shard, sealed periods of units), only in a series that bounds them
        counts, digests = counted["counts"], counted["digest"]

        # (name, difference): each name adds up to zero, or the engine lost or repeated data
        balance = (given, counted[BALANCE]) | "Balance" >> beam.Flatten()

        # 48 bytes, once: the nonce and the digest of all counts, written before any noise is drawn
        record = RecordDraw(plan, key, self._output, nonce, self._witness)
        recorded = (digests, balance) | "Record" >> record

        # (place, bytes), each place once: what noise is drawn from, after the rounds of such trees
        if round_count(plan):
            counts = (counts, recorded) | "Rounds" >> Rounds(plan, key)

        # bytes: a receipt of each part that was written, after noise, estimation and consistency
        receipts = (counts, recorded) | "Draw" >> DrawTrees(plan, key, self._output)
        if leaves_units(plan):
            step = SealUnits(plan, key, self._output)
            units = (counted["units"], recorded) | "Units" >> step
            receipts = (receipts, units) | "Receipts" >> beam.Flatten()

        # str, once: the path of the manifest, which makes the parts a release
        entries = plan_manifest(plan) | {name: each for name, each in self._public.items() if each}
        commit = Commit(plan, key, self._output, entries)
        return (receipts, recorded) | "Commit" >> commit


def _check_listed(plan: ReleasePlan) -> None:
    """Refuse a plan that was made before its keys were selected, or its bounds chosen.

    Raises:
        InputError: in a sentence that names the tree, or the bounds.
    """
    if plan.bounds is not None and plan.bounds.values is None:
        of_unit = "" if plan.bounds.of_values else " of the unit"
        raise InputError(
            f"privacy: {plan.bounds.in_words}{of_unit} must first be chosen from the rows, by a "
            "separate release: dptrees release makes both, this transform only one"
        )
    for question in plan.questions:
        keys = getattr(question, "keys", None)
        if keys is not None and not keys.is_listed:
            raise InputError(
                f"trees: the keys of {question.name} must first be selected from the rows, by a "
                "separate release: dptrees release makes both, this transform only one"
            )


def check_whole(batches: Any) -> None:
    """Refuse rows in windows, or unbounded rows.

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
