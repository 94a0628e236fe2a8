"""``dptrees verify``: a release checked against itself, its signer, its key and its rows."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from dpcore.hierarchy.universe import Universe
from dpcore.release.plan import ReleasePlan
from pipelines.proof.check import Check, CheckFailed, Finding, findings_of
from pipelines.proof.composition import check_composition
from pipelines.proof.files import check_draw, check_files, check_parts, read_universe
from pipelines.proof.manifest import (
    check_entries,
    check_guarantee,
    check_noise,
    check_sensitivities,
    read_plan,
)
from pipelines.proof.tables import Names, check_tables
from pipelines.release_folder import read_file, read_manifest
from pipelines.sections.parameters import given_parameters
from pipelines.terminal_text import print_json, print_line
from pipelines.user_error import UserError
from transforms.key_reference import KeyReference
from transforms.layout import MANIFEST, SIGNATURE

_CONFIGURATIONS = (".yaml", ".yml")


@dataclass(frozen=True)
class Verified:
    """A release that is being verified.

    Args:
        folder: of it.
    """

    folder: str

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """As it stands."""
        return read_manifest(self.folder)

    @cached_property
    def plan(self) -> ReleasePlan:
        """Of its specification, with nothing taken from other entries.

        Raises:
            CheckFailed: it cannot be planned.
        """
        return read_plan(self.manifest, self._universe)

    @cached_property
    def _universes(self) -> dict[str, Universe]:
        return {}

    def _universe(self, digest: str) -> Universe:
        if digest not in self._universes:
            self._universes[digest] = read_universe(self.folder, self.manifest, digest)
        return self._universes[digest]

    def specification(self) -> str:
        """The specification can be planned, and the universes it names are there."""
        tables = {each.digest for q in self.plan.questions for each in q.public_tables}
        universes = f", public universes: {len(tables)}" if tables else ""
        return f"trees: {len(self.plan.questions)}{universes}, digest {self.plan.digest.hex()[:16]}"

    def of_manifest(self) -> list[Check]:
        """The checks of the manifest alone."""
        manifest, known = self.manifest, ("manifest", "specification")
        return [
            Check(name="manifest", made=partial(check_entries, manifest)),
            Check(name="specification", made=self.specification, after=("manifest",)),
            Check(name="guarantee", made=lambda: check_guarantee(manifest, self.plan), after=known),
            Check(name="sensitivities", made=lambda: check_sensitivities(self.plan), after=known),
            Check(name="noise", made=lambda: check_noise(manifest, self.plan), after=known),
            Check(name="composition", made=lambda: check_composition(self.plan), after=known),
            Check(name="parts", made=lambda: check_parts(manifest, self.plan), after=known),
        ]

    def of_files(self) -> list[Check]:
        """The checks of what lies beside the manifest."""
        manifest = self.manifest
        return [
            Check(
                name="draw", made=partial(check_draw, self.folder, manifest), after=("manifest",)
            ),
            Check(name="files", made=partial(check_files, self.folder, manifest), after=("parts",)),
            Check(name="tables", made=self.tables, after=("files",)),
        ]

    def tables(self) -> str:
        """The tables hold what follows from the specification."""
        names: Names = {}
        for part in self.manifest["parts"]:
            kind = str(part["file"]).split("/")[0]
            names[kind, part["tree"], part["key"], part["chunk"]] = part["file"]
        return check_tables(self.folder, names, self.plan)

    def signature(self, signer: str) -> str:
        """The manifest's bytes are signed by a signer."""
        from pipelines.proof.signature import is_signed, load_signer

        key = load_signer(signer)
        try:
            found = read_file(os.path.join(self.folder, SIGNATURE))
        except FileNotFoundError:
            raise CheckFailed(
                f"there is no {SIGNATURE}: it was not signed, or is to be by running dptrees "
                "release again"
            ) from None
        except OSError as error:
            raise CheckFailed(f"{SIGNATURE} cannot be read: {error.strerror}") from None
        if not is_signed(read_file(os.path.join(self.folder, MANIFEST)), found, key):
            raise CheckFailed(f"{SIGNATURE} is not that of {signer} and this manifest")
        return f"by {signer}"

    def key(self, reference: KeyReference) -> str:
        """The key of the release is at hand."""
        if reference.ring().key_of(self.manifest["key_id"]) is None:
            raise CheckFailed(
                f"{reference.reference} does not hold the key {self.manifest['key_id']}"
            )
        return f"{self.manifest['key_id']} is in {reference.reference}"

    def replay(
        self, data: list[str], given: Mapping[str, str], reference: KeyReference | None
    ) -> str:
        """The release of these rows under its key is this one, bit for bit."""
        from pipelines.configuration import load_configuration
        from pipelines.proof.replay import check_replay, rows_of_configuration, rows_of_files

        if data[0].endswith(_CONFIGURATIONS):
            configuration = load_configuration(data[0], given)
            rows = rows_of_configuration(configuration, self.manifest)
            reference = reference or configuration.key
        else:
            rows = rows_of_files(data)
        assert reference is not None
        key = reference.checked(self.manifest["key_id"])
        return check_replay(self.manifest, self.plan, rows, key)


def run_verify(chosen: argparse.Namespace) -> int:
    """Checks a release and prints a line for each check.

    Raises:
        UserError: a check fails, or what is asked does not go together.
    """
    given = given_parameters(chosen.set)
    _check_arguments(chosen, given)
    release = Verified(chosen.release)
    findings = findings_of(_checks(release, chosen, given))
    if chosen.json:
        failed = any(each.ok is False for each in findings)
        checks = [asdict(each) for each in findings]
        print_json({"release": chosen.release, "ok": not failed, "checks": checks}, indent=1)
    else:
        for each in findings:
            print_line(each.line)
    raise_first(chosen.release, findings)
    return 0


def raise_first(release: str, findings: list[Finding]) -> None:
    """Tells the first check that failed.

    Raises:
        UserError: there is one.
    """
    for each in findings:
        if each.ok is False:
            raise UserError(f"{release}: {each.check}: {each.told}")


def _checks(release: Verified, chosen: argparse.Namespace, given: Mapping[str, str]) -> list[Check]:
    checks = [*release.of_manifest(), *release.of_files()]
    if chosen.signer is not None:
        checks.append(Check(name="signature", made=partial(release.signature, chosen.signer)))
    key = None if chosen.key is None else key_reference(chosen.key)
    if key is not None:
        made = partial(release.key, key)
        checks.append(Check(name="key", made=made, after=("manifest",)))
    if chosen.data:
        needed = ("manifest", "specification", "parts", "files", *(["key"] if key else []))
        made = partial(release.replay, chosen.data, given, key)
        checks.append(Check(name="replay", made=made, after=needed, edited=False))
    return checks


def key_reference(text: str) -> KeyReference:
    """A key by the path of its file, ``file:PATH`` or ``env:NAME``."""
    return KeyReference(reference=text if text.startswith(("file:", "env:")) else f"file:{text}")


def _check_arguments(chosen: argparse.Namespace, given: Mapping[str, str]) -> None:
    configured = bool(chosen.data) and chosen.data[0].endswith(_CONFIGURATIONS)
    if configured and len(chosen.data) > 1:
        raise UserError("--data: takes one configuration, or files of rows")
    if chosen.data and not configured and chosen.key is None:
        raise UserError("--data: files of rows need --key, the release's key")
    if given and not configured:
        raise UserError("--set: goes with --data CONFIG")
