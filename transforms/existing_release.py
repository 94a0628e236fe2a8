"""A finished release: found before a row is read, and never made again.

The outcome of a second run (an exit code, equal bytes) would be an exact test of the data, at any
epsilon. So where the manifest of the same specification exists, nothing is read and nothing is
compared; a folder with the manifest of another one is refused by its specification alone.
"""

import json
from collections.abc import Mapping
from typing import Any

from dptrees.dpcore.release.guarantee import CHECKSUM, manifest_checksum
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import files
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.layout import MANIFEST


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
    """The entries of a manifest.

    Raises:
        ExistingReleaseError: it is damaged.
    """
    try:
        manifest = json.loads(files.read_bytes(path))
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("spec"), dict):
        raise _damaged(path)
    # Formats 1 and 2 had none. What is not named must not be deleted because of a damaged list of
    # names.
    has_none = manifest["spec"].get("format") in (1, 2)
    if not has_none and manifest.get(CHECKSUM) != manifest_checksum(manifest):
        raise _damaged(path)
    return manifest


def _damaged(path: str) -> ExistingReleaseError:
    return ExistingReleaseError(
        f"output: {path} is not a manifest as it was written; the release is damaged or was edited"
    )
