"""From Arrow columns to numbers: lookups, keys of a group-by, bounded values, policies."""
