"""``dptrees verify``: a release checked against itself, its signer, its key and its rows."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from pipelines.proof.check import Check, run_checks
from pipelines.proof.verified import Verified, raise_first
from pipelines.sections.parameters import given_parameters
from pipelines.terminal_text import print_json, print_line
from pipelines.user_error import UserError
from transforms.key_reference import KeyReference
from transforms.secrets.schemes import has_scheme

_CONFIGURATIONS = (".yaml", ".yml")


def run_verify(chosen: argparse.Namespace) -> int:
    """Check a release and print a line for each check.

    Raises:
        UserError: a check fails, or the options contradict each other.
    """
    parameters = given_parameters(chosen.set)
    _check_arguments(chosen, parameters)
    release = Verified(chosen.release)
    findings = run_checks(_checks(release, chosen, parameters))
    if chosen.json:
        failed = any(each.ok is False for each in findings)
        checks = [asdict(each) for each in findings]
        print_json({"release": chosen.release, "ok": not failed, "checks": checks}, indent=1)
    else:
        for each in findings:
            print_line(each.line)
    raise_first(chosen.release, findings)
    return 0


def _replay(
    release: Verified,
    data: list[str],
    parameters: Mapping[str, str],
    reference: KeyReference | None,
) -> str:
    """The release of these rows under its key is this one, bit for bit."""
    from pipelines.configuration import load_configuration
    from pipelines.proof.replay import check_replay, rows_of_configuration, rows_of_files
    from pipelines.running.selecting import selected_keys
    from transforms import files

    staged = release.has_stage
    if data[0].endswith(_CONFIGURATIONS):
        configuration = load_configuration(data[0], parameters)
        if configuration.auto_bounds and release.plan.bounds is not None:
            configuration = configuration.with_chosen(release.plan.bounds)
        if staged and configuration.selections:
            actual = selected_keys(release.stage.folder, configuration)
            configuration = replace(configuration, selected=actual)
        reference = reference or configuration.key
        folder = files.absolute(release.folder)
        rows = rows_of_configuration(configuration, release.manifest, folder, reference)
    else:
        rows = rows_of_files(data, release.manifest["spec"].get("dialect"))
    assert reference is not None
    # First stages are made again first: the bounds and the keys of the trees were compared with
    # theirs.
    for each in (*release.first_stages, release):
        key = reference.checked(each.manifest["key_id"])
        reason = check_replay(each.manifest, each.plan, rows, key, files.absolute(each.folder))
    return reason


def _checks(
    release: Verified, chosen: argparse.Namespace, parameters: Mapping[str, str]
) -> list[Check]:
    checks = [*release.manifest_checks(), *release.file_checks()]
    if chosen.signer is not None:
        checks.append(Check(name="signature", made=partial(release.signature, chosen.signer)))
    key = None if chosen.key is None else key_reference(chosen.key)
    if key is not None:
        made = partial(release.key, key)
        checks.append(Check(name="key", made=made, after=("manifest",)))
    if chosen.data:
        needed = ("manifest", "specification", "parts", "files", *(["key"] if key else []))
        needed += ("selection",) if release.is_staged else ()
        needed += ("bounds",) if release.has_chosen_bounds else ()
        made = partial(_replay, release, chosen.data, parameters, key)
        checks.append(Check(name="replay", made=made, after=needed, edited=False))
    return checks


def key_reference(text: str) -> KeyReference:
    """A key by the path of its file, or by its reference."""
    return KeyReference(reference=text if has_scheme(text) else f"file:{text}")


def _check_arguments(chosen: argparse.Namespace, parameters: Mapping[str, str]) -> None:
    configured = bool(chosen.data) and chosen.data[0].endswith(_CONFIGURATIONS)
    if configured and len(chosen.data) > 1:
        raise UserError("--data: takes one configuration, or files of rows")
    if chosen.data and not configured and chosen.key is None:
        raise UserError("--data: files of rows need --key, the release's key")
    if parameters and not configured:
        raise UserError("--set: goes with --data CONFIG")
