"""The section `input` of rows that lie in a table, one class a kind of table."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timezone
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PlainValidator

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Section, Text
from dptrees.transforms.contract import AT_ONCE, Arrival, SchemaContract
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.json_rows import JsonFormat

if TYPE_CHECKING:
    from dptrees.transforms.tables.table import InputTable

_CONNECTION = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\0]+")


def _version(value: object) -> str:
    """A number, a moment or a name, as a text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return datetime.combine(value, time(), timezone.utc).isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if not isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a number, a time or a name")
    return rules.text(value)


def connection_place(value: object) -> str:
    """The place of the URL or options of a database. The value is not shown: it may be the URL."""
    if not isinstance(value, str) or not _CONNECTION.fullmatch(value):
        raise RuleBroken(
            "must be env:NAME or file:PATH, the place of the URL of the database, not the URL "
            "itself, which may contain a password"
        )
    return value


def _three_names(value: object) -> str:
    """A table of BigQuery."""
    if not re.fullmatch(r"[^.\s`/]+\.[^.\s`/]+\.[^.\s`/]+", rules.text(value)):
        raise RuleBroken(f"{shown(value)} must be PROJECT.DATASET.TABLE")
    return str(value)


_Version = Annotated[str, PlainValidator(_version)]


class AnyTableInput(Section):
    """Where the rows lie: in a table of the kind that `format` names."""

    misplaced: ClassVar[dict[str, str]] = {
        "path": "is for files only; for a table, set table",
        "max_age": "is for files only; for a state of a table, set version",
        "min_files": "is for files only",
        "require": "is for files only",
    }
    format: Text
    schema_: Annotated[SchemaContract | None, PlainValidator(rules.column_types)] = Field(
        None, alias="schema"
    )

    # A table has no files: the path is empty.
    path: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[dict[str, CsvFormat | JsonFormat | str]] = {}
    arrival: ClassVar[Arrival] = AT_ONCE

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        raise NotImplementedError


class TableInput(AnyTableInput):
    """A table that has a name: `table`."""

    table: Text


class IcebergInput(TableInput):
    """A table of Iceberg: its name in a catalog of pyiceberg's configuration, or the path of its
    metadata file."""

    format: Annotated[str, PlainValidator(rules.choice("iceberg"))]
    catalog: Text | None = None
    version: _Version | None = None

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        from dptrees.transforms.tables.table import IcebergTable

        return IcebergTable(table=self.table, catalog=self.catalog, version=self.version)


class DeltaInput(TableInput):
    """A table of Delta Lake: its folder."""

    format: Annotated[str, PlainValidator(rules.choice("delta"))]
    version: _Version | None = None

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        from dptrees.transforms.tables.table import DeltaTable

        return DeltaTable(table=self.table, version=self.version)


class BigqueryInput(TableInput):
    """A table of BigQuery: its project, data set and name."""

    format: Annotated[str, PlainValidator(rules.choice("bigquery"))]
    table: Annotated[str, PlainValidator(_three_names)]
    version: _Version | None = None
    billed: Text | None = None

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        from dptrees.transforms.tables.table import BigqueryTable

        return BigqueryTable(table=self.table, version=self.version, billed=self.billed)
