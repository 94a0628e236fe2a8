"""The run of a release: jobs, outputs, stages, metrics."""
