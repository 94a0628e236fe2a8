"""Kind hierarchy: public universes of labels, and the counts of their nodes."""
