"""Kind hypercube: boxes of several columns, as a partition that grows where rows are."""
