"""Iceberg tables, read by pyiceberg: columns by their field ids, rows less those that were deleted.

The launcher queries a catalog once, for the table's metadata file; workers read that file and
its one snapshot, so that no catalog and nothing of its credentials travels.
"""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.parquet_rows import int96_columns
from dptrees.transforms.tables.table import (
    UNKNOWN_ROWS,
    TableSplit,
    reading_table,
    version_number,
    version_timestamp,
)

_METADATA = ".metadata.json"
_DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class IcebergTable:
    """An Iceberg table.

    Args:
        table: its name in the catalog, with its namespace, or the path of a metadata file.
        catalog: by its name in pyiceberg's own configuration; None: ``default``.
        version: the id of a snapshot, a moment, or the name of a branch or tag; None: the snapshot
            that is the current one as the job starts.
        location: of the metadata file, once it is pinned.
    """

    held: ClassVar[bool] = False

    table: str
    catalog: str | None = None
    version: str | None = None
    location: str | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"the Iceberg table {self.table}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Its metadata file, once it is known."""
        found = self.location or self.table
        return (found,) if found.endswith(_METADATA) else ()

    @property
    def secret(self) -> str | None:
        """None: the environment of workers grants what they need."""
        return None

    @contextmanager
    def pinned(self) -> Iterator["IcebergTable"]:
        """The table at one snapshot; see `InputTable`."""
        with self._reading():
            found = self._find()
            snapshot = self._snapshot(found)
        if snapshot is None:
            raise InputError(f"input: {self.name} has no snapshot{self._version_note()}")
        # Without a version the metadata file names the snapshot, and the columns are the table's
        # present columns; with one, its columns then.
        number = None if self.version is None else str(snapshot.snapshot_id)
        yield replace(self, location=found.metadata_location, version=number)

    def schema(self) -> pa.Schema:
        """The columns of the snapshot."""
        with self._reading():
            return self._scan("*").projection().as_arrow()

    def with_units(self, columns: Sequence[str]) -> "IcebergTable":
        """The table itself: its values are read as they are stored."""
        return self

    def divided(self, columns: Sequence[str]) -> "IcebergTable":
        """The table itself: its parts are the files of a snapshot."""
        return self

    def splits(self, columns: Sequence[str]) -> list[TableSplit]:
        """The data files of the snapshot, each with the deletes that concern it."""
        with self._reading():
            tasks = sorted(self._scan(*columns).plan_files(), key=lambda each: each.file.file_path)
            return [
                TableSplit(
                    pickle.dumps(task),
                    UNKNOWN_ROWS if task.delete_files else task.file.record_count,
                    task.file.file_size_in_bytes,
                )
                for task in tasks
            ]

    def batches(self, split: TableSplit, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a data file that are not deleted."""
        with self._reading():
            from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

            scan, task = self._scan(*columns), pickle.loads(split.token)
            self._check_timestamps(scan, task.file)
            read = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
            deletes = _read_all_delete_files(scan.io, [task])
            # Not `to_record_batches`, which holds all rows of a file at once.
            yield from read._record_batches_from_scan_tasks_and_deletes([task], deletes)

    def _check_timestamps(self, scan: Any, data: Any) -> None:
        """Refuse timestamps of 96 bits, which pyiceberg reads as nanoseconds.

        Raises:
            InputError: a file has such columns.
        """
        has_timestamps = any(map(pa.types.is_timestamp, scan.projection().as_arrow().types))
        if not has_timestamps or data.file_format.value != "PARQUET":
            return
        with scan.io.new_input(data.file_path).open() as file:
            if int96_columns(pq.ParquetFile(file)):
                raise InputError(
                    f"input: {self.name} has files with timestamps of the type INT96, which "
                    "pyiceberg reads wrong before 1677 and after 2262: rewrite its data files"
                )

    def _reading(self) -> Any:
        return reading_table(self.name, "iceberg")

    def _version_note(self) -> str:
        return "" if self.version is None else f" of input.version {self.version}"

    def _find(self) -> Any:
        """The table, in its catalog or by its metadata file."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        from pyiceberg.table import StaticTable

        if self.table.endswith(_METADATA):
            return StaticTable.from_metadata(self.table, self._properties())
        from pyiceberg.catalog import load_catalog

        name, properties = self.catalog or _DEFAULT, self._properties()
        if not properties:
            raise InputError(
                f"input.catalog: pyiceberg knows no catalog {name} here: give its properties in "
                ".pyiceberg.yaml or in variables PYICEBERG_CATALOG__NAME__..."
            )
        try:
            return load_catalog(name, **properties).load_table(self.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise InputError(f"input: {self.name} does not exist in its catalog") from None

    def _properties(self) -> dict[str, Any]:
        """What pyiceberg's configuration says of the catalog where this runs."""
        from pyiceberg.utils.config import Config

        return dict(Config().get_catalog_config(self.catalog or _DEFAULT) or {})

    def _snapshot(self, found: Any) -> Any:
        if self.version is None:
            return found.current_snapshot()
        if (number := version_number(self.version)) is not None:
            return found.snapshot_by_id(number)
        if (moment := version_timestamp(self.version)) is not None:
            # The milliseconds before it: at the very moment another may still be written.
            return found.snapshot_as_of_timestamp(int(moment.timestamp() * 1000) - 1)
        return found.snapshot_by_name(self.version)

    def _scan(self, *columns: str) -> Any:
        """The scan of the pinned snapshot."""
        from pyiceberg.table import StaticTable

        assert self.location is not None
        table = StaticTable.from_metadata(self.location, self._properties())
        snapshot = None if self.version is None else int(self.version)
        return table.scan(snapshot_id=snapshot, selected_fields=columns)
