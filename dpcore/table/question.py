"""A question about a wide table: counts of its columns and of chosen pairs of them.

All exact counts are in one place, since the choice of pairs looks at all of them. The choice, the
noise and the proof of privacy are in `dpcore.marginals.plan`. Only noisy tables leave the step that
has the exact counts, and a model is fitted to these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.marginals.measuring import measure_tables
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.entry import budget_entry
from dptrees.dpcore.questions.place import (
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tables import NODES
from dptrees.dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.rows.row_outcomes import RowOutcome
from dptrees.dpcore.table.counter import ALL_TABLES, TableCounter, TableCounts, merged_tables
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.measured_rows import released_rows
from dptrees.dpcore.table.row_texts import row_texts

LEVELS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class TableQuestion(Question):
    """The counts of a wide table.

    Args:
        domain: the columns and their cells.
        plan: how counts are measured, and how pairs are chosen.

    Raises:
        ValueError: keys, or a plan for other tables.
    """

    kind = "table"
    written = ("name", "domain", "plan", "confidence", "weight")
    output_only = ("confidence", "weight")

    domain: TableDomain
    plan: MarginalsPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a table has none; make the key one of its columns")
        if self.plan.shape != self.domain.shape:
            raise ValueError("plan: it is for tables of other sizes")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.domain.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.domain.check_types(types)

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        return self.domain.row_outcomes(columns)

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        codes, kept = self.domain.row_codes(columns)
        return RowIncrements(Increments(row_texts(codes, self.domain.sizes)), kept)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> TableCounter:
        return TableCounter(self.domain.shape)

    @property
    def dense_cells(self) -> int:
        return self.domain.shape.length

    @property
    def places(self) -> list[Place]:
        return [ALL_TABLES]

    def merge(self, place: Place, partials: Iterable[bytes]) -> TableCounts:
        return merged_tables(self.domain.shape, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Give the exact counts of all tables, laid out as `TableShape` says, as partial counts.

        Raises:
            ValueError: they are no counts of these tables.
        """
        shape = (self.domain.shape.length,)
        if not isinstance(counts, np.ndarray) or counts.shape != shape:
            raise ValueError(f"counts: those of tree {self.name} are no counts of its tables")
        yield Partial(ALL_TABLES, pack(counts.astype(np.int64)))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        measured = measure_tables(exact, self.plan, noise.for_counts(exact), self.name)
        tables = map(_ipc_bytes, released_rows(self, measured))
        return Drawn(sent=pack_many(list(tables)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        tables = map(_ipc_table, unpack_many(sent[ALL_TABLES]))
        return Gathered({}, list(map(ReleasedPart, self.parts(), tables)))

    def parts(self) -> Iterator[Part]:
        """The number of rows, the columns, and the pairs of columns that were chosen."""
        for level in LEVELS:
            yield Part(kind=NODES, tree=self.name, key=0, index=level)

    @property
    def unit(self) -> PrivacyUnit:
        return self.plan.unit

    @property
    def budget(self) -> Budget:
        return self.plan.budget

    @property
    def spending(self) -> Spending:
        return self.plan.spending

    def entry(self) -> dict[str, object]:
        """The mechanism, its noise, and the policies."""
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": "marginals",
            "cells": dict(zip(self.columns, self.domain.sizes, strict=True)),
            "plan": self.plan.spec(),
            "policies": dict(self.domain.policies()),
        }


def _ipc_bytes(table: pa.Table) -> bytes:
    """A table as bytes, which `_ipc_table` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _ipc_table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def table_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> TableQuestion:
    """The question of a specification, as `TableQuestion.spec` writes it."""
    return TableQuestion.from_spec(spec, unit=unit, measure=measure)
