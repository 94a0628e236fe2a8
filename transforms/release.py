"""The flow of a whole release, for every engine: its steps, their elements, and what is grouped."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    folder_nonce,
    is_released,
    read_manifest,
    restored_nonce,
)
from dptrees.transforms.folder.names import MANIFEST
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
from dptrees.transforms.steps.count import CountRows, MakeCounting
from dptrees.transforms.steps.draw import DrawTrees, Rounds, round_count
from dptrees.transforms.steps.kept_plan import another_plan, kept_by
from dptrees.transforms.steps.record import Commit, RecordDraw, Witness


@dataclass(frozen=True)
class Release(flow.Transform):
    """The steps from record batches and their balance to a release in a folder.

    When the graph is built, the folder gets its nonce and the public universes. A finished release
    of the plan is not made again: the rows of today must not be compared with its rows.

    Args:
        plan: the plan: the trees, their noise and the guarantee.
        key: the place of the release key; workers load it from there. It is loaded here once, to
            identify it for them, unless the reference identifies it already.
        output: the folder.
        nonce: of the folder; None: a new one, or the nonce that the folder has.
        repair: make the parts of a finished release again.
        witness: receives the record of the draw before any noise is drawn.
        parameters: public parameters of the configuration; the manifest contains them.
        report: public strings of the page, by name; the manifest contains them.
        request: the request that the plan answers, which the folder keeps with the plan; None: it
            keeps neither.
        counting: the transform that makes partial counts, if another engine counts the rows, such
            as Spark; None: the steps here.
        again: the folder of a finished release, to make it another time from its rows and compare
            both; the turn of a run in a series is then not checked.
        is_new: the caller has seen that the release is to be made.

    The input is a pair: the batches, and the balance of what gave them.

    Returns:
        Collection[str]: the path of the manifest, once the release is complete.

    Raises:
        InputError: if the plan waits for a selection of keys, or for bounds.
        KeyReferenceError: if the key cannot be loaded.
        ExistingReleaseError, NonceError, OutputError: if the folder cannot take this release.
        SeriesError: if it is not the turn of this run of a series.
    """

    plan: ReleasePlan
    _: KW_ONLY
    key: KeyReference
    output: str
    nonce: bytes | None = None
    repair: bool = False
    witness: Witness | None = None
    parameters: Mapping[str, str] | None = None
    report: Mapping[str, str] | None = None
    request: Mapping[str, Any] | None = None
    counting: MakeCounting | None = None
    again: str | None = None
    is_new: bool = False

    def found(self) -> str:
        """Return the path of the manifest of a release that is not to be made; "" otherwise."""
        exists = not self.repair and is_released(self.output, self.plan)
        return files.join(self.output, MANIFEST) if exists else ""

    def with_key(self) -> "Release":
        """Return the same with its key identified, before anything is written.

        Raises:
            KeyReferenceError: if the key cannot be loaded.
        """
        if self.key.check_value:
            return self
        return replace(self, key=self.key.checked(begun_key_id(self.plan, self._own)))

    @property
    def _own(self) -> str:
        return self.again or self.output

    def expand(self, rows: Any) -> Any:
        check_listed(self.plan)
        if not self.is_new and (manifest := self.found()):
            return flow.flow_of(rows) | "Stands" >> flow.Given([manifest])
        return self.with_key()._begun(rows)

    def _begun(self, rows: Any) -> Any:
        """Begin the folder, and add the steps."""
        plan, key, output = self.plan, self.key, self.output
        public: dict[str, Any] = {
            "parameters": dict(self.parameters or {}),
            "report": dict(self.report or {}),
        }
        exists = is_released(output, plan)
        if not exists and self.again is None:
            check_turn(plan, output)
        if plan.remembering and self.again is None:
            public[UNIT_FAMILIES] = dict(series_families(plan, output))
        if exists:
            found = read_manifest(files.join(output, MANIFEST))
            nonce = restored_nonce(output, found["nonce"], found.get("key_id", ""))
        else:
            self._keep_plan()
            nonce = folder_nonce(output, self.nonce, key.key_id)
        for question in plan.questions:
            question.prepare()
        entries = {name: each for name, each in public.items() if each}
        return self._released(rows, share_universes(plan, output), nonce, entries)

    def _keep_plan(self) -> None:
        """Write the plan to the folder.

        Raises:
            KeptPlanError: if the folder has another plan.
        """
        if self.request is None:
            return
        kept = kept_by(self.output, self.plan, self.request, self.key)
        if kept.digest != self.plan.digest.hex():
            raise another_plan(self.output)

    def _released(
        self, rows: Any, plan: ReleasePlan, nonce: bytes, public: Mapping[str, Any]
    ) -> Any:
        """The whole flow of the data; a comment has the elements after each step.

        A place is a tree, a group and a number in it, such as a chunk of a tree's leaves.
        """
        # pa.RecordBatch; (name, number) of the rows that the readers gave
        batches, given = rows
        key, output, own = self.key, self.output, self._own
        carry = Carry(plan, key, own) if carries(plan) else None
        earlier = OpenUnits(plan, key, own) if has_earlier_units(plan) else None

        count = CountRows(plan, key, nonce, carry, earlier, self.counting)
        counted = batches | "Count" >> count
        # counts: (place, exact counts as bytes), each place of the plan once
        # digest: 40 bytes for each place
        # units: (tree and shard, sealed periods of units), only in a series that bounds them
        counts, digests = counted["counts"], counted["digest"]

        # (name, difference): each name adds up to zero, or the engine lost or repeated data
        balance = (given, counted[BALANCE]) | "Balance" >> flow.Join()

        # 48 bytes, once: the nonce and the digest of all counts, written before any noise is drawn
        record = RecordDraw(plan, key, output, nonce, self.witness)
        recorded = (digests, balance) | "Record" >> record

        # (place, bytes), each place once: what noise is drawn from, after the rounds of such trees
        if round_count(plan):
            counts = (counts, recorded) | "Rounds" >> Rounds(plan, key)

        # bytes: a receipt of each part that was written, after noise, estimation and consistency
        receipts = (counts, recorded) | "Draw" >> DrawTrees(plan, key, output)
        if leaves_units(plan):
            step = SealUnits(plan, key, output)
            units = (counted["units"], recorded) | "Units" >> step
            receipts = (receipts, units) | "Receipts" >> flow.Join()

        # str, once: the path of the manifest, which makes the parts a release
        entries = {**plan_manifest(plan), **public}
        commit = Commit(plan, key, output, entries)
        return (receipts, recorded) | "Commit" >> commit


def check_listed(plan: ReleasePlan) -> None:
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
