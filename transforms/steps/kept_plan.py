"""The plan of a folder: made once, written before the nonce, and used by every later run.

    plan.json -> (the ledger's reservation) -> nonce.json -> record.json -> parts -> manifest.json

A plan is found in floating point, so another version may find another one. A run that is
stopped:

- before `plan.json`: nothing was drawn; the next run plans.
- before `record.json`: a run with the same request uses the plan; another request replaces it,
  as no noise was drawn, and a job of the old plan fails at its record (`check_kept`).
- after `record.json`: the record covers the nonce and the plan's digest, so only that plan is
  drawn again, and another request is refused.
- while a beginning is discarded: nonce, then record, then plan, so a plan without a nonce was
  never drawn under a nonce that still exists.

Of two launchers the first plan wins on a local disk; on object stores the record keeps them
apart. The seal is a keyed digest of the file: without the key nobody can make a run follow
another plan. The seal of format 1 covers request and specification only, so widths in such files
are not used.
"""

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dptrees.dpcore import __version__
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import drawn, read_manifest
from dptrees.transforms.folder.names import MANIFEST, PLAN
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.steps.carry import run_folder_before

FORMATS = (1, 2)
_TEXTS = ("dptrees", "digest", "key_id", "seal")
_OBJECTS = ("request", "spec")
_ENTRIES = {"format", *_TEXTS, *_OBJECTS, "trees", CHECKSUM}


class KeptPlanError(ReleaseError):
    """The folder has a plan that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class KeptPlan:
    """A plan as a folder keeps it, in plain JSON values.

    Args:
        request: what the configuration says that shapes a plan.
        spec: the specification of the plan.
        trees: what the manifest says of each tree, such as the widths of its intervals, so that
            another machine need not compute it again.
        digest: of the plan, in hexadecimal; it is a part of every seed of noise.
        key_id: public id of the key of the seal.
        seal: keyed digest of all that the file holds beside it, in hexadecimal.
        dptrees: version that made the plan.
        format: of the file, one of `FORMATS`.
    """

    request: Mapping[str, Any]
    spec: Mapping[str, Any]
    trees: Sequence[Mapping[str, Any]]
    digest: str
    key_id: str
    seal: str
    dptrees: str = __version__
    format: int = FORMATS[-1]

    @classmethod
    def sealed(cls, plan: ReleasePlan, request: Mapping[str, Any], key: ReleaseKey) -> "KeptPlan":
        """The form in which a folder keeps a plan.

        Args:
            plan: of the release, with the data set of its ledger.
            request: that it answers.
            key: the release key.
        """
        entries = json.loads(json.dumps(plan_manifest(plan)))
        plain_request = json.loads(json.dumps(request))
        if plan.dataset is not None:
            plain_request["dataset"] = plan.dataset
        kept = cls(
            request=plain_request,
            spec=entries["spec"],
            trees=entries["trees"],
            digest=plan.digest.hex(),
            key_id=key.key_id,
            seal="",
        )
        return replace(kept, seal=kept.own_seal(key))

    def own_seal(self, key: ReleaseKey) -> str:
        """The seal that the release key gives this plan, in hexadecimal."""
        sealed = self._entries()
        del sealed["seal"]
        if self.format == 1:
            # The period is left out: all runs of a series have one plan.
            request, trees = request_of_series(self.request), self.spec["trees"]
            trees = [{n: value for n, value in each.items() if n != "period"} for each in trees]
            sealed = {"request": request, "spec": {**self.spec, "trees": trees}}
        text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
        return key.digest("plan", text).hex()

    @property
    def sealed_trees(self) -> Sequence[Mapping[str, Any]]:
        """What the manifest says of each tree; none where the seal does not cover it."""
        return () if self.format == 1 else self.trees

    def to_bytes(self) -> bytes:
        """The content of the file."""
        entries = self._entries()
        entries[CHECKSUM] = manifest_checksum(entries)
        return (json.dumps(entries) + "\n").encode()

    def _entries(self) -> dict[str, Any]:
        names = ("format", *_TEXTS, *_OBJECTS, "trees")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_bytes(cls, data: bytes) -> "KeptPlan | None":
        """The inverse of `to_bytes`; None where the content is damaged, or of another format."""
        try:
            entries = json.loads(data)
            if not isinstance(entries, dict) or entries.keys() != _ENTRIES:
                return None
            if entries.pop(CHECKSUM) != manifest_checksum(entries):
                return None
        except (ValueError, RecursionError):
            return None
        if type(entries["format"]) is not int or entries["format"] not in FORMATS:
            return None
        has_texts = all(isinstance(entries[n], str) and entries[n].isascii() for n in _TEXTS)
        has_objects = all(isinstance(entries[name], dict) for name in _OBJECTS)
        if not (has_texts and has_objects and _is_list_of_objects(entries["trees"])):
            return None
        if not _is_list_of_objects(entries["spec"].get("trees")):
            return None
        return cls(**entries)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def request_of_series(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request without the period, in which the runs of a series differ."""
    if not isinstance(series := request.get("series"), Mapping):
        return dict(request)
    return {**request, "series": {n: value for n, value in series.items() if n != "period"}}


def check_seal(place: str, kept: KeptPlan, key: KeyReference) -> None:
    """Refuse a plan that no run under the release key wrote.

    Args:
        place: the file that holds it, for the message.
        kept: the plan.
        key: where the release key lies.

    Raises:
        KeptPlanError: the seal is another one.
        KeyReferenceError: the key of the seal is not there.
    """
    # A service that already returned this key is not queried again.
    known = key if key.key_id == kept.key_id else key.checked(kept.key_id)
    own = kept.own_seal(known.load())
    if not hmac.compare_digest(kept.seal.encode(), own.encode()):
        raise KeptPlanError(
            f"output: {place} holds a plan that no run under the key {kept.key_id} wrote; start "
            "again with --discard, or choose another output"
        )


def kept_by(
    folder: str, plan: ReleasePlan, request: Mapping[str, Any], key: KeyReference
) -> KeptPlan:
    """Let a folder keep a plan, and return the one that it keeps.

    Args:
        folder: of a release that is not finished.
        plan: of the release.
        request: that it answers.
        key: with its check value.

    Raises:
        KeptPlanError: the folder keeps another plan, or it or the run before keeps one that no run
            under the key wrote.
    """
    if (kept := find_kept(folder)) is not None:
        check_seal(files.join(folder, PLAN), kept, key)
    if plan.run is not None and plan.run.period > 1:
        before = run_folder_before(plan, folder)
        if (kept := find_drawn(before)) is not None:
            check_seal(files.join(before, PLAN), kept, key)
    return keep(folder, KeptPlan.sealed(plan, request, key.load()))


def find_drawn(folder: str) -> KeptPlan | None:
    """The plan that lies beside the manifest of a finished release; None where it is missing,
    damaged, or not the plan that was drawn.

    Raises:
        ExistingReleaseError: the manifest is damaged.
        OutputError: the filesystem does not let it be read.
    """
    path = files.join(folder, PLAN)
    if not files.exists(path):
        return None
    kept_plan = KeptPlan.from_bytes(files.read_bytes(path))
    spec = read_manifest(files.join(folder, MANIFEST))["spec"]
    return None if kept_plan is None or kept_plan.spec != spec else kept_plan


def sweep_undrawn(folder: str) -> None:
    """Delete the plan beside the manifest of a finished release, where another plan was drawn.

    Two launchers whose requests differ in what shapes no noise may leave one: the plan of the one
    and the manifest of the other.

    Args:
        folder: of a finished release.

    Raises:
        ExistingReleaseError: the manifest is damaged.
        OutputError: the filesystem does not let it be read or deleted.
    """
    path = files.join(folder, PLAN)
    if files.exists(path) and find_drawn(folder) is None:
        files.delete([path])


def find_kept(folder: str) -> KeptPlan | None:
    """The plan that a folder keeps; None where it keeps none.

    Raises:
        KeptPlanError: the file is damaged, or of another version.
        OutputError: the filesystem does not let it be read.
    """
    path = files.join(folder, PLAN)
    if not files.exists(path):
        return None
    kept_plan = KeptPlan.from_bytes(files.read_bytes(path))
    if kept_plan is None:
        raise KeptPlanError(
            f"output: {path} is damaged, or another version of dptrees wrote it; start again with "
            "--discard, or choose another output"
        )
    return kept_plan


def keep(folder: str, plan: KeptPlan) -> KeptPlan:
    """Write the plan of a folder, unless it has one, and return the one to use.

    Args:
        folder: of a release that is not finished.
        plan: which this run would draw.

    Returns:
        `plan`, or the one that another launcher wrote first for the same request.

    Raises:
        KeptPlanError: noise was drawn here under another plan, or the file is damaged.
        OutputError: it cannot be written.
    """
    path = files.join(folder, PLAN)
    if not files.exists(path):
        if drawn(folder):  # by an earlier version; the record keeps other plans away
            return plan
        files.write_once(path, plan.to_bytes())
    kept_plan = find_kept(folder)
    if kept_plan is None:  # somebody discarded it meanwhile
        raise another_plan(folder)
    is_same = kept_plan.digest == plan.digest
    if kept_plan.request == plan.request and (not is_same or kept_plan.key_id == plan.key_id):
        return kept_plan
    if not is_same and drawn(folder):
        raise another_plan(folder)
    # The request differs in what shapes no noise, or nothing was drawn.
    files.write_whole(path, plan.to_bytes())
    return plan


def check_kept(folder: str, digest: bytes) -> None:
    """Refuse to draw a plan in a folder that keeps another one.

    Args:
        folder: of a release whose draw is to be recorded.
        digest: of the plan of the job.

    Raises:
        KeptPlanError: another run began the folder anew.
    """
    kept_plan = find_kept(folder)
    if kept_plan is not None and kept_plan.digest != digest.hex():
        raise another_plan(folder)


def another_plan(folder: str) -> KeptPlanError:
    """The refusal of a second plan in a folder."""
    return KeptPlanError(
        f"output: {folder} was begun with another plan; choose another output, or start an "
        "unfinished release again with --discard"
    )
