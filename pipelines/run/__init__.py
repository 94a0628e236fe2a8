"""The run of a release: its stages, its job on an engine, and what it leaves to operators."""
