"""The input of a release: files, their sizes and times, and the columns that are read.

Only lists of files and their heads are read, and no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from dptrees.pipelines.dry_run.finding import Finding
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.terminal_text import escaped
from dptrees.transforms.readers.listing import InputFile
from dptrees.transforms.readers.read import check_readable, file_types, spread

# Objects have names, too, but these are in the rows.
_WITHOUT_HEADS = ("json",)


def input_finding(stages: Sequence[Stage]) -> Finding:
    """The input of stages, which read the same rows.

    Args:
        stages: at least one; each reads columns of its own.

    Raises:
        ReleaseError, UserError: the run would end here.
    """
    sizes, *_ = [stage.check_input() for stage in stages]
    columns = tuple(dict.fromkeys(name for stage in stages for name in stage.plan.columns))
    first = stages[0]
    if first.source is not None:
        (name, size), types = sizes[0], first.source.types()
        # A driver of a database does not report the size of what it reads.
        entry: dict[str, Any] = {"table": name, "bytes": size or None}
        heads = [f"{escaped(name)}: {f'{size:,} bytes' if size else 'size unknown'}"]
    else:
        files = first.files()
        entry = _files_entry(files) | {"format": first.configuration.input_format}
        heads = list(_files_lines(files, first.configuration.input_format))
        types, looked = _types(stages, files)
        entry["heads_read"] = looked
        if looked:
            heads.append(f"columns that are read, in the heads of {_number(looked, 'file')}:")
    entry["columns"] = {name: types.get(name) for name in columns} if types else None
    lines = [*heads, *(f"  {escaped(name)}: {types[name]}" for name in columns if name in types)]
    if not types:
        lines.append("columns are not looked for: the names are in the rows")
    contract = first.configuration.input_schema
    if contract is not None:
        entry["schema"] = dict(contract.types)
        lines.append(f"input.schema: {_number(len(contract.types), 'column')} as stated")
    return Finding(name="input", lines=lines, entry=entry)


def _types(stages: Sequence[Stage], files: Sequence[InputFile]) -> tuple[dict[str, str], int]:
    """The types of the columns of the first file, and the number of heads that were read.

    Raises:
        InputError: a head lacks a column, or cannot be read; the job would find that.
    """
    configuration = stages[0].configuration
    format, options = configuration.input_format, configuration.input_options
    if format in _WITHOUT_HEADS:
        return {}, 0
    paths = spread([file.path for file in files])
    if options.get("missing_column") != "null":
        for stage in stages:
            for path in paths:
                check_readable([path], format, stage.plan, options)
    return file_types(paths[0], format, options), len(paths)


def _files_entry(files: Sequence[InputFile]) -> dict[str, Any]:
    times = _times(files)
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "oldest": times[0] if times else None,
        "newest": times[-1] if times else None,
    }


def _files_lines(files: Sequence[InputFile], format: str) -> Iterator[str]:
    size = sum(file.size for file in files)
    yield f"{_number(len(files), 'file')} of {format}, {size:,} bytes"
    times = _times(files)
    if times:
        yield f"oldest change {times[0]}, newest {times[-1]}"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _times(files: Sequence[InputFile]) -> list[str]:
    """The times of the first and the last change, in UTC; none if no file states one."""
    known = [file.changed for file in files if file.changed]
    return [_moment(each) for each in (min(known), max(known))] if known else []


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
