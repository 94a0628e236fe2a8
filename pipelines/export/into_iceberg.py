"""A table of a release as an Iceberg table, written by pyiceberg."""

from __future__ import annotations

import warnings
from typing import Any

from dptrees.pipelines.export.released_table import MARK, ReleasedTable
from dptrees.pipelines.user_error import UserError


def write_iceberg(table: ReleasedTable, into: str, catalog: str | None) -> bool:
    """Writes a table in one snapshot, unless it is there.

    Args:
        table: of a release.
        into: the namespace, which is made where there is none.
        catalog: by its name in pyiceberg's configuration; None: ``default``.

    Returns:
        whether it was not there.

    Raises:
        UserError: pyiceberg knows no such catalog.
    """
    known = _catalog(catalog or "default")
    known.create_namespace_if_not_exists(into)
    name = f"{into}.{table.name}"
    held = known.create_table_if_not_exists(name, schema=table.schema)
    rows = f"{MARK} = '{table.checksum}'"
    if held.scan(row_filter=rows, selected_fields=(MARK,), limit=1).to_arrow().num_rows:
        return False
    with held.update_schema() as update:
        update.union_by_name(table.schema)  # of parameters that came later
    # Atomic: of two exports at once the second one is refused, or replaces the same rows.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was nothing to replace
        held.overwrite(
            table.reader(), rows, snapshot_properties={f"dptrees.{MARK}": table.checksum}
        )
    return True


def _catalog(name: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    properties: dict[str, Any] = dict(Config().get_catalog_config(name) or {})
    if not properties:
        raise UserError(
            f"--catalog: pyiceberg knows no catalog {name} here: give its properties in "
            ".pyiceberg.yaml or in variables PYICEBERG_CATALOG__NAME__..."
        )
    return load_catalog(name, **properties)
