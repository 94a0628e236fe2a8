"""The state of a release's folder: a finished release, the nonce of a begun one, files to clear.

The outcome of a second run would be an exact test of the data, at any epsilon; so where the
manifest of the same specification exists, nothing is read. The nonce is public and part of every
seed of noise: without it, two folders would show whether their counts are equal. Should an
engine have drawn a chunk twice, both draws are files of the folder, and published together they
would spend the budget twice: what the manifest does not name is deleted once it is written.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dptrees.dpcore.noise.randomness import NONCE_BYTES, draw_nonce
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import PART_KINDS, part_names
from dptrees.transforms.folder.names import (
    INPUT_LIST_NAMES,
    MANIFEST,
    NONCE,
    PLAN,
    RECORD,
    SHARED_NAMES,
    SIGNATURE,
    concluded_file,
)


class ExistingReleaseError(ReleaseError):
    """The folder holds another release, or none where one is needed."""


def is_released(folder: str, plan: ReleasePlan) -> bool:
    """Whether a folder holds the finished release of a specification.

    Args:
        folder: on any Beam filesystem.
        plan: the specification.

    Raises:
        ExistingReleaseError: the folder contains a release of another specification, or a damaged
            manifest.
    """
    path = files.join(folder, MANIFEST)
    if not files.exists(path):
        return False
    manifest, expected = read_manifest(path)["spec"], json.loads(json.dumps(plan.spec()))
    if manifest.get("format") != expected["format"]:
        raise ExistingReleaseError(
            f"output: {path} is a manifest of another version of dptrees; choose another output"
        )
    if manifest != expected:
        raise ExistingReleaseError(
            f"output: {folder} contains a release of another specification; choose another output"
        )
    return True


def read_manifest(path: str) -> Mapping[str, Any]:
    """Return the entries of a manifest.

    Raises:
        ExistingReleaseError: it is damaged.
    """
    manifest: Mapping[str, Any] = {}
    with suppress(ValueError):
        manifest = json.loads(files.read_bytes(path))
    is_manifest = isinstance(manifest, dict) and isinstance(manifest.get("spec"), dict)
    # Formats 1 and 2 had no checksum. A damaged list of names must not lead to the deletion of
    # files that it no longer has.
    if not is_manifest or (
        manifest["spec"].get("format") not in (1, 2)
        and manifest.get(CHECKSUM) != manifest_checksum(manifest)
    ):
        raise ExistingReleaseError(
            f"output: {path} is not a manifest as it was written; the release is damaged or was "
            "edited"
        )
    return manifest


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


class NonceError(ReleaseError):
    """The folder has another nonce, or one that cannot be read."""


def key_id_of_folder(folder: str) -> str | None:
    """The id of the key under which the release in a folder was made or begun.

    Args:
        folder: on any Beam filesystem.

    Returns:
        None where nothing was begun; "" where it was before keys had ids.

    Raises:
        OutputError: the filesystem does not let it be read.
    """
    for name in (MANIFEST, NONCE):
        path = files.join(folder, name)
        if files.exists(path):
            return _key_id(files.read_bytes(path))
    return None


def _key_id(text: bytes) -> str:
    try:
        return str(json.loads(text).get("key_id", ""))
    except (ValueError, AttributeError):
        return ""  # damaged, which is reported where it is used


def folder_nonce(folder: str, fixed: bytes | None = None, key_id: str = "") -> bytes:
    """The nonce of a folder; draws and writes it where there is none.

    Args:
        folder: of the release, on any Beam filesystem.
        fixed: the nonce to use, only to compare engines or files; None: draw one.
        key_id: of the release key; "" where the launcher has none.

    Returns:
        `NONCE_BYTES` bytes. The first writer's bytes: two launchers at once get the same on a local
        disk. Object stores let both write; then the record distinguishes them.

    Raises:
        NonceError: the folder has another nonce than the fixed one, or a damaged one.
        OutputError: it cannot be written.
    """
    path = files.join(folder, NONCE)
    if not files.exists(path):
        nonce = draw_nonce() if fixed is None else fixed
        files.write_once(path, _data(nonce.hex(), key_id))
    text = files.read_bytes(path)
    result = parse_nonce(text)
    if result is None:
        raise NonceError(
            f"output: {path} is damaged; discard what the folder holds, or choose another"
        )
    if fixed is not None and result != fixed:
        raise NonceError(f"nonce: {folder} has another nonce already; choose another output")
    if key_id and _key_id(text) not in ("", key_id):
        raise NonceError(
            f"key: {folder} was begun under the key {_key_id(text)}, not {key_id}; run it again"
        )
    return result


def _data(nonce: str, key_id: str) -> bytes:
    entries = {"nonce": nonce} | ({"key_id": key_id} if key_id else {})
    return (json.dumps(entries) + "\n").encode()


def check_begun(folder: str, nonce: bytes) -> None:
    """Sees that a folder still has the nonce that a job was made for. A job may outlive its folder,
    in a jar or a template that is run again: in a folder that is gone, or was begun anew, it would
    draw a second time under a nonce that was used.

    Raises:
        NonceError: it has none, or another.
    """
    path = files.join(folder, NONCE)
    if not files.exists(path) or parse_nonce(files.read_bytes(path)) != nonce:
        raise NonceError(
            f"output: {folder} no longer has the unfinished release that this job was made for; "
            "make the job again"
        )


def restored_nonce(folder: str, nonce: str, key_id: str = "") -> bytes:
    """The nonce of a finished release, which its manifest holds; writes it where it is lost.

    Args:
        folder: of the release.
        nonce, key_id: as the manifest has them, in hexadecimal.
    """
    path, restored = files.join(folder, NONCE), bytes.fromhex(nonce)
    if not files.exists(path) or parse_nonce(files.read_bytes(path)) != restored:
        files.write_whole(path, _data(nonce, key_id))
    return restored


def parse_nonce(text: bytes) -> bytes | None:
    """The nonce in a file's bytes; None where they are damaged.

    >>> parse_nonce(b'{"nonce": "000102030405060708090a0b0c0d0e0f"}').hex()[:6]
    '000102'
    >>> parse_nonce(b'{"nonce": "00"}') is None
    True
    """
    try:
        nonce = bytes.fromhex(json.loads(text)["nonce"])
    except (ValueError, TypeError, KeyError):
        return None
    return nonce if len(nonce) == NONCE_BYTES else None
