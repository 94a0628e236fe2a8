"""Totals to date of a series, written beside a run, and compaction of what earlier runs left.

    to-date/nodes/*, to-date/cdf/*, to-date/quantiles.parquet   of all these periods

The totals are made from released tables, cost no budget, and never change: a later one makes its
own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dptrees.dpcore.questions.messages import STATE, Part
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.pipelines.config.registry import find_kind
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.series_folder import SeriesFolder
from dptrees.pipelines.terminal_text import escaped, print_line
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import SEALED_KINDS, parquet_bytes, sha256
from dptrees.transforms.folder.names import TO_DATE, concluded_file, run_folder
from dptrees.transforms.steps.carry import for_period

# Over all keys. This runs in the process of the command on every engine: larger trees are added
# up part by part at each query.
MOST_LEAVES = 2**22


def add_to_date(plan: ReleasePlan, output: str, *, show: bool = True) -> None:
    """Write the totals to date into the folder of a run, and print them.

    Args:
        plan: of the run; nothing is done for a release that is alone.
        output: the folder of the run, which is finished.
        show: whether they are printed.

    Raises:
        FolderError: an earlier run is missing or damaged.
        OutputError: a file cannot be written.
    """
    if plan.run is None:
        return
    if not _released_to_date(plan):
        return
    for file, table in to_date_tables(plan, output):
        files.write_whole(files.join(output, TO_DATE, file), parquet_bytes(table))
    if not show:
        return
    window = SeriesFolder(_series(output)).window(1, arrived=plan.run.period)
    print_line()
    bounds = "" if plan.unit.is_row else "; bounds of a unit are for each period"
    print_line(
        f"to date, periods 1 to {plan.run.period} of {plan.run.periods}, which spend the budget "
        f"together{bounds}:"
    )
    for question in _released_to_date(plan):
        if question.adds_up and question.dense_cells > MOST_LEAVES:
            print_line(f"{escaped(question.name)}: large; dptrees query adds it up at each query")
            continue
        tree = window.tree(question.name, concluded=True)
        for line in find_kind(tree.question).lines().summary(tree):
            print_line(line)


def to_date_tables(plan: ReleasePlan, output: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the totals to date of a run, each with its file below ``to-date/``.

    Args:
        plan: of the run.
        output: the folder of the run, beside the folders of earlier runs.

    Raises:
        FolderError: an earlier run is missing or damaged.
    """
    assert plan.run is not None
    window = SeriesFolder(_series(output)).window(1, arrived=plan.run.period)
    concluded: dict[str, list[pa.Table]] = {}
    for question in _released_to_date(plan):
        if question.adds_up and question.dense_cells > MOST_LEAVES:
            continue
        for part, table in window.part_tables(question.name):
            yield f"{part.kind}/{_file(part)}", table
        for name, table in window.concluded(question.name).items():
            concluded.setdefault(name, []).append(table)
    for name, each in concluded.items():
        yield concluded_file(name), pa.concat_tables(each)


def _released_to_date(plan: ReleasePlan) -> list[SeriesQuestion]:
    """The trees of a run that there are totals to date of."""
    trees = [each for each in plan.questions if isinstance(each, SeriesQuestion)]
    return [each for each in trees if each.released_spans]


def _series(output: str) -> str:
    """The folder of the series, of that of a run."""
    return output.rstrip("/").rsplit("/", 1)[0]


def _file(part: Part) -> str:
    chunk = "spine" if part.index == SPINE else f"{part.index:06d}"
    return f"{part.tree}-{part.key:06d}-{chunk}.parquet"


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
