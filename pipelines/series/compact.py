"""``dptrees series compact``: delete what earlier runs of a series left to the runs after them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dptrees.dpcore.questions.messages import STATE
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.pipelines.series.series_folder import SeriesFolder
from dptrees.pipelines.terminal_text import escaped, print_line
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import SEALED_KINDS, run_folder, sha256
from dptrees.transforms.steps.carry import for_period


def run_compact(chosen: argparse.Namespace) -> int:
    """Delete the sealed files that neither the next run nor a repair of the last ones reads.

    No table is deleted, and no answer changes; `dptrees verify` accepts runs without sealed files.

    Raises:
        UserError: a number of runs below 1; or a sealed file of a run that keeps its own is missing
            or damaged, so that what would be deleted may still be needed.
        FolderError: the folder holds no series.
    """
    if chosen.keep < 1:
        raise UserError(f"--keep {chosen.keep}: at least the last run's must stay")
    series = SeriesFolder(chosen.series)
    last = series.arrived
    kept = set(range(max(1, last - chosen.keep + 1), last + 1))
    states = kept | _states_needed(series, range(min(kept) + 1, last + 2))
    for period in sorted(states):
        _check(series, period)
    number = 0
    for period in range(1, last):
        kinds = [kind for kind in SEALED_KINDS if period not in (states if kind == STATE else kept)]
        paths = _sealed_files(run_folder(series.path, period), kinds)
        files.delete(paths)
        number += bool(paths)
    runs = "the last run keeps its" if len(kept) == 1 else f"the last {len(kept)} runs keep theirs"
    if earlier := len(states - kept):
        runs += f", and {earlier} before them that the next run goes on from"
    several = "1 run" if number == 1 else f"{number} runs"
    print_line(f"{escaped(chosen.series)}: sealed files of {several} are deleted; {runs}")
    return 0


def _states_needed(series: SeriesFolder, periods: range) -> set[int]:
    """The runs whose state some runs go on from, of those that there are or can be."""
    plan, needed = series.run(series.arrived).plan, set[int]()
    for period in periods:
        if period <= series.periods:
            for question in for_period(plan, period).questions:
                assert isinstance(question, SeriesQuestion)
                needed.update(question.state_runs)
    return needed


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


def _sealed_files(folder: str, kinds: Sequence[str]) -> list[str]:
    """The sealed files of some kinds of a finished run."""
    return [path for kind in kinds for path in files.names_below(files.join(folder, kind))]
