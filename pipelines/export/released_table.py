"""One table of a release in a database or a lake: its rows, and the release that they are from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dptrees.dpcore.questions.tables import CDF, NODES
from dptrees.dpcore.release.guarantee import CHECKSUM
from dptrees.pipelines.release_folder import ReleaseFolder

# By which the rows of a release are found again.
MARK = "manifest"
_RELEASE = "release"
_QUANTILES = "quantiles"
_NO_NAME = re.compile(r"\W+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ReleasedTable:
    """A table of a release.

    Args:
        folder: of the release.
        tree: whose table it is; "" of that of all trees.
        kind: of table: `NODES`, `CDF` or the quantiles.
    """

    folder: ReleaseFolder
    tree: str
    kind: str

    @property
    def name(self) -> str:
        """What it is called elsewhere: letters, digits and underscores."""
        return _NO_NAME.sub("_", f"{self.tree}_{self.kind}" if self.tree else self.kind)

    @property
    def checksum(self) -> str:
        """Checksum of the release's manifest, which every row has."""
        return str(self.folder.manifest[CHECKSUM])

    @property
    def has_rows(self) -> bool:
        """Whether there is anything in it: of nodes alone where a tree releases any."""
        return next(self.batches(), None) is not None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return next(self.batches()).schema

    def reader(self) -> pa.RecordBatchReader:
        """Its rows, some at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows, with columns before them: the release, its manifest and its parameters."""
        before = self._before()
        if self.kind == _QUANTILES:
            table = self.folder.quantiles()
            found = iter([] if table is None else table.to_batches())
        else:
            found = self.folder.batches(self.kind, self.tree)
        for batch in found:
            own = {name: _plain(batch.column(name)) for name in batch.schema.names}
            same = {name: pa.repeat(pa.scalar(each), len(batch)) for name, each in before.items()}
            yield pa.RecordBatch.from_pydict(same | own)

    def _before(self) -> dict[str, str]:
        parameters = self.folder.manifest.get("parameters", {})
        assert isinstance(parameters, dict)
        names = {_NO_NAME.sub("_", f"parameter_{name}"): text for name, text in parameters.items()}
        return {_RELEASE: self.folder.plan.name, MARK: self.checksum} | names


def released_tables(folder: ReleaseFolder) -> list[ReleasedTable]:
    """The tables of a release that have rows. What a run of a series carries on is none.

    Args:
        folder: of the release.
    """
    results = [
        ReleasedTable(folder=folder, tree=question.name, kind=kind)
        for question in folder.plan.questions
        for kind in (NODES, CDF)
        if any(part.kind == kind for part in question.parts())
    ]
    if folder.quantiles() is not None:
        results.append(ReleasedTable(folder=folder, tree="", kind=_QUANTILES))
    return [table for table in results if table.has_rows]


def _plain(column: pa.Array) -> pa.Array:
    """A column of a type that every table has."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
