"""The section `input`: where the rows lie, and what a row is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from pipelines.sections import rules
from pipelines.sections.csv_input import CsvInput
from pipelines.sections.error import RuleBroken
from pipelines.sections.section import Text


class InputSection(CsvInput):
    """Where the rows lie: `path` is one glob or several. The others tell what a row of CSV is."""

    format: Annotated[str, PlainValidator(rules.choice("parquet", "csv", later=("bigquery",)))]
    path: Annotated[tuple[Text, ...], BeforeValidator(rules.one_or_several)]

    @section_rule(mode="after")
    def _csv_only(self) -> Self:
        for key in CsvInput.model_fields:
            if self.format != "csv" and getattr(self, key) is not None:
                raise RuleBroken("stands beside the format csv only", at=f".{key}")
        return self
