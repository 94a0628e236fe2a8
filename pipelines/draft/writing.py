"""``dptrees init``: a first configuration in a new file."""

from __future__ import annotations

import contextlib
import os

from dptrees.pipelines.draft.columns import input_columns
from dptrees.pipelines.draft.draft import draft
from dptrees.pipelines.terminal_text import print_line
from dptrees.pipelines.user_error import UserError

SCHEMA = "configuration.schema.json"


def run_init(path: str, data: str | None, *, header: bool = False) -> int:
    """Write a configuration to be filled in.

    Args:
        path: of the new file.
        data: the rows: a file, a glob or a folder; only names and types of columns are read.
        header: whether the first line of a CSV file may be read, since it names the columns.

    Raises:
        UserError: the file exists already or cannot be made, or the rows cannot be read.
    """
    if os.path.lexists(path):
        raise UserError(f"{path} exists already, and is not overwritten")
    columns = None if data is None else input_columns(data, header=header)
    text = draft(path, data, columns)
    _write_new(path, _schema_line(path) + text)
    print_line(f"{path}: a new configuration. Replace every <fill in ...>, then run:")
    print_line(f"  dptrees plan {path}")
    if columns is not None and columns.format == "csv" and not header:
        print_line("The first line of a CSV file may be a row, so no name was copied. If it names")
        print_line("the columns, delete the configuration and add --header.")
    return 0


def _schema_line(path: str) -> str:
    """What names the schema to editors, where one lies beside the file or in docs above it."""
    folder = above = os.path.dirname(os.path.abspath(path))
    places = [os.path.join(folder, SCHEMA)]
    while os.path.dirname(above) != above:
        places.append(os.path.join(above, "docs", SCHEMA))
        above = os.path.dirname(above)
    found = next(filter(os.path.isfile, places), None)
    if found is None:
        return ""
    return f"# yaml-language-server: $schema={os.path.relpath(found, folder)}\n"


def _write_new(path: str, text: str) -> None:
    """Writes a new file, whole or not at all, and never over another."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise UserError(f"{path} exists already, and is not overwritten") from None
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}") from None
