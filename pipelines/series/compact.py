"""``dptrees series compact``: delete what earlier runs of a series left to the runs after them."""

from __future__ import annotations

import argparse

from pipelines.series.series_folder import SeriesFolder
from pipelines.terminal_text import escaped, print_line
from pipelines.user_error import UserError
from transforms import files
from transforms.layout import SEALED_KINDS, run_folder, sha256


def run_compact(chosen: argparse.Namespace) -> int:
    """Delete the sealed files of all runs but the last ones.

    Only the next run reads what a run sealed, and a repair of that next run. No table is deleted,
    and no answer changes; `dptrees verify` accepts runs without sealed files.

    Raises:
        UserError: a number of runs below 1; or a sealed file of a run that keeps its own is missing
            or damaged, so that what would be deleted may still be needed.
        FolderError: the folder holds no series.
    """
    if chosen.keep < 1:
        raise UserError(f"--keep {chosen.keep}: at least the last run's must stay")
    series = SeriesFolder(chosen.series)
    last = series.arrived
    kept = range(max(1, last - chosen.keep + 1), last + 1)
    for period in kept:
        _check(series, period)
    number = 0
    for period in range(1, kept.start):
        paths = _sealed_files(run_folder(series.path, period))
        files.delete(paths)
        number += bool(paths)
    runs = "run keeps its" if len(kept) == 1 else f"{len(kept)} runs keep theirs"
    several = "1 run" if number == 1 else f"{number} runs"
    print_line(f"{escaped(chosen.series)}: sealed files of {several} are deleted; the last {runs}")
    return 0


def _check(series: SeriesFolder, period: int) -> None:
    """Check that all that a run left is there, so that the series can go on from it."""
    run = series.run(period)
    parts = run.manifest["parts"]
    assert isinstance(parts, list)
    for part in parts:
        name = str(part["file"])
        if not name.startswith(tuple(f"{kind}/" for kind in SEALED_KINDS)):
            continue
        path = files.join(run.path, *name.split("/"))
        if not files.exists(path) or sha256(files.read_bytes(path)) != part["sha256"]:
            raise UserError(
                f"{path}: is missing or damaged; first make it again by --repair from the rows of "
                "its period"
            )


def _sealed_files(folder: str) -> list[str]:
    """The sealed files of a finished run."""
    return [path for kind in SEALED_KINDS for path in files.names_below(files.join(folder, kind))]
