"""The section `input`: files, tables or any query with a driver, as its format says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timezone
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, shown, to_refusal
from dptrees.pipelines.sections.rules import Section, Text
from dptrees.transforms.contract import AT_ONCE, Arrival, SchemaContract
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT, POLICIES, CsvFormat
from dptrees.transforms.readers.csv_values import CsvTexts
from dptrees.transforms.readers.formats import FORMATS
from dptrees.transforms.readers.json_rows import JsonFormat
from dptrees.transforms.tables.table import TABLES, BigqueryTable, DeltaTable, IcebergTable

if TYPE_CHECKING:
    from dptrees.transforms.tables.table import InputTable


_TAB = ("tab", "\\t")
_Words = tuple[str, ...]


def _mark(value: object) -> str:
    """One character; what it may be, `CsvFormat` and `CsvTexts` say."""
    if not isinstance(value, str):
        raise RuleBroken(f"{shown(value)} must be a string; put it in quotes")
    return "\t" if value in _TAB else value


def _quote(value: object) -> str | bool:
    """One character, or false: none quotes."""
    return False if value is False else _mark(value)


def _names(value: object) -> _Words:
    return rules.each_by(rules.text, rules.several(value))


def _word(value: object) -> str:
    """A text, which may be empty or blank."""
    return value if isinstance(value, str) and not value.strip() else rules.text(value)


def _words(value: object) -> _Words:
    return rules.each_by(_word, rules.one_or_several(value))


def _null_values(value: object) -> _Words | Mapping[str, _Words]:
    if not isinstance(value, dict):
        return _words(value)
    return {name: rules.at(f".{name}", _words, each) for name, each in value.items()}


def _date_format(value: object) -> str | Mapping[str, str]:
    if not isinstance(value, dict):
        return rules.text(value)
    return {name: rules.at(f".{name}", rules.text, each) for name, each in value.items()}


class CsvInput(Section):
    """What only a file of the format csv has. A key that is not given is as in a file of commas,
    a header and UTF-8."""

    newlines: Annotated[bool | None, PlainValidator(rules.truth)] = None
    malformed: Annotated[str | None, PlainValidator(rules.choice(*POLICIES))] = None
    separator: Annotated[str | None, PlainValidator(_mark)] = None
    quote: Annotated[str | bool | None, PlainValidator(_quote)] = None
    header: Annotated[bool | None, PlainValidator(rules.truth)] = None
    columns: Annotated[_Words | None, PlainValidator(_names)] = None
    encoding: Annotated[str | None, PlainValidator(rules.text)] = None
    decimal: Annotated[str | None, PlainValidator(_mark)] = None
    thousands: Annotated[str | None, PlainValidator(_mark)] = None
    trim: Annotated[bool | None, PlainValidator(rules.truth)] = None
    null_values: Annotated[_Words | Mapping[str, _Words] | None, PlainValidator(_null_values)] = (
        None
    )
    date_format: Annotated[str | Mapping[str, str] | None, PlainValidator(_date_format)] = None
    escape: Annotated[str | None, PlainValidator(_mark)] = None
    skip_lines: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    comment: Annotated[str | None, PlainValidator(_mark)] = None
    trailing_separator: Annotated[bool | None, PlainValidator(rules.truth)] = None

    @section_rule(mode="after")
    def _names_of_columns(self) -> Self:
        if self.header is False and self.columns is None:
            raise RuleBroken(
                "is required with header: false: the names of all columns, in their order",
                at=".columns",
            )
        if self.columns is not None and self.header is not False:
            raise RuleBroken("goes with header: false; a header names them", at=".columns")
        return self

    @section_rule(mode="after")
    def _goes_together(self) -> Self:
        try:
            _ = self.csv
        except ValueError as error:
            refusal = to_refusal(error)
            raise RuleBroken(refusal.rule, at=f".{refusal.field}") from None
        return self

    @property
    def csv(self) -> CsvFormat:
        """What a row of a CSV file is."""
        quote = DEFAULT_FORMAT.quote if self.quote is None else self.quote
        return CsvFormat(
            quote=quote if isinstance(quote, str) else None,
            malformed=self.malformed or DEFAULT_FORMAT.malformed,
            columns=self.columns or (),
            texts=CsvTexts(
                **self._given("decimal", "thousands", "trim", "null_values", "date_format")
            ),
            **self._given("newlines", "separator", "encoding"),
            **self._given("escape", "skip_lines", "comment", "trailing_separator"),
        )

    def _given(self, *keys: str) -> dict[str, Any]:
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}


_STREAMS = ("kafka", "kinesis", "pubsub", "pulsar", "rabbitmq")
_WITH_SCHEMA = ("parquet", "arrow")
_NO_END = (
    "is a stream, which has no end, but a release counts all rows once: write the stream to "
    "files or to a table, and release each period by series (docs/series.md)"
)


class InputSection(CsvInput):
    """Where the rows lie: `path` is one folder or glob, or several. The others say what a row of
    text is."""

    format: Annotated[str, PlainValidator(rules.choice(*FORMATS, elsewhere=TABLES))]
    path: Annotated[tuple[Text, ...], BeforeValidator(rules.one_or_several)]
    require: Text | None = None
    min_files: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    max_age: Annotated[int | None, PlainValidator(rules.duration)] = None
    schema_: Annotated[SchemaContract | None, PlainValidator(rules.column_types)] = Field(
        None, alias="schema"
    )
    missing_column: Annotated[str, PlainValidator(rules.null_or_fail)] = "fail"

    @section_rule(mode="before")
    @classmethod
    def _null_is_a_word(cls, values: object) -> object:
        """`missing_column: null` is the word, although YAML reads it as no value."""
        if isinstance(values, Mapping) and values.get("missing_column", "") is None:
            return {**values, "missing_column": "null"}
        return values

    @section_rule(mode="before")
    @classmethod
    def _has_an_end(cls, values: object) -> object:
        given = values if isinstance(values, Mapping) else {}
        paths = given.get("path")
        for path in paths if isinstance(paths, list) else [paths]:
            if isinstance(path, str) and path.partition("://")[0].lower() in _STREAMS:
                raise RuleBroken(f"{shown(path)} {_NO_END}", at=".path")
        if isinstance(format := given.get("format"), str) and format.lower() in _STREAMS:
            raise RuleBroken(f"{format} {_NO_END}", at=".format")
        return values

    @section_rule(mode="after")
    def _csv_only(self) -> Self:
        for key in CsvInput.model_fields:
            if self.format == "csv" or getattr(self, key) is None:
                continue
            if key != "malformed":
                raise RuleBroken("goes with the format csv only", at=f".{key}")
            if self.format != "json":
                raise RuleBroken("goes with the formats csv and json only", at=".malformed")
        if "missing_column" in self.model_fields_set and self.format not in _WITH_SCHEMA:
            raise RuleBroken("goes with the formats parquet and arrow only", at=".missing_column")
        if self.schema_ is not None and self.format not in _WITH_SCHEMA:
            raise RuleBroken(
                f"goes with parquet, arrow and tables only: files of {self.format} state no types",
                at=".schema",
            )
        return self

    @section_rule(mode="after")
    def _arrives(self) -> Self:
        try:
            _ = self.arrival
        except ValueError as error:
            refusal = to_refusal(error)
            raise RuleBroken(refusal.rule, at=f".{refusal.field}") from None
        return self

    @property
    def arrival(self) -> Arrival:
        """What must be there before the files are read."""
        return Arrival(
            require=self.require or "", min_files=self.min_files or 0, max_age=self.max_age or 0
        )

    @property
    def table_source(self) -> None:
        """Files are no table."""

    @property
    def options(self) -> dict[str, CsvFormat | JsonFormat | str]:
        """Options of the reader of the format, by name."""
        if self.format == "csv":
            return {"csv": self.csv}
        if self.format == "json":
            return {"json": JsonFormat(malformed=self.malformed or DEFAULT_FORMAT.malformed)}
        return {} if self.missing_column == "fail" else {"missing_column": self.missing_column}


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

        return IcebergTable(table=self.table, catalog=self.catalog, version=self.version)


class DeltaInput(TableInput):
    """A table of Delta Lake: its folder."""

    format: Annotated[str, PlainValidator(rules.choice("delta"))]
    version: _Version | None = None

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""

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

        return BigqueryTable(table=self.table, version=self.version, billed=self.billed)


_DRIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*|[^\0]*/[^\0]+")


def _driver(value: object) -> str:
    """A driver of ADBC: its name, or the path of its library."""
    if not _DRIVER.fullmatch(rules.text(value)):
        raise RuleBroken(
            f"{shown(value)} must be the name of an ADBC driver, such as snowflake, or the path "
            "of its library"
        )
    return str(value)


class QueryInput(AnyTableInput):
    """A table, or a query in the SQL of the source, and where the connection is described."""

    connection: Annotated[str, PlainValidator(connection_place)]
    table: Text | None = None
    query: Text | None = None
    repeatable: Annotated[bool, PlainValidator(rules.truth)] = False

    @section_rule(mode="after")
    def _has_one(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise RuleBroken("needs table or query, and not both")
        return self

    def _read_by(self, driver: str) -> InputTable:
        """The table as a driver reads it, not yet looked for."""
        from dptrees.transforms.tables.query import AdbcSource, KeptQuery, RepeatableQuery
        from dptrees.transforms.tables.query_rows import quoted_table

        query = str(self.query).strip().rstrip(";")
        source = AdbcSource(
            driver=driver,
            connection=self.connection,
            query=query if self.table is None else f"SELECT * FROM {quoted_table(self.table)}",
            table=self.table,
        )
        return RepeatableQuery(source=source) if self.repeatable else KeptQuery(source=source)


class AdbcInput(QueryInput):
    """A table or a query of any source that has an ADBC driver."""

    format: Annotated[str, PlainValidator(rules.choice("adbc"))]
    driver: Annotated[str, PlainValidator(_driver)]

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        return self._read_by(self.driver)


class PostgresqlInput(QueryInput):
    """A table or a query of PostgreSQL: the short form of its ADBC driver."""

    format: Annotated[str, PlainValidator(rules.choice("postgresql"))]

    @property
    def table_source(self) -> InputTable:
        """The table, not yet looked for."""
        return self._read_by("postgresql")


TABLE_INPUTS: dict[str, type[AnyTableInput]] = {
    "iceberg": IcebergInput,
    "delta": DeltaInput,
    "postgresql": PostgresqlInput,
    "bigquery": BigqueryInput,
    "adbc": AdbcInput,
}


def _input_kind(given: object) -> str:
    """The kind of an input, as pydantic calls it (`key_path` leaves it out): of a table, or files,
    whose section says what is wrong with it."""
    format = given.get("format") if isinstance(given, Mapping) else None
    return f"<{format}>" if isinstance(format, str) and format in TABLE_INPUTS else "<files>"


AnyInput: TypeAlias = Annotated[
    Annotated[InputSection, Tag("<files>")]
    | Annotated[IcebergInput, Tag("<iceberg>")]
    | Annotated[DeltaInput, Tag("<delta>")]
    | Annotated[PostgresqlInput, Tag("<postgresql>")]
    | Annotated[BigqueryInput, Tag("<bigquery>")]
    | Annotated[AdbcInput, Tag("<adbc>")],
    Discriminator(_input_kind),
]
