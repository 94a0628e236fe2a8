"""Releases of a Spark DataFrame: Spark counts the rows, and this process draws the noise once."""
