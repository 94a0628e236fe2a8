"""The versions of the ledger's tables, each a step that Alembic takes."""
