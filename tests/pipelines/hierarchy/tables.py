"""The public tables that the examples of docs/configuration name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BLOCKS = ["440010301001000", "440010301001001", "440030201011000", "440030201012000"]


def write_tables_of_the_document() -> None:
    """Write them below the working directory."""
    Path("data").mkdir()
    pq.write_table(pa.table({"GEOID": BLOCKS, "block": BLOCKS}), "data/blocks.parquet")
    routes = pa.table({"origin": ["EWR", "EWR", "JFK"], "dest": ["ORD", "MCO", "ORD"]})
    pq.write_table(routes, "data/routes.parquet")
    Path("data/paths.csv").write_text("path\nusr/bin/vi\netc\n", encoding="ascii")
    units = "unit,parent_unit\nboard,\nsales,board\nresearch,board\n"
    Path("data/units.csv").write_text(units, encoding="ascii")
