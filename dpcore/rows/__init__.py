"""From the columns of a batch to numbers: keys of a group-by, listed values, policies."""
