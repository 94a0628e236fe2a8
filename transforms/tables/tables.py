"""The kinds of tables that rows are read from: one module each, imported when needed.

A new kind is a module `transforms/tables/NAME.py` with what `Table` says, its name here, and its
section in `pipelines/tables/section.py`.
"""

TABLES = ("iceberg", "delta", "postgresql", "bigquery")
