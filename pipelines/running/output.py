"""The content of the output of a release, and whether it fits the request."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.reporting import REPORT
from dptrees.pipelines.running.job import check_filesystems
from dptrees.pipelines.selection.plan import FOLDER as SELECTION
from dptrees.pipelines.terminal_text import print_line
from dptrees.pipelines.unit_bounds.plan import FOLDER as BOUNDS
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    begun,
    begun_without_record,
    check_discardable,
    discard,
    drawn,
    is_released,
    missing_files,
    read_manifest,
    strangers,
)
from dptrees.transforms.folder.layout import MANIFEST, PART_KINDS, TO_DATE

# Beside the files of a job: the page, and the times and versions of a run.
_OWN = (REPORT, "run.json")
_FOLDERS = (*PART_KINDS, TO_DATE, SELECTION, BOUNDS)


@dataclass(frozen=True, kw_only=True)
class FolderRequest:
    """Options of a run that concern its output folder.

    Args:
        nonce: fixes the folder's nonce, only to compare engines or files.
        repair: make the parts of a finished release again from the same rows.
        discard: delete the beginning of a release, and spend its budget anew.
    """

    nonce: bytes | None = None
    repair: bool = False
    discard: bool = False


def check_output(output: str, plan: ReleasePlan, request: FolderRequest) -> bool:
    """Whether the output already holds a release of this very specification.

    Raises:
        UserError: it holds another release, is a file, or cannot be written.
    """
    check_filesystems((output,))
    if files.is_local(output) and os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output: {output} is not a folder")
    if is_released(output, plan):
        _check_nonce(output, request)
        return True
    if files.is_local(output) and not _writable(output):
        raise UserError(f"output: {output} cannot be written: permission denied")
    return False


def check_released(output: str, request: FolderRequest) -> None:
    """Check that a finished release is complete, and that the request is possible for it.

    Raises:
        UserError: files are missing.
        ExistingReleaseError: the release is to be discarded.
    """
    if request.discard:
        check_discardable(output)  # refused
    folder = ReleaseFolder(output)
    missing = missing_files(output, folder.files)
    if missing:
        raise UserError(
            f"{output}: {missing[0]} is missing, of {len(folder.files)} files of the release "
            f"{len(missing)} in all; --repair makes them again from the same rows"
        )


def check_parameters(configuration: Configuration, output: str, request: FolderRequest) -> bool:
    """Sees that a finished release is of the same parameters, which may name other rows. Whether it
    is to stay as it is.

    Raises:
        UserError: it is of others.
    """
    manifest = read_manifest(files.join(output, MANIFEST)).get("parameters", {})
    if manifest != configuration.parameters:
        listed = (
            ", ".join(f"{name} = {value}" for name, value in sorted(manifest.items())) or "none"
        )
        raise UserError(
            f"output: {output} contains a release with other parameters ({listed}); choose "
            "another output, for example with a parameter in its path"
        )
    return not request.repair


def _check_nonce(output: str, request: FolderRequest) -> None:
    """Check that a finished release has the requested nonce.

    Raises:
        UserError: it has another.
    """
    manifest = read_manifest(files.join(output, MANIFEST)).get("nonce")
    if request.nonce is not None and manifest != request.nonce.hex():
        raise UserError(f"nonce: {output} contains a release with another nonce")


def check_repaired(output: str) -> None:
    """Sees that a repair brought back what was missing.

    Raises:
        UserError: it wrote other bytes, as another version of a library does.
    """
    folder = ReleaseFolder(output)
    if missing := missing_files(output, folder.files):
        raise UserError(
            f"{output}: {missing[0]} is still missing: this installation writes other bytes than "
            f"the one that made the release, dptrees {folder.manifest.get('dptrees')}; repair it "
            "with that one and its pyarrow"
        )


def check_repairable(output: str, request: FolderRequest) -> None:
    """Refuses to repair what is not finished.

    Raises:
        UserError: it is to be repaired.
    """
    if request.repair:
        raise UserError(
            f"--repair: {output} contains no finished release; run without it to finish one"
        )


def check_folder(output: str, plan: ReleasePlan, request: FolderRequest) -> None:
    """Check that the folder allows the request.

    Raises:
        UserError: there is no release to repair, the folder holds something that is no part of
            one, or nothing shows which release its parts are from.
    """
    if not is_released(output, plan):
        check_repairable(output, request)
        if not drawn(output):  # what is begun is finished, whatever came to lie beside it
            _check_own(output)
    if not (request.repair or request.discard) and begun_without_record(output):
        raise UserError(
            f"output: {output} contains parts of a release without record.json, so nothing shows "
            "whether this run would draw the same noise again; choose another output, or start "
            "again with --discard"
        )


def clear_output(output: str, request: FolderRequest, *, reserved: bool) -> None:
    """Clear the folder where that is requested.

    Args:
        reserved: there is a ledger, which may hold a reservation whose folder is gone.

    Raises:
        ExistingReleaseError: there is a finished release, which is not discarded, or nothing is
            there.
    """
    if request.discard:
        if begun(output) or not reserved:
            discard(output)
        print_line(
            f"{output}: the files of an interrupted run are deleted; its budget counts as spent"
        )


def _check_own(output: str) -> None:
    """Sees that nothing lies in the folder that would be published with the release.

    Raises:
        UserError: something does that is no part of one.
    """
    found = strangers(output, _OWN)
    if files.is_local(output) and os.path.isdir(output):
        with os.scandir(output) as entries:
            folders = (entry.name for entry in entries if entry.is_dir())
            found += sorted(name for name in folders if name not in _FOLDERS and name[0] != ".")
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UserError(
            f"output: {output} holds {found[0]}{more}, which does not belong to a release; choose "
            "a new or empty folder"
        )


def _writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written into."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return os.access(nearest, os.W_OK | os.X_OK)
