"""A release of the memory of this process, written into a folder."""

from __future__ import annotations

import os

from pipelines.reporting import write_report
from pipelines.user_error import UserError
from transforms import files
from transforms.held_files import KeptFiles
from transforms.layout import MANIFEST


def save_release(place: str, path: str) -> str:
    """Writes the files of a release, its manifest last, and then its report.

    Args:
        place: where it lies in memory.
        path: the folder, which may not hold anything.

    Returns:
        the path.

    Raises:
        UserError: something is there.
        OutputError: a file cannot be written.
    """
    files.use_environment()
    if (os.path.exists(path) and not os.path.isdir(path)) or any(files.names_below(path)):
        raise UserError(f"{path}: holds something already; choose another folder")
    held = {
        name.removeprefix(f"{place}/"): data
        for name, (_, data) in KeptFiles.objects.items()
        if name.startswith(f"{place}/")
    }
    for name in sorted(held, key=lambda name: (name == MANIFEST, name)):
        files.write_whole(files.join(path, *name.split("/")), held[name])
    write_report(path)
    return path
