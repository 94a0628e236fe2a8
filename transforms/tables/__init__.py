"""Tables and queries to record batches, and `read`, which spreads them over workers."""
