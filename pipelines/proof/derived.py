"""Files that are computed from a release, in its folder: the page, and a series' totals to date.

The manifest names neither, since both are functions of the tables that it names. They are made
again from the tables, once these have the manifest's checksums, and compared.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore import __version__
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.kinds import is_tree
from dptrees.pipelines.proof.check import CheckFailed, NotChecked
from dptrees.pipelines.release_folder import FolderError, ReleaseFolder, file_names, read_file
from dptrees.pipelines.reporting import REPORT
from dptrees.transforms.folder.layout import TO_DATE


def check_page(folder: str) -> str:
    """Compare the page with that which the tables give.

    Raises:
        CheckFailed: it is another one.
        NotChecked: it is another one, and another version made the release.
    """
    from dptrees.pipelines.report import is_report_html

    try:
        page = read_file(os.path.join(folder, REPORT))
    except FileNotFoundError:
        return f"there is no {REPORT}"
    except OSError:
        raise CheckFailed(f"{REPORT} cannot be read") from None
    try:
        release = ReleaseFolder(folder)
    except FolderError as error:
        raise NotChecked(str(error)) from None
    if not all(map(is_tree, release.plan.questions)):
        raise CheckFailed(f"{REPORT} is not a page that this program makes")
    if not is_report_html(page, release):
        reason = (
            f"{REPORT} is not the page that this version makes from the tables: it was edited, or "
            "another version made it; do not trust it, and make it again with dptrees report"
        )
        made = release.manifest["dptrees"]
        raise CheckFailed(reason) if made == __version__ else NotChecked(reason)
    return f"{REPORT} is the page of these tables"


def check_to_date(folder: str, plan: ReleasePlan, *, is_exact: bool) -> str:
    """Compare the totals to date with those that this run and the ones before it give.

    Args:
        folder: of the run.
        plan: of it.
        is_exact: floats of this version's arithmetic are in it.

    Raises:
        CheckFailed: a table is another one, or is not one of them.
        NotChecked: an earlier run is not there, or floats of an earlier version differ.
    """
    # Which needs Beam's filesystems.
    from dptrees.pipelines.series.to_date import to_date_tables

    names = {each for each in file_names(folder) if each.split("/")[0] == TO_DATE}
    if not names:
        return f"there is no {TO_DATE}"
    try:
        for name, table in to_date_tables(plan, folder):
            file = f"{TO_DATE}/{name}"
            if file not in names:
                raise CheckFailed(f"{file} is missing")
            names.remove(file)
            if not _read(os.path.join(folder, *file.split("/"))).equals(table):
                if not is_exact:
                    raise NotChecked(
                        f"{file} is of a version whose last digits depended on the processor"
                    )
                raise CheckFailed(f"{file} is not the total of the released periods")
    except FolderError as error:
        raise NotChecked(f"{TO_DATE} needs the runs before it: {error}") from None
    if names:
        raise CheckFailed(f"{min(names)} is not one of the totals of the released periods")
    return f"{TO_DATE} is the total of the released periods"


def _read(path: str) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{path} cannot be read") from None
