"""The folder that a command reads: a release, or periods of a series."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dptrees.pipelines.release_folder import FolderError, ReleaseFolder, holds_release
from dptrees.transforms.folder.layout import run_folder

if TYPE_CHECKING:
    from dptrees.pipelines.series.series_folder import SeriesFolder, WindowFolder


class Opened(NamedTuple):
    """A folder that queries are answered from.

    Attributes:
        before: the columns in front of its answers.
        folder: a release, or some periods of a series.
    """

    before: dict[str, object]
    folder: ReleaseFolder | WindowFolder


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
        series = _series(path)
        periods = range(1, series.arrived + 1)
        return [Opened({"period": at}, series.window(1, arrived=at)) for at in periods]
    return [Opened({}, _opened(path, window, to_date))]


def _opened(path: str, window: str | None, to_date: int | None) -> ReleaseFolder | WindowFolder:
    if window is None and to_date is None:
        if not holds_release(path) and holds_release(run_folder(path, 1)):
            return _series(path).window(1)
        return ReleaseFolder(path)
    if window is None:
        return _series(path).window(1, arrived=to_date or None)
    first, _, last = window.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise FolderError(f"{path}: window: {window!r} must be FIRST:LAST, such as 3:10")
    return _series(path).window(int(first), int(last), arrived=to_date or None)


def _series(path: str) -> SeriesFolder:
    """The series in a folder."""
    # Imported here: most releases are part of none.
    from dptrees.pipelines.series.series_folder import SeriesFolder

    return SeriesFolder(path)
