"""The section `input`: where the rows lie, and what a row is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.csv_input import CsvInput
from dptrees.pipelines.sections.error import RuleBroken, shown, to_refusal
from dptrees.pipelines.sections.section import Text
from dptrees.transforms.contract import Arrival, SchemaContract
from dptrees.transforms.readers.csv_format import DEFAULT_FORMAT, CsvFormat
from dptrees.transforms.readers.formats import FORMATS
from dptrees.transforms.readers.json_rows import JsonFormat
from dptrees.transforms.tables.table import TABLES

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
