"""Apache Beam: the graph of a job as Beam's transforms, and releases within a pipeline."""
