"""Files to record batches: formats, columns, listings, one module for each format of rows."""
