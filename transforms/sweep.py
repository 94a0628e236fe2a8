"""What lies in a release's folder and is no part of it: found, and cleared.

Interrupted runs leave parts that no manifest names, and half-written files. Should an engine have
drawn a chunk twice (it computed counts anew from files that changed meanwhile), both draws lie
there: published together, they would spend the budget twice. So once the manifest is written, what
it does not name goes, and so does a public table that it does not name: of a run that was killed,
or that was to be another release. Files that are not ours stay; a release is not begun beside them.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import files
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.existing_release import ExistingReleaseError, read_manifest
from dptrees.transforms.layout import (
    INPUT_LIST_NAMES,
    MANIFEST,
    NONCE,
    PART_KINDS,
    PLAN,
    RECORD,
    SHARED_NAMES,
    SIGNATURE,
    concluded_file,
    part_names,
)

_TEMPORARY = re.compile(
    rf"\.[0-9a-f]{{32}}{re.escape(files.TEMPORARY_SUFFIX)}|{INPUT_LIST_NAMES.pattern}"
)


def sweep_unnamed(folder: str, plan: ReleasePlan) -> None:
    """Delete the parts and public tables that the manifest of a folder does not name.

    Args:
        folder: of a finished release.
        plan: its specification: names the parts.

    Raises:
        ExistingReleaseError: its manifest is damaged.
        OutputError: the filesystem does not let it be read.
    """
    manifest = read_manifest(files.join(folder, MANIFEST))
    listed = (*(part["file"] for part in manifest["parts"]), *manifest.get("files", {}))
    named = {files.join(folder, *file.split("/")) for file in listed}
    trees = [question.name for question in plan.questions]
    files.delete(sorted((_parts(folder, trees) | _shared(folder)) - named))


@contextmanager
def swept_if_failed(folder: str) -> Iterator[None]:
    """A job, whose public tables go from its folder again if it fails before anything is drawn."""
    before = _shared(folder)
    try:
        yield
    except BaseException:
        with suppress(ReleaseError):  # the job's own failure is reported
            if not (drawn(folder) or files.exists(files.join(folder, MANIFEST))):
                files.delete(sorted(_shared(folder) - before))
        raise


def strangers(folder: str, own: Iterable[str]) -> list[str]:
    """The names of files directly in a folder that no release has. Hidden ones are left out.

    Args:
        folder: of a release.
        own: names of files beside those that a job writes.
    """
    known = {MANIFEST, SIGNATURE, RECORD, NONCE, PLAN, concluded_file(QUANTILES), *own}
    names = map(_name, files.names_below(folder))
    return sorted(
        name
        for name in names
        if not (name in known or name.startswith(".") or SHARED_NAMES.fullmatch(name))
    )


def sweep_temporary(folder: str) -> None:
    """Delete what killed runs left in a folder: half-written files, and lists of input files."""
    files.delete(sorted(path for path in _present(folder) if _TEMPORARY.fullmatch(_name(path))))


def discard(folder: str) -> None:
    """Deletes the beginning of a release, so that another one can start in its folder.

    The nonce goes first, so that a second draw can never be compared with the first under it; then
    the record, without which a job that is still at work cannot commit; then the plan; then the
    parts. What an interrupted discarding leaves is refused until it is discarded
    (`begun_without_record`).

    Args:
        folder: without a manifest.

    Raises:
        ExistingReleaseError: the folder contains a finished release, or nothing of a release.
    """
    check_discardable(folder)
    present, parts = _present(folder), _parts(folder, None) | _shared(folder)
    for name in (NONCE, RECORD, PLAN):
        files.delete(sorted(present & {files.join(folder, name)}))
    _check_unfinished(folder)  # a job may have committed meanwhile
    files.delete(sorted(parts | (present & {files.join(folder, concluded_file(QUANTILES))})))
    sweep_temporary(folder)


def check_discardable(folder: str) -> None:
    """Refuse a folder that `discard` would refuse; nothing is deleted.

    Args:
        folder: of a release.

    Raises:
        ExistingReleaseError: as of `discard`.
    """
    _check_unfinished(folder)
    if not begun(folder):
        raise ExistingReleaseError(f"output: {folder} contains nothing that --discard could remove")


def _check_unfinished(folder: str) -> None:
    if files.exists(files.join(folder, MANIFEST)):
        raise ExistingReleaseError(
            f"output: {folder} contains a finished release, which --discard does not remove; "
            "choose another output"
        )


def begun(folder: str) -> bool:
    """Whether a folder holds the beginning of a release, be it a plan or a nonce alone."""
    names = (NONCE, PLAN)
    return any(files.exists(files.join(folder, name)) for name in names) or drawn(folder)


def drawn(folder: str) -> bool:
    """Whether a draw was recorded in a folder, or parts of one lie there."""
    return files.exists(files.join(folder, RECORD)) or bool(_parts(folder, None))


def begun_without_record(folder: str) -> bool:
    """Whether parts lie in a folder without the record of their draw: nothing shows whether another
    draw would be the same, so none may join them."""
    return not files.exists(files.join(folder, RECORD)) and bool(_parts(folder, None))


def missing_files(folder: str, names: Iterable[str]) -> list[str]:
    """Return the files of a release, by their names within it, that are missing in its folder."""
    present = _present(folder)
    return [name for name in names if files.join(folder, *name.split("/")) not in present]


def _present(folder: str) -> set[str]:
    """The paths of all files of a folder, and of its folders of parts."""
    places = (folder, *(files.join(folder, kind) for kind in PART_KINDS))
    return {path for place in places for path in files.names_below(place)}


def _parts(folder: str, trees: Iterable[str] | None) -> set[str]:
    """The paths of all files that are named as parts of some trees are; of any, where None."""
    part = part_names(trees)
    below = (files.names_below(files.join(folder, kind)) for kind in PART_KINDS)
    return {path for paths in below for path in paths if part.fullmatch(_name(path))}


def _shared(folder: str) -> set[str]:
    """The paths of all files that are named as public tables are."""
    return {path for path in files.names_below(folder) if SHARED_NAMES.fullmatch(_name(path))}


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
