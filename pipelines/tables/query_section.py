"""The section `input` of rows that a driver reads: a table or a query of any source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import PlainValidator
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, shown
from dptrees.pipelines.sections.section import Text
from dptrees.pipelines.tables.section import AnyTableInput, connection_place

if TYPE_CHECKING:
    from dptrees.transforms.tables.table import InputTable

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
