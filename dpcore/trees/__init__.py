"""Shapes of trees, chunks, least squares, consistency, forests, and laws of errors."""
