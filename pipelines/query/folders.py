"""The folder that a command reads: a release, or a window of periods of a series."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dptrees.pipelines.process import Later
from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder, holds_release
from dptrees.transforms.folder.names import run_folder

if TYPE_CHECKING:
    from dptrees.pipelines.query.series_folder import SeriesFolder, WindowFolder

AnyFolder: TypeAlias = "ReleaseFolder | WindowFolder"
_series = Later("query.series_folder:SeriesFolder")


class Opened(NamedTuple):
    """A folder that queries are answered from.

    Attributes:
        before: the columns in front of its answers.
        folder: a release, or some periods of a series.
    """

    before: dict[str, object]
    folder: AnyFolder


def opened(
    path: str, window: str | None, to_date: int | None, *, running: bool = False
) -> list[Opened]:
    """Open the folder of a command: a release, or consecutive periods of a series, or several.

    Args:
        path: the folder of a release, of a run, or of a series.
        window: "FIRST:LAST", or None.
        to_date: all periods up to this one, 0 for the last one; None where it is not requested.
        running: all periods to date, at each of them.

    Raises:
        FolderError: there is no such release or period, or the window cannot be read.
    """
    if running:
        if window is not None or to_date is not None:
            raise FolderError(f"{path}: running: goes neither with --window nor with --to-date")
        series: SeriesFolder = _series(path)
        periods = range(1, series.arrived + 1)
        return [Opened({"period": at}, series.window(1, arrived=at)) for at in periods]
    is_plain = window is None and to_date is None
    if is_plain and (holds_release(path) or not holds_release(run_folder(path, 1))):
        return [Opened({}, ReleaseFolder(path))]
    return [Opened({}, _window(path, window, to_date))]


def _window(path: str, window: str | None, to_date: int | None) -> WindowFolder:
    """Periods in a row, by default all to date."""
    first, last = "1", None
    if window is not None:
        first, _, last = window.partition(":")
        if not (first.isdecimal() and last.isdecimal()):
            raise FolderError(f"{path}: window: {window!r} must be FIRST:LAST, such as 3:10")
    series: SeriesFolder = _series(path)
    end = None if last is None else int(last)
    return series.window(int(first), end, arrived=to_date or None)
