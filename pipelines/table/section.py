"""The section of a wide table."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import PlainValidator, WithJsonSchema

from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.question import TableWorkload
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.section import Amount
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.table.domain import read_table, table_schema


class TableTree(TreeSection):
    """A wide table: every column and every pair of columns."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "columns": "domain.columns",
        "cells": "domain.cells",
        "noise": "noise",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        "group_by": "a table has no keys; make the key one of its columns, with its categories",
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective", "optimize_for"),
            "belongs to an ordered domain; you can query every column of a table",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
        **dict.fromkeys(("depth", "depths", "k", "sketch"), "belongs to a hypercube"),
    }
    domain: Annotated[TableDomain, PlainValidator(read_table), WithJsonSchema(table_schema())]
    weight: Amount = Fraction(1)
    noise: Annotated[str, PlainValidator(rules.choice("best", "laplace", "gaussian"))] = "best"

    def workload(self) -> TableWorkload:
        return TableWorkload(
            name=self.name, domain=self.domain, weight=self.weight, noise=Noise(self.noise)
        )
