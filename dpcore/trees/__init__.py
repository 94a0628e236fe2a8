"""Trees of noisy counts: their shapes, chunks, least squares, consistency and error laws."""
