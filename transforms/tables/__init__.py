"""Rows of tables and of queries as record batches, read by many workers."""
