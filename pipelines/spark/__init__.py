"""Releases of Spark DataFrames."""
