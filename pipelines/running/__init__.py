"""Running a release: its job, its output, its stages."""
