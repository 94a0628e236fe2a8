"""Kind table: wide tables by their one-way and two-way counts, and a model of all columns."""
