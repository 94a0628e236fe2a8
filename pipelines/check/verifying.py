"""``dptrees verify``: a release checked against itself, its signer, its key and its rows."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count, takewhile

from dptrees.pipelines.process import UserError
from dptrees.pipelines.proof.check import Check, Finding, run_checks
from dptrees.pipelines.proof.verified import Verified, raise_first
from dptrees.pipelines.query.release_folder import holds_release
from dptrees.pipelines.sections.parameters import CONFIGURATIONS, given_parameters
from dptrees.pipelines.terminal_text import print_json, print_line
from dptrees.transforms.folder.names import run_folder
from dptrees.transforms.keys import KeyReference, has_scheme


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """What a release is checked against, beside itself.

    Args:
        folder: of the release.
        signer: a file with the public key of who must have signed the manifest; None: anybody.
        key: the release key: the path of its file, or a reference; None: it is not compared.
        data: files of the rows, or the one configuration of the release; empty: it is not replayed.
        parameters: of the configuration, by name.

    Raises:
        UserError: they contradict each other.
    """

    folder: str
    signer: str | None = None
    key: str | None = None
    data: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        configured = bool(self.data) and self.data[0].endswith(CONFIGURATIONS)
        if configured and len(self.data) > 1:
            raise UserError("--data: takes one configuration, or files of rows")
        if self.data and not configured and self.key is None:
            raise UserError("--data: files of rows need --key, the release's key")
        if self.parameters and not configured:
            raise UserError("--set: goes with --data CONFIG")


def verify_release(request: VerifyRequest) -> list[Finding]:
    """Makes the checks of a release, and returns what was found of each.

    Raises:
        UserError: there is no release.
    """
    return run_checks(_checks(Verified(request.folder), request))


def reason_unreadable(path: str) -> str | None:
    """The first check that does not hold, for a computation from a release that failed; None where
    all hold, so that the program is at fault.

    Args:
        path: the folder of a release, or of a series.
    """
    runs = (run_folder(path, period) for period in count(1))
    folders = [path] if holds_release(path) else takewhile(holds_release, runs)
    for folder in folders:
        for each in verify_release(VerifyRequest(folder=folder)):
            if each.ok is False:
                return f"{folder}: {each.check}: {each.told}"
    return None


def run_verify(chosen: argparse.Namespace) -> int:
    """Check a release and print a line for each check.

    Raises:
        UserError: a check fails, or the options contradict each other.
    """
    request = VerifyRequest(
        folder=chosen.release,
        signer=chosen.signer,
        key=chosen.key,
        data=tuple(chosen.data or ()),
        parameters=given_parameters(chosen.set),
    )
    findings = verify_release(request)
    if chosen.json:
        failed = any(each.ok is False for each in findings)
        checks = [asdict(each) for each in findings]
        print_json({"release": chosen.release, "ok": not failed, "checks": checks}, indent=1)
    else:
        for each in findings:
            print_line(each.line)
    raise_first(chosen.release, findings)
    return 0


def _replay(release: Verified, request: VerifyRequest, reference: KeyReference | None) -> str:
    from dptrees.pipelines.check.replay import replayed

    return replayed(release, request.data, request.parameters, reference)


def _checks(release: Verified, request: VerifyRequest) -> list[Check]:
    checks = [*release.manifest_checks(), *release.file_checks()]
    if request.signer is not None:
        checks.append(Check(name="signature", made=partial(release.signature, request.signer)))
    key = None if request.key is None else key_reference(request.key)
    if key is not None:
        made = partial(release.key, key)
        checks.append(Check(name="key", made=made, after=("manifest",)))
    if request.data:
        needed = ("manifest", "specification", "parts", "files", *(["key"] if key else []))
        needed += ("selection",) if release.is_staged else ()
        needed += ("bounds",) if release.has_chosen_bounds else ()
        made = partial(_replay, release, request, key)
        checks.append(Check(name="replay", made=made, after=needed, edited=False))
    return checks


def key_reference(text: str) -> KeyReference:
    """A key by the path of its file, or by its reference."""
    return KeyReference(reference=text if has_scheme(text) else f"file:{text}")
