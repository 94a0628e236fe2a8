"""What a finished run of a series adds to its folder: the totals to date, as known then.

    to-date/nodes/*, to-date/cdf/*, to-date/quantiles.parquet   as of a release of all these periods

They are made from what this run and those before it released, cost no budget, and never change: a
later run makes its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.pipelines.kinds import find_kind
from dptrees.pipelines.series.series_folder import SeriesFolder
from dptrees.pipelines.terminal_text import escaped, print_line
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import TO_DATE, concluded_file, parquet_bytes

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
