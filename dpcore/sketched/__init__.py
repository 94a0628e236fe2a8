"""Kind sketch: the counts of values that nobody lists, in tables of a fixed size."""
