"""A table of a release as a Delta table, written by deltalake."""

from __future__ import annotations

from typing import Any

from dptrees.pipelines.export.released_table import MARK, ReleasedTable


def write_delta(table: ReleasedTable, into: str, _: str | None) -> bool:
    """Writes a table in one commit, unless it is there.

    Args:
        table: of a release.
        into: the folder, local or as deltalake names it, in which every table has one.

    Returns:
        whether it was not there.
    """
    import deltalake

    place = f"{into.rstrip('/')}/{table.name}"
    if deltalake.DeltaTable.is_deltatable(place) and _holds(place, table.checksum):
        return False
    # Of two exports at once the second one fails by the predicate, or replaces the same rows.
    replacing = {"mode": "overwrite", "predicate": f"{MARK} = '{table.checksum}'"}
    write: Any = deltalake.write_deltalake  # whose types know each mode by itself
    write(
        place,
        table.reader(),
        schema_mode="merge",
        commit_properties=deltalake.CommitProperties(
            custom_metadata={f"dptrees.{MARK}": table.checksum}
        ),
        **(replacing if deltalake.DeltaTable.is_deltatable(place) else {"mode": "append"}),
    )
    return True


def _holds(place: str, checksum: str) -> bool:
    """Whether a table has rows of a manifest."""
    import deltalake
    import pyarrow.dataset as ds

    found = deltalake.DeltaTable(place).to_pyarrow_dataset()
    return bool(found.head(1, columns=[MARK], filter=ds.field(MARK) == checksum).num_rows)
