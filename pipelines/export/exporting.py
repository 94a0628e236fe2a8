"""``dptrees export``: the tables of a release in a lake's tables, or in files.

Nothing of it is secret, and nothing is spent: what is written follows from what was released. The
rows of a release carry the checksum of its manifest; where a table holds them already it is left as
it is, and rows of another release stay beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dptrees.pipelines.export.into_delta import write_delta
from dptrees.pipelines.export.into_files import write_csv, write_parquet
from dptrees.pipelines.export.into_iceberg import write_iceberg
from dptrees.pipelines.export.released_table import ReleasedTable, released_tables
from dptrees.pipelines.release_folder import FolderError, ReleaseFolder, holds_release
from dptrees.pipelines.terminal_text import escaped, print_json, print_line
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.errors import ReleaseError, missing_library
from dptrees.transforms.layout import run_folder
from dptrees.transforms.passing import may_pass

_WRITERS: dict[str, tuple[str, Callable[[ReleasedTable, str, str | None], bool]]] = {
    "csv": ("", write_csv),
    "delta": ("delta", write_delta),
    "iceberg": ("iceberg", write_iceberg),
    "parquet": ("", write_parquet),
}
EXPORTS = tuple(_WRITERS)


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """Where tables are written.

    Args:
        format: one of `EXPORTS`.
        into: a folder, or a namespace of a catalog.
        catalog: of Iceberg, by its name in pyiceberg's configuration; None: ``default``.
    """

    format: str
    into: str
    catalog: str | None = None

    def __post_init__(self) -> None:
        if self.catalog is not None and self.format != "iceberg":
            raise UserError("--catalog: goes with --to iceberg")


def run_export(path: str, target: ExportTarget, *, as_json: bool) -> int:
    """Writes the tables of a release elsewhere.

    Args:
        path: the release's folder.
        target: where to.
        as_json: for programs.

    Raises:
        UserError, FolderError, ReleaseError: one sentence that says what to fix.
    """
    tables = released_tables(_folder(path))
    written = {table.name: _written(table, target) for table in tables}
    if as_json:
        entry = {"release": path, "to": target.format, "into": target.into, "written": written}
        print_json(entry)
        return 0
    for name, new in written.items():
        sentence = "written" if new else "is there already"
        print_line(f"{escaped(target.into)}: {name} {sentence}")
    return 0


def _folder(path: str) -> ReleaseFolder:
    """Return a release.

    Raises:
        FolderError: there is none; the folder of a series holds one for each period.
    """
    if not holds_release(path) and holds_release(run_folder(path, 1)):
        period = 1
        while holds_release(run_folder(path, period + 1)):
            period += 1
        last = run_folder(path, period)
        raise FolderError(f"{path}: is a series; export one period at a time, such as {last}")
    return ReleaseFolder(path)


def _written(table: ReleasedTable, target: ExportTarget) -> bool:
    """Writes a table; whether it was not there.

    Raises:
        UserError: it cannot be written.
        ReleaseError: it cannot be written now.
    """
    extra, write = _WRITERS[target.format]
    try:
        return write(table, target.into, target.catalog)
    except (UserError, FolderError):
        raise
    except ImportError as error:
        needed = missing_library(f"dptrees[{extra}]", error)
        raise UserError(f"--to {target.format}: needs {needed} installed") from None
    except Exception as error:  # every library has errors of its own; all here is public
        sentence = f"--into {target.into}: {table.name} cannot be written: {_reason(error)}"
        if may_pass(error):
            raise ReleaseError(sentence, again=True) from None
        raise UserError(sentence) from None


def _reason(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0]
    return f"{text[:200]} ({type(error).__name__})"
