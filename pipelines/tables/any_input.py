"""The section `input`: of files, or of a table, as its format says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Discriminator, Tag

from dptrees.pipelines.sections.input import InputSection
from dptrees.pipelines.tables.query_section import AdbcInput, PostgresqlInput
from dptrees.pipelines.tables.section import AnyTableInput, BigqueryInput, DeltaInput, IcebergInput

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
