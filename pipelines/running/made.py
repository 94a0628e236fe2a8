"""What a release consists of, as one object for a program."""

from __future__ import annotations

from dptrees.dpcore.release.guarantee import CHECKSUM
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.reporting import REPORT
from dptrees.pipelines.terminal_text import print_json
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import MANIFEST


def print_made(folder: ReleaseFolder, *, made: bool, account: str | None) -> None:
    """Print what was written; nothing that the manifest does not hold.

    Args:
        folder: the release.
        made: whether this run made it; otherwise it existed already.
        account: the ledger's account of its data set; None without a ledger.
    """
    manifest = folder.manifest
    trees = [{"name": each.name, "kind": each.kind} for each in folder.plan.questions]
    print_json(
        {
            "release": folder.plan.name,
            "folder": folder.path,
            "made": made,
            "manifest": {
                "file": files.join(folder.path, MANIFEST),
                "checksum": manifest.get(CHECKSUM),
            },
            "guarantee": manifest["guarantee"],
            "ledger": account,
            "trees": trees,
            "files": folder.files,
            "report": files.join(folder.path, REPORT),
        },
        indent=1,
    )
