"""``dptrees sample``: synthetic rows from a release's folder."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey, public_stream
from dptrees.pipelines.config.registry import find_kind
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.folders import AnyFolder, opened
from dptrees.pipelines.query.querying import tree_name
from dptrees.pipelines.query.release_folder import FolderError
from dptrees.pipelines.terminal_text import escaped, print_line

MOST_ROWS = 10**12


class Writer(Protocol):
    """Writer of a table, batch by batch."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """The next rows."""

    def close(self) -> None:
        """No more."""


def _parquet(path: Path, schema: pa.Schema) -> Writer:
    writer: Writer = pyarrow.parquet.ParquetWriter(path, schema)
    return writer


def _csv(path: Path, schema: pa.Schema) -> Writer:
    writer: Writer = pyarrow.csv.CSVWriter(path, schema)
    return writer


WRITERS = {".parquet": _parquet, ".csv": _csv}


def run_sample(chosen: argparse.Namespace) -> int:
    """Draws rows and writes them into a new file, whole or not at all.

    Raises:
        UserError: the tree has no rows to draw, or the file cannot be written.
    """
    output = Path(chosen.output)
    if output.suffix not in WRITERS:
        raise UserError(f"--output {chosen.output}: its name must end in .parquet or .csv")
    if output.exists():
        raise UserError(f"--output {chosen.output}: it exists already")
    (found,) = opened(chosen.release, chosen.window, chosen.to_date)
    folder = found.folder
    try:
        tree = folder.release.tree(_sampled_tree(folder, chosen))
        sampler = tree.sampler()
        rows = sampler.total if chosen.n is None else chosen.n
    except ValueError as error:
        raise UserError(f"{chosen.release}: {error}") from None
    if not 1 <= rows <= MOST_ROWS:
        raise UserError(f"-n {rows}: it must be from 1 to {MOST_ROWS}")
    with _written(output, sampler.schema) as writer:
        for batch in sampler.batches(rows, sample_stream(chosen.seed)):
            writer.write_batch(batch)
    print_line(f"{rows:,} synthetic rows in {escaped(chosen.output)}")
    for line in find_kind(tree.question).lines().drawn(tree):
        print_line(line, file=sys.stderr if line.startswith("warning: ") else None)
    return 0


def _sampled_tree(folder: AnyFolder, chosen: argparse.Namespace) -> str:
    """Return the tree to draw rows from: the one that is named, or else the only one that has any.

    Raises:
        UserError: as `tree_name` does.
    """
    drawn = trees_with_rows(folder)
    if chosen.tree is None and len(drawn) == 1:
        return drawn[0]
    return tree_name(folder, chosen)


def trees_with_rows(folder: AnyFolder) -> list[str]:
    """List the names of the trees that synthetic rows can be drawn from.

    Raises:
        FolderError: the release cannot be read.
    """
    _ = folder.plan
    return [name for name in folder.trees if _draws_rows(folder, name)]


def _draws_rows(folder: AnyFolder, name: str) -> bool:
    try:
        return bool(folder.release.tree(name).draws_rows)
    except FolderError:  # of a series: no such periods together
        return False


def sample_stream(seed: int | None) -> RandomStream:
    """Bits that protect nothing: all that they are used on is released."""
    if seed is None:
        return ReleaseKey.generate().stream("sample")
    return public_stream("sample", seed)


@contextmanager
def _written(output: Path, schema: pa.Schema) -> Iterator[Writer]:
    """A writer of a file that has its name only once it is whole.

    Raises:
        UserError: it cannot be written.
    """
    unfinished = output.with_name(f".{output.name}.{os.getpid()}.unfinished")
    try:
        writer = WRITERS[output.suffix](unfinished, schema)
        try:
            yield writer
        finally:
            writer.close()
        unfinished.rename(output)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"--output {output}: cannot be written ({reason})") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
