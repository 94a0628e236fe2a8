"""Rows of files as record batches: which files, which columns, one module a format."""
