"""Kind ordered: domains of values, CDFs and quantiles."""
